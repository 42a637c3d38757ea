from __future__ import annotations

import json

import pytest

from astra.agent.episode import Episode, parse_arguments
from astra.agent.prompt import extract_answer
from astra.records.message import CallStatus, Message, MessageRole, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.records.trajectory import StopReason
from astra.text.strict_json import MAX_DEPTH
from configs import episode_limits

ADD = Tool(
    name="add",
    description="Add.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
START = (Message(role=MessageRole.USER, content="add"),)


def call(n: int, arguments: str = '{"a": 1, "b": 2}', name: str = "add") -> ToolCall:
    return ToolCall(id=f"call_{n}", name=name, arguments=arguments)


def turn(*calls: ToolCall, text: str = "") -> Message:
    return Message(role=MessageRole.ASSISTANT, content=text, tool_calls=calls)


def ok(text: str) -> ToolResult:
    return ToolResult(status=CallStatus.OK, content=text)


def test_every_call_gets_one_tool_message_in_order_whatever_is_wrong_with_it() -> None:
    episode = Episode(START, [ADD], episode_limits(max_parallel_calls=4))
    wanted = episode.offer(turn(call(0, "{"), call(1), call(2, name="sub"), call(3), call(4)))
    assert [one.id for one in wanted] == ["call_1", "call_3"]
    added = episode.observe([ok("3"), ok("4")])
    assert [one.tool_call_id for one in added] == [f"call_{n}" for n in range(5)]
    assert [one.result.status for one in episode.calls] == [
        CallStatus.MALFORMED,
        CallStatus.OK,
        CallStatus.UNKNOWN_TOOL,
        CallStatus.OK,
        CallStatus.REFUSED,
    ]
    assert episode.turn == 1


def test_a_turn_of_refused_calls_only_closes_at_once() -> None:
    episode = Episode(START, [ADD], episode_limits())
    assert episode.offer(turn(call(0, "[]"))) == ()
    assert episode.turn == 1
    with pytest.raises(ValueError, match="results for"):
        episode.observe(())


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_results_is_refused_and_changes_nothing(count: int) -> None:
    episode = Episode(START, [ADD], episode_limits())
    episode.offer(turn(call(0), call(1)))
    with pytest.raises(ValueError, match="results for 2 calls"):
        episode.observe([ok("x")] * count)
    assert episode.calls == []
    episode.observe([ok("1"), ok("2")])
    assert len(episode.calls) == 2


def test_a_turn_cannot_start_before_the_last_was_observed() -> None:
    episode = Episode(START, [ADD], episode_limits())
    episode.offer(turn(call(0)))
    with pytest.raises(ValueError, match="not been observed"):
        episode.offer(turn(text="done"))


def test_limits_and_answers_end_the_episode() -> None:
    episode = Episode(START, [ADD], episode_limits(max_turns=1))
    episode.offer(turn(call(0)))
    episode.observe([ok("3")])
    assert episode.stop_reason == StopReason.MAX_TURNS
    episode = Episode(START, [ADD], episode_limits(max_calls=2))
    assert len(episode.offer(turn(call(0), call(1), call(2)))) == 2
    episode.observe([ok("3"), ok("3")])
    assert episode.stop_reason == StopReason.MAX_CALLS
    episode = Episode(START, [ADD], episode_limits())
    assert episode.offer(turn(text="done")) == ()
    assert episode.stop_reason == StopReason.ANSWERED
    with pytest.raises(ValueError, match="already ended"):
        episode.offer(turn(text="more"))


def test_a_long_result_is_cut_for_the_model_and_kept_for_the_record() -> None:
    episode = Episode(START, [ADD], episode_limits(max_result_chars=5))
    episode.offer(turn(call(0)))
    (message,) = episode.observe([ok("1234567")])
    assert message.content == "12345\n[cut: 2 more characters]"
    assert episode.calls[0].result.content == "1234567"


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "null",
        '"{}"',
        '{"a": 1}',
        '{"a": 1, "b": "2"}',
        '{"a": 1, "b": 2, "c": 3}',
        '{"a": 1, "a": 2, "b": 3}',
        '{"a": 1, "b": NaN}',
        '{"a": 1, "b": 1e999}',
        '{"a": 1, "b": ' + "9" * 5000 + "}",
        "[" * 100_000,
    ],
)
def test_unusable_arguments_are_refused(arguments: str) -> None:
    with pytest.raises(ValueError, match="arguments of add"):
        parse_arguments(ADD, arguments)


def test_a_lone_surrogate_is_refused() -> None:
    free = ADD.model_copy(update={"parameters": {"type": "object"}})
    assert parse_arguments(free, json.dumps({"a": "é"})) == {"a": "é"}
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_arguments(free, '{"a": "\\ud800"}')


SUB = ADD.model_copy(update={"name": "sub"})
MORE = Message(role=MessageRole.USER, content="and then?")


def test_a_user_takes_an_episode_on_and_brings_tools() -> None:
    episode = Episode(START, [ADD], episode_limits())
    episode.offer(turn(text="what?"))
    assert episode.stop_reason == StopReason.ANSWERED
    episode.converse(MORE, [ADD, SUB])
    assert episode.stop_reason is None
    assert episode.messages[-1] == MORE
    assert [one.name for one in episode.offer(turn(call(0, name="sub")))] == ["sub"]
    episode.observe([ok("-1")])
    assert episode.calls[0].turn == 1, "a turn without calls is one"


def test_turns_that_a_user_answers_count_and_the_user_is_asked_first() -> None:
    episode = Episode(START, [ADD], episode_limits(max_turns=2))
    episode.offer(turn(text="what?"))
    episode.converse(MORE, [ADD])
    episode.offer(turn(text="well"))
    assert episode.stop_reason == StopReason.ANSWERED, "a user who is content ends the last turn"
    episode.converse(MORE, [ADD])
    assert episode.stop_reason == StopReason.MAX_TURNS
    with pytest.raises(ValueError, match="a user answers only"):
        episode.converse(MORE, [ADD])


def test_a_user_does_not_answer_a_turn_with_calls() -> None:
    episode = Episode(START, [ADD], episode_limits())
    episode.offer(turn(call(0)))
    with pytest.raises(ValueError, match="a user answers only"):
        episode.converse(MORE, [ADD])


def nested(levels: int) -> str:
    return '{"a": ' * levels + "1" + "}" * levels


def test_arguments_are_nested_no_deeper_than_protocols_carry() -> None:
    free = ADD.model_copy(update={"parameters": {"type": "object"}})
    assert parse_arguments(free, nested(MAX_DEPTH))
    for levels in (MAX_DEPTH + 1, 300):
        with pytest.raises(ValueError, match="nested more than"):
            parse_arguments(free, nested(levels))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It is <answer>42</answer>.", "42"),
        ("I give it in <answer> tags. <answer>42</answer>", "42"),
        ("<answer>41</answer>, no: <answer> 42\n</answer></answer>", "42"),
        ("<answer>42</answer> stands in <answer>", "42"),
        ("<answer>42", None),
    ],
)
def test_the_answer_stands_in_the_last_pair_of_tags(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer
