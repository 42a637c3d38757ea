"""Scores of tasks with thresholds: whether a written task is kept (ASTRA section 3.2).

The paper's scores are quality, realism and tool-use necessity; difficulty and uniqueness of the
tool selection are labels of its release.

A task that cannot be solved on purpose is held to quality and realism alone: which tools would
solve it is no question there.
"""

from __future__ import annotations

from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.prompting import joined_hashes, template_hash
from astra.records.score import Rejection, Score, Scored, Unscored
from astra.records.task import TaskKind
from astra.records.tool import ToolServer
from astra.tasking.asks import SCORE, score_ask
from astra.tasking.config import ThresholdsConfig
from astra.tasking.drafts import Draft

SOLVABLE = (TaskKind.CHAIN, TaskKind.SERVER)


async def score_task(
    server: ToolServer, draft: Draft, judge: Teacher, thresholds: ThresholdsConfig
) -> Draft | Rejection:
    """The draft with its scores, or its rejection: below a threshold, or not scored at all."""
    task = draft.task
    try:
        labels = await judge.ask(score_ask(server, task.question, task.kind.value, task.plan))
    except (ProviderError, ParseError) as error:
        return draft.origin.failed(error, task.question)
    solvable = task.kind in SOLVABLE
    bounds = {"quality": thresholds.quality, "realism": thresholds.realism}
    if solvable:
        bounds |= {
            "necessity": thresholds.necessity,
            "difficulty": thresholds.difficulty,
            "uniqueness": thresholds.uniqueness,
        }
    scores: dict[str, Score] = {
        name: Scored(value=float(value))
        for name, value in labels.model_dump(exclude={"reason"}).items()
    }
    if not solvable:
        scores["necessity"] = Unscored(reason="no tool can solve this task")
    for name, least in bounds.items():
        label = getattr(labels, name)
        if label < least:
            detail = f"{label} < {least}: {task.question}"
            return draft.origin.rejected(f"low_{name}", detail, labels.reason)
    prompt_hash = joined_hashes(task.prompt_hash, template_hash(SCORE))
    scored = task.model_copy(update={"scores": scores, "prompt_hash": prompt_hash})
    return Draft(draft.origin, scored)
