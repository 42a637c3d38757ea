"""The files of a service: its OpenAPI document, its rows, and what is known of it besides."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self, cast

import yaml
from pydantic import Field, ValidationError, model_validator

from astra.records.qa import Split
from astra.records.world import Change, Enforced, Expr, Invariant
from astra.settings import StageConfig, faults
from astra.worlds.soundness import WorldFault, operations
from astra.worlds.sources import MAX_REFUSAL

SERVICES = Path("sources/services")
"""Where services lie, a folder each; a declared dependency of the stage."""
_DATES = "tag:yaml.org,2002:timestamp"


class ServiceRefused(Exception):
    """A service of which no world can be made, and everything that was found to be wrong."""

    def __init__(self, found: Iterable[WorldFault]) -> None:
        self.faults = tuple(found)
        super().__init__("; ".join(f"{one.reason}: {one.detail}" for one in self.faults))


class ServiceSource(StageConfig):
    """A service to make a world of."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Its folder below ``sources/services``, and the world's ``domain``."""
    split: Split


class ServiceParty(StageConfig):
    """Whose desk it is."""

    table: str
    """The table of those who ask."""
    found_by: tuple[tuple[str, ...], ...] = Field(min_length=1, max_length=2)
    """Columns by which one of them is found: those of one entry together. Of two entries the first
    has one column."""

    @model_validator(mode="after")
    def _first_alone(self) -> Self:
        if not all(self.found_by) or (len(self.found_by) == 2 and len(self.found_by[0]) != 1):
            raise ValueError("found_by: one list of columns, or two, the first of one column")
        return self


class ServiceNeed(StageConfig):
    """Something without which an operation is refused."""

    that: Expr
    says: str = Field(min_length=1, max_length=MAX_REFUSAL)
    """What the tool says where it does not hold."""


class ServiceEffect(StageConfig):
    """What an operation asks and does that its document does not say."""

    needs: tuple[ServiceNeed, ...] = ()
    sets: dict[str, Expr] = Field(default_factory=dict[str, Any])
    """Cells of the row that are set, besides those that a body gives."""
    also: tuple[Change, ...] = ()
    """Writes of other rows."""


class ServiceRule(StageConfig):
    """A rule; its sentence is made of its expression."""

    id: str
    tools: tuple[str, ...] = Field(min_length=1)
    when: Expr = None
    require: Expr
    enforced: Enforced
    reason: str = Field(pattern=r"^[a-z][a-z0-9_]*$")


class ServiceRules(StageConfig):
    """The file ``rules.yaml``: who the users are, what operations do, and the rules."""

    title: str = Field(min_length=1)
    about: str = ""
    """Sentences for the policy: what an agent has to know and no rule says."""
    clock: str
    """The moment at which the rows are as they are, ISO 8601; it stands still."""
    party: ServiceParty
    topics: dict[str, str] = Field(min_length=1)
    """What is for a person: codes of ``hand_over`` with their subjects."""
    operations: dict[str, ServiceEffect] = Field(default_factory=dict[str, ServiceEffect])
    """What each tool asks and does besides, under its name."""
    rules: tuple[ServiceRule, ...]
    invariants: tuple[Invariant, ...] = ()

    @model_validator(mode="after")
    def _moment(self) -> Self:
        try:
            right = datetime.fromisoformat(self.clock).isoformat() == self.clock
        except ValueError:
            right = False
        if not right:
            raise ValueError(f"clock {self.clock!r} is not written as 2026-04-11T10:30:00")
        return self

    @model_validator(mode="after")
    def _arguments(self) -> Self:
        trees = self.model_dump(include={"operations", "rules", "invariants"}, mode="json")
        odd = [operand for name, operand in operations(trees)
               if name in ("arg", "self") and not isinstance(operand, str)]  # fmt: skip
        if odd:
            raise ValueError(f"`arg` and `self` take a name, not {odd[0]!r}")
        return self


@dataclass(frozen=True)
class ServiceFiles:
    """What the three files hold."""

    document: Any
    rows: dict[str, list[dict[str, Any]]]
    rules: ServiceRules


def read_service(source: ServiceSource) -> ServiceFiles:
    """The files ``openapi``, ``rows`` and ``rules`` of a service, each as .yaml, .yml or .json.
    Raises ServiceRefused."""
    folder = SERVICES / source.name
    document, rows, rules = (_read(folder, stem) for stem in ("openapi", "rows", "rules"))
    try:
        known = ServiceRules.model_validate(rules)
    except ValidationError as error:
        found = "; ".join(faults("rules", error))
        raise ServiceRefused([WorldFault("bad_rules", f"{folder}: {found}")]) from None
    return ServiceFiles(document, _rows(rows, folder), known)


def service_text(path: Path, most: int = 8 * 2**20) -> str:
    """A document of ``most`` bytes as it stands. Raises ServiceRefused where it cannot be read."""
    try:
        if path.stat().st_size > most:
            raise ValueError(f"it is larger than {most} bytes: leave out what users do not ask for")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ServiceRefused([WorldFault("unreadable", f"{path}: {error}")]) from None


class _Loader(yaml.SafeLoader):
    """YAML whose days stay texts, as they are in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _DATES]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _read(folder: Path, stem: str) -> Any:
    places = [folder / f"{stem}{suffix}" for suffix in (".yaml", ".yml", ".json")]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        why = f"there is none of {', '.join(map(str, places))}"
        raise ServiceRefused([WorldFault("unreadable", why)])
    text = service_text(path)
    try:
        # The loader is a safe one that knows no days.
        return json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_Loader)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        said = str(error).splitlines()[0]
        raise ServiceRefused([WorldFault("unreadable", f"{path}: {said}")]) from None


def _rows(value: Any, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows by table. Raises ServiceRefused for anything else, and for tables without rows."""
    why = ""
    if not isinstance(value, dict) or not value:
        why = "has to be an object: the rows of each table by its name"
    else:
        for name, rows in cast("dict[Any, Any]", value).items():
            if not isinstance(rows, list) or not rows:
                why = f"{name}: a list of rows is needed, 10 or more of what users ask about"
            elif not all(isinstance(row, dict) for row in cast("list[Any]", rows)):
                why = f"{name}: each row is an object of cells"
    if why:
        raise ServiceRefused([WorldFault("no_rows", f"{folder}/rows: {why}")])
    return value
