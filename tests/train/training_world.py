"""A small made-up world for training tests: tables, tools over them, questions, an expert.

Arenas and fine-tuning samples come from different name pools; the relations are everyday ones.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.records.environment import Arena, ArenaStep, ArenaTool, Band
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.tool import Tool
from astra.records.trajectory import SFTSample
from astra.text.names import Pool, draw_names

# entity word, numeric relations, relation to a person
DOMAINS = (
    ("listing", ("asking_price", "floor_area", "monthly_rent"), "agent"),
    ("company", ("total_income", "founding_year", "market_value"), "founder"),
    ("hotel", ("room_count", "nightly_rate", "guest_capacity"), "manager"),
    ("museum", ("ticket_price", "visitor_count", "opening_year"), "director"),
    ("club", ("member_count", "annual_fee", "stadium_capacity"), "coach"),
    ("farm", ("land_area", "yearly_harvest", "animal_count"), "owner"),
)
PERSON_RELATIONS = ("birth_year", "monthly_salary")
POOLS = {Split.TRAIN: Pool.TRAIN, Split.DEV: Pool.DEV, Split.HELDOUT: Pool.HELDOUT}


@dataclass(frozen=True)
class Step:
    question: str
    tool: ArenaTool
    argument: str
    answer: object
    depends: tuple[int, ...] = ()


def tool(name: str, parameter: str, table: dict[str, object]) -> ArenaTool:
    """A look-up tool with its data as literals."""
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
        "additionalProperties": False,
    }
    code = (
        f"DATA = {json.dumps(table, sort_keys=True)}\n"
        f"def {name}({parameter}):\n"
        f"    if {parameter} not in DATA:\n"
        f"        raise ValueError(f'no {parameter} named {{{parameter}}}')\n"
        f"    return DATA[{parameter}]\n"
    )
    words = name.replace("_", " ")
    return ArenaTool(
        tool=Tool(name=name, description=f"{words} of a {parameter}", parameters=schema), code=code
    )


class World:
    """One domain's tables with names of one pool."""

    def __init__(self, pool: Pool, rng: random.Random) -> None:
        self.rng = rng
        self.entity, self.numbers, self.role = rng.choice(DOMAINS)
        self.things = draw_names("thing", pool, 6, rng)
        people = draw_names("person", pool, 6, rng)
        self.tools = {
            relation: tool(
                f"get_{relation}", self.entity, {t: rng.randrange(20, 990) for t in self.things}
            )
            for relation in self.numbers
        }
        self.people = dict(zip(self.things, people, strict=True))
        self.tools[self.role] = tool(f"find_{self.role}", self.entity, dict(self.people))
        for relation in PERSON_RELATIONS:
            self.tools[relation] = tool(
                f"get_{relation}", "person", {p: rng.randrange(20, 990) for p in people}
            )

    def lookup(self, relation: str, name: str) -> object:
        scope: dict[str, object] = {}
        exec(self.tools[relation].code, scope)
        return scope[self.tools[relation].tool.name](name)  # type: ignore[operator]

    def question(self) -> tuple[str, list[Step], object, Scenario]:
        shape = self.rng.choice(("single", "person", "parallel", "hop", "hop"))
        thing, other = self.rng.sample(self.things, 2)
        relation = self.rng.choice(self.numbers)
        words = relation.replace("_", " ")
        own = self.tools[relation]
        if shape == "single":
            value = self.lookup(relation, thing)
            text = self.rng.choice(
                (f"What is the {words} of {thing}?", f"Tell me the {words} of {thing}.")
            )
            return text, [Step(text, own, thing, value)], value, Scenario.SINGLE_HOP
        if shape == "person":
            value = self.people[thing]
            text = f"Who is the {self.role} of {thing}?"
            return (
                text,
                [Step(text, self.tools[self.role], thing, value)],
                value,
                Scenario.SINGLE_HOP,
            )
        if shape == "parallel":
            values = [self.lookup(relation, name) for name in (thing, other)]
            text = f"What is the {words} of {thing} and of {other}?"
            steps = [Step(text, own, n, v) for n, v in zip((thing, other), values, strict=True)]
            return text, steps, values, Scenario.PARALLEL_SINGLE_HOP
        second = self.rng.choice(PERSON_RELATIONS)
        person = self.people[thing]
        value = self.lookup(second, person)
        text = f"What is the {second.replace('_', ' ')} of the {self.role} of {thing}?"
        steps = [
            Step(f"Who is the {self.role} of {thing}?", self.tools[self.role], thing, person),
            Step(text, self.tools[second], person, value, (1,)),
        ]
        return text, steps, value, Scenario.MULTI_HOP


