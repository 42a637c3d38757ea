"""What must hold of a gold call and of the wrong calls made from it: one function per rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from astra.arena.answers import is_small_domain, matches, same_value
from astra.envsynth.candidates import CandidateTool
from astra.envsynth.leaks import mentions, texts_in, told_by_error, unescaped
from astra.envsynth.outcomes import answered, call_text, is_clean, outcome_text, unclean
from astra.envsynth.perturb import UNKNOWN_NAME, UNKNOWN_VALUES, Perturbation, PerturbationKind
from astra.envsynth.schedule import Evidence, Purpose, TrialRun
from astra.envsynth.static import Problem
from astra.envsynth.truth import Truth
from astra.records.base import canonical_json
from astra.sandbox.protocol import SandboxStatus
from astra.text.schemas import violation

MIN_PERTURBED = 3
"""Fewer wrong calls than this prove too little; our choice."""
SHOWN_CALLS = 3
"""Calls that a reason tells of."""
ROUNDING = 0.0051
"""How far an answer may be from the truth, which is rounded to two places."""
_BY_CHANCE = frozenset({PerturbationKind.OTHER, PerturbationKind.SWAPPED})
"""Kinds of calls that may truly have the gold answer, where few answers are possible."""
_UNFIT = frozenset({PerturbationKind.MISSING, PerturbationKind.WRONG_TYPE})
"""Kinds of calls that must not give the gold answer; what else they give does not matter."""
Rule = Callable[[CandidateTool, Evidence], Problem | None]
"""What must hold of a gold call, as the rule's docstring says; the problem where it does not."""


# The gold call itself ------------------------------------------------------------------------


def _gold_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """The gold call gives the typed answer and has its effect, or is refused if it must be."""
    call, run = evidence.call, evidence.one(Purpose.FRESH)
    result = run.result
    if call.refused:
        if answered(run):
            return "not_refused", f"returned {result.value!r:.100}, the call must be refused"
        return unclean(result)
    if not answered(run):
        return "gold_call_failed", result.error[:200]
    if not matches(call.answer, result.value):
        expected = canonical_json(call.answer.value)
        return "wrong_answer", f"returned {result.value!r:.100}, expected {expected:.100}"
    if candidate.tool.output_schema is not None:
        fault = violation(result.value, candidate.tool.output_schema)
        if fault:
            return "output_violates_schema", fault
    if run.end != evidence.end:
        untouched = call.before and run.end == candidate.hash(call.before.tables)
        return "wrong_effect", "nothing was written" if untouched else "the tables end up wrong"
    return None


def _stability_problem(_: CandidateTool, evidence: Evidence) -> Problem | None:
    """Neither chance, nor repetition, nor the calls made before change what the gold call does."""
    fresh, other_session = evidence.one(Purpose.FRESH), evidence.one(Purpose.OTHER_SESSION)
    if not _same(fresh, other_session):
        return "nondeterministic", "two fresh sessions disagree on the gold call"
    if not all(_same(other_session, run) for run in evidence.all(Purpose.REPEATED)):
        return "not_repeatable", "the same call gives something else when repeated"
    if not _same(fresh, evidence.one(Purpose.AGAIN)):
        return "order_dependent", "the result depends on the calls made before"
    return None


GOLD_RULES: tuple[Rule, ...] = (_gold_problem, _stability_problem)

# Wrong calls ---------------------------------------------------------------------------------


def _count_problem(_: CandidateTool, evidence: Evidence) -> Problem | None:
    """Enough wrong calls could be made for the rules below to say something."""
    count = len(evidence.call.perturbed)
    if count < MIN_PERTURBED:
        return "too_few_perturbations", f"only {count} wrong calls could be made"
    return None


