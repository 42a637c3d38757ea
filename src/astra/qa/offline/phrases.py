"""English wording of questions: several templates per shape, noun phrases that nest.

A step is a mapping, as questions/outline.py sends it with an ask. Entity names appear verbatim;
the words of a relation are the words of its tool.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from astra.qa.knowledge.operations import EXTREMES
from astra.qa.offline.synonyms import QUESTIONS, own_words, reworded

Step = Mapping[str, Any]

DIRECT = (
    "What is {np}?",
    "Tell me {np}.",
    "Find {np}.",
    "I need {np}.",
    "Can you tell me {np}?",
    "Please look up {np}.",
)
PLURAL = (
    "What are {np}?",
    "Tell me {np}.",
    "Find {np}.",
    "I need {np}.",
    "Can you tell me {np}?",
    "Please look up {np}.",
)
COMPARISON = (
    "Which of {names} has the {word} {rest}?",
    "Between {names}, which has the {word} {rest}?",
    "Tell me which of {names} has the {word} {rest}.",
)
INTERVAL = (
    "How many days are between {np}?",
    "What is the number of days between {np}?",
    "Count the days between {np}.",
)
CHECK = ("Is it true that {np}?", "Tell me whether {np}.", "Check whether {np}.")
ACT = ("{np}.", "Please {np}.", "I want you to {np}.", "Can you {np}?", "I need you to {np}.")
WORDS = {"greater": "higher", "less": "lower"}
"""Comparison -> its word."""
SHORT = {
    "convert_amount": "amount",
    "convert_length": "length",
    "convert_weight": "weight",
    "multiply_amount": "amount",
    "find_weekday": "weekday",
    "add_days": "day",
    "days_between": "days",
}
"""A relation's part after the dot -> the noun for its answer, where its own words read badly."""
SEVERAL = ("list", "rows", "page", "above", "below", "sort", "record")
"""Operations whose answer is asked for in the plural."""


def noun(step: Step) -> str:
    """The words for a step's answer, for example ``asking price``."""
    tail = str(step["relation"]).partition(".")[2]
    if step["op"] in EXTREMES:  # what a twin was told besides is no part of what it found
        tail = tail.partition("_by_")[0]
    return SHORT.get(tail, tail.replace("_", " "))