def typed(value: object) -> Answer:
    if isinstance(value, list):
        return Answer(type=AnswerType.LIST, value=value)
    if isinstance(value, int):
        return Answer(type=AnswerType.NUMBER, value=value)
    return Answer(type=AnswerType.STRING, value=value)


def make_arena(seed: int, split: Split = Split.TRAIN) -> Arena:
    rng = random.Random(f"arena:{split}:{seed}")
    world = World(POOLS[split], rng)
    text, steps, final, scenario = world.question()
    used = {step.tool.tool.name: step.tool for step in steps}
    spare = [t for t in world.tools.values() if t.tool.name not in used]
    return Arena(
        qa_id=f"{split}-{seed}", split=split, domain=world.entity, language="en", source="test",
        kind=QuestionKind.READ_ONLY, scenario=scenario, hops=1 + (scenario == Scenario.MULTI_HOP),
        main_question=text, final_answer=typed(final), tools=tuple(used.values()),
        steps=tuple(
            ArenaStep(
                id=i, hop_level=1 + len(step.depends), question=step.question,
                answer=typed(step.answer),
                dependencies=step.depends, tool_name=step.tool.tool.name,
                arguments={next(iter(step.tool.tool.parameters["properties"])): step.argument},
            )
            for i, step in enumerate(steps, 1)
        ),
        irrelevant={Band.MEDIUM: tuple(spare[:2]), Band.LOW: tuple(spare[2:4])},
        entities=tuple(world.things), composition=scenario.value,
    )  # fmt: skip


def expert_messages(
    question: str, steps: list[Step], final: object, rng: random.Random, slack: float
) -> tuple[Message, ...]:
    """The scripted expert; with probability ``slack`` it makes one call twice."""
    messages = [
        Message(role=MessageRole.SYSTEM, content=AGENT_SYSTEM_PROMPT),
        Message(role=MessageRole.USER, content=question),
    ]
    plan = [*steps]
    if rng.random() < slack:
        plan.append(plan[-1])
    turns = [[s for s in plan if not s.depends], [s for s in plan if s.depends]]
    count = 0
    for turn in filter(None, turns):
        calls: list[ToolCall] = []
        for step in turn:
            parameter = next(iter(step.tool.tool.parameters["properties"]))
            arguments = json.dumps({parameter: step.argument})
            calls.append(
                ToolCall(id=f"call_{count}", name=step.tool.tool.name, arguments=arguments)
            )
            count += 1
        messages.append(Message(role=MessageRole.ASSISTANT, tool_calls=tuple(calls)))
        messages += [
            Message(
                role=MessageRole.TOOL,
                content=str(step.answer),
                tool_call_id=call.id,
                name=call.name,
            )
            for step, call in zip(turn, calls, strict=True)
        ]
    text = "; ".join(map(str, final)) if isinstance(final, list) else str(final)
    messages.append(Message(role=MessageRole.ASSISTANT, content=f"<answer>{text}</answer>"))
    return tuple(messages)


def make_sample(seed: int, split: str = "train", slack: float = 0.0) -> SFTSample:
    rng = random.Random(f"sample:{seed}")
    world = World(Pool.SERVERS, rng)
    question, steps, final, _ = world.question()
    offered = [t.tool for t in world.tools.values()]
    rng.shuffle(offered)
    return SFTSample(
        trajectory_id=f"t{seed}", split=split, language="en", domain=world.entity,
        tools=tuple(offered), messages=expert_messages(question, steps, final, rng, slack),
        scores={}, mean_score=1.0,
    )  # fmt: skip
