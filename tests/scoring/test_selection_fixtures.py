"""The hand-made test set of the selection is sound: structure, counts, parents, no near copies."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations

import pytest
from jsonschema import Draft202012Validator
from selection import FOLDER, KINDS, Case, faulty, good

from astra.agent.episode import parse_arguments
from astra.agent.prompt import extract_answer
from astra.records.message import CallStatus, Message, MessageRole, ToolCall
from astra.records.trajectory import StopReason, Trajectory

GOOD = good()
FAULTY = faulty()
ALL = {**GOOD, **FAULTY}
_URL = re.compile(r"https?://[^\s<>()\]\"]+")

NEAR = 0.2
"""The likeness above which a trajectory counts as a copy of another."""

each = pytest.mark.parametrize("case", ALL.values(), ids=ALL.keys())


def test_counts() -> None:
    assert len(GOOD) >= 32
    assert len(FAULTY) >= 26
    assert not GOOD.keys() & FAULTY.keys()
    assert sum(name.startswith("exchange_") for name in GOOD) == 8
    assert len({case.trajectory.id for case in ALL.values()}) == len(ALL)
    languages = Counter(case.trajectory.language for case in GOOD.values())
    assert (languages["zh"], languages["de"]) == (3, 1)


def test_every_kind_of_fault_stands_four_times_at_least() -> None:
    kinds = Counter(case.fault.kind for case in FAULTY.values() if case.fault)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 4


def test_the_readme_lists_every_one() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in ALL if f"| {name} |" not in text] == []
    whats = [case.fault.what for case in FAULTY.values() if case.fault]
    assert [what for what in whats if what not in text] == []


@each
def test_messages_and_calls_agree(case: Case) -> None:
    one = case.trajectory
    assert one.stop_reason == StopReason.ANSWERED
    assert one.messages[-1].role == MessageRole.ASSISTANT
    assert not one.messages[-1].tool_calls
    made = [
        (turn, call)
        for turn, message in enumerate(_of(one, MessageRole.ASSISTANT))
        for call in message.tool_calls
    ]
    assert made == [(call.turn, call.call) for call in one.calls]
    assert len({call.id for _, call in made}) == len(made)
    read = [(message.tool_call_id, message.content) for message in _of(one, MessageRole.TOOL)]
    assert read == [(call.call.id, call.result.content) for call in one.calls]


@each
def test_tools_and_arguments_hold_to_their_schemas(case: Case) -> None:
    tools = {tool.name: tool for tool in case.trajectory.tools}
    assert len(tools) == len(case.trajectory.tools)
    for tool in tools.values():
        Draft202012Validator.check_schema(tool.parameters)
    for call in case.trajectory.calls:
        tool = tools[call.call.name]
        parse_arguments(tool, call.call.arguments)
        if tool.output_schema and call.result.status == CallStatus.OK:
            Draft202012Validator(tool.output_schema).validate(call.result.value)


def test_arguments_that_break_a_schema_would_be_noticed() -> None:
    tools = {tool.name: tool for tool in GOOD["currency_last_friday"].trajectory.tools}
    call = ToolCall(id="call_0", name="historical_rate", arguments='{"base": "yen"}')
    with pytest.raises(ValueError, match="historical_rate"):
        parse_arguments(tools[call.name], call.arguments)


@each
def test_statuses_are_those_that_the_texts_tell(case: Case) -> None:
    for call in case.trajectory.calls:
        text, status, name = call.result.content, call.result.status, call.call.name
        assert text.startswith("error: ") == (
            status in (CallStatus.ERROR, CallStatus.TIMEOUT, CallStatus.UNREACHABLE)
        )
        assert (status == CallStatus.TIMEOUT) == (text == f"error: {name} timed out")
        assert (status == CallStatus.UNREACHABLE) == (text == f"error: {name} is unreachable")


@each
def test_answers_are_tagged_where_the_system_message_says_so(case: Case) -> None:
    messages = case.trajectory.messages
    wanted = "<answer>" in messages[0].content
    for message in _of(case.trajectory, MessageRole.ASSISTANT):
        if not message.tool_calls:
            assert (extract_answer(message.content) is not None) == wanted


@pytest.mark.parametrize("case", FAULTY.values(), ids=FAULTY.keys())
def test_a_faulty_one_is_a_copy_of_a_good_one_with_a_difference(case: Case) -> None:
    parent = GOOD[case.parent].trajectory
    assert case.trajectory.id != parent.id
    assert case.trajectory.task_id == parent.task_id
    assert case.trajectory.tools == parent.tools
    assert case.natural == GOOD[case.parent].natural
    for role in (MessageRole.SYSTEM, MessageRole.USER):
        assert _of(case.trajectory, role) == _of(parent, role)
    assert case.fault is not None
    assert case.fault.where
    assert case.fault.what
    assert _likeness(case.trajectory, parent) > NEAR


@pytest.mark.parametrize("case", FAULTY.values(), ids=FAULTY.keys())
def test_the_difference_is_of_the_kind_that_is_named(case: Case) -> None:
    """What can be told without a reader; the rest is for a judge."""
    assert case.fault is not None
    parent = GOOD[case.parent].trajectory
    before, after = _calls(parent), _calls(case.trajectory)
    match case.fault.kind:
        case "contradicted_fact" | "invented_url":
            assert before == after
            assert parent.calls == case.trajectory.calls
        case "failure_as_success":
            assert before[: len(after)] == after
            failed = [call for call in case.trajectory.calls if call.result.status != CallStatus.OK]
            assert failed
        case "needless_write":
            added = [call for call in after if call not in before]
            assert len(added) == 1
            assert [call for call in after if call not in added] == before
        case _:
            assert after != before
    assert bool(_unseen_links(case.trajectory)) == (case.fault.kind == "invented_url")


@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD.keys())
def test_a_good_one_gives_no_link_of_its_own(case: Case) -> None:
    assert _unseen_links(case.trajectory) == set()


def test_no_two_good_ones_are_near_copies() -> None:
    near = [
        (one.name, other.name)
        for one, other in combinations(GOOD.values(), 2)
        if _likeness(one.trajectory, other.trajectory) > NEAR
    ]
    assert near == []


def test_a_copy_with_another_closing_would_count_as_near() -> None:
    one = GOOD["ci_rerun_until_green"].trajectory
    closing = one.messages[-1].model_copy(update={"content": "It is green."})
    copy = Trajectory(**{**dict(one), "id": "", "messages": (*one.messages[:-1], closing)})
    assert _likeness(one, copy) > NEAR


def _of(one: Trajectory, role: MessageRole) -> list[Message]:
    return [message for message in one.messages if message.role == role]


def _calls(one: Trajectory) -> list[tuple[str, str]]:
    return [(call.call.name, call.call.arguments) for call in one.calls]


def _unseen_links(one: Trajectory) -> set[str]:
    """Links in the agent's words that neither the user nor a result gave."""
    known = "\n".join(
        message.content for message in one.messages if message.role != MessageRole.ASSISTANT
    )
    said = "\n".join(message.content for message in _of(one, MessageRole.ASSISTANT))
    return {link for link in _URL.findall(said) if link.rstrip(".,;:") not in known}


def _likeness(one: Trajectory, other: Trajectory) -> float:
    """Share of three-word runs (system messages and tools left out) that both have."""
    first, second = _runs(one), _runs(other)
    return len(first & second) / len(first | second)


def _runs(one: Trajectory) -> set[tuple[str, ...]]:
    text = " ".join(
        message.content + json.dumps([call.arguments for call in message.tool_calls])
        for message in one.messages
        if message.role != MessageRole.SYSTEM
    )
    words = re.findall(r"[^\W_]", text) if one.language == "zh" else re.findall(r"\w+", text)
    return set(zip(words, words[1:], words[2:], strict=False))
