"""tau2-Bench hosted as worlds: its documents as our tables, its calls by our runner, our verdicts.

A check of runner and checker against environments, programs and verdicts that others wrote. The
package's environments run in the cage of the bench environment (``drivers/play_tau2_world.py``) as
``hosted.py`` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, cast

from astra.arena.statements import states
from astra.arena.verdict import GoalVerdict
from astra.bench.harness.hosted import Call, hosted_world, table_of
from astra.bench.harness.oracles import LOOKUPS
from astra.records.base import compact_json
from astra.records.qa import Answer, AnswerType, QuestionKind
from astra.records.state import Tables, Write
from astra.records.tool import Tool
from astra.records.world import (
    EventKind,
    GoalOutcome,
    OutcomeKind,
    Say,
    ToolRole,
    TraceEvent,
    World,
    WorldGoal,
    WorldTool,
)

DRIVER = "tau2_world"
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
    user: str
    """What the simulated user is told, in free text."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """A task as the driver tells it."""
        calls = tuple((call["tool"], call["arguments"]) for call in told["actions"])
        return cls(told["id"], calls, tuple(told["tell"]), tuple(told["basis"]),
                   told["user"])  # fmt: skip


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
    """A domain as a world with these rows."""
    shapes = [table_of(name, domain.keys[name], rows) for name, rows in tables.items()]
    return hosted_world(domain.name, shapes, tables, domain.tools, domain.policy)


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


# Whether a script could play the user --------------------------------------------------------

_CONDITION = re.compile(
    r"\b(?:if|unless|otherwise|in case|as long as|only when|until|whether)\b", re.I
)


class Scriptable(StrEnum):
    """How far a script of the user follows from a task by rule."""

    NO_WRITE = "no_write"  # the solution's agent changes nothing: there is no wish to script
    UNKNOWN = "unknown"  # a value that a write needs stands nowhere as such
    CONDITIONAL = "conditional"  # what the user wants depends on what the agent says
    PLAIN = "plain"  # all values are known, and no condition is put


def scriptable(task: Tau2Task, domain: Tau2Domain, trace: Sequence[TraceEvent]) -> Scriptable:
    """What the user's instructions and the solution, as played, give for a script.

    A value is known where the instructions or a result before the call state it, as one token.
    """
    known, writes = task.user, 0
    for event in trace:
        if event.kind != EventKind.CALL:
            continue
        if event.tool in domain.writing - domain.users:
            writes += 1
            values = [one for one in _scalars(event.arguments) if not isinstance(one, bool | None)]
            if not all(states(answer_of(str(one)), known) for one in values):
                return Scriptable.UNKNOWN
        known += f"\n{compact_json(event.result)}"
    if not writes:
        return Scriptable.NO_WRITE
    return Scriptable.CONDITIONAL if _CONDITION.search(task.user) else Scriptable.PLAIN


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _scalars(item)
    else:
        yield value
