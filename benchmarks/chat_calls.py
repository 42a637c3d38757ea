"""Single-turn function calls that the chat model is shown: tools, what a user says, the reply.

``policies/chat-model/calls.jsonl.gz`` holds one example a line: ``tools``, ``user``, ``calls``
(none where no tool can do what is asked) and ``say``, the words of such a reply. A language model
wrote them one by one, told the kinds that were wanted and that nothing may come from a benchmark;
``problems`` is what each was checked for, and ``chat_model.py bfcl`` counts what they share with
the suite's prompts. ``near_misses.jsonl.gz`` holds, for each example with one tool and one call,
the same message beside another tool that looks as if it would do and does not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from staged import ROOT

from astra.records.base import content_id
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool
from astra.text.schemas import validator
from astra.text.verbs import words_of

CALLS_FILE, NEAR_FILE = (
    ROOT / f"policies/chat-model/{name}.jsonl.gz" for name in ("calls", "near_misses")
)
BOTH = (CALLS_FILE, NEAR_FILE)
FILES = {
    "sft_calls": (CALLS_FILE,), "sft_misses": BOTH, "sft_stumbles": BOTH, "sft": BOTH,
    "sft_few": BOTH,
}  # fmt: skip
"""What the parts of SFT that show function calls read."""
AGAIN = 6
"""One in so many examples is shown by the parts that show them once more, not to forget them."""
NOTHING_FITS = "None of the functions can do this."
FOREIGN = 3
"""So many tools of other examples at most are offered beside an example's own."""
REPEATED = 3
"""One in so many examples is shown again among foreign tools, and one in so many with foreign tools
alone, where the right reply is to call none."""


class CallExample(BaseModel):
    """A user's one message, the tools on offer, and the right reply: calls, else words."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tools: tuple[Tool, ...]
    user: str
    calls: tuple[dict[str, Any], ...]
    say: str

    @property
    def id(self) -> str:
        return content_id([self.user, *(one.name for one in self.tools)])

    def conversation(self) -> tuple[Message, Message]:
        calls = tuple(
            ToolCall(
                id=f"call_{at}",
                name=one["name"],
                arguments=json.dumps(one["arguments"], ensure_ascii=False),
            )
            for at, one in enumerate(self.calls)
        )
        return (
            Message(role=MessageRole.USER, content=self.user),
            Message(role=MessageRole.ASSISTANT, content=self.say, tool_calls=calls),
        )


def calls_of(part: str) -> list[CallExample]:
    """The function calls that a part of SFT shows: with foreign tools at first, then as they
    stand, near misses beside them, and some of those once more."""
    if part == "sft_calls":
        return shown_calls(read_examples())
    found = [one for file in FILES.get(part, ()) for one in read_examples(file)]
    return found if part == "sft_misses" else found[::AGAIN]


def read_examples(path: Path = CALLS_FILE) -> list[CallExample]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [CallExample.model_validate_json(line) for line in file]


def problems(example: CallExample) -> list[str]:
    """Why an example must not be shown: calls of what is not offered, or with wrong arguments;
    neither calls nor words, or both."""
    schemas = {one.name: one.parameters for one in example.tools}
    found: list[str] = []
    if len(schemas) < len(example.tools):
        found.append("two tools have one name")
    if bool(example.calls) == bool(example.say):
        found.append("calls and words are both there, or neither is")
    for call in example.calls:
        schema = schemas.get(call["name"])
        if schema is None:
            found.append(f"{call['name']} is not offered")
            continue
        closed = validator({**schema, "additionalProperties": False})
        found += [one.message for one in closed.iter_errors(call["arguments"])]
    return found


def shown_calls(examples: Sequence[CallExample]) -> list[CallExample]:
    """What SFT is shown, in an order drawn by hash: each example as it stands, and some of those
    that call again, among tools of other examples or with these alone."""
    found = list(examples)
    calling = [one for one in examples if one.calls]
    for at, one in enumerate(sorted(calling, key=lambda one: content_id(["again", one.id]))):
        foreign = [*islice(_foreign(one, examples), FOREIGN)]
        drawn = int(content_id(["foreign", one.id])[:8], 16)
        if at % REPEATED == 0:
            tools = [*one.tools, *foreign[: 1 + drawn % FOREIGN]]
            tools.sort(key=lambda tool: content_id([one.id, tool.name]))
            found.append(one.model_copy(update={"tools": tuple(tools)}))
        elif at % REPEATED == 1:
            tools = foreign[: 1 + drawn % 2]
            update = {"tools": tuple(tools), "calls": (), "say": NOTHING_FITS}
            found.append(one.model_copy(update=update))
    return sorted(found, key=lambda one: content_id(["shown", one.id, *one.say]))


def _foreign(example: CallExample, examples: Sequence[CallExample]) -> Iterator[Tool]:
    """Tools of other examples whose names share no word with the names of the example's own."""
    words = {word for tool in example.tools for word in _words(tool.name)}
    start = int(content_id(["start", example.id])[:8], 16) % len(examples)
    for other in (*examples[start:], *examples[:start]):
        tool = other.tools[0]
        if other is not example and not words & _words(tool.name):
            words |= _words(tool.name)
            yield tool


def _words(name: str) -> set[str]:
    return {*words_of(name)} - {"get", "find"}
