"""The rows of a world, drawn from a seed so that they keep its invariants and look alike.

Distractors are made, not hoped for: parties share first and last names, two have the same whole
name, and every value of an attribute is held by several assets.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from astra.records.qa import Split
from astra.records.state import Row, Tables
from astra.records.world import OUTCOMES
from astra.text.names import Pool, draw_names
from astra.worlds.domain import Archetype
from astra.worlds.layout import Layout

POOLS = {Split.TRAIN: Pool.TRAIN, Split.DEV: Pool.DEV, Split.HELDOUT: Pool.HELDOUT}
_REGULAR_EACH, _LOCKED_EACH = 7, 11
"""Every so many parties, one is of the lowest tier with many contracts, or newly locked."""
_LABELS = ("Aurel", "Bristle", "Corvid", "Dovetail", "Everly", "Fathom")
A = Archetype


class Rows:
    """Draws the rows of one world; ``counts`` is how many parties, assets and contracts it has."""

    def __init__(
        self, layout: Layout, clock: date, counts: tuple[int, int, int], rng: random.Random
    ) -> None:
        self._layout, self._clock, self._rng = layout, clock, rng
        self._parties, self._assets, self._contracts = counts
        self._made: dict[Archetype, list[dict[str, Any]]] = {}
        """Rows in the archetypes' own words, key included as ``key``."""

    def tables(self) -> Tables:
        """All tables of the world by name, ``outcomes`` empty."""
        self._made = {A.PARTY: self._party_rows(), A.KIND: self._kind_rows()}
        self._made[A.ASSET] = self._asset_rows()
        self._made[A.MEANS] = self._means_rows()
        self._made[A.CONTRACT] = self._contract_rows()
        self._made[A.LEDGER] = self._ledger_rows()
        self._made[A.LINE] = self._line_rows()
        self._made[A.TICKET] = self._ticket_rows()
        shown = {self._layout.table(a): [self._shown(a, row) for row in self._made[a]]
                 for a in self._layout.present}  # fmt: skip
        return {**shown, OUTCOMES: []}

    def _shown(self, archetype: Archetype, row: dict[str, Any]) -> Row:
        layout = self._layout
        noun = layout.noun(archetype)
        shown = {layout.key(archetype): row["key"]}
        for name in layout.names(archetype):
            value = (
                self._rng.choice(noun.attributes[name]) if name in noun.attributes else row[name]
            )
            shown[layout.column(archetype, name)] = value
        return shown

    def _keys(self, archetype: Archetype, count: int) -> list[str]:
        prefix = self._layout.noun(archetype).prefix
        return [f"{prefix}{n}" for n in self._rng.sample(range(1000, 9999), count)]

    def _some(self, archetype: Archetype, name: str, weights: Sequence[int] | None = None) -> str:
        values = self._layout.values(archetype, name)
        return self._rng.choices(values, weights)[0]

    def _day(self, low: int, high: int) -> str:
        return (self._clock + timedelta(days=self._rng.randint(low, high))).isoformat()

    def _party_rows(self) -> list[dict[str, Any]]:
        rng = self._rng
        rows: list[dict[str, Any]] = []
        for at, (key, name) in enumerate(
            zip(self._keys(A.PARTY, self._parties), self._people(self._parties), strict=True)
        ):
            owing = rng.random() < 0.25
            first, last = name.lower().split(" ", 1)
            rows.append({
                "key": key, "name": name, "email": f"{first}.{last}{at + 11}@post.example",
                "postcode": f"{rng.choice('BDHKM')}{rng.randint(10, 99)} {rng.randint(100, 999)}",
                "phone": f"0{rng.randint(300, 999)} {rng.randint(100000, 999999)}",
                "tier": self._some(A.PARTY, "tier"), "dues": rng.randint(3, 30) if owing else 0,
                "standing": "" if self._layout.small else self._some(A.PARTY, "standing", (3, 1)),
                "since": self._day(-90, -5) if rng.random() < 0.5 else self._day(-900, -91),
            })  # fmt: skip
        return self._cornered(rows)

    def _cornered(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The parties with those that rules are about made sure of.

        Some of the lowest tier have all in order and most contracts; some that came lately are
        locked and owe nothing.
        """
        orders = {"dues": 0, "standing": self._standing(0)}
        for row in rows[1::_REGULAR_EACH]:
            row.update(orders, tier=self._layout.value(A.PARTY, "tier", 0))
        for row in rows[2::_LOCKED_EACH]:
            row.update(dues=0, standing=self._standing(1), since=self._day(-28, -5))
        return rows

    def _standing(self, at: int) -> str:
        return "" if self._layout.small else self._layout.value(A.PARTY, "standing", at)

    def _people(self, count: int) -> list[str]:
        """Names of which every second shares a word with the one before; one is there twice."""
        pool = POOLS[self._layout.domain.split]
        rng = self._rng
        spare = draw_names("person", pool, min(count * 6, 60), rng)
        names = [spare.pop()]
        while len(names) < count:
            first, last = names[-1].split(" ", 1)
            alike = [name for name in spare if set(name.split(" ", 1)) & {first, last}]
            chosen = alike[0] if alike and len(names) % 2 else spare[-1] if spare else ""
            if not chosen:
                names.append(rng.choice(names[:-1]))
                continue
            spare.remove(chosen)
            names.append(chosen)
        if not self._layout.small:
            names[-1] = names[0]
        return names

    def _kind_rows(self) -> list[dict[str, Any]]:
        if A.KIND not in self._layout.domain.nouns:
            return []
        return [self._titled(title) | {"key": key}
                for key, title in zip(self._keys(A.KIND, len(self._layout.domain.titles)),
                                      self._layout.domain.titles, strict=True)]  # fmt: skip

    def _titled(self, title: str) -> dict[str, Any]:
        low, high = self._layout.domain.price
        nouns = self._layout.domain.nouns
        categories = nouns[A.KIND if A.KIND in nouns else A.ASSET].values["category"]
        return {"title": title, "category": self._rng.choice(categories),
                "price": self._rng.randint(low, high)}  # fmt: skip

    def _asset_rows(self) -> list[dict[str, Any]]:
        rng, titles = self._rng, self._layout.domain.titles
        rows: list[dict[str, Any]] = []
        for at, key in enumerate(self._keys(A.ASSET, self._assets)):
            kind = rng.choice(self._made[A.KIND] or [{"key": ""}])
            own = self._titled(titles[at % len(titles)])
            own = {name: kind.get(name, own[name]) for name in own}
            capacity = rng.randint(*self._layout.domain.places)
            farthest = self._layout.domain.days[1]
            rows.append({
                "key": key, **own, "kind": kind["key"],
                "place": "" if self._layout.small else self._some(A.ASSET, "place"),
                "state": "" if self._layout.slots else self._some(A.ASSET, "state", (9, 0, 1)),
                "date": self._day(0, 4) if rng.random() < 0.35 else self._day(-6, farthest),
                "capacity": capacity, "left": capacity,
            })  # fmt: skip
        return rows

    def _means_rows(self) -> list[dict[str, Any]]:
        if not self._layout.has(A.MEANS):
            return []
        owners = [party["key"] for party in self._made[A.PARTY]]
        owners += self._rng.sample(owners, len(owners) // 2)
        keys = self._keys(A.MEANS, len(owners))
        return [{"key": key, "party": owner, "type": self._some(A.MEANS, "type", (3, 2, 1)),
                 "label": f"{self._rng.choice(_LABELS)} {self._rng.randint(1000, 9999)}"}
                for key, owner in zip(keys, owners, strict=True)]  # fmt: skip

    def _contract_rows(self) -> list[dict[str, Any]]:
        rng, layout = self._rng, self._layout
        states = layout.values(A.CONTRACT, "state")
        rows: list[dict[str, Any]] = []
        # Few parties have most contracts, so that "which of mine" is a question.
        parties = self._made[A.PARTY]
        busy = [*parties[1::_REGULAR_EACH], *rng.sample(parties, self._parties // 3)]
        for key in self._keys(A.CONTRACT, self._contracts):
            party = rng.choice(busy if rng.random() < 0.8 else self._made[A.PARTY])
            made = self._slot_contract(states) if layout.slots else self._stay_contract(states)
            if made is not None:
                rows.append({"key": key, "party": party["key"], **made})
        return rows

    def _stay_contract(self, states: Sequence[str]) -> dict[str, Any] | None:
        rng, layout = self._rng, self._layout
        free, taken = layout.value(A.ASSET, "state", 0), layout.value(A.ASSET, "state", 1)
        state = rng.choices(states, (6, 2, 2))[0]
        assets = [row for row in self._made[A.ASSET] if row["state"] == free]
        if len(assets) <= self._assets // 4 and state == states[0]:
            state = states[1]
        asset = rng.choice(assets)
        days = rng.randint(*layout.domain.days)
        begun = -days - rng.randint(3, 60) if state == states[1] else rng.randint(-days - 9, 24)
        start = self._clock + timedelta(days=begun)
        if state == states[0]:
            asset["state"] = taken
        return {
            "asset": asset["key"], "state": state, "start": start.isoformat(),
            "end": (start + timedelta(days=days)).isoformat(),
            "price": asset["price"] * days, "extensions": rng.choices((0, 1, 2), (6, 3, 1))[0],
        }  # fmt: skip

    def _slot_contract(self, states: Sequence[str]) -> dict[str, Any] | None:
        rng = self._rng
        asset = rng.choice(self._made[A.ASSET])
        over = asset["date"] < self._clock.isoformat()
        state = rng.choices(states, (1, 6, 1) if over else (6, 0, 2))[0]
        seats = rng.randint(1, 4)
        if state == states[0]:
            if asset["left"] < seats:
                return None
            asset["left"] -= seats
        return {"asset": asset["key"], "state": state, "seats": seats,
                "price": asset["price"] * seats,
                "extensions": rng.choices((0, 1, 2), (6, 3, 1))[0]}  # fmt: skip

    def _ledger_rows(self) -> list[dict[str, Any]]:
        if not self._layout.has(A.LEDGER):
            return []
        rng, ended = self._rng, self._layout.value(A.CONTRACT, "state", 2)
        payment, refund = self._layout.values(A.LEDGER, "entry")
        rows: list[dict[str, Any]] = []
        keys = iter(self._keys(A.LEDGER, 2 * len(self._made[A.CONTRACT])))
        for contract in self._made[A.CONTRACT]:
            own = [row for row in self._made[A.MEANS] if row["party"] == contract["party"]]
            entry = {"party": contract["party"], "contract": contract["key"],
                     "means": rng.choice(own)["key"], "amount": contract["price"]}  # fmt: skip
            rows.append({**entry, "key": next(keys), "entry": payment,
                         "booked_on": self._day(-80, -10)})  # fmt: skip
            if contract["state"] == ended and rng.random() < 0.4:
                rows.append({**entry, "key": next(keys), "entry": refund,
                             "booked_on": self._day(-9, -1)})  # fmt: skip
        return rows

    def _line_rows(self) -> list[dict[str, Any]]:
        if not self._layout.has(A.LINE):
            return []
        domain = self._layout.domain
        pairs = [(contract["key"], item) for contract in self._made[A.CONTRACT]
                 for item in domain.extras]  # fmt: skip
        chosen = self._rng.sample(pairs, len(pairs) // 6)
        rows: list[dict[str, Any]] = []
        for key, (contract, item) in zip(self._keys(A.LINE, len(chosen)), chosen, strict=True):
            quantity = self._rng.randint(1, 4)
            rows.append({"key": key, "contract": contract, "item": item, "quantity": quantity,
                         "price": quantity * domain.extra_price})  # fmt: skip
        return rows

    def _ticket_rows(self) -> list[dict[str, Any]]:
        if not self._layout.has(A.TICKET):
            return []
        chosen = self._rng.sample(self._made[A.CONTRACT], len(self._made[A.CONTRACT]) // 3)
        keys = self._keys(A.TICKET, len(chosen))
        return [{"key": key, "party": contract["party"], "contract": contract["key"],
                 "topic": self._some(A.TICKET, "topic"), "state": self._some(A.TICKET, "state"),
                 "opened_on": self._day(-40, -1)}
                for key, contract in zip(keys, chosen, strict=True)]  # fmt: skip
