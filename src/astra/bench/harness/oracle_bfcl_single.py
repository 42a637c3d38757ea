"""Scripted models of BFCL's single-turn categories: an oracle, a wrong one, one that always calls.

A ground truth lists the values that are permitted, by parameter; an empty text among them says
that the parameter may be left out. The oracle leaves out what it may and what the checker would
refuse: two entries permit values of parameters that their functions do not have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from astra.bench.harness.oracles import DONE, Call, bfcl_said, package
from astra.bench.harness.protocol import SuiteError
from astra.bench.harness.scripted import ScriptedTurn, Writer
from astra.bench.suites.bfcl_single import CATEGORIES

Entry = dict[str, Any]
LEFT_OUT = ""
"""The permitted value that says so."""


def bfcl_entries(categories: Sequence[str] = CATEGORIES) -> dict[str, Entry]:
    """The entries of the package by id; ``ground_truth`` where the category has one."""
    data = package("bfcl_eval") / "data"
    entries: dict[str, Entry] = {}
    for category in categories:
        (path,) = data.glob(f"BFCL_v?_{category}.json")
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        answers = data / "possible_answer" / path.name
        if answers.exists():
            lines = answers.read_text(encoding="utf-8").splitlines()
            for row, line in zip(rows, lines, strict=True):
                row["ground_truth"] = json.loads(line)["ground_truth"]
        entries.update((row["id"], row) for row in rows)
    return entries


def oracle(mode: str, categories: Sequence[str] = CATEGORIES) -> Writer:
    """Says what the ground truth permits; where there is none, calls only if a call is due."""
    return _once(mode, categories, _right)


def wrong(mode: str, categories: Sequence[str] = CATEGORIES) -> Writer:
    """The oracle's calls with one wrong value each; where there is no ground truth, its opposite:
    a call for silence and silence for a call."""
    return _once(mode, categories, _spoilt)


def caller(mode: str, categories: Sequence[str] = CATEGORIES) -> Writer:
    """Calls the first function that is offered, with nothing, whatever was asked."""
    return _once(mode, categories, _first)


def _once(mode: str, categories: Sequence[str], calls: Callable[[Entry], list[Call]]) -> Writer:
    """A model that knows entries by their ids."""
    turns = {name: _said(calls(entry), mode) for name, entry in bfcl_entries(categories).items()}

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        return turns[entry]

    return write


def _said(calls: list[Call], mode: str) -> ScriptedTurn:
    if mode == "fc":  # as functions are offered there
        calls = [(name.replace(".", "_"), arguments) for name, arguments in calls]
    return bfcl_said(calls, mode) if calls else DONE


def _right(entry: Entry) -> list[Call]:
    if "ground_truth" not in entry:
        return [] if "irrelevance" in entry["id"] else _first(entry)
    documents = {one["name"]: one["parameters"]["required"] for one in entry["function"]}
    calls: list[Call] = []
    for truth in entry["ground_truth"]:
        ((name, permitted),) = truth.items()
        if name not in documents:
            raise SuiteError(f"{entry['id']} is solved with {name}, which it does not offer")
        calls.append((name, _arguments(permitted, documents[name])))
    return calls


def _arguments(permitted: dict[str, list[Any]], needed: Sequence[str]) -> dict[str, Any]:
    return {name: _value(one) for name, one in _chosen(permitted, needed).items()}


def _value(permitted: Any) -> Any:
    """A permitted value; an object, alone or in a list, permits several of each of its own."""
    if isinstance(permitted, dict):
        return _chosen(permitted)
    if isinstance(permitted, list):
        return [_chosen(one) if isinstance(one, dict) else one for one in permitted]
    return permitted


def _chosen(permitted: dict[str, list[Any]], needed: Sequence[str] = ()) -> dict[str, Any]:
    """The first permitted values of what is needed or may not be left out."""
    return {
        name: next((one for one in values if one != LEFT_OUT), LEFT_OUT)
        for name, values in permitted.items()
        if values and (name in needed or LEFT_OUT not in values)
    }


def _spoilt(entry: Entry) -> list[Call]:
    if "ground_truth" not in entry:
        return _first(entry) if "irrelevance" in entry["id"] else []
    calls: list[Call] = []
    for name, arguments in _right(entry):
        parameter = next(iter(arguments), "no_such_parameter")
        calls.append((name, {**arguments, parameter: _other(arguments.get(parameter))}))
    return calls


def _other(value: Any) -> Any:
    """A value that is not permitted where ``value`` is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value + 10_007
    return "no such value"


def _first(entry: Entry) -> list[Call]:
    offered = [one["name"] for one in entry["function"]] or ["no_such_function"]
    return [(offered[0], {})]
