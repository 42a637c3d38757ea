"""The single-turn function calls that the chat model is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from astra.records.message import MessageRole

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import chat_calls


def example(number: int, fits: bool = True, **changes: Any) -> chat_calls.CallExample:
    name = f"measure{chr(97 + number)}"
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    made = {
        "tools": [{"name": name, "description": "Measures.", "parameters": schema}],
        "user": f"Measure {number}.",
        "calls": [{"name": name, "arguments": {"x": number}}] if fits else [],
        "say": "" if fits else "None fits.",
    }
    return chat_calls.CallExample.model_validate(made | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"calls": [{"name": "weigh", "arguments": {"x": 1}}]}, "weigh is not offered"),
        ({"calls": [{"name": "measureb", "arguments": {}}]}, "'x' is a required property"),
        ({"calls": [{"name": "measureb", "arguments": {"x": "1"}}]}, "is not of type 'integer'"),
        ({"calls": [{"name": "measureb", "arguments": {"x": 1, "y": 2}}]}, "'y' was unexpected"),
        ({"say": "Done."}, "calls and words are both there"),
        ({"calls": []}, "or neither is"),
    ],
)  # fmt: skip
def test_an_example_with_a_fault_says_which(changes: dict[str, Any], said: str) -> None:
    assert said in " ".join(chat_calls.problems(example(1, **changes)))
    assert not chat_calls.problems(example(1))
    assert not chat_calls.problems(example(1, fits=False))


def test_no_example_that_is_kept_has_a_fault() -> None:
    examples = chat_calls.read_examples()
    near = chat_calls.read_examples(chat_calls.NEAR_FILE)
    assert [one.id for one in (*examples, *near) if chat_calls.problems(one)] == []
    assert len({one.id for one in (*examples, *near)}) == len(examples) + len(near) > 1500
    assert 0.15 < sum(not one.calls for one in examples) / len(examples) < 0.35
    offered = {one.user: one.tools[0].name for one in examples if len(one.tools) == 1}
    assert all(not one.calls for one in near)
    assert all(offered[one.user] not in {tool.name for tool in one.tools} for one in near)


def test_a_later_part_of_sft_shows_near_misses_too() -> None:
    assert not chat_calls.calls_of("sft_arenas")
    assert len(chat_calls.calls_of("sft_calls")) > len(chat_calls.read_examples())
    near = {one.id for one in chat_calls.read_examples(chat_calls.NEAR_FILE)}
    every = [one.id for one in chat_calls.calls_of("sft_misses")]
    assert near < set(every)
    for part in ("sft_stumbles", "sft", "sft_few"):
        assert [one.id for one in chat_calls.calls_of(part)] == every[:: chat_calls.AGAIN]


def test_a_conversation_has_no_system_prompt_and_the_calls_as_json() -> None:
    asked, answered = example(2).conversation()
    assert (asked.role, asked.content) == (MessageRole.USER, "Measure 2.")
    assert [json.loads(one.arguments) for one in answered.tool_calls] == [{"x": 2}]
    assert answered.content == ""


def test_some_are_shown_again_among_foreign_tools_and_some_with_these_alone() -> None:
    examples = [example(number) for number in range(9)] + [example(9, fits=False)]
    shown = chat_calls.shown_calls(examples)
    own = {one.user: one.tools[0].name for one in examples}
    among = [one for one in shown if len(one.tools) > 1 and one.calls]
    alone = [one for one in shown if one.say == chat_calls.NOTHING_FITS]
    assert (len(shown), len(among), len(alone)) == (16, 3, 3)
    assert all(own[one.user] in {tool.name for tool in one.tools} for one in among)
    assert not any(own[one.user] in {tool.name for tool in one.tools} for one in alone)
    assert not any(chat_calls.problems(one) for one in shown)
    assert shown == chat_calls.shown_calls(examples)


def test_a_foreign_tool_shares_no_word_of_its_name() -> None:
    tools = example(0).tools
    twins = [
        example(at, tools=[tools[0].model_copy(update={"name": name})], calls=[], say="No.")
        for at, name in enumerate(("areaOfCircle", "circle_area", "get_weather"))
    ]
    assert [one.name for one in chat_calls._foreign(twins[0], twins)] == ["get_weather"]
