"""tau2-Bench hosted as worlds: its documents as our tables, its calls by our runner, our verdicts.

A check of runner and checker against environments, programs and verdicts that others wrote. The
package's environments run in the cage of the bench environment (``drivers/play_tau2_world.py``),
which speaks the protocol of worlds in a session's place, so that ``WorldRunner`` carries out the
calls, holds the tables and compares digests; ``judge`` then says what it says of our own goals.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Self, cast

from astra.arena.delta import DELTA
from astra.arena.state import apply_writes
from astra.arena.verdict import GoalVerdict
from astra.bench.harness.environment import caged_driver
from astra.bench.harness.oracles import LOOKUPS
from astra.bench.harness.protocol import SuiteError
from astra.records.base import canonical_json
from astra.records.qa import Answer, AnswerType, QuestionKind, Split
from astra.records.state import Row, Tables, Write, WriteAction
from astra.records.tool import Tool
from astra.records.world import (
    OUTCOMES,
    ColumnType,
    GoalOutcome,
    OutcomeKind,
    Say,
    ToolRole,
    World,
    WorldColumn,
    WorldGoal,
    WorldShape,
    WorldTable,
    WorldTool,
)
from astra.sandbox.cage import Cage
from astra.sandbox.protocol import SandboxResult, SandboxStatus

CLOCK = "2025-01-01T00:00:00"
"""The package's tools know the time themselves."""
Changes = Mapping[str, Mapping[str, Row | None]]
"""Rows by table and key; None where a row is gone."""
Call = tuple[str, dict[str, Any]]
DONE = "Done."


@dataclass(frozen=True)
class Tau2Task:
    """A task of the base split: the calls of its solution, and what it is paid for."""

    id: str
    actions: tuple[Call, ...]
    tell: tuple[str, ...]
    """What the agent must tell the user."""
    basis: tuple[str, ...]
    """What the reward is the product of."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """A task as the driver tells it."""
        calls = tuple((call["tool"], call["arguments"]) for call in told["actions"])
        return cls(told["id"], calls, tuple(told["tell"]), tuple(told["basis"]))


@dataclass(frozen=True)
class Tau2Domain:
    """A domain before any of its tasks."""

    name: str
    keys: dict[str, str]
    """Key columns by table."""
    tables: Tables
    tools: tuple[WorldTool, ...]
    users: frozenset[str]
    """The tools that are the user's."""
    policy: str
    tasks: tuple[Tau2Task, ...]

    @classmethod
    def of(cls, name: str, told: Mapping[str, Any]) -> Self:
        """A domain as the driver tells it."""
        keys = {table: held["key"] for table, held in told["tables"].items()}
        return cls(
            name=name,
            keys=keys,
            tables={table: held["rows"] for table, held in told["tables"].items()},
            tools=tuple(tool_of(one, tuple(keys)) for one in told["tools"]),
            users=frozenset(one["name"] for one in told["tools"] if one["side"] == "user"),
            policy=told["policy"],
            tasks=tuple(Tau2Task.of(one) for one in told["tasks"]),
        )

    @property
    def writing(self) -> frozenset[str]:
        """The tools that the package says write."""
        return frozenset(tool.tool.name for tool in self.tools if tool.writes)


def tool_of(told: Mapping[str, Any], tables: tuple[str, ...]) -> WorldTool:
    """A tool of the package as a world's. One that writes may change any table, since the package
    brings both sides' documents in line after each call; any other may change none."""
    writes = told["type"] == "write"
    return WorldTool(
        tool=Tool(
            name=told["name"], description=told["description"], parameters=told["parameters"]
        ),
        code="",  # it is the package's own, and runs in the cage
        role=ToolRole.UPDATE if writes else ToolRole.GET,
        reads=tables,
        writes=tables if writes else (),
    )


def world_of(domain: Tau2Domain, tables: Tables) -> World:
    """A domain as a world with these rows, and with the table of outcomes that it has not."""
    shapes = [table_of(name, domain.keys[name], rows) for name, rows in tables.items()]
    outcome = ("outcome_id", "outcome", "reason")
    columns = tuple(WorldColumn(name=name, type=ColumnType.STRING) for name in outcome)
    shapes.append(WorldTable(name=OUTCOMES, key="outcome_id", columns=columns))
    return World(
        domain=domain.name, title=domain.name, split=Split.HELDOUT, variant=0,
        shape=WorldShape.FULL, language="en", clock=CLOCK, tables=tuple(shapes),
        rows={**tables, OUTCOMES: []}, tools=domain.tools, rules=(), invariants=(),
        policy=domain.policy, topics={}, refusals={}, checks={},
    )  # fmt: skip


