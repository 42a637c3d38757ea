"""What tools are called: verbs of the domain, written in one of three styles."""

from __future__ import annotations

import random
from collections.abc import Iterable
from enum import StrEnum

from astra.worlds.domain import WorldDomain

_USUAL: dict[str, tuple[str, ...]] = {
    "find": ("find_{party}", "look_up_{party}", "identify_{party}"),
    "get_contract": ("show_{contract}", "read_{contract}", "view_{contract}"),
    "get_asset": ("show_{asset}", "read_{asset}", "view_{asset}"),
    "list_contracts": ("list_{contracts}", "{contracts}_of_{party}"),
    "list_means": ("list_{meanss}", "{meanss}_of_{party}"),
    "list_ledger": ("list_{ledgers}", "{ledgers}_of_{party}"),
    "list_lines": ("list_{lines}", "{lines}_of_{contract}"),
    "list_tickets": ("list_{tickets}", "{tickets}_of_{party}"),
    "search_assets": ("search_{assets}", "browse_{assets}", "filter_{assets}"),
    "search_kinds": ("search_{kinds}", "browse_{kinds}", "filter_{kinds}"),
    "quote": ("quote_{contract}", "price_{contract}"),
    "create": ("start_{contract}", "make_{contract}"),
    "extend": ("extend_{contract}", "prolong_{contract}"),
    "resize": ("resize_{contract}", "change_{contract}_size"),
    "cancel": ("cancel_{contract}", "withdraw_{contract}", "call_off_{contract}"),
    "close": ("close_{contract}", "finish_{contract}"),
    "transfer": ("move_{contract}", "reassign_{contract}"),
    "update_party": ("update_{party}", "edit_{party}", "amend_{party}"),
    "unlock": ("unlock_{party}", "reopen_{party}"),
    "pay": ("collect_{party}_dues", "settle_{party}_dues"),
    "refund": ("refund_{contract}", "reimburse_{contract}"),
    "add_line": ("add_{line}", "attach_{line}"),
    "remove_line": ("remove_{line}", "detach_{line}"),
    "open_ticket": ("open_{ticket}", "file_{ticket}"),
    "close_ticket": ("close_{ticket}", "settle_{ticket}"),
    "decline": ("decline_request",),
    "hand_over": ("hand_over",),
}


_PHRASAL = frozenset({"of", "up", "off", "back", "in", "out", "for"})
"""Words that keep a name as it is: ``look_up_member``."""


class NameStyle(StrEnum):
    VERB_FIRST = "verb_first"  # renew_loan
    NOUN_FIRST = "noun_first"  # loan_renew
    CAMEL = "camel"  # renewLoan


def tool_names(
    domain: WorldDomain, operations: Iterable[str], style: NameStyle, rng: random.Random
) -> dict[str, str]:
    """A name for each operation. The two that end requests are called the same everywhere."""
    words: dict[str, str] = {}
    for archetype, noun in domain.nouns.items():
        words[archetype.value] = noun.noun.replace(" ", "_")
        words[f"{archetype.value}s"] = noun.plural.replace(" ", "_")
    names: dict[str, str] = {}
    for operation in operations:
        choices = domain.verbs.get(operation) or _USUAL[operation]
        name = rng.choice(choices).format_map(words)
        names[operation] = name if operation in ("decline", "hand_over") else _styled(name, style)
    return names


def _styled(name: str, style: NameStyle) -> str:
    first, *rest = name.split("_")
    turns = rest and not _PHRASAL & {*rest}
    if style is NameStyle.NOUN_FIRST and turns:
        return "_".join([*rest, first])
    if style is NameStyle.CAMEL:
        return first + "".join(word.capitalize() for word in rest)
    return name
