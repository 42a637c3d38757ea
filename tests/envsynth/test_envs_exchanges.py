"""The recorded exchanges of the environment track, read by today's parsers, rules and filters."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from env_samples import answer

from astra.envsynth.asks import (
    CallReply,
    ClusterReply,
    CodeReply,
    DocumentReply,
    MergeReply,
)
from astra.envsynth.faults import ToolPart, fault_of
from astra.envsynth.grouping import Member, can_merge, classes_of, doubtful
from astra.envsynth.static import call_problem, code_problem
from astra.llm.structured import parse_reply
from astra.records.environment import Environment
from astra.records.qa import SubQuestion
from astra.records.tool import Tool
from astra.sandbox.limits import SandboxLimits

FILE = Path(__file__).parents[1] / "fixtures/exchanges/environment_track.jsonl.gz"
KINDS = {
    "You design the interface": ("document", DocumentReply),
    "You review the interface": ("complexity", DocumentReply),
    "You call one tool": ("call", CallReply),
    "You implement one tool in Python, with its data": ("code", CodeReply),
    "You implement one tool in Python that works on shared": ("code_stateful", CodeReply),
    "You look for duplicate tools": ("cluster", ClusterReply),
    "You merge tools": ("merge_code", MergeReply),
}
"""How each prompt of the two stages began."""
MEMBER = re.compile(r"- id (\d+): (.+)\n  tool: (.+)\n  call: (.+)\n")
VALUES = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}


@pytest.fixture(scope="module")
def exchanges() -> dict[str, list[tuple[str, Any]]]:
    """Prompt and parsed reply of each ask, by kind."""
    found: dict[str, list[tuple[str, Any]]] = {}
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        for one in map(json.loads, lines):
            prompt = one["ask"]["messages"][0]["content"]
            for start, (kind, response) in KINDS.items():
                if prompt.startswith(start):
                    reply = parse_reply(one["answer"]["content"], response)
                    found.setdefault(kind, []).append((prompt, reply))
    return found


def tool_of(prompt: str) -> Tool:
    """The document that a prompt shows."""
    shown = re.search(r"# Tool\n(.+)\n", prompt)
    assert shown is not None
    return Tool(**json.loads(shown[1]))


def members_of(prompt: str) -> list[Member]:
    """The tools that a prompt for groups lists, each with a result of its type."""
    members: list[Member] = []
    for number, question, document, arguments in MEMBER.findall(prompt):
        tool = Tool(**json.loads(document))
        assert tool.output_schema is not None
        kind = tool.output_schema["type"]
        gold = answer("string" if kind == "string" else "number", VALUES[kind])
        step = SubQuestion(id=int(number), hop_level=1, question=question, answer=gold)
        made = Environment(
            qa_id="q", sub_question_id=int(number), tool=tool, code="",
            arguments=json.loads(arguments), answer=gold, checks={},
        )  # fmt: skip
        members.append((step, made))
    return members


def test_every_reply_is_read(exchanges: dict[str, list[tuple[str, Any]]]) -> None:
    assert {kind: len(found) for kind, found in exchanges.items()} == {
        "document": 49, "complexity": 51, "call": 63, "code": 44, "code_stateful": 17,
        "cluster": 15, "merge_code": 6,
    }  # fmt: skip


def test_calls_fit_their_documents(exchanges: dict[str, list[tuple[str, Any]]]) -> None:
    for prompt, reply in exchanges["call"]:
        assert call_problem(tool_of(prompt), reply.arguments) is None


def test_codes_fit_their_documents_but_for_the_one_that_reaches_out(
    exchanges: dict[str, list[tuple[str, Any]]],
) -> None:
    allowed = SandboxLimits().allowed_imports
    problems = [
        problem
        for kind in ("code", "code_stateful")
        for prompt, reply in exchanges[kind]
        if (problem := code_problem(tool_of(prompt), reply.code, allowed, kind != "code"))
    ]
    assert problems == [("forbidden_import", "imports requests")]


def test_most_calls_were_asked_again_for_a_fault_of_the_code(
    exchanges: dict[str, list[tuple[str, Any]]],
) -> None:
    told = [re.search(r"was rejected\n(\w+): (.+)", prompt) for prompt, _ in exchanges["call"]]
    parts = Counter(fault_of((found[1], found[2])).part for found in told if found)
    assert parts == {ToolPart.CODE: 12, ToolPart.CALL: 2}


def test_few_groupings_are_still_a_question(exchanges: dict[str, list[tuple[str, Any]]]) -> None:
    """By the tools alone; where operations are stated nearly all others go, too."""
    asked = [doubtful(classes_of(members_of(prompt))) for prompt, _ in exchanges["cluster"]]
    assert sum(map(bool, asked)) == 8
    assert sum(map(len, asked)) == 24


def test_groups_that_a_model_saw_pass_the_filter_and_its_mistake_does_not(
    exchanges: dict[str, list[tuple[str, Any]]],
) -> None:
    apart: list[list[str]] = []
    for prompt, reply in exchanges["cluster"]:
        members = {step.id: (step, made) for step, made in members_of(prompt)}
        for ids in reply.groups:
            group = [members[number] for number in ids]
            if not all(can_merge(group[0], other) for other in group[1:]):
                apart.append([made.tool.name for _, made in group])
    assert apart == [["get_airport_city", "get_city_population"]]
