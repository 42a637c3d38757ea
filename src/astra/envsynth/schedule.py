"""The calls that two fresh sessions make of a candidate, and what each of them is made to show.

Session one: every gold call, every wrong call, every gold call again. Session two: every gold call
several times. A stateful tool also makes its gold calls in other worlds, and further calls whose
effect is known. A merged tool makes, in
session one, the calls of its members, and each member makes them in a session of its own.
``schedules`` lists the calls in order; ``Observed.evidence`` sorts what they returned by gold call
and purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, NamedTuple

from astra.envsynth.candidates import CandidateTool, GoldCall
from astra.records.state import Row, WorldState
from astra.sandbox.protocol import SandboxResult

REPEATS = 6
"""Gold calls in the second session: a coin flip survives them with a chance of 1 in 64."""


class Purpose(StrEnum):
    """What a call is made to show about its gold call."""

    FRESH = "fresh"  # the gold call, before any other in session one
    PERTURBED = "perturbed"  # a wrong call
    OPTIONAL = "optional"  # the gold call with an optional argument given
    KEPT = "kept"  # a call of a member that was merged into the tool
    REVERSED = "reversed"  # the gold call in a world whose rows are in another order
    EMPTY = "empty"  # the gold call in a world without rows
    LATER = "later"  # the gold call that only reads, after all that the instance writes
    TAKEN = "taken"  # the gold call where the key of the row that it adds is taken
    EFFECT = "effect"  # another call whose effect is known
    AGAIN = "again"  # the gold call, after all the others in session one
    OTHER_SESSION = "other_session"  # the gold call in session two, for the first time
    REPEATED = "repeated"  # the same, further times


class Trial(NamedTuple):
    """One call to make."""

    gold: int
    """The place of the gold call, or of the member, that it is about among the candidate's."""
    purpose: Purpose
    arguments: dict[str, Any]
    world: WorldState | None
    """The world that the call meets; None for a stateless tool."""


class TrialRun(NamedTuple):
    """A trial that was executed."""

    trial: Trial
    result: SandboxResult
    end: str
    """The hash of the world after the call; empty for a stateless tool."""


@dataclass(frozen=True)
class Evidence:
    """What was observed about one gold call."""

    call: GoldCall
    end: str
    """The hash of the world as the gold call must leave it; empty for a stateless tool."""
    runs: Mapping[Purpose, Sequence[TrialRun]]
    """The trials of each purpose that has any, in the order of the schedule."""

    def all(self, purpose: Purpose) -> Sequence[TrialRun]:
        """The runs of a purpose; none where no trial has it."""
        return self.runs.get(purpose, ())

    def one(self, purpose: Purpose) -> TrialRun:
        """The only run of a purpose. Raises ValueError where there is another number of them."""
        (run,) = self.all(purpose)
        return run


@dataclass(frozen=True)
class Observed:
    """What the two sessions of a candidate returned, in the order of its schedules."""

    candidate: CandidateTool
    first: Sequence[TrialRun]
    second: Sequence[TrialRun]
    members: Sequence[Sequence[TrialRun]] = ()
    """What each of the candidate's members returned for its own calls."""

    def kept(self) -> list[tuple[TrialRun, TrialRun]]:
        """Each call of a member: what the member did, and what the candidate did."""
        own = [run for run in self.first if run.trial.purpose == Purpose.KEPT]
        return list(zip(chain.from_iterable(self.members), own, strict=True))

    def evidence(self) -> list[Evidence]:
        """What was observed about each gold call, in their order."""
        runs: list[dict[Purpose, list[TrialRun]]] = [{} for _ in self.candidate.calls]
        for run in (*self.first, *self.second):
            if run.trial.purpose == Purpose.KEPT:
                continue
            runs[run.trial.gold].setdefault(run.trial.purpose, []).append(run)
        return [
            Evidence(call, self.candidate.hash(call.after), about_call)
            for call, about_call in zip(self.candidate.calls, runs, strict=True)
        ]


def schedules(candidate: CandidateTool) -> list[list[Trial]]:
    """The calls of the first and of the second session, in the order in which they are made, and
    those of a session for each member.
    """
    first = [
        *_gold(candidate, Purpose.FRESH),
        *_wrong(candidate),
        *_in_other_worlds(candidate),
        *(
            Trial(at, Purpose.KEPT, merged, None)
            for at, member in enumerate(candidate.members)
            for _, merged in member.calls or ()
        ),
        *_gold(candidate, Purpose.AGAIN),
    ]
    second = list(_gold(candidate, Purpose.OTHER_SESSION))
    for _ in range(REPEATS - 1):
        second += _gold(candidate, Purpose.REPEATED)
    members = [
        [Trial(at, Purpose.KEPT, own, None) for own, _ in member.calls or ()]
        for at, member in enumerate(candidate.members)
    ]
    return [first, second, *members]


def _gold(candidate: CandidateTool, purpose: Purpose) -> Iterator[Trial]:
    for at, call in enumerate(candidate.calls):
        yield Trial(at, purpose, call.arguments, call.before)


def _wrong(candidate: CandidateTool) -> Iterator[Trial]:
    for at, call in enumerate(candidate.calls):
        for perturbation in call.perturbed:
            yield Trial(at, Purpose.PERTURBED, perturbation.arguments, call.before)
        for perturbation in call.optional:
            yield Trial(at, Purpose.OPTIONAL, perturbation.arguments, call.before)


def _in_other_worlds(candidate: CandidateTool) -> Iterator[Trial]:
    """A stateful tool's gold calls where rows are reversed, missing, changed, or in the way."""
    for at, call in enumerate(candidate.calls):
        if call.before is None:
            continue
        tables = call.before.tables
        reversed_rows = {name: _turned(rows, call.arguments) for name, rows in tables.items()}
        no_rows = {name: [] for name in tables}
        worlds = {
            Purpose.REVERSED: call.before.model_copy(update={"tables": reversed_rows}),
            Purpose.EMPTY: call.before.model_copy(update={"tables": no_rows}),
        }
        if call.later is not None and call.later_truth is not None:
            worlds[Purpose.LATER] = call.later
        if call.taken is not None:
            worlds[Purpose.TAKEN] = call.taken
        for purpose, world in worlds.items():
            yield Trial(at, purpose, call.arguments, world)
        for effect in call.effects:
            yield Trial(at, Purpose.EFFECT, effect.arguments, effect.before or call.before)


def _turned(rows: Sequence[Row], arguments: Mapping[str, Any]) -> list[Row]:
    """The rows in reverse order; those that the call is about come first unless one was first."""
    last = list(rows[::-1])
    about = [row for row in last if any(cell in arguments.values() for cell in row.values())]
    if any(row is rows[0] for row in about):
        return last
    return [*about, *(row for row in last if not any(row is one for one in about))]
