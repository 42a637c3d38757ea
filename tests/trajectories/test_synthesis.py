from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from homes import given, output, step, task

from astra.agent.mcp import ServerEnvironments
from astra.agent.prompt import AGENT_SYSTEM_PROMPT, MISSING_VALUE, NO_TOOL, extract_answer
from astra.records.message import CallStatus, MessageRole
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import ToolServer
from astra.records.trajectory import StopReason, Trajectory
from astra.settings import RuntimeConfig
from astra.stage import blocking
from astra.store.tables import write_records
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.results import ReadError, answers_from, fit, follow, parse_result
from astra.trajectories.synthesis import build, shown_tools

OFFLINE = {"backend": "offline", "model": "1"}


def config(**changes: Any) -> TrajectoriesConfig:
    values: dict[str, Any] = {
        "agent": OFFLINE, "emulator": OFFLINE, "user": OFFLINE, "samples": 1,
        "conversations": {"share": 0.0, "max_user_turns": 4}, "failure_rate": 0.0,
        "max_tools": None, "deterministic_only": True, "reset_in_place": [],
        "limits": {}, "episode_timeout_s": 60.0, "system_prompts": [], "seed": 0,
    } | changes  # fmt: skip
    return TrajectoriesConfig.model_validate(values)


def run(
    servers: Sequence[ToolServer],
    tasks: Sequence[Task],
    environments: ServerEnvironments,
    concurrency: int = 4,
    **changes: Any,
) -> list[Trajectory | Rejection]:
    runtime = RuntimeConfig(concurrency=concurrency)
    synthesis = build(config(**changes), runtime, {s.id: s for s in servers}, environments)
    return list(blocking(synthesis.run(lambda: tasks, concurrency)))


def one(outcomes: list[Trajectory | Rejection]) -> Trajectory:
    (outcome,) = outcomes
    assert isinstance(outcome, Trajectory), outcome
    return outcome


def turns(trajectory: Trajectory) -> list[list[str]]:
    """Tool names per assistant turn."""
    return [
        [call.name for call in message.tool_calls]
        for message in trajectory.messages
        if message.role == MessageRole.ASSISTANT
    ]


COVE = given("Amber Cove")


def test_independent_steps_run_together_and_dependent_ones_copy(
    homes: ToolServer, environments: ServerEnvironments
) -> None:
    plan = [
        step("get_price", listing=COVE),
        step("find_agent", listing=COVE),
        step("get_office", agent=output(1)),
    ]
    done = one(run([homes], [task(homes, "Price and office of Amber Cove?", *plan)], environments))
    assert turns(done) == [["get_price", "find_agent"], ["get_office"], []]
    agent = done.calls[1].result.content
    assert json.loads(done.calls[2].call.arguments) == {"agent": agent}
    answer = extract_answer(done.messages[-1].content)
    assert answer == f"{done.calls[0].result.content}; {done.calls[2].result.content}"
    assert done.messages[0].content == AGENT_SYSTEM_PROMPT


def test_a_write_waits_and_holds_what_follows(
    homes: ToolServer, environments: ServerEnvironments
) -> None:
    plan = [
        step("find_agent", listing=COVE),
        step("set_price", listing=COVE, price=given(5)),
        step("get_price", listing=COVE),
    ]
    done = one(run([homes], [task(homes, "Set it.", *plan)], environments))
    assert turns(done) == [["find_agent"], ["set_price"], ["get_price"], []]
    assert done.calls[2].result.content == "5"


def test_failed_calls_are_retried_and_nothing_else(
    homes: ToolServer, environments: ServerEnvironments
) -> None:
    tasks = [
        task(
            homes, f"Price {n}?", step("get_price", listing=COVE), step("find_agent", listing=COVE)
        )
        for n in range(80)
    ]
    outcomes = run([homes], tasks, environments, failure_rate=0.3)
    failed = total = 0
    for outcome in outcomes:
        assert isinstance(outcome, Trajectory)
        assert outcome.stop_reason == StopReason.ANSWERED
        for name in ("get_price", "find_agent"):
            calls = [call.result for call in outcome.calls if call.call.name == name]
            assert all(call.status != CallStatus.OK for call in calls[:-1])
            assert len(calls) <= 4
            failed += len(calls) - 1
            total += len(calls)
        assert "Amber Cove" not in (extract_answer(outcome.messages[-1].content) or "")
    assert 0.2 < failed / total < 0.4


