"""What has to be proved: a tool's code, and the gold calls that it must serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from astra.arena.state import state_hash
from astra.envsynth.effects import KnownEffect, known_effects
from astra.envsynth.fit import operation_problem
from astra.envsynth.known import known_calls
from astra.envsynth.leaks import NO_SECRETS, Secrets, secrets_of
from astra.envsynth.perturb import (
    MOST_KNOWN,
    Perturbation,
    optional_probes,
    perturbations,
)
from astra.envsynth.static import Problem, call_problem
from astra.envsynth.truth import WHOLE_TABLE, Truth, filters_of, meaning_of
from astra.envsynth.worlds import (
    afterwards,
    arena_state,
    around,
    is_refused,
    is_stateful,
    may_write,
    tables_in,
    taken,
)
from astra.records.base import canonical_json
from astra.records.environment import Environment
from astra.records.qa import Answer, QAInstance, SubQuestion
from astra.records.state import ArenaState, Tables, WorldState
from astra.records.tool import Tool


@dataclass(frozen=True)
class GoldCall:
    """The right call of one sub-question, and the wrong ones made from it."""

    arguments: dict[str, Any]
    answer: Answer
    perturbed: tuple[Perturbation, ...]
    """Wrong calls: none may do what the gold call does."""
    optional: tuple[Perturbation, ...] = ()
    """The gold call with an optional argument given: real values, and one that nothing has."""
    before: WorldState | None = None
    """The world that the call meets; None where the tool is stateless."""
    after: Tables | None = None
    """The tables that the call must leave; those of ``before`` where it only reads."""
    refused: bool = False
    """Whether the tool must refuse the call, cleanly and without a change."""
    taken: WorldState | None = None
    """The world in which the row that the call adds would be the second of its key."""
    effects: tuple[KnownEffect, ...] = ()
    """Further calls of a tool that writes, with what they must do."""
    later: WorldState | None = None
    """The world after all that the instance writes, where the call only reads and it differs."""
    later_truth: Truth | None = None
    """What the call truly gives in that world; None where that is not determined."""
    paged: bool = False
    """Whether the answer is one page of rows, so that their order decides which are on it."""


@dataclass(frozen=True)
class Member:
    """A proved tool that was merged into another, and calls that both must answer alike."""

    name: str
    code: str
    calls: tuple[tuple[dict[str, Any], dict[str, Any]], ...] | None
    """The arguments as the member has them, and as the merged tool has them; None where its
    parameters have no counterparts.
    """


@dataclass(frozen=True)
class CandidateTool:
    """A tool with code, and every gold call that it must serve."""

    tool: Tool
    code: str
    calls: tuple[GoldCall, ...]
    state: ArenaState | None = None
    """The world of a stateful tool and what it may write; None for a stateless one."""
    secrets: Secrets = NO_SECRETS
    """What neither its document nor its errors may state."""
    filters: tuple[str, ...] | None = None
    """The names that its optional parameters can have; None where any will do."""
    members: tuple[Member, ...] = ()
    """The tools that it was merged from, where only their own calls tell what it must know."""
    unfit: Problem | None = None
    """Why its document does not fit an operation that it serves."""

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
                        [_key(wrong) for wrong in (*call.perturbed, *call.optional)],
                        call.before and call.before.model_dump(mode="json"),
                        call.after,
                        call.refused,
                        call.taken and call.taken.model_dump(mode="json"),
                        [
                            [
                                effect.arguments,
                                effect.after,
                                effect.answer,
                                effect.required,
                                effect.before and effect.before.tables,
                            ]
                            for effect in call.effects
                        ],
                        call.later and call.later.model_dump(mode="json"),
                        _truth_key(call.later_truth),
                    ]
                    for call in self.calls
                ],
                self.state and self.state.writes,
                [*self.secrets.answers, *self.secrets.given],
                self.unfit,
                [[member.code, member.calls] for member in self.members],
            ]
        )

    def hash(self, tables: Tables | None) -> str:
        """The hash of a state of the world; empty where the tool is stateless."""
        return "" if self.state is None or tables is None else state_hash(tables, self.state.fields)


def _key(wrong: Perturbation) -> list[Any]:
    return [wrong.arguments, _truth_key(wrong.truth)]


def _truth_key(truth: Truth | None) -> list[Any] | None:
    return truth and [truth.value, truth.exists, truth.required]


def candidate_of(
    instance: QAInstance,
    tool: Tool,
    code: str,
    calls: Mapping[int, dict[str, Any]],
    members: Sequence[Environment] = (),
) -> CandidateTool:
    """A tool as it must prove itself; ``calls``: gold arguments by id of the sub-question.

    A merged tool has ``members``: it must answer what they answer, but for those whose operation
    says what is true. One that contradicts that is itself wrong.
    """
    served = [question for question in instance.sub_questions if question.id in calls]
    state = None
    if any(is_stateful(instance, question) for question in served):
        allowed = {table for question in served for table in may_write(question)}
        state = arena_state(instance, {tool.name: sorted(allowed)})
    filters = [filters_of(instance, question) for question in served]
    unfit = (operation_problem(tool, instance, one) for one in served)
    return CandidateTool(
        tool,
        code,
        tuple(
            _gold_call(instance, question, tool, code, calls[question.id]) for question in served
        ),
        state,
        secrets_of(instance, list(calls.values())),
        filters[0] if filters else None,
        tuple(
            _member(one, calls)
            for one in members
            if not state and one.code != code and not _is_told(instance, one, calls)
        ),
        next(filter(None, unfit), None),
    )


def _is_told(
    instance: QAInstance, environment: Environment, calls: Mapping[int, dict[str, Any]]
) -> bool:
    """Whether operation and table tell what every other call of a member's truly gives."""
    merged = calls[environment.sub_question_id]
    (question,) = (one for one in instance.sub_questions if one.id == environment.sub_question_id)
    meaning = meaning_of(instance, question, list(merged), merged, instance.knowledge)
    if meaning is None or meaning.fixed:
        return False
    return meaning.table is None or len(meaning.table.rows) <= WHOLE_TABLE


