"""What an agent is told about a world: the place, the rules' sentences, how a request ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from astra.records.world import PolicyRule, WorldShape
from astra.worlds.domain import Archetype
from astra.worlds.layout import Layout
from astra.worlds.sentences import listed, with_article

REFUSALS = {
    "not_found": "what the user names does not exist",
    "not_available": "what the user wants is not to be had at the moment",
    "not_offered": "none of your tools does what the user wants, and the user has none for you "
                   "either",
}  # fmt: skip
"""Codes of ``decline_request`` that every world has, and when each is right."""
SAY_FIRST = "Before `not_offered`, tell the user and wait for the answer."
"""What every policy says, so that a user who has a tool for the agent can bring it."""
_SHORT_END = (
    "Otherwise decline with that code, `not_found` (no such record), `not_available` "
    f"(taken or full) or `not_offered` (no tool for it). {SAY_FIRST}"
)
"""How a request ends in a small world: what ``REFUSALS`` says, in fewer words."""
_OPENING = (
    "It is {time} on {day}. You see and change records with your tools alone: what no tool has "
    "told you, you do not know, and you do not guess. Dates are written year, month, day."
)
A = Archetype


def policy_text(layout: Layout, clock: str, rules: Iterable[PolicyRule]) -> str:
    """The policy of a world. A small world's has at most 80 words."""
    sentences = [rule.text for rule in rules]
    topics = layout.domain.topics
    if layout.small:
        return f"{layout.domain.title}. Today is {clock[:10]}. {' '.join(sentences)} {_SHORT_END}"
    numbered = "\n".join(f"{at}. {text}" for at, text in enumerate(sentences, start=1))
    return "\n\n".join([
        f"# {layout.domain.title}", _opening(layout, clock), _nouns(layout), _work(layout),
        f"## Rules\n\n{numbered}", ending(topics),
    ])  # fmt: skip


def desk_policy(
    title: str, about: str, sentences: Sequence[str], topics: Mapping[str, str], shape: WorldShape,
    clock: str,
) -> str:  # fmt: skip
    """The policy of a world of no domain: what is known of the desk, and the host's words about how
    a request ends. ``sentences`` are the rules', each with its code."""
    if shape is WorldShape.SMALL:
        told = [f"{title}. Today is {clock[:10]}.", about, *sentences]
        return " ".join([*filter(None, told), _SHORT_END])
    numbered = "\n".join(f"{at}. {text}" for at, text in enumerate(sentences, start=1))
    opening = _OPENING.format(time=clock[11:16], day=clock[:10])
    parts = [f"# {title}", opening, about, f"## Rules\n\n{numbered}", ending(topics)]
    return "\n\n".join(parts)


def _opening(layout: Layout, clock: str) -> str:
    party = layout.noun(A.PARTY).plural
    return (
        f"You work at {layout.domain.place} and talk with {party}. It is {clock[11:16]} on "
        f"{clock[:10]}. You see and change records with your tools alone: what no tool has told "
        f"you, you do not know, and you do not guess. All money is in {layout.domain.unit}. Dates "
        "are written year, month, day."
    )


def _nouns(layout: Layout) -> str:
    """How the tables belong together, in words."""
    party, asset = layout.noun(A.PARTY), layout.noun(A.ASSET)
    contract = layout.noun(A.CONTRACT)
    a_contract, an_asset = with_article(contract.noun), with_article(asset.noun).capitalize()
    states = listed([s.replace("_", " ") for s in layout.values(A.CONTRACT, "state")], "or")
    tiers = listed([t.replace("_", " ") for t in layout.values(A.PARTY, "tier")], "or")
    lines = [
        f"Each {party.noun} has {with_article(_words(layout, A.PARTY, 'tier'))}, which is {tiers}.",
        f"{a_contract.capitalize()} belongs to one {party.noun} and one {asset.noun}; it is "
        f"{states}.",
    ]
    if layout.slots:
        lines.append(
            f"{an_asset} takes place on one day and has so many places; {a_contract} "
            "takes some of them, and its price is the price of a place times their number."
        )
    else:
        lines.append(
            f"{an_asset} is with one {party.noun} at a time; the price of {a_contract} "
            "is the price of a day times the number of days."
        )
    if layout.has(A.KIND):
        kind = layout.noun(A.KIND).noun
        lines.append(f"Every {asset.noun} is of one {kind}, which has the title and the price.")
    if layout.has(A.LEDGER):
        ledger, means = layout.noun(A.LEDGER), layout.noun(A.MEANS)
        lines.append(
            f"What was paid or refunded stands in {ledger.plural}, each with the {means.noun} used."
        )
    if layout.has(A.LINE):
        lines.append(f"{a_contract.capitalize()} may have {layout.noun(A.LINE).plural}.")
    if layout.has(A.TICKET):
        ticket = with_article(layout.noun(A.TICKET).noun).capitalize()
        lines.append(f"{ticket} is about one {contract.noun}.")
    return "## What you work with\n\n" + " ".join(lines)


def _words(layout: Layout, archetype: Archetype, name: str) -> str:
    return layout.column(archetype, name).replace("_", " ")


def _work(layout: Layout) -> str:
    contract, party = layout.noun(A.CONTRACT).noun, layout.noun(A.PARTY).noun
    dues, standing = _words(layout, A.PARTY, "dues"), _words(layout, A.PARTY, "standing")
    return (
        "## How you work\n\n"
        "Do what the user asks for, all of it and nothing else. Before you change something, say "
        f"what exactly you are going to change. When a tool refuses, its message says why: an "
        f"unpaid sum under {dues} or a locked {standing} may have to be put right "
        "first, and only if the user wants that. Tell the user what came of each wish, with the "
        f"figures that were asked for. If a wording fits several rows, find out which {contract} "
        f"or which {party} is meant before you act. A change that was made is not undone by "
        "another one, unless the user asks for it. What already is as the user wants it, you tell "
        "them: that needs no change, and is not declined."
    )


def ending(topics: Mapping[str, str]) -> str:
    """How an agent of a full world ends a request."""
    refusals = "; ".join(f"`{code}` where {text}" for code, text in REFUSALS.items())
    subjects = "; ".join(f"`{code}` for {text}" for code, text in topics.items())
    return (
        "## How a request ends\n\n"
        "What a rule forbids you decline with `decline_request` and the code behind that rule, "
        "even if the tool would do it. Other things that cannot be done you decline as well: "
        f"{refusals}. {SAY_FIRST} Do not look for another way to the same end. With "
        f"`hand_over` you give to a colleague only what is not yours: {subjects}. Never decline or "
        "hand over what you may and can do yourself."
    )