def test_tasks_without_a_way_are_declined(
    homes: ToolServer, environments: ServerEnvironments
) -> None:
    plan = [step("get_price", listing=COVE)]
    missing = task(homes, "Price of Amber Cove?", *plan, kind=TaskKind.MISSING_FUNCTION,
                   withheld_tools=("get_price",))  # fmt: skip
    done = one(run([homes], [missing], environments))
    assert "get_price" not in [tool.name for tool in done.tools]
    assert extract_answer(done.messages[-1].content) == NO_TOOL
    vague = task(homes, "What is the price?", step("get_price", listing=given(None)),
                 kind=TaskKind.MISSING_PARAMETER)  # fmt: skip
    done = one(run([homes], [vague], environments))
    assert (
        done.messages[-1].content == f"Please tell me the listing. <answer>{MISSING_VALUE}</answer>"
    )
    assert not done.calls


def test_the_cap_keeps_what_the_plan_needs(homes: ToolServer) -> None:
    wanted = task(homes, "q", step("get_office", agent=COVE), step("find_agent", listing=COVE))
    drawn = [shown_tools(homes, [wanted], 3, str(key)) or () for key in range(20)]
    shown = {tuple(tool.name for tool in tools) for tools in drawn}
    order = [tool.name for tool in homes.tools]
    for names in map(list, shown):
        assert len(names) == 3
        assert {"get_office", "find_agent"} <= set(names)
        assert names == sorted(names, key=order.index)
    assert len(shown) > 1
    assert len(shown_tools(homes, [wanted], 1, "k") or ()) == 2
    assert shown_tools(homes, [task(homes, "q", step("fly"))], 3, "k") is None


def test_bytes_do_not_depend_on_concurrency(
    homes: ToolServer, toy: ToolServer, environments: ServerEnvironments, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tasks = [
        task(homes, f"Office {n}?", step("find_agent", listing=given(f"Opal Peak {n}")),
             step("get_office", agent=output(0)))
        for n in range(40)
    ]  # fmt: skip
    tasks += [task(toy, f"Note {n}?", step("read_note", name=given("hello"))) for n in range(3)]
    files: list[bytes] = []
    for concurrency in (1, 16):
        monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / f"cache-{concurrency}"))
        outcomes = run(
            [homes, toy], tasks if concurrency == 1 else tasks[::-1], environments, concurrency,
            failure_rate=0.2, max_tools=4, reset_in_place=["toy"],
        )  # fmt: skip
        kept = [outcome for outcome in outcomes if isinstance(outcome, Trajectory)]
        assert len(kept) == 43
        path = tmp_path / f"{concurrency}.parquet"
        write_records(path, kept, Trajectory)
        files.append(path.read_bytes())
    assert files[0] == files[1]


def test_what_cannot_run_is_rejected_with_its_reason(
    homes: ToolServer, toy: ToolServer, environments: ServerEnvironments
) -> None:
    assert toy.launch is not None
    dead = toy.model_copy(update={"launch": toy.launch.model_copy(update={"args": ("-c", "1/0")})})
    reasons = {
        "infra_server_error": ([dead], task(dead, "q", step("count_calls"))),
        "unknown_server": ([toy], task(homes, "q", step("get_price", listing=COVE))),
        "not_deterministic": (
            [homes.model_copy(update={"deterministic": False})],
            task(homes, "q", step("get_price", listing=COVE)),
        ),
        "plan_tool_unknown": ([homes], task(homes, "q", step("fly"))),
        "infra_plan_error": ([homes], task(homes, "q")),
    }
    for reason, (servers, wanted) in reasons.items():
        (outcome,) = run(servers, [wanted], environments)
        assert isinstance(outcome, Rejection)
        assert outcome.reason == reason


def test_results_are_read_as_an_agent_reads_them() -> None:
    assert parse_result("410000") == 410000
    assert parse_result("[{'name': 'Ann'}]") == [{"name": "Ann"}]
    assert parse_result("Amber Cove") == "Amber Cove"
    assert follow({"rows": [{"id": 4}]}, ("rows", 0, "id")) == 4
    assert follow(7, ("result",)) == 7
    with pytest.raises(ReadError):
        follow({"a": 1}, ("b",))
    assert fit(5, {"type": "string"}) == "5"
    assert fit("5", {"type": "integer"}) == 5
    with pytest.raises(ReadError):
        fit("five", {"type": "integer"})
    with pytest.raises(ReadError):
        fit([1], {"type": "string"})
    assert answers_from({"asking_price": 5, "note": "x"}, "get_asking_price", "?") == ["5"]
    assert answers_from({"price": 5, "city": "Oslo"}, "get_home", "which city?") == ["Oslo"]
    assert answers_from(["A", "B"], "list_homes", "?") == ["A", "B"]
    assert answers_from([], "list_homes", "?") == ["not found"]
    assert answers_from(3.0, "count", "?") == ["3"]
