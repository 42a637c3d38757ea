"""What a domain says: its nouns, columns, states, prices, verbs and the constants of its rules.

A domain is a file below ``domains/``. It names what the archetypes (party, kind, asset, contract,
line, payment means, ledger, ticket) are called there; how they work is in ``operations/``.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from astra.records.qa import Split
from astra.settings import StageConfig, validate

FOLDER = Path(__file__).parent / "domains"


class Archetype(StrEnum):
    """What a table of a domain is, whatever it is called."""

    PARTY = "party"  # who asks
    KIND = "kind"  # a sort of asset: title, category, price
    ASSET = "asset"  # what is given out, or a dated slot with places
    CONTRACT = "contract"  # who has what, from when to when
    MEANS = "means"  # what a party pays with
    LEDGER = "ledger"  # what was paid and refunded
    LINE = "line"  # extras of a contract
    TICKET = "ticket"  # reports about a contract


OPTIONAL = (Archetype.LINE, Archetype.TICKET)
"""Archetypes that a variant of a domain may leave out."""


class Noun(StageConfig):
    """What an archetype is called. Maps are from the archetype's own words to the domain's."""

    noun: str
    plural: str
    prefix: str
    """How its keys begin."""
    columns: dict[str, str] = Field(default_factory=dict[str, str])
    """The archetype's column -> the domain's; others keep their name."""
    values: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    """The archetype's enumerated column -> its values, in the archetype's order."""
    attributes: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    """Further enumerated columns."""


class WorldDomain(StageConfig):
    """One domain: everything that tells it from another."""

    name: str = ""
    title: str
    place: str
    """Where an agent works: "the desk of a public library"."""
    split: Split
    family: Literal["stay", "slot"]
    """``stay``: one party has an asset for some days. ``slot``: an asset is a date with places."""
    nouns: dict[Archetype, Noun]
    titles: tuple[str, ...] = Field(min_length=8)
    """What kinds (assets, where there are no kinds) are called."""
    verbs: dict[str, tuple[str, ...]]
    """Operation -> what it is called, one of which a variant takes."""
    price: tuple[int, int]
    """The lowest and the highest price of a day or a place."""
    unit: str = "EUR"
    days: tuple[int, int]
    """How long contracts last (family ``stay``), or how far slots lie ahead."""
    places: tuple[int, int] = (4, 20)
    """Places of a slot."""
    extras: tuple[str, ...] = ()
    """What a line may be for."""
    extra_price: int = 0
    """What one of it costs."""
    reasons: tuple[str, ...]
    """Reasons for cancelling that are accepted."""
    poor_reasons: tuple[str, ...]
    """Reasons that are not, where a rule says so."""
    topics: dict[str, str]
    """Codes of ``hand_over`` with the subjects that are for a person."""
    rules: dict[str, tuple[int, ...]]
    """Rules that fit the domain, each with the constants that a variant draws from."""


@cache
def load_domains() -> dict[str, WorldDomain]:
    """All domains by name. Raises ParamsError naming the file's bad entries."""
    domains: dict[str, WorldDomain] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        domains[path.stem] = validate(
            f"worlds/domains/{path.name}", {**document, "name": path.stem}, WorldDomain
        )
    return domains
