"""Tool names that repeat no word of the question, from a table of synonyms.

A word without a synonym, or whose synonym the question has, is left out: the description says what
the tool is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from astra.text.likeness import shared_words
from astra.text.verbs import singular

_VERBS = {
    "lookup": "read", "record": "show", "list": "show", "rows": "show", "page": "browse",
    "above": "filter", "below": "filter", "sort": "rank", "count": "measure", "sum": "compute",
    "mean": "compute", "max": "compute", "min": "compute", "argmax": "select", "argmin": "select",
    "check": "verify", "convert": "exchange", "multiply": "scale", "add_days": "move",
    "days_between": "measure", "weekday": "name", "subtract": "compute", "divide": "compute",
    "share": "compute", "insert": "open", "update": "edit", "delete": "close",
}  # fmt: skip
_NOUNS = {
    "convert": ("value", "quantity"), "multiply": ("value", "quantity"),
    "add_days": ("calendar", "schedule"), "days_between": ("interval", "gap"),
    "weekday": ("calendar", "schedule"), "subtract": ("gap", "difference"),
    "divide": ("quotient", "ratio"), "share": ("part", "portion"),
}  # fmt: skip
"""Operation -> what it is about, where its relation names a calculation."""
_SYNONYMS = {
    "admission": "entry", "age": "years", "agent": "broker", "amount": "value", "area": "surface",
    "arrival": "entry", "author": "writer", "average": "typical",
    "bay": "stand", "bed": "berth", "birth": "origin", "bonus": "extra", "book": "volume",
    "branch": "site", "brand": "label", "budget": "funds", "capital": "seat", "cheapest": "lowest",
    "city": "town", "clinic": "practice", "country": "nation", "count": "total",
    "currency": "money", "date": "day", "day": "date", "depot": "warehouse", "detail": "profile",
    "director": "head", "district": "area", "dock": "berth", "doctor": "surgeon",
    "driver": "courier", "experience": "practice", "fee": "charge", "fine": "penalty",
    "floor": "level", "founder": "maker", "garage": "workshop", "guest": "visitor",
    "heaviest": "largest", "height": "size", "highest": "top", "hotel": "house",
    "largest": "big", "length": "size", "librarian": "keeper", "license": "permit",
    "listed": "market", "listing": "property", "load": "weight", "longest": "largest",
    "lowest": "bottom", "manager": "head", "mayor": "leader", "member": "reader",
    "mileage": "distance", "number": "total", "nurse": "keeper", "office": "station",
    "owner": "holder", "page": "length", "parcel": "package", "patient": "case",
    "population": "people", "price": "cost", "product": "item", "rating": "score",
    "region": "area", "room": "unit", "salary": "income", "seller": "merchant",
    "shelf": "place", "shift": "turn", "shipping": "sending", "specialty": "field",
    "stock": "supply", "supervisor": "foreman", "tax": "duty", "total": "sum", "truck": "vehicle",
    "wage": "pay", "ward": "unit", "warehouse": "store", "weight": "mass",
}  # fmt: skip


def unlike_name(operation: Mapping[str, Any], question: str) -> str:
    """A snake_case name for the operation's tool that shares no content word with the question."""
    op = str(operation["op"])
    tail = str(operation["relation"]).partition(".")[2]
    asked = (
        _NOUNS[op][:1] if op in _NOUNS else [_SYNONYMS.get(singular(w)) for w in tail.split("_")]
    )
    spare = _NOUNS.get(op, ())[1:]
    nouns = _unsaid(asked, question) or _unsaid(spare, question) or ["entry"]
    return "_".join(dict.fromkeys([*_unsaid([_VERBS[op]], question), *nouns]))


def _unsaid(words: Iterable[str | None], question: str) -> list[str]:
    """The words that the question does not say."""
    return [word for word in words if word is not None and not shared_words(word, question)]
