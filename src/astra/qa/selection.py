"""Which judged instances of stage ``qa_valid`` pass: the threshold, then every gate.

Decided when all are judged, in order of the ids they then have: a percentile is known only with
every score, and of two near-duplicates the lowest id is kept. Until then they wait on disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from astra.qa.config import QAValidConfig, Threshold
from astra.qa.gates import Gate
from astra.qa.report import told
from astra.records.base import Record
from astra.records.qa import QAInstance
from astra.records.score import Rejection, Scored
from astra.store.shelf import Shelf

QS = "qs"


class JudgedInstance(Record):
    """A judged instance as it waits for the threshold."""

    identity: ClassVar[tuple[str, ...]] = ("item",)
    item: str
    """Id of the instance before it was judged."""
    instance: QAInstance
    """With ``tool_necessity`` and ``scores``."""
    against: str
    """The verifiers' words on what failed; empty where nothing did."""


class Waiting:
    """Judged instances until all are judged: on disk, in memory only their ids and QS."""

    def __init__(self) -> None:
        self._judged = Shelf(JudgedInstance, lambda one: one.instance.id)
        self._ids: set[str] = set()
        self._measured = array("d")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._judged.__exit__(*exc_info)

    def add(self, judged: JudgedInstance) -> None:
        self._judged.add(judged)
        self._ids.add(judged.instance.id)
        score = judged.instance.scores.get(QS)
        if isinstance(score, Scored):
            self._measured.append(score.value)

    def select(
        self, config: QAValidConfig, gates: Sequence[Gate]
    ) -> Iterator[QAInstance | Rejection]:
        """Each instance, unless it lies below the threshold or one of ``gates`` refuses it.

        In order of the judged instances' ids: of two near-duplicates the lowest is kept.
        """
        floor = cut_off(self._measured, config.threshold)
        for id in sorted(self._ids):
            for judged in self._judged.of(id):
                yield _refusal(judged, floor, gates) or judged.instance


def _refusal(judged: JudgedInstance, floor: float, gates: Sequence[Gate]) -> Rejection | None:
    instance = judged.instance
    score = instance.scores.get(QS)
    if not isinstance(score, Scored):
        return Rejection(item=judged.item, reason="unscored", detail=told("", instance))
    if score.value < floor:
        why = f"QS {score.value:.3f} < {floor:.3f}: {_marks(instance)}"
        return Rejection(
            item=judged.item,
            reason="low_quality",
            detail=told(why, instance),
            said=judged.against,
        )
    for gate in gates:
        problem = gate(instance)
        if problem is not None:
            reason, detail = problem
            return Rejection(item=judged.item, reason=reason, detail=detail)
    return None


def cut_off(values: Sequence[float], threshold: Threshold) -> float:
    """The least QS that passes; of a percentile, the value at that rank (ties pass)."""
    if threshold.kind == "absolute" or not values:
        return threshold.value if threshold.kind == "absolute" else 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * threshold.value / 100.0))]


def _marks(instance: QAInstance) -> str:
    """What each verifier gave, the lowest first."""
    measured = {n: s.value for n, s in instance.scores.items() if isinstance(s, Scored) and n != QS}
    ordered = sorted(measured.items(), key=lambda mark: (mark[1], mark[0]))
    return ", ".join(f"{name} {value:.2f}" for name, value in ordered)