def _member(environment: Environment, calls: Mapping[int, dict[str, Any]]) -> Member:
    """A merged tool's member, with calls about the data in its code. A value that the merged tool
    wants in another form is asked about as in the gold call alone.
    """
    gold, code = environment.arguments, environment.code
    merged = calls[environment.sub_question_id]
    names = _names(gold, merged)
    if not names:
        return Member(environment.tool.name, code, None)
    known = [gold, *known_calls(code, gold, None)[:MOST_KNOWN]]
    reformed = {name for name in gold if merged[names[name]] != gold[name]}
    readable = [call for call in known if all(call[name] == gold[name] for name in reformed)]
    pairs = [
        (
            call,
            {own: merged[own] if name in reformed else call[name] for name, own in names.items()},
        )
        for call in readable
    ]
    return Member(environment.tool.name, code, tuple(pairs))


def _names(gold: Mapping[str, Any], merged: Mapping[str, Any]) -> dict[str, str]:
    """A member's argument -> the merged tool's, of one name or else of one value; empty where an
    argument has no counterpart.
    """
    names = {name: name for name in gold if name in merged}
    for name in gold.keys() - names.keys():
        free = [own for own in merged if own not in names.values() and merged[own] == gold[name]]
        if len(free) != 1:
            return {}
        names[name] = free[0]
    return names


def _gold_call(
    instance: QAInstance, question: SubQuestion, tool: Tool, code: str, arguments: dict[str, Any]
) -> GoldCall:
    answer, parameters = question.answer, list(tool.parameters.get("properties", {}))
    if not is_stateful(instance, question):
        meaning = meaning_of(instance, question, parameters, arguments, instance.knowledge)
        wrong = perturbations(instance, question, code, arguments, meaning)
        optional = optional_probes(tool, code, arguments, meaning)
        return GoldCall(arguments, answer, wrong, optional)
    before, after = around(instance, question)
    # The values that a stateless tool knows stand in its code; a stateful one has its table.
    table = question.operation.table if question.operation else ""
    known = canonical_json(before.tables.get(table, before.tables))
    meaning = meaning_of(instance, question, parameters, arguments, tables_in(instance, before))
    wrong = tuple(
        perturbation
        for perturbation in perturbations(instance, question, known, arguments, meaning)
        if call_problem(tool, perturbation.arguments) is None  # others never reach a tool
    )
    refused = is_refused(instance, question)
    later = afterwards(instance, question) if meaning is not None else None
    truth = None
    if meaning is not None and later is not None:
        tables = tuple(tables_in(instance, later))
        truth = replace(meaning, tables=tables).truth(meaning.gold)
    return GoldCall(
        arguments,
        answer,
        wrong,
        tuple(
            probe
            for probe in optional_probes(tool, known, arguments, meaning)
            if call_problem(tool, probe.arguments) is None
        ),
        before,
        after,
        refused,
        taken=None if refused else taken(instance, question, before),
        effects=() if refused else known_effects(instance, question, tool, arguments, before),
        later=later,
        later_truth=truth,
        paged=question.operation is not None and question.operation.op == "page",
    )
