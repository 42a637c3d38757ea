"""The check of a user's words: what is due is there, and nothing else of the script in any form."""

from __future__ import annotations

from typing import Any

import pytest
from world_samples import column, table, yard

from astra.arena.user_words import MAY_I, hinted, stated, turn_faults, word_faults
from astra.records.world import (
    ColumnType,
    EventKind,
    FactTime,
    TraceEvent,
    UserAct,
    UserFact,
    UserScript,
)

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


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Das weiß ich leider nicht.", "de"), ("Merci, c'est tout. Au revoir.", "fr"),
        ("Gracias, eso es todo. Adiós.", "es"), ("我不知道。", "zh"), ("Да, пожалуйста.", "ru"),
    ],
)  # fmt: skip
def test_another_language_is_none_of_the_worlds(text: str, language: str) -> None:
    assert f"language:{language}" in faults(text)


@pytest.mark.parametrize(
    "text",
    ["yeah go ahead pls", "idk sorry", "thx bye", "cheers, that's me done", "lgtm", "Hm.",
     "Nope, stick with what I said.", "no clue, love", "I mean berth Amber.", "status?",
     "Well? Is it sorted yet?", "Much obliged. Good day to you.", "That'd be Zelda Quint.",
     "My café is called Dvořák, naïve as it is.", "Uh... well — sure!"],
)  # fmt: skip
def test_how_people_chat_is_whole_and_in_the_worlds_language(text: str) -> None:
    assert faults(text) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The cafÃ© please.", "cafÃ©"), ("Itâ€™s fine.", "Itâ€™s"), ("Thatï¿½s it.", "Thatï¿½s"),
        ("Thank \ufffdyou.", "\ufffdyou."), ("Plеase go on.", "Plеase"),
        ("That &amp; more.", "&amp;"), (r"Go on.\nPlease.", r"\n"), ("I am [name].", "[name]"),
        ("<b>Please</b> go on.", "<b>"), ("The reason is ____.", "____"), ("Code XXXX.", "XXXX"),
        ("Please\x07 go on.", "Please\x07"),
    ],
)  # fmt: skip
def test_words_that_no_person_writes_are_broken(text: str, word: str) -> None:
    assert f"broken:{word}" in faults(text)


def test_who_leaves_complains_and_gives_no_value() -> None:
    why = column("reason", ColumnType.ENUM, values=("too_long", "bad_weather"))
    world = WORLD.model_copy(update={"tables": (*WORLD.tables, table("delays", "delay_id", why))})

    def spoken(act: UserAct, text: str) -> list[str]:
        turn = TraceEvent(kind=EventKind.USER, act=act)
        return turn_faults(world, script(reason="no_time"), turn, text, [MAY_I])

    assert spoken(UserAct.NUDGE, "I have no more time.") == ["leaks:reason"]
    assert spoken(UserAct.LEAVE, "I have no more time.") == []
    assert spoken(UserAct.LEAVE, "It is bad weather.") == ["leaks:reason"]
    assert spoken(UserAct.NUDGE, "This takes too long.") == ["invents:too_long"]
    assert spoken(UserAct.LEAVE, "This takes too long.") == []
    assert spoken(UserAct.LEAVE, "This takes 13 days.") == ["invents:13"]


def test_what_was_agreed_to_is_taken_back_by_those_who_may() -> None:
    def spoken(act: UserAct, text: str) -> list[str]:
        turn = TraceEvent(kind=EventKind.USER, act=act)
        return turn_faults(WORLD, script(), turn, text, [MAY_I])

    assert spoken(UserAct.NUDGE, "No, stop.") == ["takes_back"]
    assert spoken(UserAct.CONFIRM, "No, please do.") == ["takes_back"]
    assert spoken(UserAct.LEAVE, "No, stop.") == spoken(UserAct.REJECT, "No, stop.") == []
    assert spoken(UserAct.REJECT, "That is not it.") == ["rejects_nothing"]


LISTED = "You have four live supplies: SU1205 connects 2026-10-24. Which one do you mean?"


def claims(text: str, act: UserAct = UserAct.ANSWER, asked: str = LISTED) -> list[str]:
    spoken = TraceEvent(kind=EventKind.USER, act=act, facts={"day": FACTS["day"]})
    heard = [TraceEvent(kind=EventKind.ASSISTANT, text=asked)]
    return [one.removeprefix("claims:")
            for one in turn_faults(WORLD, script(), spoken, f"{text} 2026-03-05.", heard)
            if one.startswith("claims:")]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Your colleague on the phone already promised me last Friday that this would cost "
         "nothing.", ["promised", "on the phone", "last Friday", "cost nothing", "friday"]),
        ("Your colleague told me so.", ["colleague told"]), ("I was told so.", ["I was told"]),
        ("I already spoke to Mr. Hale.", ["I already spoke to", "Mr. Hale"]),
        ("I paid a month ago and want a refund.", ["month ago", "refund"]),
        ("Before Monday, as yesterday.", ["monday", "yesterday"]),
        ("The live one, obviously.", []), ("Took a while to get here.", []),
        ("I am afraid I cannot tell you the date, dear.", []),
        ("Saturday 24 October, you said, or Thursday.", []),
    ],
)  # fmt: skip
def test_what_nobody_has_spoken_of_is_a_claim(text: str, found: list[str]) -> None:
    assert claims(text) == found
    assert claims(text, asked=f"{LISTED} {text}") == []
    assert claims(text, UserAct.LEAVE) == []


def test_of_a_new_tool_others_may_have_told_the_user() -> None:
    assert claims("They said you have a new tool for it.", UserAct.TOOL) == []
    assert claims("They promised you a new tool for it.", UserAct.TOOL) == ["promised"]


def test_nothing_said_is_a_fault() -> None:
    assert faults("  \n", "day") == ["empty"]
