"""Persistent worlds measured: the protocol that carries them, and what is made of them.

Run it with the package importable: ``python benchmarks/worlds.py``. Sections can be named; the last
line is one JSON object with their figures, and ``--json`` prints nothing else. Rates are per
CPU-second of host, zygote and sessions, so that other work on the machine matters little.
"""

import argparse
import asyncio
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from astra.arena.delta import WorldBase
from astra.arena.env import ArenaEnv
from astra.arena.reward import score_episode
from astra.arena.state import entry_of, settle
from astra.arena.user import ScriptedUser
from astra.arena.user_expert import converse_by_script
from astra.arena.world_runner import CallEnd, WorldRunner
from astra.arena.world_scripts import WorldScript, best_codes, goal_script, never_asks
from astra.arena.worlds import goal_of, resolve, world_texts
from astra.devtools.params import compose
from astra.llm.protocol import Ask
from astra.records.base import Record, compact_json
from astra.records.environment import Arena, ArenaTool
from astra.records.message import CallStatus, ExecutedCall, ToolCall
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.state import ArenaState, Tables, WorldState, Write, WriteAction
from astra.records.tool import Tool
from astra.records.world import (
    OUTCOMES,
    ColumnType,
    EventKind,
    GoalOutcome,
    OutcomeKind,
    ToolRole,
    TraceEvent,
    UserAct,
    World,
    WorldColumn,
    WorldGoal,
    WorldShape,
    WorldTable,
    WorldTool,
)
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.settings import validate
from astra.store.metrics import StageMetrics
from astra.worlds.config import WorldsConfig
from astra.worlds.goal_config import GoalsConfig
from astra.worlds.goal_plans import world_plans
from astra.worlds.goal_stage import goal_arenas
from astra.worlds.plans import plans
from astra.worlds.worlds import WorldTeachers, worlds
from sandbox import cpu_seconds

Figures = dict[str, Any]
Made = TypeVar("Made", bound=Record)
OPEN = 2
"""Worlds that are worked on at once: one for each of two cores."""
LIMITS = SandboxLimits(cpu_s=600, call_timeout_s=30.0)
TABLES = tuple(f"table_{at}" for at in range(6))
GET = """
def get_{table}(world, key):
    for row in world.tables["{table}"]:
        if row["key"] == key:
            return row
    raise ValueError("there is no such row")
"""
SET = """
def set_{table}(world, key, note):
    for row in world.tables["{table}"]:
        if row["key"] == key:
            row["note"] = note
            return row
    raise ValueError("there is no such row")
"""
CLOCK = "2026-01-01T00:00:00"
CELLS = ("key", "name", "day", "price", "free", "note")