def table_of(name: str, key: str, rows: Sequence[Row]) -> WorldTable:
    """The shape of a table, read off its rows."""
    first = rows[0] if rows else {key: ""}
    columns = tuple(
        WorldColumn(
            name=column,
            type=ColumnType.ID if column == key else
            ColumnType.JSON if isinstance(cell, list | dict) else ColumnType.STRING,
            optional=column != key,
        )
        for column, cell in first.items()
    )  # fmt: skip
    return WorldTable(name=name, key=key, columns=columns)


def changed(tables: Tables, keys: Mapping[str, str], changes: Changes) -> Tables:
    """The tables after the changes, by definition of the writes that say them."""
    columns = {name: list(rows[0]) if rows else [keys[name]] for name, rows in tables.items()}
    return apply_writes(tables, writes_of(tables, keys, changes), columns, {})


def writes_of(tables: Tables, keys: Mapping[str, str], changes: Changes) -> tuple[Write, ...]:
    """The changes as a goal's effect: of rows that were there, only the cells that differ."""
    made: list[Write] = []
    for table, rows in changes.items():
        before = {row[keys[table]]: row for row in tables[table]}
        for key, row in rows.items():
            where = {keys[table]: key}
            if key not in before:
                made.append(Write(action=WriteAction.INSERT, table=table, values=row or {}))
            elif row is None:
                made.append(Write(action=WriteAction.DELETE, table=table, where=where))
            else:
                old = before[key]
                cells = {
                    name: cell
                    for name, cell in row.items()
                    if canonical_json(cell) != canonical_json(old.get(name))
                }
                made.append(
                    Write(action=WriteAction.UPDATE, table=table, where=where, values=cells)
                )
    return tuple(made)


def goal_of(task: Tau2Task, effect: tuple[Write, ...]) -> WorldGoal:
    """A task as a goal: the end that its solution reaches, and what must be told."""
    return WorldGoal(
        kind=QuestionKind.MIXED, trace=(), effect=effect,
        outcome=GoalOutcome(kind=OutcomeKind.DONE),
        say=tuple(Say(answer=answer_of(fact), read=()) for fact in task.tell),
    )  # fmt: skip


def answer_of(fact: str) -> Answer:
    """What must be told as a typed answer: a number where the text is one."""
    try:
        return Answer(type=AnswerType.NUMBER, value=float(fact))
    except ValueError:
        return Answer(type=AnswerType.STRING, value=fact)


# What is played ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tau2Replay:
    """Calls of a task's solution, as they are or spoiled, and what the agent says at the end."""

    name: str
    calls: tuple[Call, ...]
    closing: str = DONE


def replays(task: Tau2Task, domain: Tau2Domain) -> Iterator[Tau2Replay]:
    """The solution (``gold``), then what spoils it: no call; each write left out, or made twice;
    the writes in reverse order; the agent's last call that is more than a look-up left out
    (``careless``); the user's calls alone (``idle``). Of the first and the last two,
    ``docs/benchmarks.md`` has the rewards that conversations got."""
    calls = task.actions
    writes = [at for at, (name, _) in enumerate(calls) if name in domain.writing]
    closing = f"All is done. {' '.join(task.tell)}".strip()
    yield Tau2Replay("gold", calls, closing)
    yield Tau2Replay("nothing", ())
    for at in writes:
        yield Tau2Replay(f"dropped:{at}", calls[:at] + calls[at + 1 :], closing)
        yield Tau2Replay(f"doubled:{at}", calls[: at + 1] + calls[at:], closing)
    if len(writes) > 1:
        swapped = list(calls)
        for at, other in zip(writes, reversed(writes), strict=True):
            swapped[at] = calls[other]
        yield Tau2Replay("reversed", tuple(swapped), closing)
    deeds = [
        at
        for at, (name, _) in enumerate(calls)
        if name not in domain.users and not name.startswith(LOOKUPS)
    ]
    last = deeds[-1] if deeds else len(calls)
    yield Tau2Replay("careless", calls[:last] + calls[last + 1 :], closing)
    yield Tau2Replay("idle", tuple(call for call in calls if call[0] in domain.users))


