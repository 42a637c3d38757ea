"""What has to be proved: a tool's code, and the gold calls that it must serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from astra.arena.state import state_hash
from astra.envsynth.perturb import Perturbation, optional_probes, perturbations
from astra.envsynth.static import call_problem
from astra.envsynth.worlds import arena_state, around, is_refused, is_stateful, may_write, taken
from astra.records.base import canonical_json
from astra.records.qa import Answer, QAInstance, SubQuestion
from astra.records.state import ArenaState, Tables, World
from astra.records.tool import Tool


@dataclass(frozen=True)
class GoldCall:
    """The right call of one sub-question, and the wrong ones made from it."""

    arguments: dict[str, Any]
    answer: Answer
    perturbed: tuple[Perturbation, ...]
    """Wrong calls: none may do what the gold call does."""
    optional: tuple[Perturbation, ...] = ()
    """The gold call with an optional argument that nothing has."""
    before: World | None = None
    """The world that the call meets; None where the tool is stateless."""
    after: Tables | None = None
    """The tables that the call must leave; those of ``before`` where it only reads."""
    refused: bool = False
    """Whether the tool must refuse the call, cleanly and without a change."""
    taken: World | None = None
    """The world in which the row that the call adds would be the second of its key."""


@dataclass(frozen=True)
class CandidateTool:
    """A tool with code, and every gold call that it must serve."""

    tool: Tool
    code: str
    calls: tuple[GoldCall, ...]
    state: ArenaState | None = None
    """The world of a stateful tool and what it may write; None for a stateless one."""

    @property
    def writes(self) -> bool:
        """Whether the tool may change the world: then its effect counts, not its answer."""
        return self.state is not None and bool(self.state.writes[self.tool.name])

    @property
    def key(self) -> str:
        """Candidates of one key have the same proof; they are executed once."""
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
        """The hash of a state of the world; empty where the tool is stateless."""
        return "" if self.state is None or tables is None else state_hash(tables, self.state.fields)


def candidate_of(
    instance: QAInstance, tool: Tool, code: str, calls: Mapping[int, dict[str, Any]]
) -> CandidateTool:
    """A tool as it must prove itself; ``calls``: gold arguments by id of the sub-question."""
    served = [question for question in instance.sub_questions if question.id in calls]
    state = None
    if any(is_stateful(instance, question) for question in served):
        allowed = {table for question in served for table in may_write(question)}
        state = arena_state(instance, {tool.name: sorted(allowed)})
    gold = (_gold_call(instance, question, tool, code, calls[question.id]) for question in served)
    return CandidateTool(tool, code, tuple(gold), state)


def _gold_call(
    instance: QAInstance, question: SubQuestion, tool: Tool, code: str, arguments: dict[str, Any]
) -> GoldCall:
    answer, optional = question.answer, optional_probes(tool, arguments)
    if not is_stateful(instance, question):
        wrong = perturbations(instance, question, tool, code, arguments)
        return GoldCall(arguments, answer, wrong, optional)
    before, after = around(instance, question)
    # The values that a stateless tool knows stand in its code; a stateful one has its table.
    table = question.operation.table if question.operation else ""
    known = canonical_json(before.tables.get(table, before.tables))
    wrong = tuple(
        perturbation
        for perturbation in perturbations(instance, question, tool, known, arguments)
        if call_problem(tool, perturbation.arguments) is None  # others never reach a tool
    )
    refused = is_refused(instance, question)
    return GoldCall(
        arguments,
        answer,
        wrong,
        optional,
        before,
        after,
        refused,
        taken=None if refused else taken(instance, question, before),
    )
