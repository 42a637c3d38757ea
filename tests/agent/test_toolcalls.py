from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra.agent.toolcalls import CLOSE, OPEN, parse_assistant, render_call

GOOD = render_call("add", '{"a": 1}')


def test_content_and_calls_are_split() -> None:
    message = parse_assistant(f"I add.\n{GOOD}\n{GOOD}", first_id=3)
    assert message.content == "I add."
    assert [(call.id, call.name) for call in message.tool_calls] == [
        ("call_3", "add"),
        ("call_4", "add"),
    ]


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())))
def test_rendered_calls_are_read_back(arguments: dict[str, object]) -> None:
    text = json.dumps(arguments, ensure_ascii=False)
    (call,) = parse_assistant(render_call("do", text)).tool_calls
    assert call.name == "do"
    assert json.loads(call.arguments) == arguments


def test_tags_inside_strings_do_not_end_the_block() -> None:
    text = render_call("say", json.dumps({"text": f"{CLOSE} and {OPEN}"}))
    message = parse_assistant(f"{text}\n{GOOD}")
    assert [call.name for call in message.tool_calls] == ["say", "add"]
    assert message.content == ""


def test_a_block_without_its_end_does_not_swallow_the_next() -> None:
    message = parse_assistant(f'{OPEN}\n{{"name": "add", "argum\n{GOOD}')
    assert [call.name for call in message.tool_calls] == ["add", "add"]
    assert json.loads(message.tool_calls[1].arguments) == {"a": 1}


def test_the_last_block_may_miss_its_end() -> None:
    (call,) = parse_assistant(f'{OPEN}{{"name": "add", "arguments": {{"a": 1}}}}').tool_calls
    assert json.loads(call.arguments) == {"a": 1}


def test_arguments_encoded_twice_are_unwrapped() -> None:
    body = json.dumps({"name": "add", "arguments": json.dumps({"a": 1})})
    (call,) = parse_assistant(f"{OPEN}{body}{CLOSE}").tool_calls
    assert call.arguments == '{"a": 1}'


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"name": 3}',
        '{"name": "\\ud800", "arguments": {}}',
        '{"name": "a", "arguments": {"x": "\\ud800"}}',
        '{"name": "a", "arguments": {"x": NaN}}',
        '{"name": "a", "arguments": {"x": 1, "x": 2}}',
        "[" * 50_000,
    ],
)
def test_broken_blocks_become_calls_that_can_be_answered(body: str) -> None:
    message = parse_assistant(f"{OPEN}{body}{CLOSE}{GOOD}")
    assert len(message.tool_calls) == 2
    assert message.tool_calls[1].name == "add"
    message.model_dump_json()


def test_repeated_keys_are_not_hidden() -> None:
    from astra.agent.episode import parse_arguments
    from astra.records.tool import Tool

    tool = Tool(name="a", description="", parameters={"type": "object"})
    text = f'{OPEN}{{"name": "a", "arguments": {{"x": 1, "x": 2}}}}{CLOSE}'
    (call,) = parse_assistant(text).tool_calls
    with pytest.raises(ValueError, match="twice"):
        parse_arguments(tool, call.arguments)