def _error_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """A wrong call that fails tells no answer, and refuses cleanly if it fits the schema; one with
    an optional argument tells none either.
    """
    for perturbation, run in other_calls(evidence):
        if run.result.status != SandboxStatus.EXCEPTION:
            continue
        error = run.result.error
        if _leaks(candidate, evidence, perturbation, error):
            return "answer_in_error", f"an error states what must be found out: {error:.100}"
        if perturbation.kind == PerturbationKind.OPTIONAL:
            continue
        fits = not violation(perturbation.arguments, candidate.tool.parameters)
        if fits and not is_clean(run.result):
            return "unclean_error", f"{canonical_json(perturbation.arguments):.100}: {error}"
    return None


def _output_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """What other calls return satisfies the output schema, too: no empty result for a refusal."""
    if candidate.tool.output_schema is None:
        return None
    for perturbation, run in other_calls(evidence):
        if perturbation.kind not in _UNFIT and answered(run):
            fault = violation(run.result.value, candidate.tool.output_schema)
            if fault:
                told = f"{_told(candidate, perturbation, run)}: {fault}"
                return "output_violates_schema", told
    return None


def _idle_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """A tool that writes refuses what it cannot do: no other call passes without a change."""
    if not candidate.writes or evidence.call.before is None:
        return None
    before = candidate.hash(evidence.call.before.tables)
    for perturbation, run in _wrong_calls(evidence):
        if perturbation.kind not in _UNFIT and answered(run) and run.end == before:
            told = _told(candidate, perturbation, run)
            return "not_refused", f"{told}, and nothing was written: it must raise ValueError"
    return None


def _constant_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """Some wrong call is answered, and with another answer: else code might know just one."""
    if candidate.writes:
        return None  # tools that write commonly return true: their effects are compared below
    wrong = _wrong_calls(evidence)
    if all(_does_the_same(candidate, evidence, run) for _, run in wrong if answered(run)):
        tried = [one for one in wrong if one[0].kind == PerturbationKind.OTHER] or wrong
        shown = "; ".join(_told(candidate, *one) for one in tried[:SHOWN_CALLS])
        return "constant", f"no other arguments give another answer: {shown}"
    return None


def _argument_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """Each argument makes a difference: with other values, and left out where it may be."""
    required = candidate.tool.parameters.get("required", ())
    for name in evidence.call.arguments:
        others: list[tuple[Perturbation, TrialRun]] = []
        for perturbation, run in _wrong_calls(evidence):
            if perturbation.argument != name:
                continue
            if perturbation.kind == PerturbationKind.OTHER and answered(run):
                others.append((perturbation, run))
            left_out = perturbation.kind == PerturbationKind.MISSING and name not in required
            if left_out and _does_the_same(candidate, evidence, run):
                told = _told(candidate, perturbation, run)
                return "ignores_argument", f"argument {name} makes no difference: {told}"
        # One other value may truly have the same answer; all of them do not.
        telling = [one for one in others if not _is_gold_by_right(evidence, one[0])]
        if telling and all(_does_the_same(candidate, evidence, run) for _, run in others):
            told = _told(candidate, *telling[0])
            return "ignores_argument", f"argument {name} makes no difference: {told}"
    return None


def _gold_again_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """No wrong call does what the gold call does, unless it truly should.

    Another known value may have an equal answer by chance where few are possible; an unknown one, a
    missing one and one of a wrong type have none.
    """
    few = not candidate.writes and is_small_domain(evidence.call.answer)
    for perturbation, run in _wrong_calls(evidence):
        if few and perturbation.kind in _BY_CHANCE:
            continue
        if _does_the_same(candidate, evidence, run) and not _is_gold_by_right(
            evidence, perturbation
        ):
            done = "does the same" if candidate.writes else "must not return the gold answer"
            return "perturbed_returns_gold", f"{_told(candidate, perturbation, run)}: it {done}"
    return None


