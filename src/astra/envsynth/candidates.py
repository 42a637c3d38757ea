"""What is verified, what executing it gave, and what came of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from astra.arena.state import state_hash
from astra.envsynth.perturb import Perturbation, optional_probes, perturbations
from astra.envsynth.static import Problem, call_problem
from astra.envsynth.worlds import arena_state, around, is_refused, is_stateful, may_write, taken
from astra.records.base import canonical_json
from astra.records.qa import Answer, QAInstance, SubQuestion
from astra.records.state import ArenaState, Tables, World
from astra.records.tool import Tool
from astra.sandbox.protocol import SandboxResult

REPEATS = 6
"""Gold calls in the second session: a coin flip survives them with a chance of 1 in 64."""


@dataclass(frozen=True)
class GoldCall:
    arguments: dict[str, Any]
    answer: Answer
    perturbed: tuple[Perturbation, ...]
    optional: tuple[Perturbation, ...] = ()
    """The gold call with an optional argument that nothing has."""
    before: World | None = None
    """Of a stateful tool: the world that the call meets."""
    after: Tables | None = None
    """What the world must be after it; that of ``before`` where the call only reads."""
    refused: bool = False
    """Whether the tool must refuse the call, cleanly and without a change."""
    taken: World | None = None
    """The world in which the row that the call adds would be the second of its key."""


@dataclass(frozen=True)
class CandidateTool:
    """A tool with code, and every gold call that it must serve.

    ``state`` describes the world of a stateful tool and what it may write.
    """

    tool: Tool
    code: str
    calls: tuple[GoldCall, ...]
    state: ArenaState | None = None

    @property
    def writes(self) -> bool:
        return self.state is not None and bool(self.state.writes[self.tool.name])

    @property
    def key(self) -> str:
        """Candidates of one key have the same verdict; they are verified once."""
        return canonical_json(
            [
                self.tool.model_dump(mode="json"),
                self.code,
                [
                    [
                        call.arguments,
                        call.answer.model_dump(mode="json"),
                        call.before and call.before.model_dump(mode="json"),
                        call.after,
                        call.refused,
                        call.taken and call.taken.model_dump(mode="json"),
                    ]
                    for call in self.calls
                ],
                self.state and self.state.writes,
            ]
        )

    def hash(self, tables: Tables | None) -> str:
        """Of a state of the world; empty where there is none."""
        return "" if self.state is None or tables is None else state_hash(tables, self.state.fields)


def candidate_of(
    instance: QAInstance, tool: Tool, code: str, calls: Mapping[int, dict[str, Any]]
) -> CandidateTool:
    """A tool as it must prove itself: gold arguments by sub-question of one instance."""
    served = [question for question in instance.sub_questions if question.id in calls]
    state = None
    if any(is_stateful(instance, question) for question in served):
        allowed = {table for question in served for table in may_write(question)}
        state = arena_state(instance, {tool.name: sorted(allowed)})
    gold = [_gold_call(instance, one, tool, code, calls[one.id]) for one in served]
    return CandidateTool(tool, code, tuple(gold), state)


def _gold_call(
    instance: QAInstance, question: SubQuestion, tool: Tool, code: str, arguments: dict[str, Any]
) -> GoldCall:
    answer, optional = question.answer, optional_probes(tool, arguments)
    if not is_stateful(instance, question):
        wrong = perturbations(instance, question, tool, code, arguments)
        return GoldCall(arguments, answer, wrong, optional)
    before, after = around(instance, question)
    read = question.operation.table if question.operation else ""
    known = canonical_json(before.tables.get(read, before.tables))
    wrong = tuple(
        item
        for item in perturbations(instance, question, tool, known, arguments)
        if call_problem(tool, item.arguments) is None  # others never reach a tool
    )
    refused = is_refused(instance, question)
    full = None if refused else taken(instance, question, before)
    return GoldCall(arguments, answer, wrong, optional, before, after, refused, full)


class Trial(NamedTuple):
    """One call to make: which gold call it varies, with what, in which world."""

    gold: GoldCall
    arguments: dict[str, Any]
    world: World | None


class Ran(NamedTuple):
    """``end`` is the hash of the world after the call; empty for a stateless tool."""

    result: SandboxResult
    end: str


@dataclass
class Observed:
    """What the two sessions returned for one candidate, in the order of its schedules."""

    candidate: CandidateTool
    first: list[Ran]
    second: list[Ran]


@dataclass(frozen=True)
class Proof:
    """``problem`` is None for a pass; ``checks`` counts what was tried."""

    problem: Problem | None
    checks: dict[str, int] = field(default_factory=dict[str, int])


def schedules(candidate: CandidateTool) -> tuple[list[Trial], list[Trial]]:
    """The calls of the first and of the second session."""
    calls = candidate.calls
    gold = [Trial(call, call.arguments, call.before) for call in calls]
    return [*gold, *wrong_trials(candidate), *probes(candidate), *gold], gold * REPEATS


def wrong_trials(candidate: CandidateTool) -> list[Trial]:
    return [
        Trial(call, item.arguments, call.before)
        for call in candidate.calls
        for item in (*call.perturbed, *call.optional)
    ]


def probes(candidate: CandidateTool) -> list[Trial]:
    """Per stateful gold call: the same in a world with its rows reversed, in an empty one, and in
    one where the key of the row that it adds is taken."""
    return [
        Trial(call, call.arguments, world)
        for call in candidate.calls
        if call.before is not None
        for world in (*_variants(call.before), *([call.taken] if call.taken else []))
    ]


def _variants(world: World) -> Iterator[World]:
    yield world.model_copy(
        update={"tables": {name: rows[::-1] for name, rows in world.tables.items()}}
    )
    yield world.model_copy(update={"tables": {name: [] for name in world.tables}})
