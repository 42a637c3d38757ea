"""A fault is of one part of a tool: what is asked for again, and what the teacher is then told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from env_runs import everything
from env_samples import ENVS, instance, price
from merge_samples import Asked

from astra.envsynth import asks
from astra.envsynth.faults import ToolPart, fault_of
from astra.envsynth.offline.handlers import HANDLERS
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ProviderError
from astra.records.environment import Environment
from astra.records.score import Rejection
from astra.sandbox.protocol import Sandbox, SandboxResult, SandboxStatus

NO_CODE = "def get_asking_price(listing):\n    return 812\n"


@pytest.fixture(scope="module")
def sandbox(patient_sandbox: Sandbox) -> Sandbox:
    return patient_sandbox


class Spoiled:
    """The offline teacher; ``replies`` change its n-th reply to a template, or refuse it."""

    name = "spoiled"

    def __init__(self, **replies: list[Any]) -> None:
        self._inner = OfflineTeacher(ENVS.teacher, HANDLERS)
        self._replies = replies

    async def ask(self, ask: Ask[Any]) -> Any:
        waiting = self._replies.get(ask.template.partition("/")[2])
        reply = waiting.pop(0) if waiting else None
        if isinstance(reply, Exception):
            raise reply
        return reply or await self._inner.ask(ask)


def tried(sandbox: Sandbox, **replies: list[Any]) -> tuple[Asked, list[Any]]:
    """What was asked, and what came of it: at most three tries for each of two documents."""
    teacher = Asked(Spoiled(**replies))
    one = instance(price(1, "Amber Cove", 812))
    return teacher, everything([one], teacher, sandbox, inner_attempts=3, outer_attempts=2)


def reasons(outcomes: list[Any]) -> list[str]:
    return [one.reason for one in outcomes if isinstance(one, Rejection)]


def test_a_fault_of_the_call_asks_for_the_call_and_shows_it(sandbox: Sandbox) -> None:
    wrong = asks.CallReply(arguments={"listing": "Opal Mist"})
    teacher, outcomes = tried(sandbox, call=[wrong])
    assert teacher.templates == ["document", "call", "call", "code"]
    assert reasons(outcomes) == ["other_value"]
    again = teacher.asks[2].variables
    assert again["rejected"] == {"listing": "Opal Mist"}
    assert again["feedback"].startswith("other_value: ")


def test_a_fault_of_the_code_asks_for_the_code_and_shows_it(sandbox: Sandbox) -> None:
    teacher, outcomes = tried(sandbox, code=[asks.CodeReply(code=NO_CODE)])
    assert teacher.templates == ["document", "call", "code", "code"]
    assert reasons(outcomes) == ["constant"]
    assert teacher.asks[3].variables["rejected"] == NO_CODE


def test_a_new_document_knows_nothing_of_the_old_ones_call_and_code(sandbox: Sandbox) -> None:
    bad = [asks.CodeReply(code=NO_CODE) for _ in range(3)]
    teacher, outcomes = tried(sandbox, code=bad)
    assert teacher.templates == [
        "document", "call", "code", "code", "code", "document", "call", "code",
    ]  # fmt: skip
    assert isinstance(outcomes[-1], Environment)
    assert teacher.asks[5].variables["feedback"].startswith("constant: ")
    for ask in teacher.asks[6:]:
        assert (ask.variables["feedback"], ask.variables["rejected"]) == ("", None)


def test_a_call_that_nobody_can_make_rejects_the_document(sandbox: Sandbox) -> None:
    teacher, outcomes = tried(sandbox, call=[asks.CallReply(unreachable="term: not stated")])
    assert teacher.templates == ["document", "call", "document", "call", "code"]
    assert reasons(outcomes) == ["unreachable"]
    assert outcomes[0].detail == "term: not stated"
    assert teacher.asks[2].variables["feedback"] == "unreachable: term: not stated"


def test_code_that_nobody_can_write_rejects_the_document(sandbox: Sandbox) -> None:
    teacher, outcomes = tried(sandbox, code=[asks.CodeReply(impossible="no column term")])
    assert teacher.templates == ["document", "call", "code", "document", "call", "code"]
    assert reasons(outcomes) == ["impossible"]
    assert isinstance(outcomes[-1], Environment)


def test_code_that_the_call_makes_impossible_asks_for_the_call_again(sandbox: Sandbox) -> None:
    blamed = asks.CodeReply(impossible="listing: no such cell", call_at_fault=True)
    teacher, outcomes = tried(sandbox, code=[blamed])
    assert teacher.templates == ["document", "call", "code", "call", "code"]
    assert reasons(outcomes) == ["impossible"]
    again = teacher.asks[3].variables
    assert again["feedback"] == "impossible: listing: no such cell"
    assert again["rejected"] == {"listing": "Amber Cove"}
    assert (teacher.asks[4].variables["feedback"], teacher.asks[4].variables["rejected"]) == (
        "", None,
    )  # fmt: skip
    assert isinstance(outcomes[-1], Environment)


def test_a_teacher_that_always_gives_up_is_a_drop(sandbox: Sandbox) -> None:
    _, outcomes = tried(sandbox, code=[asks.CodeReply(impossible="no")] * 9)
    assert reasons(outcomes) == ["impossible", "impossible"]
    assert outcomes[-1].final


@pytest.mark.parametrize(
    "make",
    [
        lambda: asks.CallReply(),
        lambda: asks.CallReply(arguments={"a": 1}, unreachable="both"),
        lambda: asks.CallReply(unreachable="  "),
        lambda: asks.CodeReply(),
        lambda: asks.CodeReply(code="x = 1", impossible="both"),
        lambda: asks.CodeReply(impossible="\n"),
    ],
)
def test_a_reply_gives_what_was_asked_for_or_a_reason_never_both(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="give either"):
        make()


def test_an_outage_repeats_the_ask_without_blaming_what_was_written(sandbox: Sandbox) -> None:
    bad, down = asks.CodeReply(code=NO_CODE), ProviderError("down")
    teacher, outcomes = tried(sandbox, code=[bad, down])
    assert teacher.templates == ["document", "call", "code", "code", "code"]
    assert reasons(outcomes) == ["constant", "provider_error"]
    for ask in teacher.asks[3:]:
        assert ask.variables["rejected"] == NO_CODE
        assert ask.variables["feedback"].startswith("constant: ")


class Failing:
    """A sandbox whose first calls fail by its own fault."""

    def __init__(self, sandbox: Any, calls: int) -> None:
        self._sandbox, self._left = sandbox, calls
        self.tier = sandbox.tier

    def sessions(self, sources: Any) -> Any:
        return self._sandbox.sessions(sources)

    def call_many(self, requests: Any) -> Any:
        if self._left:
            self._left -= 1
            return [SandboxResult(SandboxStatus.INFRA, None, "", "no room", 0.0)] * len(requests)
        return self._sandbox.call_many(requests)


def test_a_sandbox_that_failed_costs_no_further_ask(sandbox: Sandbox) -> None:
    one = instance(price(1, "Amber Cove", 812))
    teacher = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
    failing: Any = Failing(sandbox, 2)
    outcomes = everything([one], teacher, failing, inner_attempts=3)
    assert teacher.templates == ["document", "call", "code"]
    assert reasons(outcomes) == ["sandbox_infra"]
    assert isinstance(outcomes[-1], Environment)


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        ("answer_in_document", ToolPart.DOCUMENT),
        ("too_few_perturbations", ToolPart.DOCUMENT),
        ("call_violates_schema", ToolPart.CALL),
        ("row_order", ToolPart.CODE),
        ("forbidden_import", ToolPart.CODE),
        ("never heard of", ToolPart.CODE),
    ],
)
def test_what_is_neither_of_document_nor_of_call_is_of_the_code(
    reason: str, part: ToolPart
) -> None:
    assert fault_of((reason, "why")).part == part
