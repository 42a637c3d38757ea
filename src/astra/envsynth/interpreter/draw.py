"""Problems drawn from the families of mathematics and from the tables of checked questions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from astra.envsynth.config import CodeConfig
from astra.envsynth.interpreter import mathematics, tables
from astra.envsynth.interpreter.problems import Problem, guessable
from astra.records.base import content_id
from astra.records.qa import Answer, AnswerType, QAInstance, Split
from astra.records.score import Rejection

TRIES = 20
"""Draws per wanted problem before a source is taken to have no more."""
Found = tuple[tables.Shape, QAInstance]


def draw(instances: Iterable[QAInstance], config: CodeConfig) -> Iterator[Problem | Rejection]:
    """As many problems per split as asked for; draws that cannot be used are rejections."""
    shapes = shapes_by_split(instances)
    for split in Split:
        wanted = config.instances.get(split, 0)
        of_tables = round(wanted * config.table_share)
        rng = Random(int(content_id([config.seed, split.value, "code"]), 16))
        found = shapes.get(split, [])
        yield from _take(of_tables, f"{split} tables", _of_tables(found, split, config, rng))
        yield from _take(
            wanted - of_tables, f"{split} mathematics", _of_mathematics(split, config, rng)
        )


def _take(wanted: int, what: str, draws: Iterator[Problem | None]) -> Iterator[Problem | Rejection]:
    made, seen = 0, set[str]()
    for problem in itertools.islice(draws, wanted * TRIES):
        if problem is None:
            continue  # the family does not fit the table: nothing was made
        item = content_id(problem.question)
        reason = "repeated" if problem.question in seen else guessable(problem)
        seen.add(problem.question)
        if reason:
            yield Rejection(item=item, reason=f"code_{reason}", detail=problem.composition)
            continue
        yield problem
        made += 1
        if made == wanted:
            return
    if made < wanted:
        yield Rejection(item=what, reason="code_exhausted", detail=f"{made} of {wanted} made")


def owned(names: Iterable[str], split: Split, config: CodeConfig) -> list[str]:
    """The families of a split: no two splits share one, and each has at least one."""
    ordered = sorted(names, key=lambda name: content_id([config.seed, name]))
    dev = max(1, round(config.dev_families * len(ordered)))
    held_out = max(1, round(config.held_out_families * len(ordered)))
    return {
        Split.DEV: ordered[:dev],
        Split.HELDOUT: ordered[dev : dev + held_out],
        Split.TRAIN: ordered[dev + held_out :],
    }[split]


def shapes_by_split(instances: Iterable[QAInstance]) -> dict[Split, list[Found]]:
    """Each usable table once, with an instance that has its domain and source."""
    found: dict[Split, list[Found]] = {}
    seen: set[str] = set()
    for instance in instances:
        for table in instance.knowledge:
            key = content_id(table.model_dump(mode="json"))
            shape = None if key in seen else tables.shape_of(table)
            seen.add(key)
            if shape is not None:
                found.setdefault(instance.split, []).append((shape, instance))
    return found


def _of_tables(
    found: Sequence[Found], split: Split, config: CodeConfig, rng: Random
) -> Iterator[Problem | None]:
    names = owned(tables.FAMILIES, split, config)
    while found:
        shape, instance = rng.choice(found)
        name = rng.choice(names)
        posed = tables.FAMILIES[name](shape, rng)
        yield posed and Problem(
            question=posed.question,
            answer=posed.answer,
            split=split,
            domain=instance.domain,
            source=instance.source,
            composition=f"code:{name}",
            solution=posed.solution,
            data=tables.as_data(shape),
            entities=tuple(sorted(str(row[shape.key]) for row in shape.rows)),
        )


def _of_mathematics(split: Split, config: CodeConfig, rng: Random) -> Iterator[Problem]:
    by_name = {family.name: family for family in mathematics.FAMILIES}
    names = owned(by_name, split, config)
    while True:
        family = by_name[rng.choice(names)]
        parameters = family.draw(rng)
        yield Problem(
            question=family.question(rng, parameters),
            answer=Answer(type=AnswerType.NUMBER, value=family.solved(parameters)),
            split=split,
            domain="mathematics",
            source="generated:mathematics",
            composition=f"code:{family.name}",
            solution=family.program(parameters),
        )
