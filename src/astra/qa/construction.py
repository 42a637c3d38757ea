"""What holds of an instance by construction, so that no judge need be asked about it.

The rules of stage ``qa`` have proved that every operation yields its step's answer, with the
declared dependencies as its inputs. So a step's operation says whether it needs a tool and how
early it can stand, whoever made the question. Of a planned question the plan fixes the rest as
well: one operation per step, and a final answer that is made up of its last steps' answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from astra.qa.config import QAValidConfig
from astra.qa.knowledge.operations import PLAIN_OPS, WRITE_OPS
from astra.qa.knowledge.references import references
from astra.qa.replies import Necessity
from astra.records.base import ID_LENGTH
from astra.records.qa import Operation, QAInstance, SubQuestion
from astra.records.score import Score, Scored


@dataclass(frozen=True)
class ByConstruction:
    """What holds by construction: verdicts on necessity by step, and scores by verifier."""

    needs: Mapping[int, Necessity] = field(default_factory=dict[int, Necessity])
    scores: Mapping[str, Score] = field(default_factory=dict[str, Score])

    def asks_saved(self, instance: QAInstance) -> int:
        """How many asks of a judge it spares."""
        carried_out = {step.id for step in instance.sub_questions if step.bar is None}
        return len(self.scores) + (carried_out == set(self.needs) and bool(carried_out))


def known(instance: QAInstance, config: QAValidConfig) -> ByConstruction:
    """What holds of an instance by construction; nothing of one that is audited."""
    if audited(instance, config):
        return ByConstruction()
    return ByConstruction(_necessity(instance), _scores(instance))


def audited(instance: QAInstance, config: QAValidConfig) -> bool:
    """Whether judges are asked about all of an instance, by a hash: ``audit_share`` of them."""
    return int(instance.id, 16) < config.audit_share * 16**ID_LENGTH


def _necessity(instance: QAInstance) -> dict[int, Necessity]:
    """A verdict on each step that is carried out and states its operation.

    Look-ups, writes and calculations need a tool, comparisons and picks do not.
    """
    return {
        step.id: Necessity(
            id=step.id,
            reason=f"its operation is {step.operation.op}",
            needs_tool=step.operation.op not in PLAIN_OPS,
        )
        for step in instance.sub_questions
        if step.operation is not None and step.bar is None
    }


def _scores(instance: QAInstance) -> dict[str, Score]:
    operations = {step.id: step.operation for step in instance.sub_questions if step.operation}
    steps = instance.sub_questions
    if len(operations) < len(steps):
        return {}
    needed = {step.id: _needed(step, operations) for step in steps}
    levels = {step.id: step.hop_level for step in steps}
    early = [
        step.hop_level <= 1 + max((levels.get(id, 0) for id in needed[step.id]), default=0)
        for step in steps
    ]
    if not instance.planned:
        return {"sequential": _share(early)}
    linked = [step for step in steps if step.dependencies or needed[step.id]]
    exact = [set(step.dependencies) == needed[step.id] for step in linked]
    certain: Score = Scored(value=1.0, by_construction=True)
    scores = {"dependency": _share(exact)} if exact else {}
    return {
        **scores, "atomicity": certain, "sequential": _share(early), "completeness": certain,
    }  # fmt: skip


def _share(verdicts: list[bool]) -> Score:
    return Scored(value=fmean(map(float, verdicts)), by_construction=True)


def _needed(step: SubQuestion, operations: Mapping[int, Operation]) -> set[int]:
    """Ids of the steps that a step has to wait for.

    They are those whose answers its operation uses, actions whose effect it sees, and, where it is
    barred, the look-up that shows why.
    """
    assert step.operation is not None
    seen = {
        id
        for id in step.dependencies
        if step.bar is not None or (id in operations and operations[id].op in WRITE_OPS)
    }
    return {*references(step.operation), *seen}
