"""The data of a rehearsal: a register of towns, questions about them, and who answers them.

Made here, so that a rehearsal needs no built data: short conversations with thoughts and one call,
and arenas of the same kind whose longest prompt fits a shrunken limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.records.environment import Arena, ArenaStep, ArenaTool, Band
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.tool import Tool
from astra.records.trajectory import SFTSample
from astra.rollout.chat import ChatCodec
from astra.rollout.template_traits import Thoughts

TOWNS: dict[Split | str, tuple[str, ...]] = {
    Split.TRAIN: ("Arden", "Brook", "Calder", "Dunmore"),
    Split.DEV: ("Elmsworth", "Fairholt"),
    "sft": ("Gorston", "Hadley", "Ilmer", "Kirkby", "Larkhill", "Milton"),
    "eval": ("Norwick", "Oakham"),
}
FACTS = ("population", "area", "altitude")
THOUGHT = "The register of towns knows it; I look it up before I answer."


def _value(town: str, fact: str) -> int:
    return 100 + sum(map(ord, town + fact)) % 900


def _tool(fact: str, towns: Sequence[str]) -> ArenaTool:
    table = {town: _value(town, fact) for town in towns}
    schema = {
        "type": "object",
        "properties": {"town": {"type": "string"}},
        "required": ["town"],
        "additionalProperties": False,
    }
    code = f"TABLE = {json.dumps(table)}\ndef get_{fact}(town):\n    return TABLE[town]\n"
    tool = Tool(name=f"get_{fact}", description=f"The {fact} of a town.", parameters=schema)
    return ArenaTool(tool=tool, code=code)


def _question(town: str) -> str:
    return f"What is the {FACTS[0]} of {town}?"


def arenas() -> Iterator[Arena]:
    """Training and development arenas: one look-up each, two tools beside the one it needs."""
    for split in (Split.TRAIN, Split.DEV):
        for town in TOWNS[split]:
            needed, *spare = (_tool(fact, TOWNS[split]) for fact in FACTS)
            answer = Answer(type=AnswerType.NUMBER, value=_value(town, FACTS[0]))
            step = ArenaStep(
                id=1, hop_level=1, question=_question(town), answer=answer,
                tool_name=needed.tool.name, arguments={"town": town},
            )  # fmt: skip
            yield Arena(
                qa_id=f"rehearsal-{town}", split=split, domain="towns", language="en",
                source="rehearsal", kind=QuestionKind.READ_ONLY, scenario=Scenario.SINGLE_HOP,
                hops=1, main_question=_question(town), final_answer=answer, tools=(needed,),
                steps=(step,), irrelevant={Band.MEDIUM: (spare[0],), Band.LOW: (spare[1],)},
                entities=(town,), composition="lookup",
            )  # fmt: skip


def samples() -> Iterator[SFTSample]:
    """Training and evaluation conversations, each with a thought, a call and an answer."""
    for split, group in (("train", "sft"), ("eval", "eval")):
        for town in TOWNS[group]:
            tools = tuple(_tool(fact, TOWNS[group]).tool for fact in FACTS)
            value = str(_value(town, FACTS[0]))
            call = ToolCall(id="call_0", name=tools[0].name, arguments=json.dumps({"town": town}))
            messages = (
                Message(role=MessageRole.SYSTEM, content=AGENT_SYSTEM_PROMPT),
                Message(role=MessageRole.USER, content=_question(town)),
                Message(role=MessageRole.ASSISTANT, reasoning=THOUGHT, tool_calls=(call,)),
                Message(role=MessageRole.TOOL, content=value, tool_call_id=call.id, name=call.name),
                Message(role=MessageRole.ASSISTANT, reasoning=THOUGHT, content=_answered(value)),
            )
            yield SFTSample(
                trajectory_id=f"rehearsal-{town}", split=split, language="en", domain="towns",
                tools=tools, messages=messages, scores={}, mean_score=1.0,
            )  # fmt: skip


def texts() -> Iterator[str]:
    """What conversations of the rehearsal are made of, for a tokenizer to learn from."""
    for sample in samples():
        for tool in sample.tools:
            yield json.dumps(tool.openai())
        yield from (f"{one.content} {one.reasoning}" for one in sample.messages)
    yield from (arena.main_question for arena in arenas())


def _answered(value: object) -> str:
    return f"<answer>{value}</answer>"


class Expert:
    """Plays arenas as a policy would write: of two conversations about one question the first
    looks up and answers, the second answers at once; a greedy one always looks up."""

    def __init__(self, codec: ChatCodec) -> None:
        self._codec = codec
        self._arenas = list(arenas())
        self._begun: dict[str, int] = {}

    def reply(self, body: dict[str, Any]) -> list[int]:
        """The ids of the turn that goes on from ``body['prompt']``, EOS included."""
        prompt: list[int] = body["prompt"]
        text = self._codec.decode(prompt)
        arena = next((one for one in self._arenas if one.main_question in text), None)
        if arena is None:  # a request that checks the server, and no conversation
            return [self._codec.eos_id]
        turns = (prompt.count(self._codec.eos_id) - 2) // 2
        said = _answered(arena.final_answer.value)
        if not turns and self._looks_up(arena, greedy=not body["temperature"]):
            step = arena.steps[0]
            call = json.dumps({"name": step.tool_name, "arguments": step.arguments})
            said = f"<tool_call>\n{call}\n</tool_call>"
        if self._codec.thoughts != Thoughts.NEVER:
            said = f"<think>\n{THOUGHT}\n</think>\n\n{said}"
        return [*self._codec.tokenizer.encode(said, add_special_tokens=False), self._codec.eos_id]

    def _looks_up(self, arena: Arena, greedy: bool) -> bool:
        if greedy:
            return True
        begun = self._begun.get(arena.qa_id, 0)
        self._begun[arena.qa_id] = begun + 1
        return begun % 2 == 0
