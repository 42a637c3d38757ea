from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from homes import OwnInterpreter, given, output, step, task

from astra.agent.prompt import AGENT_SYSTEM_PROMPT, MISSING_VALUE, NO_TOOL, extract_answer
from astra.agent.server_environments import ServerEnvironments
from astra.errors import StageStop
from astra.llm.offline import OfflineTeacher
from astra.llm.policy import EndpointPolicy
from astra.llm.protocol import Ask, ModelConfig, Reply, Teacher
from astra.llm.served import served
from astra.records.message import CallStatus, MessageRole, ToolCall, ToolResult
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Launch, ToolServer
from astra.records.trajectory import StopReason, Trajectory
from astra.settings import RuntimeConfig
from astra.store.journal import Journal
from astra.store.metrics import StageMetrics
from astra.store.tables import write_records
from astra.trajectories.agenda import Agenda
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.conversation import Scripts
from astra.trajectories.live import McpEnv, ServerPool, ServerProcess, server_pool
from astra.trajectories.offline.expert import ScriptedExpert
from astra.trajectories.offline.handlers import HANDLERS
from astra.trajectories.results import ReadError, answers_from, fit, follow, parse_result
from astra.trajectories.trajectories import Cast, EpisodePlayer, shown_tools, trajectories
from astra.trajectories.trajectories import agent as acting
from configs import episode_limits
from walls_here import walls

OFFLINE = {"backend": "offline", "model": "1"}
RULES = OfflineTeacher(ModelConfig.model_validate(OFFLINE), HANDLERS)


def no_endpoint(config: ModelConfig) -> EndpointPolicy:
    raise AssertionError("backend offline asks no endpoint")


def config(**changes: Any) -> TrajectoriesConfig:
    values: dict[str, Any] = {
        "agent": OFFLINE, "emulator": OFFLINE, "user": OFFLINE, "samples": 1,
        "reasoning": "keep",
        "conversations": {"share": 0.0, "max_user_turns": 4}, "failure_rate": 0.0,
        "max_tools": None, "deterministic_only": True, "reset_in_place": [],
        "limits": episode_limits(), "episode_timeout_s": 60.0, "system_prompts": ["standard"],
        "allow_rule_emulator": False, "seed": 0,
    } | changes  # fmt: skip
    return TrajectoriesConfig.model_validate(values)


def run(
    servers: Sequence[ToolServer],
    tasks: Sequence[Task],
    environments: ServerEnvironments,
    concurrency: int = 4,
    metrics: StageMetrics | None = None,
    emulator: Teacher = RULES,
    user: Teacher = RULES,
    **changes: Any,
) -> list[Trajectory | Rejection]:
    """What came of all episodes."""
    wanted, runtime = config(**changes), RuntimeConfig(concurrency=concurrency)
    counted = metrics or StageMetrics("trajectories")
    with Agenda(tasks, servers) as agenda, Journal("trajectories") as journal:
        player = EpisodePlayer(
            wanted,
            {s.id: s for s in servers}.get,
            Scripts(agenda, {s.id: s for s in servers}.get, wanted),
            Cast(acting(wanted.agent, no_endpoint, ScriptedExpert), emulator, user),
            server_pool(environments, walls(), runtime, wanted.reset_in_place),
            journal,
        )

        async def made() -> list[Trajectory | Rejection]:
            outcomes = trajectories(agenda, player, concurrency, counted)
            return [outcome async for outcome in outcomes]

        return asyncio.run(made())


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
    details = {
        "infra_server_error": "ServerError",
        "unknown_server": homes.id,
        "not_deterministic": "homes",
        "plan_tool_unknown": "homes",
        "infra_plan_error": f"task {task(homes, 'q').id} states no plan for the scripted expert",
    }
    for reason, (servers, wanted) in reasons.items():
        first, second = run(servers, [wanted], environments, samples=2)
        for outcome, part in ((first, "sample 0"), (second, "sample 1")):
            assert isinstance(outcome, Rejection)
            assert outcome.reason == reason
            assert outcome.item == wanted.id
            assert outcome.part == part
            assert outcome.detail == details[reason]