def conversations(facts: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Ways in which an agent tells what it must, or does not: a name, and its messages."""
    yield "all_in_one", [f"All is done. {' '.join(facts)}"]
    yield "one_by_one", [f"It is {fact}." for fact in facts]
    yield "silent", [DONE]
    for at in range(len(facts) if len(facts) > 1 else 0):
        yield f"without:{at}", [f"It is {fact}." for other, fact in enumerate(facts) if other != at]
    yield "inside_longer", [f"The reference is 7{fact}3." for fact in facts]
    yield "as_money", [f"That makes {_money(fact)}." for fact in facts]
    yield "among_others", [f"It is {', '.join((fact, *_like(fact)))}." for fact in facts]


def _money(fact: str) -> str:
    value = answer_of(fact).value
    return f"${value:,.2f}" if isinstance(value, float) else fact.upper()


def _like(fact: str) -> list[str]:
    value = answer_of(fact).value
    if not isinstance(value, float):
        return [f"not {fact}", "something else"]
    return [f"{value + more:g}" for more in (1, 2, 3)]


def substring_told(facts: Sequence[str], texts: Sequence[str]) -> list[bool]:
    """What the package calls told: a part of any message, without case and without commas."""
    heard = [text.lower().replace(",", "") for text in texts]
    return [any(fact.lower() in text for text in heard) for fact in facts]


def told(verdict: GoalVerdict, facts: Sequence[str]) -> list[bool]:
    """What our verdict calls told, fact by fact."""
    untold = {reason.split(":")[1] for reason in verdict.reasons if _is_of_words(reason)}
    return [str(at) not in untold for at in range(len(facts))]


def _is_of_words(reason: str) -> bool:
    return reason.split(":")[0] in ("unsaid", "said_unread", "said_among_others")


# The package's environments as a session -----------------------------------------------------


@dataclass
class Tau2Desk:
    """The driver, and what it gives to a runner: sessions in which its environments are worlds.

    One domain and task at a time. Raises SuiteError where the driver ends or fails.
    """

    failed_writes: list[str] = field(default_factory=list[str])
    """Calls that failed and changed documents nevertheless."""

    def __post_init__(self) -> None:
        driver = caged_driver("tau2_world")
        self._cage = Cage(driver.reads)
        self._cage.start(driver.command, dict(driver.environment))
        self._errors: list[str] = []
        threading.Thread(target=self._drain, daemon=True).start()

    def ask(self, do: str, **given: Any) -> Any:
        """One request to the driver and its answer."""
        stdin = cast("IO[bytes]", self._cage.process.stdin)
        stdout = cast("IO[bytes]", self._cage.process.stdout)
        try:
            stdin.write(json.dumps({"do": do, **given}).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise SuiteError(f"tau2's driver ended at {do}.\n" + "\n".join(self._errors[-12:]))
        answer = json.loads(line)
        if "fault" in answer:
            raise SuiteError(f"tau2's driver failed at {do} {given}: {answer['fault']}")
        return answer["reply"]

    def session(self, sources: Mapping[str, str]) -> _Environment:
        """The environment of the task that was started last, in a session's place."""
        return _Environment(self)

    def close(self) -> None:
        """End the driver."""
        self._cage.close()

    def _drain(self) -> None:
        for line in cast("IO[bytes]", self._cage.process.stderr):
            self._errors.append(line.decode(errors="replace").rstrip()[:500])
            del self._errors[:-50]


class _Environment:
    """A session whose world is the package's document, in which it was from the start."""

    def __init__(self, desk: Tau2Desk) -> None:
        self._desk, self.alive = desk, True

    def call(self, function: str, arguments: Mapping[str, Any]) -> SandboxResult:
        if function != DELTA or arguments["op"] not in ("open", "load", "reset", "call"):
            raise SuiteError(f"tau2's environments know no {function} {arguments.get('op')}")
        if arguments["op"] == "reset":
            self._desk.ask("reset")
        if arguments["op"] != "call":
            return _result(None)
        tool, given = arguments["tool"], arguments["arguments"]
        answer = self._desk.ask("call", tool=tool, arguments=given)
        if answer["failed"]:
            if answer["writes"]:
                self._desk.failed_writes.append(f"{tool} {given}")
            return _result(None, f"ValueError: {answer['value']}")
        return _result({key: answer[key] for key in ("value", "writes", "digest")})

    def close(self) -> None:
        self.alive = False


def _result(value: Any, error: str = "") -> SandboxResult:
    status = SandboxStatus.EXCEPTION if error else SandboxStatus.OK
    return SandboxResult(status, value, error, "", 0.0)
