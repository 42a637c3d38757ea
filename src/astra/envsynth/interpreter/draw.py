"""Problems drawn from the families of mathematics and from the tables of checked questions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from random import Random
from typing import Self

from astra.envsynth.envs_merged_config import CodeConfig
from astra.envsynth.interpreter import mathematics, tables
from astra.envsynth.interpreter.problems import Problem, guessable
from astra.records.base import content_id
from astra.records.qa import Answer, AnswerType, QAInstance, Split
from astra.records.score import Rejection
from astra.store.shelf import Shelf

TRIES = 20
"""Draws per wanted problem before a source is taken to have no more."""


def draw(instances: Iterable[QAInstance], config: CodeConfig) -> Iterator[Problem | Rejection]:
    """Draw as many problems per split as asked for; draws that cannot be used are rejections.

    ``instances`` are read only where tables are asked about.
    """
    wanted = {split: config.instances.get(split, 0) for split in Split}
    about_tables = {split: round(count * config.table_share) for split, count in wanted.items()}
    with UsableTables(instances if any(about_tables.values()) else ()) as usable:
        for split, count in wanted.items():
            rng = Random(int(content_id([config.seed, split.value, "code"]), 16))
            first, rest = about_tables[split], count - about_tables[split]
            yield from _take(first, f"{split} tables", _of_tables(usable, split, config, rng))
            yield from _take(rest, f"{split} mathematics", _of_mathematics(split, config, rng))


def _take(wanted: int, what: str, draws: Iterator[Problem | None]) -> Iterator[Problem | Rejection]:
    """The first ``wanted`` usable draws; too few of them are a rejection about ``what``."""
    taken, seen = 0, set[str]()
    for problem in itertools.islice(draws, wanted * TRIES):
        if problem is None:
            continue  # the family does not fit the table: nothing was made
        reason = "repeated" if problem.question in seen else guessable(problem)
        seen.add(problem.question)
        if reason:
            yield problem.rejected(f"code_{reason}")
            continue
        yield problem
        taken += 1
        if taken == wanted:
            return
    if taken < wanted:
        yield Rejection(item=what, reason="code_exhausted", detail=f"{taken} of {wanted} made")


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


class UsableTables:
    """The tables that can be asked about, each once, with an instance that it belongs to.

    The instances lie on disk. Use it in ``with``.
    """

    def __init__(self, instances: Iterable[QAInstance]) -> None:
        self._instances = Shelf(QAInstance, lambda instance: instance.id)
        self._places: dict[Split, list[tuple[str, int]]] = {split: [] for split in Split}
        seen: set[str] = set()
        for instance in instances:
            keys = [content_id(table.model_dump(mode="json")) for table in instance.knowledge]
            usable = [
                (instance.id, at)
                for at, (key, table) in enumerate(zip(keys, instance.knowledge, strict=True))
                if key not in seen and key not in keys[:at] and tables.shape_of(table) is not None
            ]
            seen.update(keys)
            if usable:
                self._instances.add(instance)
                self._places[instance.split] += usable

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._instances.__exit__(*exc_info)

    def choose(self, split: Split, rng: Random) -> tuple[tables.TableShape, QAInstance] | None:
        """A table of the split, and an instance that it belongs to; None where there is none."""
        if not self._places[split]:
            return None
        instance_id, at = rng.choice(self._places[split])
        instance = self._instances.one(instance_id)
        shape = instance and tables.shape_of(instance.knowledge[at])
        assert instance is not None  # it was put in
        assert shape is not None
        return shape, instance


def _of_tables(
    usable: UsableTables, split: Split, config: CodeConfig, rng: Random
) -> Iterator[Problem | None]:
    names = owned(tables.FAMILIES, split, config)
    while (chosen := usable.choose(split, rng)) is not None:
        shape, instance = chosen
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
