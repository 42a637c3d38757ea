"""A world of a domain: tables, tools, rules, rows and policy, drawn from domain and variant."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

from astra.records.base import content_id
from astra.records.world import Enforced, PolicyRule, World, WorldShape
from astra.worlds.documents import shown_by, world_tool
from astra.worlds.domain import OPTIONAL, Archetype, WorldDomain
from astra.worlds.invariants import invariants
from astra.worlds.layout import Layout
from astra.worlds.naming import NameStyle, tool_names
from astra.worlds.operations.accounts import ACCOUNTS, decline, hand_over
from astra.worlds.operations.contracts import CONTRACTS
from astra.worlds.operations.reading import READING
from astra.worlds.operations.shared import Operation
from astra.worlds.policy import REFUSALS, policy_text
from astra.worlds.rows import Rows
from astra.worlds.rules import ALWAYS, TEMPLATES, RuleTemplate
from astra.worlds.sentences import RuleWording
from astra.worlds.soundness import cells_in
from astra.worlds.sources import NotCompiled, Source
from astra.worlds.specs import Check, ToolSpec

A = Archetype
OPERATIONS: dict[str, Operation] = {**READING, **CONTRACTS, **ACCOUNTS}
_NEEDED = ("find", "list_contracts", "search_assets", "list_means", "create", "cancel", "pay",
           "unlock")  # fmt: skip
_OF = {
    A.LINE: ("list_lines", "add_line", "remove_line"),
    A.TICKET: ("list_tickets", "open_ticket", "close_ticket"),
}
_MORE = ("get_contract", "get_asset", "list_ledger", "quote", "close", "transfer", "update_party",
         "refund")  # fmt: skip
_SMALL = {
    "stay": (("find", "list_contracts", "cancel", "extend"),
             ("find", "search_assets", "list_contracts", "create"),
             ("find", "list_contracts", "search_assets", "transfer")),
    "slot": (("find", "list_contracts", "cancel", "resize"),
             ("find", "search_assets", "list_contracts", "create"),
             ("find", "list_contracts", "search_assets", "transfer")),
}  # fmt: skip
"""What the tools of small worlds do, one of these by variant."""
_FIRST_DAY = date(2026, 1, 12)
_MOST_TABLES = 8
_MOST_TOOLS = 20
_LEAST_POLICY = 4
_FLIPPED = 0.25
"""How often a rule is enforced by the other side than usual."""
FULL_ROWS = (44, 60, 76)
SMALL_ROWS = (9, 14, 16)
"""Parties, assets and contracts."""


def generate(
    domain: WorldDomain, variant: int, shape: WorldShape, seed: int, attempt: int = 0
) -> World:
    """The world that these arguments determine. ``checks`` is empty: nothing is proved yet."""
    rng = random.Random(
        int(content_id(["world", domain.name, variant, shape.value, seed, attempt]), 16)
    )
    layout = Layout(domain, _present(domain, shape, variant), shape)
    clock = _FIRST_DAY + timedelta(days=rng.randint(0, 330))
    now = f"{clock.isoformat()}T{rng.randint(8, 17):02d}:{rng.choice((0, 15, 30, 45)):02d}:00"
    specs = _specs(layout, variant, rng)
    rules = _rules(layout, specs, rng)
    tables = layout.tables()
    guarded = guarded_specs(specs, rules)
    reasons = tuple(dict.fromkeys([*(rule.reason for rule in rules), *REFUSALS]))
    ending = [decline("decline_request", reasons), hand_over("hand_over", (*domain.topics,))]
    counts = SMALL_ROWS if layout.small else FULL_ROWS
    return World(
        domain=domain.name,
        title=domain.title,
        split=domain.split,
        variant=variant,
        shape=shape,
        language="en",
        clock=now,
        tables=tables,
        rows=Rows(layout, clock, counts, rng).tables(),
        tools=tuple(world_tool(spec, tables) for spec in [*guarded.values(), *ending]),
        rules=rules,
        invariants=invariants(layout),
        policy=policy_text(layout, now, rules),
        topics=domain.topics,
        refusals=REFUSALS,
        checks={},
    )


def _present(domain: WorldDomain, shape: WorldShape, variant: int) -> tuple[Archetype, ...]:
    """The archetypes of a variant: optional ones come and go, as far as there is room."""
    if shape is WorldShape.SMALL:
        return (A.PARTY, A.ASSET, A.CONTRACT)
    core = [a for a in A if a in domain.nouns and a not in OPTIONAL]
    optional = [a for a in OPTIONAL if a in domain.nouns]
    wanted = optional[variant % 2 :] if variant % 4 < 2 else optional[: variant % 2]
    return tuple([*core, *wanted][: _MOST_TABLES - 1])


def _specs(layout: Layout, variant: int, rng: random.Random) -> dict[str, ToolSpec]:
    """The tools of a variant by operation, without those that end a request."""
    if layout.small:
        chosen = _SMALL[layout.domain.family][variant % 3]
    else:
        needed = [*_NEEDED, "resize" if layout.slots else "extend"]
        for archetype, operations in _OF.items():
            needed += operations if layout.has(archetype) else ()
        more = [*_MORE, *(["search_kinds"] if layout.has(A.KIND) else [])]
        room = _MOST_TOOLS - 2 - len(needed)
        chosen = [*needed, *rng.sample(more, min(len(more), room, rng.randint(4, 8)))]
    style = (*NameStyle,)[variant % len(NameStyle)]
    names = tool_names(layout.domain, chosen, style, rng)
    ordered = [name for name in OPERATIONS if name in chosen]
    return {name: OPERATIONS[name](layout, names[name]) for name in ordered}


def _fits(layout: Layout, specs: Mapping[str, ToolSpec], template: RuleTemplate) -> bool:
    """Whether the tools, tables and columns that a rule is about are there."""
    return (
        any(name in specs for name in template.operations)
        and all(layout.has(archetype) for archetype in template.needs)
        and all(column in layout.names(A.CONTRACT) for column in template.columns)
    )


def _shown(specs: Mapping[str, ToolSpec]) -> set[tuple[str, str]]:
    """The columns, with their tables, that tools show without changing anything."""
    reading = [shown_by(spec) for spec in specs.values() if not spec.changes]
    return {(table, column) for shows in reading for table, columns in shows.items()
            for column in columns}  # fmt: skip


def _rules(
    layout: Layout, specs: Mapping[str, ToolSpec], rng: random.Random
) -> tuple[PolicyRule, ...]:
    """The rules of a variant: those of every world, and a draw of the domain's that fit it. None
    rests on what no tool shows: an agent who may not guess could not keep it."""
    fitting = [name for name in layout.domain.rules
               if (name in SMALL_RULES or not layout.small)
               and _fits(layout, specs, TEMPLATES[name])]  # fmt: skip
    shown = _shown(specs)
    hidden = {name for name in fitting
              if not {*cells_in(TEMPLATES[name].clause(layout, specs, 0))} <= shown}  # fmt: skip
    wording = RuleWording(layout.tables(), _nouns(layout))
    if layout.small:
        usable = [name for name in fitting if name not in hidden]
        chosen = ["authenticate", *rng.sample(usable, min(1, len(usable)))]
    else:
        chosen = [*ALWAYS, *rng.sample(fitting, min(len(fitting), rng.randint(6, 9)))]
    # Hidden ones are drawn too, so that the rest of a world is the same with and without them.
    drawn = {name: _rule(layout, specs, name, wording, rng) for name in TEMPLATES if name in chosen}
    rules = [rule for name, rule in drawn.items() if name not in hidden]
    if not layout.small:
        lacking = _LEAST_POLICY - sum(rule.enforced is Enforced.POLICY for rule in rules)
        turned = [at for at, rule in enumerate(rules) if rule.enforced is Enforced.TOOL]
        for at in turned[: max(0, lacking)]:
            rules[at] = rules[at].model_copy(update={"enforced": Enforced.POLICY})
    return tuple(rules)


SMALL_RULES = frozenset(
    "cancel_window extend_limit extend_overdue extend_length resize_limit resize_window lead_time "
    "tier_limit stay_length transfer_window".split()
)
"""Rules over the few columns that small worlds have."""


def _nouns(layout: Layout) -> dict[str, str]:
    return {layout.table(a): layout.noun(a).noun for a in layout.present}


def _rule(
    layout: Layout,
    specs: Mapping[str, ToolSpec],
    name: str,
    wording: RuleWording,
    rng: random.Random,
) -> PolicyRule:
    template = TEMPLATES[name]
    tools = tuple(specs[operation].name for operation in template.operations if operation in specs)
    constant = rng.choice(layout.domain.rules.get(name, (0,)))
    when, require = template.clause(layout, specs, constant)
    enforced = template.enforced
    if rng.random() < _FLIPPED and _compiles(layout, require):
        enforced = Enforced.TOOL if enforced is Enforced.POLICY else Enforced.POLICY
    return PolicyRule(
        id=name,
        text=wording.sentence(tools, when, require, template.reason),
        tools=tools,
        when=when,
        require=require,
        enforced=enforced,
        reason=template.reason,
    )


def _compiles(layout: Layout, require: object) -> bool:
    """Whether code can tell a condition: not where it asks about the conversation."""
    try:
        Source(layout.tables()).expression(require)
    except NotCompiled:
        return False
    return True


def guarded_specs(
    specs: Mapping[str, ToolSpec], rules: Sequence[PolicyRule]
) -> dict[str, ToolSpec]:
    """The tools with the guards of the rules that tools enforce."""
    guarded: dict[str, ToolSpec] = {}
    for operation, spec in specs.items():
        guards = [
            Check(guard(rule), f"{rule.reason}: a rule forbids this")
            for rule in rules
            if rule.enforced is Enforced.TOOL and spec.name in rule.tools
        ]
        guarded[operation] = replace(spec, checks=(*spec.checks, *guards))
    return guarded


def guard(rule: PolicyRule) -> object:
    """A rule as one condition: not ``when``, or ``require``."""
    return rule.require if rule.when is None else {"or": [{"not": rule.when}, rule.require]}