def _optional_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """An optional argument makes a difference with some real value, and with text nothing has."""
    probes = _optional_calls(evidence)
    for name in dict.fromkeys(perturbation.argument for perturbation, _ in probes):
        own = [one for one in probes if one[0].argument == name]
        real = [one for one in own if not _is_unknown(one[0])] or own
        telling = [one for one in real if not _is_gold_by_right(evidence, one[0])]
        same = [one for one in own if _does_the_same(candidate, evidence, one[1])]
        idle = [one for one in same if one[0].arguments[name] == UNKNOWN_NAME]
        if telling and all(one in same for one in telling):
            idle += telling
        if idle:
            told = _told(candidate, *idle[0])
            return "ignores_argument", f"optional argument {name} makes no difference: {told}"
        for perturbation, run in own:
            if run.result.status == SandboxStatus.EXCEPTION and not is_clean(run.result):
                return "unclean_error", _told(candidate, perturbation, run)
    return None


WRONG_CALL_RULES: tuple[Rule, ...] = (
    _count_problem,
    _error_problem,
    _output_problem,
    _idle_problem,
    _constant_problem,
    _argument_problem,
    _gold_again_problem,
    _optional_problem,
)

# Other worlds --------------------------------------------------------------------------------


def _order_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """Rows have no order, but on pages: with all of them reversed the gold call does the same."""
    if evidence.call.paged:
        return None
    if not _does_the_same(candidate, evidence, evidence.one(Purpose.REVERSED)):
        return "row_order", "the order of the rows makes a difference"
    return None


def _state_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """The tool reads the world: where that is empty the gold call does something else."""
    if _does_the_same(candidate, evidence, evidence.one(Purpose.EMPTY)):
        return "ignores_state", "an empty world makes no difference"
    return None


def _later_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """A call that only reads gives what is true after all that other steps write, too."""
    truth = evidence.call.later_truth
    for run in evidence.all(Purpose.LATER):
        call = call_text(candidate.tool.name, evidence.call.arguments)
        told = f"{call}, after later steps have written, {outcome_text(run)}"
        if truth is not None:
            return _truth_told(evidence, truth, run, told)
    return None


def _key_problem(_: CandidateTool, evidence: Evidence) -> Problem | None:
    """A row whose key another row has is refused, cleanly."""
    for run in evidence.all(Purpose.TAKEN):
        if answered(run):
            return "duplicate_key", "a row is added under a key that another row has"
        return unclean(run.result)
    return None


def _effect_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """Each further call with a known effect has just that and its answer, or is refused where it
    must be or may be.
    """
    runs = evidence.all(Purpose.EFFECT)
    for effect, run in zip(evidence.call.effects, runs, strict=True):
        call = call_text(candidate.tool.name, effect.arguments)
        told = f"{call} {outcome_text(run)}: {effect.reason}"
        served = any(effect.arguments == other.arguments for other in candidate.calls)
        if effect.after is None:
            if answered(run) and not served:
                return "not_refused", told
            if not answered(run) and not is_clean(run.result):
                return "unclean_error", told
        elif answered(run):
            if run.end != candidate.hash(effect.after):
                return "wrong_effect", told
            if effect.answer is not None and not _is_answer(evidence, effect.answer, run):
                return "wrong_result", f"{told}; its answer is {canonical_json(effect.answer):.100}"
        elif effect.required:
            return "wrong_effect", told
    return None


def _is_answer(evidence: Evidence, value: Any, run: TrialRun) -> bool:
    """Whether a call of a tool that writes answers with the value."""
    return matches(evidence.call.answer.model_copy(update={"value": value}), run.result.value)


WORLD_RULES: tuple[Rule, ...] = (
    _order_problem,
    _state_problem,
    _later_problem,
    _key_problem,
    _effect_problem,
)


# Calls whose truth is known ------------------------------------------------------------------


def _truth_problem(candidate: CandidateTool, evidence: Evidence) -> Problem | None:
    """Every other call gives what operation and table say: that answer, or a refusal."""
    if candidate.writes:
        return None
    for perturbation, run in other_calls(evidence):
        truth = perturbation.truth
        if truth is None or perturbation.kind in _UNFIT:
            continue
        told = _told(candidate, perturbation, run)
        free = _is_unknown(perturbation) or bool(
            violation(perturbation.arguments, candidate.tool.parameters)
        )
        meant = replace(truth, required=False) if free else truth
        problem = _truth_told(evidence, meant, run, told)
        if problem is not None:
            return problem
    return None