def test_a_rejection_holds_nothing_of_the_machine_and_the_log_holds_it_once(
    toy: ToolServer, environments: ServerEnvironments, caplog: pytest.LogCaptureFixture
) -> None:
    crashing = [task(toy, f"Crash {n}!", step("crash")) for n in range(2)]
    slow = task(toy, "Wait!", step("hang", seconds=given(60)))
    late = run([toy], [slow], environments, episode_timeout_s=2.0)
    outcomes = [*run([toy], crashing, environments), *late]
    assert all(isinstance(outcome, Rejection) for outcome in outcomes)
    found = [(o.reason, o.detail) for o in outcomes if isinstance(o, Rejection)]
    assert found == [("infra_server_error", "ServerError")] * 2 + [("timeout", "TimeoutError")]
    told = [r.getMessage() for r in caplog.records if "an episode on toy failed" in r.getMessage()]
    assert len(told) == 2, "one per run"
    assert any("within 2 s" in line for line in told)
    assert any("server process" in line or "closed" in line.lower() for line in told)


class Counting:
    """The offline rules, and how many emulated calls were answered so far."""

    name = "counting"

    def __init__(self) -> None:
        self.answers = 0

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.answers += 1
        return await RULES.ask(ask)


class Slow(OwnInterpreter):
    """An environment whose first use takes until ``free``, as a build would."""

    def __init__(self, root: Path, free: Callable[[], bool]) -> None:
        super().__init__(root, {"toy": []})
        self._free = free

    def ensure(self, name: str) -> Path:
        deadline = time.monotonic() + 60
        while not self._free() and time.monotonic() < deadline:
            time.sleep(0.01)
        return super().ensure(name)


def test_emulated_episodes_do_not_wait_for_live_ones(
    homes: ToolServer, toy: ToolServer, tmp_path: Path
) -> None:
    """More than a flow holds back for one slow item: the live server starts after all of them."""
    emulator = Counting()
    emulated = [
        task(homes, f"Price {n}?", step("get_price", listing=given(f"Opal Peak {n}")))
        for n in range(80)
    ]
    live = [task(toy, f"Note {n}?", step("read_note", name=given("hello"))) for n in range(3)]
    environments = Slow(tmp_path, lambda: emulator.answers == len(emulated))
    metrics = StageMetrics("trajectories")
    outcomes = run(
        [homes, toy], [*live, *emulated], environments, 1, metrics=metrics, emulator=emulator
    )
    assert emulator.answers == len(emulated)
    assert sum(isinstance(outcome, Trajectory) for outcome in outcomes) == 83
    assert {o.server_id for o in outcomes[-3:] if isinstance(o, Trajectory)} == {toy.id}
    assert metrics.counts == {"episodes": 83}


