"""Persistent worlds measured: the protocol that carries them, and what is made of them.

Run it with the package importable: ``python benchmarks/worlds.py``. Sections can be named; the last
line is one JSON object with their figures, and ``--json`` prints nothing else. Rates are per
CPU-second of host, zygote and sessions, so that other work on the machine matters little.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from astra.arena.delta import WorldBase
from astra.arena.env import ArenaEnv
from astra.arena.reward import score_episode
from astra.arena.state import entry_of, settle
from astra.arena.world_runner import CallEnd, WorldRunner
from astra.arena.worlds import resolve, world_texts
from astra.records.base import compact_json
from astra.records.environment import Arena, ArenaTool
from astra.records.message import CallStatus, ExecutedCall, ToolCall
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.state import ArenaState, Tables, WorldState, Write, WriteAction
from astra.records.tool import Tool
from astra.records.world import (
    OUTCOMES,
    ColumnType,
    GoalOutcome,
    OutcomeKind,
    ToolRole,
    World,
    WorldColumn,
    WorldGoal,
    WorldShape,
    WorldTable,
    WorldTool,
)
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from sandbox import cpu_seconds

Figures = dict[str, Any]
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
        kind=QuestionKind.WRITE, trace=(), effect=tuple(writes),
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


SECTIONS: Mapping[str, Callable[[], Figures]] = {"protocol": protocol}


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
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