def _truth_told(evidence: Evidence, truth: Truth, run: TrialRun, told: str) -> Problem | None:
    """Why what a call did, as ``told``, is not the truth."""
    right = f"the data say {canonical_json(truth.value):.100}"
    if not answered(run):
        return ("rows_missing", f"{told}; {right}") if truth.exists and truth.required else None
    if not truth.exists:
        return "answers_unknown", f"{told}; no row is meant, so it must raise ValueError"
    return None if _is_true(evidence, truth, run) else ("wrong_result", f"{told}; {right}")


TRUTH_RULES: tuple[Rule, ...] = (_truth_problem,)

# What the rules share ------------------------------------------------------------------------


def _wrong_calls(evidence: Evidence) -> list[tuple[Perturbation, TrialRun]]:
    """Each perturbed call with what it did."""
    return list(zip(evidence.call.perturbed, evidence.all(Purpose.PERTURBED), strict=True))


def _does_the_same(candidate: CandidateTool, evidence: Evidence, run: TrialRun) -> bool:
    """Whether a call did what the gold call does: its effect where it writes, else its answer."""
    if not answered(run):
        return False
    if candidate.writes:
        return run.end == evidence.end
    return matches(evidence.call.answer, run.result.value)


def _same(one: TrialRun, other: TrialRun) -> bool:
    return (
        one.result.status == other.result.status
        and same_value(one.result.value, other.result.value)
        and one.end == other.end
    )


def _leaks(
    candidate: CandidateTool, evidence: Evidence, perturbation: Perturbation, error: str
) -> bool:
    """Whether an error states the answer or another secret, and not just as the arguments did."""
    answer = evidence.call.answer.value
    asked = unescaped(texts_in(perturbation.arguments))
    hidden = not candidate.writes or answer in candidate.secrets.answers
    if hidden and mentions(unescaped(error), answer) and not mentions(asked, answer):
        return True
    return told_by_error(error, candidate.secrets, perturbation.arguments) is not None


def _optional_calls(evidence: Evidence) -> list[tuple[Perturbation, TrialRun]]:
    """Each call with an optional argument with what it did."""
    return list(zip(evidence.call.optional, evidence.all(Purpose.OPTIONAL), strict=True))


def other_calls(evidence: Evidence) -> list[tuple[Perturbation, TrialRun]]:
    return [*_wrong_calls(evidence), *_optional_calls(evidence)]


def _is_true(evidence: Evidence, truth: Truth, run: TrialRun) -> bool:
    """Whether an answer is the truth, up to how numbers are rounded."""
    gold = evidence.call.answer
    tolerance = max(gold.tolerance, ROUNDING)
    answer = gold.model_copy(update={"value": truth.value, "tolerance": tolerance})
    return matches(answer, run.result.value)


def _is_gold_by_right(evidence: Evidence, perturbation: Perturbation) -> bool:
    """Whether a wrong call truly has the gold answer, too."""
    truth = perturbation.truth
    return truth is not None and truth.exists and matches(evidence.call.answer, truth.value)


def _is_unknown(perturbation: Perturbation) -> bool:
    """Whether a call holds a value that nothing has: refusing it is always right."""
    if perturbation.kind != PerturbationKind.OPTIONAL:
        return perturbation.kind == PerturbationKind.UNKNOWN
    given = perturbation.arguments[perturbation.argument]
    return given is not False and given in UNKNOWN_VALUES


def _told(candidate: CandidateTool, perturbation: Perturbation, run: TrialRun) -> str:
    """A call and what came of it, as a teacher can learn from it."""
    return f"{call_text(candidate.tool.name, perturbation.arguments)} {outcome_text(run)}"
