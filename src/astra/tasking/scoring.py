"""Scores of tasks with thresholds: whether a written task is kept (ASTRA section 3.2).

The paper's scores are quality, realism and tool-use necessity; difficulty and uniqueness of the
tool selection are labels of its release. With them the judge says which planned values neither
stand in the question nor follow from it, and which of those left to the agent nobody would leave
open: rules only mark what does not stand there.

A task that cannot be solved on purpose is held to quality and realism alone: which tools would
solve it is no question there.
"""

from __future__ import annotations

from collections.abc import Sequence

from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.prompting import joined_hashes, template_hash
from astra.records.score import Rejection, Score, Scored, Unscored
from astra.records.task import TaskKind
from astra.records.tool import ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import SCORE, TaskScores, score_ask
from astra.tasking.config import ThresholdsConfig
from astra.tasking.drafts import Draft
from astra.tasking.stated import GivenValue, Standing, chosen_values, given_values

SOLVABLE = (TaskKind.CHAIN, TaskKind.SERVER)
LABELS = ("quality", "realism", "necessity", "difficulty", "uniqueness")
UNSOLVABLE_LABELS = ("quality", "realism")
"""The labels that a task without a solution has to have."""


async def score_task(
    server: ToolServer,
    draft: Draft,
    judge: Teacher,
    thresholds: ThresholdsConfig,
    metrics: StageMetrics,
) -> Draft | Rejection:
    """The draft with its scores, or its rejection.

    Rejected is what has a wrong value or a label below its threshold, or got no scores at all.
    """
    task = draft.task
    try:
        labels = await judge.ask(score_ask(server, task))
    except (ProviderError, ParseError) as error:
        return draft.origin.failed(error, task.question)
    given = given_values(task.question, task.plan, {tool.name: tool for tool in server.tools})
    if wrong := _wrong_values(draft, labels, given, metrics):
        return wrong
    solvable = task.kind in SOLVABLE
    if low := _low_label(draft, labels, thresholds, solvable):
        return low
    scores: dict[str, Score] = {name: Scored(value=float(getattr(labels, name))) for name in LABELS}
    if not solvable:
        scores["necessity"] = Unscored(reason="no tool can solve this task")
    prompt_hash = joined_hashes(task.prompt_hash, template_hash(SCORE))
    scored = task.model_copy(update={"scores": scores, "prompt_hash": prompt_hash})
    return Draft(draft.origin, scored)


def _wrong_values(
    draft: Draft, labels: TaskScores, given: Sequence[GivenValue], metrics: StageMetrics
) -> Rejection | None:
    """The rejection for what the judge calls wrong, if anything; counts the values either way."""
    problems = {wrong.place: wrong.problem for wrong in labels.wrong_values}
    wrong = [one for one in given if one.place in problems]
    for one in given:
        metrics.count("values_wrong" if one in wrong else f"values_{one.standing}")
    chosen = chosen_values(draft.task.plan)
    not_free = {place: value for place, value in chosen.items() if place in problems}
    for place in chosen:
        metrics.count("values_wrong" if place in not_free else "values_chosen")
    if not problems:
        return None
    if not_free:
        reason = "value_wrongly_chosen"
    elif wrong and all(one.standing is Standing.DERIVED for one in wrong):
        reason = "value_wrongly_derived"
    else:
        reason = "value_not_stated"
    values = [f"{one.place} {one.source.said!r} -> {one.source.value!r}" for one in wrong]
    values += [f"{place} chosen -> {value!r}" for place, value in not_free.items()]
    said = "; ".join(f"{place}: {problem}" for place, problem in problems.items())
    return draft.origin.rejected(reason, f"{'; '.join(values)}: {draft.task.question}", said)


def _low_label(
    draft: Draft, labels: TaskScores, thresholds: ThresholdsConfig, solvable: bool
) -> Rejection | None:
    """The rejection for the first label below its threshold, if one is."""
    for name in LABELS if solvable else UNSOLVABLE_LABELS:
        label, least = getattr(labels, name), getattr(thresholds, name)
        if label < least:
            detail = f"{label} < {least}: {draft.task.question}"
            return draft.origin.rejected(f"low_{name}", detail, labels.reason)
    return None
