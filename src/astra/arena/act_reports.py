"""Whether a sentence of the agent refuses what is wanted, or reports what was done or read."""

from __future__ import annotations

import re

from astra.arena import told_phrases as tells
from astra.arena.act_questions import is_question
from astra.arena.claims import name_stems, stems
from astra.arena.heard_message import KEY, SHORT, HeardMessage, changes_in
from astra.arena.statements import dates_in, number, numbers_in

_PLEASANTRY = 15
"""A sentence of fewer words that begins like a pleasantry tells nothing but what was done."""
_YOU = re.compile(r"\byou\W*$")
_HAVE = re.compile(r"(?:have|had)\b(?!.* been\b)")
"""What *you* have done, which is no deed of the agent; *you have been charged* is."""
_NEAR = 200
"""So many characters before what was done may say that it was not."""


def is_refusal(message: HeardMessage, sentence: str) -> bool:
    """Whether a sentence says that something is not going to be done, for good."""
    if tells.HANDED.search(sentence):
        return True
    if tells.UNVERIFIED.search(sentence) or tells.YOU_LATER.match(sentence):
        return False
    return tells.REFUSED.search(sentence) is not None


def is_no_telling(raw: str, message: HeardMessage) -> bool:
    """Whether a message is about programs, a template, or instructs somebody."""
    made_up = tells.CODE.search(raw) or tells.BLANK.search(raw)
    return made_up is not None or tells.HOW_TO.search(message.text) is not None


def is_report(message: HeardMessage, sentence: str) -> bool:
    """Whether a sentence tells something, and no plan or pleasantry."""
    if is_question(sentence) or tells.I_SEE.match(sentence):
        return False
    sentence = tells.I_CAN_TELL.sub(" ", sentence).strip()
    if any(_is_done(message, sentence, found) for found in tells.DONE.finditer(sentence)):
        return True
    if tells.NOT_NOW.search(sentence):
        return False
    short = len(sentence.split()) < _PLEASANTRY
    if short and tells.CHATTER.match(sentence) and not holds_value(sentence):
        return False
    keys = KEY.findall(sentence)
    about = stems(sentence) & message.nouns or keys
    if tells.TOLD.search(sentence):
        if not about:
            told = holds_value(sentence) or _holds_state(message, sentence)
            return told and len(sentence.split()) <= SHORT
        return bool(keys) or holds_value(sentence) or _holds_cell(message, sentence)
    return bool(about) and holds_value(sentence) and (":" in sentence or bool(keys))


def _is_done(message: HeardMessage, sentence: str, found: re.Match[str]) -> bool:
    """Whether something was done that agents do or that becomes of the tables, and neither could be
    nor was by others."""
    before = tells.BREAK.split(sentence[: found.start()][-_NEAR:])[-1]
    if tells.SUPPOSED.search(before) or (_YOU.search(before) and _HAVE.match(found[0])):
        return False
    bare = found["bare"] or found["undone"]
    if bare:
        return bool(changes_in(message, bare))
    verb = found["verb"] or found["past"]
    done = message.changing | tells.FOUND | name_stems(" ".join(message.states))
    if verb is None or stems(verb) & done:
        return True
    about = stems(sentence) & (message.nouns | message.changing) or KEY.search(sentence)
    return bool(about) and verb != "been" and tells.PERFECT.search(found[0]) is not None


def _holds_cell(message: HeardMessage, sentence: str) -> bool:
    """Whether a sentence has a word of what the cells of the world may be, or says that something
    is there, or not."""
    if tells.NOTHING.search(sentence) or _holds_state(message, sentence):
        return True
    return any(one in sentence for one in message.cells)


def _holds_state(message: HeardMessage, sentence: str) -> bool:
    """Whether a sentence has one of the words that the cells with options may be."""
    words = f" {' '.join(tells.NAMES.findall(sentence))} "
    return any(f" {one} " in words for one in message.states)


def holds_value(sentence: str) -> bool:
    if next(dates_in(sentence), None) is not None:
        return True
    return any(number(one.text) is not None for one in numbers_in(sentence))
