"""The mutation benchmark: its last line, its sites and its comparison of two codes."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import mutants
from mutation_calls import ENTRY, Original, all_calls, source_of
from mutation_codes import Written, exchanged, kept, single
from mutation_facts import Facts
from mutation_operators import OWN
from mutation_sites import LIBRARY
from mutation_sites import mutants as changed

from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with LocalSandbox(mutants.ALL_CALLS) as opened:
        yield opened


def named(name: str) -> Written:
    return next(one for one in exchanged() if one.tool.name == name)


def facts(name: str) -> Facts:
    return mutants.facts_of(named(name))


def made(name: str) -> dict[str, str]:
    """One mutant of each operator that has a site."""
    return dict(changed(facts(name), 1, random.Random(0)))


def original(one: Written, sandbox: Sandbox) -> Original:
    candidate = one.candidate()
    calls = [all_calls(one.source, candidate, 0, 1)]
    return Original(
        candidate, calls, sandbox, sandbox.session({ENTRY: source_of(candidate, one.code)})
    )


def test_the_last_line_is_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read, written = named("get_district_mayor"), named("reserve_room")
    monkeypatch.setattr(mutants, "committed", lambda count, rng: [read][:count])
    monkeypatch.setattr(mutants, "hard", lambda count, rng, sandbox: [])
    monkeypatch.setattr(mutants, "by_models", lambda tables: [*single()[:1], read, written])
    monkeypatch.setattr(sys, "argv", ["mutants.py", "--json", "--codes", "2"])
    mutants.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures.keys() == {"score_offline", "score_model", "counts", "seconds"}
    offline, model = figures["counts"]["offline"], figures["counts"]["model"]
    assert (offline["codes"], offline["codes_refused"]) == (1, 0)
    assert model["codes"] + model["codes_refused"] == 3
    assert model["codes_refused"] >= 1, "a planted fault is no accepted code"
    for one in (offline, model):
        assert one["caught"] + one["equivalent"] + one["missed"] == one["mutants"] > 20
        assert sum(sum(count.values()) for count in one["by_operator"].values()) == one["mutants"]
    assert figures["score_offline"] > 0.9


def test_operators_are_enough_and_of_the_library() -> None:
    assert len(OWN) >= 20
    assert len(set(LIBRARY)) >= 8
    found = {*made("get_district_mayor"), *made("reserve_room"), *made("get_total_specimens")}
    assert len(found) >= 20
    assert len({name for name in found if f"core/{name}" in LIBRARY}) >= 4


def test_an_operator_has_sites_only_where_it_can_show() -> None:
    mayor, total = made("get_district_mayor"), made("get_total_specimens")
    assert "row_repeated" not in mayor, "nothing counts its rows"
    assert "row_repeated" in total
    assert "text_for_a_value" not in mayor, "its answer is a text"
    assert "text_for_a_value" in total
    assert "nothing_written" not in mayor
    assert "nothing_written" in made("reserve_room")


def test_a_raise_behind_a_test_of_types_is_no_site() -> None:
    one = facts("get_district_mayor")
    guarded = (
        "ROWS = [{'a': 'x', 'b': 'y'}, {'a': 'z', 'b': 'w'}]\n\n\n"
        "def get_district_mayor(district):\n"
        "    if not isinstance(district, str):\n"
        "        raise ValueError('no text')\n"
        "    return next(row['b'] for row in ROWS if row['a'] == district)\n"
    )
    bare = Facts(
        code=guarded, name=one.name, arguments=one.arguments, answer=one.answer,
        answer_type=one.answer_type,
    )  # fmt: skip
    assert "unknown_gives_none" not in dict(changed(bare, 1, random.Random(0)))
    known = guarded.replace("not isinstance(district, str)", "district not in ('x', 'z')")
    bare = Facts(
        code=known, name=one.name, arguments=one.arguments, answer=one.answer,
        answer_type=one.answer_type,
    )  # fmt: skip
    assert "unknown_gives_none" in dict(changed(bare, 1, random.Random(0)))


def test_codes_are_equivalent_by_what_they_do(sandbox: Sandbox) -> None:
    one = named("get_district_mayor")
    two = original(one, sandbox)
    assert two.tried == len({row[0] for row in one.source.knowledge[0].rows}) + 20
    assert two.is_equivalent(one.code)
    assert two.is_equivalent(one.code.replace('f"no district named {district}"', '"unknown"'))
    assert not two.is_equivalent(one.code.replace("raise ValueError(", "raise KeyError("))
    assert not two.is_equivalent(
        one.code.replace('f"no district named {district}"', '"not Cato Ashby"')
    )
    assert not two.is_equivalent(made("get_district_mayor")["last_row_dropped"])
    assert not two.is_equivalent(made("get_district_mayor")["found_by_a_part"])
    assert not two.is_equivalent("def get_district_mayor(district):\n    return (\n")


def test_codes_that_write_differ_by_the_tables_they_leave(sandbox: Sandbox) -> None:
    one = next(
        one
        for one in exchanged()
        if one.tool.name == "reserve_room" and "rooms.remove" not in one.code
    )
    two = original(one, sandbox)
    assert two.is_equivalent(one.code)
    assert not two.is_equivalent(
        dict(changed(mutants.facts_of(one), 1, random.Random(0)))["nothing_written"]
    )


def test_the_kept_codes_are_of_a_model_and_read() -> None:
    found = kept()
    assert len(found) > 100
    assert {"read_only", "write"} <= {one.source.kind.value for one in found}