def test_no_more_live_episodes_are_open_than_processes_may_run(
    toy: ToolServer, environments: ServerEnvironments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would wait for a process while their time goes by."""
    holding: set[McpEnv] = set()
    most: list[int] = []

    async def execute(env: McpEnv, call: ToolCall) -> ToolResult:
        holding.add(env)
        most.append(len(holding))
        await asyncio.sleep(0.02)
        return ToolResult(status=CallStatus.OK, content=call.name)

    async def close(env: McpEnv) -> None:
        holding.discard(env)

    monkeypatch.setattr(McpEnv, "execute", execute)
    monkeypatch.setattr(McpEnv, "close", close)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    tasks = [task(toy, f"Note {n}?", step("read_note", name=given("hello"))) for n in range(9)]
    outcomes = run([toy], tasks, environments, 8)
    assert all(isinstance(outcome, Trajectory) for outcome in outcomes), outcomes
    assert max(most) == 2


class Broken:
    """An emulator behind which everything is out."""

    name = "broken"

    def __init__(self, after: Callable[[], bool]) -> None:
        self._after = after

    async def ask(self, ask: Ask[Reply]) -> Reply:
        while not self._after():
            await asyncio.sleep(0.01)
        raise StageStop("every endpoint is out")


def test_an_outage_ends_the_stage_and_its_processes(
    homes: ToolServer, toy: ToolServer, environments: ServerEnvironments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pools: list[ServerPool] = []
    borrowed: list[ServerProcess] = []
    acquire = ServerPool.acquire

    async def noted(pool: ServerPool, launch: Launch) -> ServerProcess:
        pools.append(pool)
        borrowed.append(await acquire(pool, launch))
        return borrowed[-1]

    monkeypatch.setattr(ServerPool, "acquire", noted)
    tasks = [task(homes, "Price?", step("get_price", listing=COVE))]
    tasks += [task(toy, "Wait!", step("hang", seconds=given(60)))]
    with pytest.raises(StageStop, match="out"):
        run([homes, toy], tasks, environments, emulator=Broken(lambda: bool(borrowed)))
    (process,) = borrowed
    assert process.owner.done()
    assert not process.owner.cancelled(), "ended by its owner, not with the event loop"


def test_an_agenda_has_live_tasks_by_server_and_the_others_as_they_came(
    homes: ToolServer, toy: ToolServer
) -> None:
    other = ToolServer.model_validate(toy.model_copy(update={"id": "", "name": "x"}).model_dump())
    live = [task(on, f"q{n}", step("count_calls")) for n in range(3) for on in (toy, other)]
    plans = [step("get_price", listing=COVE)]
    emulated = [task(homes, f"q{n}", *plans) for n in range(50)]
    declined = task(homes, "no", kind=TaskKind.IRRELEVANT)
    with Agenda([*emulated[:25], *live, *emulated[25:], declined], [homes, toy, other]) as agenda:
        by_server = sorted(live, key=lambda one: (one.server_id, one.id))
        assert list(agenda.live()) == by_server
        assert list(agenda.others()) == [*emulated, declined]
        assert agenda.one(emulated[7].id) == emulated[7]
        assert agenda.one("gone") is None
        by_id = sorted([*emulated, declined], key=lambda one: one.id)
        assert list(agenda.of_server(homes.id)) == by_id
        assert agenda.of_server("gone") == ()


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
    rate = {"volume_ml": 500.0, "hours": 7.0, "ml_hr": 71.43, "note": "a rate, and no advice on it"}
    asked = "What is the drip rate with volume ml 500 and hours 7?"
    assert answers_from(rate, "drip_rate", asked) == ["71.43"], "neither echoes nor remarks"
    assert answers_from({"hours": 7}, "drip_rate", asked) == ["7"], "better than nothing"
    assert answers_from([{"name": "name", "depth": 3}], "describe_table", "table name") == ["name"]
    tax = "Tax of 2024 (single)\nTaxable Income:   $60,000.00\nFederal Tax:  $6,736.00\nRate: 11 %"
    asked = "Tell me the tax estimate with taxable income 60000."
    assert answers_from(tax, "tax_estimate", asked) == ["$6,736.00", "11 %"]
    assert answers_from("Note: one line", "read", "?") == ["Note: one line"]


class Taking:
    """The offline rules behind a wait, which is served time or not."""

    name = "taking"

    def __init__(self, seconds: float, at_work: bool) -> None:
        self.seconds = seconds
        self.at_work = at_work

    async def ask(self, ask: Ask[Reply]) -> Reply:
        with served() if self.at_work else contextlib.nullcontext():
            await asyncio.sleep(self.seconds)
        return await RULES.ask(ask)


def test_waiting_for_a_turn_ends_no_episode_and_slow_work_does(
    homes: ToolServer, environments: ServerEnvironments
) -> None:
    tasks = [task(homes, "Price?", step("get_price", listing=COVE))]
    queued, slow = (
        run([homes], tasks, environments, emulator=Taking(0.5, at_work), episode_timeout_s=0.2)
        for at_work in (False, True)
    )
    assert one(queued).stop_reason == StopReason.ANSWERED
    (rejection,) = slow
    assert isinstance(rejection, Rejection)
    assert rejection.reason == "timeout"


def test_the_time_is_that_of_one_user_message(
    homes: ToolServer, environments: ServerEnvironments
) -> None:
    tasks = [
        task(homes, f"{name}?", step(name, listing=COVE)) for name in ("get_price", "find_agent")
    ]
    done = one(
        run([homes], tasks, environments, emulator=Taking(0.4, True), episode_timeout_s=0.7,
            conversations={"share": 1.0, "max_user_turns": 4})
    )  # fmt: skip
    assert len(done.calls) == 2
