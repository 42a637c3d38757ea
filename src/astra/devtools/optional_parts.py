"""The parts that tests can do without, as ``tests/optional.toml`` lists them, and their skips."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from astra.errors import AstraError

TABLE = "tests/optional.toml"


class OptionalPart(BaseModel):
    """One part; the head of the table says what each field means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    what: str
    made_by: tuple[str, ...] = ()
    given_by: str = ""
    machine: bool = False
    long: bool = False
    environment: str = ""
    skips: tuple[str, ...]
    tests: tuple[str, ...]

    @model_validator(mode="after")
    def _machines_are_not_made(self) -> OptionalPart:
        if self.machine and (self.made_by or self.given_by or self.environment):
            raise ValueError("what only a machine brings is neither made nor given")
        return self

    @property
    def told(self) -> bool:
        """Whether its lack is told and no failure, since no command can bring it."""
        return self.machine or bool(self.given_by)

    def covers(self, test: str) -> bool:
        """Whether ``test`` (``tests/a/test_b.py::test_c[d]``) is one of the part's tests."""
        return any(test == one or test.startswith((f"{one}/", f"{one}::", f"{one}["))
                   for one in self.tests)  # fmt: skip


def read_parts(root: Path) -> list[OptionalPart]:
    """The parts that ``tests/optional.toml`` below ``root`` lists, in its order.

    Raises AstraError if a part has an unknown field, lacks one or names a path that is not there.
    """
    table = tomllib.loads((root / TABLE).read_text(encoding="utf-8"))
    try:
        parts = [OptionalPart(name=name, **fields) for name, fields in table.items()]
    except (ValidationError, TypeError) as error:
        raise AstraError(f"{TABLE}: {error}") from error
    for part in parts:
        for test in part.tests:
            if not (root / test.partition("::")[0]).exists():
                raise AstraError(f"{TABLE}: [{part.name}] names {test}, which is not there")
    return parts


def part_of(reason: str, parts: Sequence[OptionalPart]) -> OptionalPart | None:
    """The part for want of which a test was skipped with ``reason``; None if no part says so.

    Raises AstraError if two parts say so.
    """
    found = [part for part in parts if any(re.search(one, reason) for one in part.skips)]
    if len(found) > 1:
        names = ", ".join(part.name for part in found)
        raise AstraError(f"{TABLE}: {names} all claim the skip {reason!r}; narrow their `skips`")
    return found[0] if found else None
