"""The check of a user's words: what is due is there, and nothing else of the script in any form."""

from __future__ import annotations

from typing import Any

import pytest
from world_samples import yard

from astra.arena.user_words import hinted, stated, word_faults
from astra.records.world import FactTime, UserFact, UserScript

WORLD = yard(rules=())
FACTS = {
    "day": "2026-03-05",
    "days": 12,
    "price": 1250,
    "own name": "Lars Moss",
    "own email": "lars.moss15@post.example",
    "reason": "bad_weather",
    "boat_id": "HI5597",
}


def script(**changes: Any) -> UserScript:
    facts = [UserFact(slot=slot, value=value, when=FactTime.ASKED) for slot, value in FACTS.items()]
    facts += [UserFact(slot=one, value=changes[one], when=FactTime.CHANGE) for one in changes]
    return UserScript(facts=tuple(facts), turns=(), patience=2, most_turns=10)


def faults(text: str, *due: str, told: tuple[str, ...] = ()) -> list[str]:
    return word_faults(WORLD, script(), text, {slot: FACTS[slot] for slot in due}, told)


@pytest.mark.parametrize(
    ("slot", "text"),
    [
        ("day", "On the 5th of March 2026."), ("day", "March 5, 2026, please"),
        ("day", "2026-03-05"), ("days", "For twelve days."), ("days", "12 days it is"),
        ("price", "It was 1,250."),
        ("price", "1250"), ("own name", "I am LARS MOSS."), ("reason", "The Bad weather."),
        ("own email", "LARS.moss15@post.example"), ("boat_id", "hi5597"),
    ],
)  # fmt: skip
def test_a_value_is_stated_in_any_form_and_leaks_in_any_form(slot: str, text: str) -> None:
    assert stated(FACTS[slot], text)
    assert faults(text, slot) == []
    assert f"leaks:{slot}" in faults(text)
    assert f"leaks:{slot}" not in faults(text, told=(text,))


@pytest.mark.parametrize(
    ("slot", "text"),
    [
        ("day", "the 5th of March"), ("day", "on 5 March"), ("day", "3/5 would do"),
        ("boat_id", "number HI 5597"), ("own email", "lars moss15 at post dot example"),
        ("own name", "Moss, first name Lars"),
    ],
)  # fmt: skip
def test_hints_are_leaks_and_do_not_state(slot: str, text: str) -> None:
    assert hinted(FACTS[slot], text)
    assert f"leaks:{slot}" in faults(text)
    assert f"untold:{slot}" in faults(text, slot) or slot == "own name"


def test_other_words_are_nobodys_business() -> None:
    for text in (
        "That one, please.",
        "One moment.",
        "The weather is fine in March.",
        "No, thanks.",
    ):
        assert faults(text) == []


def test_what_the_script_has_not_is_invented() -> None:
    assert faults("For 13 days.", "days") == ["untold:days", "invents:13"]
    assert faults("It is 2026-03-06.", "day") == ["untold:day", "invents:2026-03-06"]
    assert faults("Take HI5598.", "boat_id") == ["untold:boat_id", "invents:hi5598"]
    assert faults("Fourteen of them, please.") == ["invents:14"]
    assert faults("As I said: 13.", told=("I want 13.",)) == []


def test_what_was_changed_is_stale() -> None:
    changed = script(days=15)
    told = ("For 12 days.", "Make it 15 days.")
    assert word_faults(WORLD, changed, "12 days.", {}, told) == ["stale:days"]
    assert word_faults(WORLD, changed, "15 days.", {"days": 15}, told) == []
    assert word_faults(WORLD, changed, "15 instead of 12.", {"days": 15}, told[:1]) == []


def test_identifiers_are_no_words_of_people() -> None:
    assert faults("Please use find_person.") == ["names:find_person"]
    assert faults('{"day": "later"}')[0].startswith("names:")
    assert faults("The reason: bad_weather.", "reason") == []


def test_nothing_said_is_a_fault() -> None:
    assert faults("  \n", "day") == ["empty"]
