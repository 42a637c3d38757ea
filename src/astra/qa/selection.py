"""Which judged instances of stage ``qa_valid`` pass: the threshold, every gate, and variety.

This is decided when all are judged, in the order of the ids that they then have: a percentile is
known only with every score, and of two near-duplicates the lowest id is kept. What is left of a
split is cut where one composition holds too much of it. Until then the instances wait on disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from astra.qa.config import QAValidConfig, Threshold
from astra.qa.gates import Gate
from astra.qa.report import refusal_detail
from astra.qa.variety import ShapeCounts
from astra.records.base import Record
from astra.records.qa import QAInstance
from astra.records.score import Rejection, Scored
from astra.store.shelf import Shelf

QS = "qs"
"""The quality score's name among an instance's scores."""


class JudgedInstance(Record):
    """A judged instance as it waits for the threshold."""

    identity: ClassVar[tuple[str, ...]] = ("item",)
    item: str
    """The id that the instance had before it was judged."""
    instance: QAInstance
    """The instance with ``tool_necessity`` and ``scores``."""
    against: str
    """The verifiers' words on what failed; empty where nothing did."""


class JudgedShelf:
    """Judged instances that wait until all are judged: on disk; in memory are their ids and QS."""

    def __init__(self) -> None:
        self._judged = Shelf(JudgedInstance, lambda judged: judged.instance.id)
        self._ids: set[str] = set()
        self._qs = array("d")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._judged.__exit__(*exc_info)

    def add(self, judged: JudgedInstance) -> None:
        """Let one more instance wait."""
        self._judged.add(judged)
        self._ids.add(judged.instance.id)
        score = judged.instance.scores.get(QS)
        if isinstance(score, Scored):
            self._qs.append(score.value)

    def select(
        self, config: QAValidConfig, gates: Sequence[Gate]
    ) -> Iterator[QAInstance | Rejection]:
        """A rejection for each instance that does not pass, and each that does.

        Those that threshold or gates refuse come first; each part in the order of the ids.
        """
        floor = cut_off(self._qs, config.threshold)
        shapes, passing = ShapeCounts(), set[str]()
        for judged in self._waiting():
            refusal = _refusal(judged, floor, gates)
            if refusal is None:
                shapes.add(judged.instance)
                passing.add(judged.item)
            else:
                yield refusal
        limits, taken = shapes.limits(config.max_shape_share), ShapeCounts()
        for judged in self._waiting():
            if judged.item not in passing:
                continue
            limit = limits.get(judged.instance.split)
            if limit is not None and taken.of(judged.instance) >= limit:
                yield _frequent(judged, limit)
            else:
                taken.add(judged.instance)
                yield judged.instance

    def _waiting(self) -> Iterator[JudgedInstance]:
        for id in sorted(self._ids):
            yield from self._judged.of(id)


def _refusal(judged: JudgedInstance, floor: float, gates: Sequence[Gate]) -> Rejection | None:
    instance = judged.instance
    score = instance.scores.get(QS)
    if not isinstance(score, Scored):
        return Rejection(item=judged.item, reason="unscored", detail=refusal_detail("", instance))
    if score.value < floor:
        why = f"QS {score.value:.3f} < {floor:.3f}: {_marks(instance)}"
        return Rejection(
            item=judged.item,
            reason="low_quality",
            detail=refusal_detail(why, instance),
            said=judged.against,
        )
    for gate in gates:
        problem = gate(instance)
        if problem is not None:
            reason, detail = problem
            return Rejection(item=judged.item, reason=reason, detail=detail)
    return None


def _frequent(judged: JudgedInstance, limit: int) -> Rejection:
    instance = judged.instance
    why = f"{limit} of split {instance.split} ask {instance.composition} already"
    detail = refusal_detail(why, instance)
    return Rejection(item=judged.item, reason="frequent_shape", detail=detail)


def cut_off(values: Sequence[float], threshold: Threshold) -> float:
    """The least QS that passes: the threshold itself, or the score at its percentile."""
    if threshold.kind == "absolute":
        return threshold.value
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * threshold.value / 100.0))]


def _marks(instance: QAInstance) -> str:
    """Every verifier's score, the lowest first."""
    marks = [
        (score.value, name)
        for name, score in instance.scores.items()
        if isinstance(score, Scored) and name != QS
    ]
    return ", ".join(f"{name} {value:.2f}" for value, name in sorted(marks))