def rows_of(count: int, padding: int) -> Tables:
    """So many rows over six tables, each with a note of so many characters."""
    made: Tables = {
        table: [
            {"key": f"{table}-{at}", "name": f"Heron {at}", "day": f"2026-03-{at % 28 + 1:02}",
             "price": at * 1.25, "free": at % 2 == 0, "note": "x" * padding}
            for at in range(count // len(TABLES))
        ]
        for table in TABLES
    }  # fmt: skip
    return made


def tools() -> Iterator[tuple[str, str, tuple[str, ...], Tool]]:
    """Two tools a table: name, code, what it writes, document."""
    for table in TABLES:
        for verb, code, given in (("get", GET, ("key",)), ("set", SET, ("key", "note"))):
            name = f"{verb}_{table}"
            schema = {"type": "object", "properties": {one: {"type": "string"} for one in given},
                      "required": list(given), "additionalProperties": False}  # fmt: skip
            document = Tool(name=name, description=name, parameters=schema)
            yield name, code.format(table=table), (table,) * (verb == "set"), document


def whole_state(rows: Tables) -> ArenaState:
    return ArenaState(
        world=WorldState(tables=rows, clock=CLOCK),
        columns=dict.fromkeys(TABLES, CELLS),
        writes={name: writes for name, _, writes, _ in tools()},
    )


def delta_world(rows: Tables) -> World:
    columns = tuple(WorldColumn(name=name, type=ColumnType.STRING) for name in CELLS)
    shapes = [WorldTable(name=table, key="key", columns=columns) for table in TABLES]
    outcome = tuple(
        WorldColumn(name=name, type=ColumnType.STRING)
        for name in ("outcome_id", "outcome", "reason")
    )
    shapes.append(WorldTable(name=OUTCOMES, key="outcome_id", columns=outcome))
    return World(
        domain="rows", title="Rows", split=Split.TRAIN, variant=0, shape=WorldShape.FULL,
        language="en", clock=CLOCK, tables=tuple(shapes), rows={**rows, OUTCOMES: []},
        tools=tuple(
            WorldTool(tool=tool, code=code, role=ToolRole.UPDATE, reads=writes, writes=writes)
            for _, code, writes, tool in tools()
        ),
        rules=(), invariants=(), policy="", topics={}, refusals={}, checks={},
    )  # fmt: skip


def plan(calls: int, rows: int) -> list[tuple[str, dict[str, str]]]:
    """Calls over all tables, every third of which writes."""
    made: list[tuple[str, dict[str, str]]] = []
    for at in range(calls):
        table = TABLES[at % len(TABLES)]
        key = {"key": f"{table}-{at * 7 % (rows // len(TABLES))}"}
        write = at % 3 == 0
        made.append((f"set_{table}", {**key, "note": f"n{at}"}) if write else (f"get_{table}", key))
    return made


def cpu_of(work: Callable[[], None], repeats: int = 2) -> float:
    """CPU seconds of the cheapest of some runs."""
    spent: list[float] = []
    for _ in range(repeats):
        before = cpu_seconds()
        work()
        spent.append(cpu_seconds() - before)
    return max(min(spent), 0.01)


def calls_per_cpu_second(sandbox: LocalSandbox, rows: Tables, count: int) -> Figures:
    """Calls in one open session, by each protocol: the world is there already."""
    asked = plan(count, sum(map(len, rows.values())))
    state = whole_state(rows)
    session = sandbox.session(dict(entry_of(name, code) for name, code, _, _ in tools()))

    def whole() -> None:
        world = state.world
        for name, arguments in asked:
            given = {"state": world.model_dump(), "arguments": arguments}
            result, world = settle(state, name, world, session.call(f"_call_{name}", given))
            assert not result.error, result.error

    runner = WorldRunner(WorldBase(delta_world(rows)), sandbox)
    runner.call(*asked[0])

    def delta() -> None:
        for name, arguments in asked:
            made = runner.call(name, arguments)
            assert made.end == CallEnd.DONE, made.event

    by_whole, by_delta = cpu_of(whole), cpu_of(delta)
    session.close()
    runner.close()
    size = len(compact_json(rows))
    return {
        "bytes": size, "whole_per_cpu_s": round(count / by_whole, 1),
        "delta_per_cpu_s": round(count / by_delta, 1), "ratio": round(by_whole / by_delta, 2),
    }  # fmt: skip


ANSWER = Answer(type=AnswerType.STRING, value="done")


def arena_of(**more: Any) -> Arena:
    fields: dict[str, Any] = {
        "qa_id": "q", "split": Split.TRAIN, "domain": "rows", "language": "en",
        "source": "benchmark", "kind": QuestionKind.WRITE, "scenario": Scenario.SINGLE_HOP,
        "hops": 1, "main_question": "?", "final_answer": ANSWER, "tools": (), "steps": (),
        "entities": (), "composition": "", **more,
    }  # fmt: skip
    return Arena(**fields)


def episodes_per_cpu_second(sandbox: LocalSandbox, arena: Arena, rows: int, count: int) -> float:
    """Whole episodes: a session, six calls, the end state compared, the session closed."""
    asked = [
        ToolCall(id=str(at), name=name, arguments=json.dumps(arguments))
        for at, (name, arguments) in enumerate(plan(6, rows))
    ]

    def episodes() -> None:
        for _ in range(count):
            env = ArenaEnv(arena, sandbox)
            results = [env.execute_now(call) for call in asked]
            assert all(result.status == CallStatus.OK for result in results), results
            executed = [
                ExecutedCall(turn=0, call=call, result=result)
                for call, result in zip(asked, results, strict=True)
            ]
            score = score_episode(arena, executed, "done", end_state=env.tables, trace=env.trace)
            assert score.state_reached, score
            env.close_now()

    episodes()
    return round(count / cpu_of(episodes), 1)


def arenas(rows: Tables) -> tuple[Arena, Arena]:
    """An arena over the rows as its own state, and one in a world that has them."""
    writes = [
        Write(action=WriteAction.UPDATE, table=name.removeprefix("set_"),
              where={"key": given["key"]}, values={"note": given["note"]})
        for name, given in plan(6, sum(map(len, rows.values())))
        if name.startswith("set_")
    ]  # fmt: skip
    after = {table: [dict(row) for row in held] for table, held in rows.items()}
    for write in writes:
        for row in after[write.table]:
            row.update(write.values if row["key"] == write.where["key"] else {})
    own = arena_of(
        tools=tuple(ArenaTool(tool=tool, code=code) for _, code, _, tool in tools()),
        state=whole_state(rows).model_dump_json(), expected_state=compact_json(after),
    )  # fmt: skip
    world = delta_world(rows)
    goal = WorldGoal(
        kind=QuestionKind.WRITE, effect=tuple(writes),
        trace=(TraceEvent(kind=EventKind.USER, text="?", act=UserAct.OPENING),),
        outcome=GoalOutcome(kind=OutcomeKind.DONE),
    )  # fmt: skip
    placed = arena_of(world_id=world.id, goal=goal.model_dump_json())
    return own, resolve(placed, world_texts([world]))


def protocol() -> Figures:
    """What a call and an episode cost, beside arenas whose calls carry the whole world."""
    with LocalSandbox(LIMITS) as sandbox:
        figures: Figures = {
            "calls_1mb": calls_per_cpu_second(sandbox, rows_of(4_800, 110), 60),
            "calls_600_rows": calls_per_cpu_second(sandbox, rows_of(600, 40), 300),
        }
        rates: dict[str, float] = {}
        for count in (24, 600):
            own, placed = arenas(rows_of(count, 40))
            rates[f"own_state_{count}_rows"] = episodes_per_cpu_second(sandbox, own, count, 48)
            rates[f"world_{count}_rows"] = episodes_per_cpu_second(sandbox, placed, count, 48)
    rates["world_600_to_own_state_600"] = round(
        rates["world_600_rows"] / rates["own_state_600_rows"], 2
    )
    rates["world_600_to_own_state_24"] = round(
        rates["world_600_rows"] / rates["own_state_24_rows"], 2
    )
    figures["episodes_per_cpu_s"] = rates
    return figures


def goals() -> Figures:
    """The worlds and goals of scale ``small``, made and proved, and what reaches the goals."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "params.yaml"
        compose(file, ["scale=small"])
        params = yaml.safe_load(file.read_text("utf-8"))
    planned = validate("worlds", params["worlds"] | {"contamination": None}, WorldsConfig)
    config = validate("goals", params["goals"], GoalsConfig)
    begun, cpu = time.perf_counter(), cpu_seconds()
    with LocalSandbox(planned.sandbox) as sandbox:
        metrics = StageMetrics("worlds")
        made = drained(worlds(plans(planned), NOBODY, sandbox, planned, None, OPEN, metrics), World)
        wanted = list(world_plans(made, config))
        metrics = StageMetrics("goals")
        arenas = drained(goal_arenas(wanted, Nobody(), sandbox, config, OPEN, metrics), Arena)
        seconds = {"seconds": round(time.perf_counter() - begun), "cpu_seconds": round(
            cpu_seconds() - cpu)}  # fmt: skip
        reached = played(made, arenas, sandbox)
    counts, splits = metrics.counts, Counter(arena.split for arena in arenas)
    return {
        "worlds": len(made),
        **{f"goals_{split}": splits[split] for split in Split},
        "goals_that_need_a_user": sum(goal_of(arena).needs_user for arena in arenas),
        "mutants": counts["mutants_rejected"] + counts["mutants_accepted"],
        "mutants_accepted": counts["mutants_accepted"],
        "mutants_idle": counts["mutants_idle"],
        "mutants_by_class": {f"M{at}": counts[f"mutants_rejected_M{at}"] for at in range(1, 16)},
        "right_ways": {f"A{at}": [counts[f"ways_right_A{at}"], counts[f"ways_wrong_A{at}"]]
                       for at in range(1, 6)},
 **reached, **seconds,
    }  # fmt: skip


class Nobody:
    """A teacher of nothing: no world here is one of a subject."""

    name = "nobody"

    async def ask(self, ask: Ask[Any]) -> Any:
        raise AssertionError(f"rules make these worlds, not {ask.template}")


NOBODY = WorldTeachers(Nobody(), Nobody())


def drained(outcomes: AsyncGenerator[Record, None], kind: type[Made]) -> list[Made]:
    """The records of one kind that a flow gives."""

    async def all_of() -> list[Made]:
        return [one async for one in outcomes if isinstance(one, kind)]

    return asyncio.run(all_of())


def played(made: Sequence[World], arenas: Sequence[Arena], sandbox: LocalSandbox) -> Figures:
    """How often the reference reaches its goal, and the floors on held-out domains: goals reached,
    goals tried and the 95 % interval (Wilson); the first candidate over goals that leave a choice,
    and who never asks over those where the user is to be asked. All talk with the goal's user.
    """
    training = [goal_of(arena) for arena in arenas if arena.split is Split.TRAIN]
    codes, tried, reached = best_codes(training), Counter[str](), Counter[str]()
    for world in made:
        with WorldRunner(world, sandbox) as runner:
            for arena in (arena for arena in arenas if arena.world_id == world.id):
                goal, names = goal_of(arena), [WorldScript.REFERENCE]
                if world.split is Split.HELDOUT:
                    names += [WorldScript.MUTE, WorldScript.DECLINE, WorldScript.HAND_OVER]
                    names += [WorldScript.FIRST_CANDIDATE] if goal.candidates else []
                    names += [WorldScript.NEVER_ASKS] if never_asks(world, goal) else []
                user = ScriptedUser(world, goal)
                for name in names:
                    events = goal_script(name, runner, goal, codes)
                    tried[name] += 1
                    if events is not None:
                        talk = converse_by_script(runner, goal, user, events)
                        reached[name] += talk.verdict.success
    floors = {
        f"floor_{name}": [reached[name], tried[name], *wilson(reached[name], tried[name])]
        for name in WorldScript if name is not WorldScript.REFERENCE
    }  # fmt: skip
    return {
        "reference_rewarded": reached[WorldScript.REFERENCE] / max(1, tried[WorldScript.REFERENCE]),
        **floors,
    }


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927)."""
    if not tries:
        return 0.0, 1.0
    z, share = 1.96, hits / tries
    middle = share + z * z / (2 * tries)
    half = z * math.sqrt(share * (1 - share) / tries + z * z / (4 * tries * tries))
    scale = 1 + z * z / tries
    return round(max(0.0, middle - half) / scale, 4), round((middle + half) / scale, 4)


SECTIONS: Mapping[str, Callable[[], Figures]] = {"protocol": protocol, "goals": goals}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--json", action="store_true", help="nothing but the JSON line")
    asked = parser.parse_args()
    figures: Figures = {}
    for name in asked.sections or SECTIONS:
        if name not in SECTIONS:
            parser.error(f"no section {name!r}")
        figures[name] = SECTIONS[name]()
        if not asked.json:
            print(json.dumps({name: figures[name]}, indent=2), flush=True)
    flat = figures.pop("goals", {})
    print(json.dumps({**figures, **flat}))


if __name__ == "__main__":
    main()