def join(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


def noun_phrase(step: Step, steps: Sequence[Step], names: Sequence[str]) -> str:
    """The step's answer described from the named entities alone, nesting its parents."""
    return _filled(step, _asked(step, steps, names))


def _asked(step: Step, steps: Sequence[Step], names: Sequence[str]) -> str:
    """What a step is asked of, described from the named entities alone."""
    if step["start"] is not None:
        return names[int(step["start"])]
    if choice := step.get("choice"):
        whole = steps[step["parents"][0] - 1]
        about = _asked(whole, steps, names)
        return _singular(str(choice["phrase"]).format(x=about, y=choice["value"]))
    return join([noun_phrase(steps[p - 1], steps, names) for p in step["parents"]])


def sub_question(step: Step, steps: Sequence[Step], names: Sequence[str]) -> str:
    """The step alone; answers of earlier steps are referred to by step number."""
    references = _references(step, steps)
    if step["op"] == "pick":
        return f"What is {references[0]}?"
    if step["op"] in WORDS:
        word = WORDS[step["op"]]
        return f"Which of {join(names)} has the {word} value, given {join(references)}?"
    asked = names[int(step["start"])] if step["start"] is not None else join(references)
    phrase = _filled(step, asked)
    if step["op"] == "check":
        return f"Is it true that {phrase}?"
    if step["op"] == "page":
        before = step["page_after"]
        page = f"the page after that of step {before}" if before else "the first page"
        return f"What is on {page} of {phrase}?"
    if step.get("writes"):
        return f"{_capital(phrase)}."
    verb = "are" if step["op"] in SEVERAL else "is"
    waits_for = join([f"step {id}" for id in step.get("after", ())])
    opening = f"After {waits_for}, what" if waits_for else "What"
    return f"{opening} {verb} {phrase}?"


def _references(step: Step, steps: Sequence[Step]) -> list[str]:
    """What a step is asked of in the answers of earlier ones."""
    choice = step.get("choice")
    if not choice:
        return [f"the {noun(steps[p - 1])} from step {p}" for p in step["parents"]]
    field = _spaced(choice["field"])
    measure, extreme = (
        choice["lowest"] or choice["highest"],
        "lowest" if choice["lowest"] else "highest",
    )
    chosen = f"the {field}"
    if choice["where"]:
        # The first field of a row is its name: only another one is a field "of the one".
        named = steps[step["parents"][0] - 1]["select"].partition(":")[0] == choice["field"]
        of = "" if named else " of the one"
        chosen += f"{of} with {_spaced(choice['where'])} {choice['value']}"
    elif measure == choice["field"]:
        chosen = f"the {extreme} {field}"
    elif measure:
        chosen += f" with the {extreme} {_spaced(measure)}"
    return [f"{chosen} from {join([f'step {p}' for p in step['parents']])}"]


def _spaced(column: str) -> str:
    return column.replace("_", " ")


def _filled(step: Step, asked: str) -> str:
    """The relation's phrase about ``asked``, with its literal."""
    return _singular(str(step["phrase"]).format(x=asked, y=step["literal"]))


def _singular(phrase: str) -> str:
    return re.sub(r"\bwith 1 ([a-z]+)s\b", r"with 1 \1", phrase)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def main_question(
    form: str, steps: Sequence[Step], names: Sequence[str], rng: random.Random, paraphrased: bool
) -> str:
    """One of the shape's wordings, drawn by ``rng``, in other words than its relations' or not."""
    if paraphrased and form not in WORDS:  # a comparison is cut out of its phrases
        steps = respoken(steps, "en", rng)
    last = steps[-1]
    if form in ("act", "and", "then"):
        return _action(form, steps, names, rng)
    if form in WORDS:
        # What is compared, worded without the names: those stand apart in the question.
        inner = noun_phrase(steps[last["parents"][0] - 1], steps, ["{x}"] * len(names))
        rest = re.sub(r" (of|in) \{x\}", "", inner).removeprefix("the ")
        chosen = rng.choice(COMPARISON)
        return chosen.format(names=join(names), word=WORDS[form], rest=rest)
    if form == "between":
        ends = [noun_phrase(steps[p - 1], steps, names) for p in last["parents"]]
        return rng.choice(INTERVAL).format(np=join(ends))
    if form == "last":
        return _single(last, steps, names, rng, paraphrased)
    return rng.choice(PLURAL).format(np=_several(form, steps, names, rng))


def _action(form: str, steps: Sequence[Step], names: Sequence[str], rng: random.Random) -> str:
    """A request to act: alone, with a value of the same thing, or with one that it changes."""
    acts = [noun_phrase(step, steps, names) for step in steps if step["writes"]]
    if form == "and":
        acts.append(f"tell me its {noun(steps[-1])}")
    elif form == "then":
        acts = [f"{join(acts)}, then tell me {noun_phrase(steps[-1], steps, names)}"]
    return _capital(rng.choice(ACT).format(np=join(acts)))


def _single(
    last: Step, steps: Sequence[Step], names: Sequence[str], rng: random.Random, paraphrased: bool
) -> str:
    """A question about the last step's answer."""
    asked = QUESTIONS.get(str(last["relation"]).partition(".")[2], ())
    if paraphrased and last["op"] == "lookup" and asked and rng.random() < 0.5:
        return rng.choice(asked).format(x=_asked(last, steps, names))
    phrase = noun_phrase(last, steps, names)
    if last["op"] == "check":
        return rng.choice(CHECK).format(np=phrase)
    if last["op"] in SEVERAL:
        return rng.choice(PLURAL).format(np=phrase)
    if last["op"] == "count" and rng.random() < 0.5:
        return f"How many {phrase.removeprefix('the number of ')} are there?"
    chain = len(steps) > 1 and not any(step.get("choice") for step in steps)
    if chain and rng.random() < 0.25:
        return _stepwise(steps, names)
    return rng.choice(DIRECT).format(np=phrase)


def respoken(steps: Sequence[Step], language: str, rng: random.Random) -> list[Step]:
    """The steps with their phrases in other words, the same throughout the question."""
    words = own_words(language, rng)

    def spoken(step: Step) -> Step:
        phrase, choice = reworded(str(step["phrase"]), language, words), step.get("choice")
        if choice:
            choice = {**choice, "phrase": reworded(str(choice["phrase"]), language, words)}
        return {**step, "phrase": phrase, "choice": choice}

    return [spoken(step) for step in steps]


def _stepwise(steps: Sequence[Step], names: Sequence[str]) -> str:
    """The steps of a chain in their order, each about what the one before found."""
    parts = [noun_phrase(steps[0], steps, names)]
    for previous, step in pairwise(steps):
        parts.append(_filled(step, f"that {noun(previous)}"))
    return f"Find {', then '.join(parts)}."


def _used(steps: Sequence[Step]) -> set[int]:
    """Ids of the steps that others are asked of."""
    return {parent for step in steps for parent in step["parents"]}


def _several(form: str, steps: Sequence[Step], names: Sequence[str], rng: random.Random) -> str:
    """The ends in one noun phrase: each in full, or what they share said once."""
    used = _used(steps)
    ends = [step for step in steps if step["id"] not in used]
    phrases = [noun_phrase(step, steps, names) for step in ends]
    if rng.random() < 0.5:
        return join(phrases)
    if form == "list":
        shared = {noun_phrase(step, steps, ["{x}"] * len(names)) for step in ends}
        # Second parameters may differ between the copies; then each is worded in full.
        return shared.pop().replace("{x}", join(names), 1) if len(shared) == 1 else join(phrases)
    # A fork: "the price of A" and "the stock of A" become "the price and the stock of A".
    matches = [match for p in phrases if (match := re.match(r"(the .*?)( of .*)", p))]
    tails = {match.group(2) for match in matches}
    if len(matches) == len(phrases) and len(tails) == 1:
        return join([match.group(1) for match in matches]) + tails.pop()
    return join(phrases)
