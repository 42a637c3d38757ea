"""A world made of a service: its tables, tools and rules, with what every world has besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from astra.records.world import PolicyRule, World, WorldShape, WorldTable, WorldTool
from astra.text.openapi import ApiOperation, NotOpenApi, operations
from astra.worlds.documents import world_tool
from astra.worlds.generator import guarded_specs
from astra.worlds.layout import outcomes_table
from astra.worlds.operations.accounts import decline, hand_over
from astra.worlds.policy import REFUSALS, desk_policy
from astra.worlds.sentences import RuleWording, listed
from astra.worlds.services.owners import Owners
from astra.worlds.services.source import (
    ServiceFiles,
    ServiceRefused,
    ServiceRules,
    ServiceSource,
    read_service,
)
from astra.worlds.services.tables import ServiceTable, service_tables
from astra.worlds.services.tools import NotHosted, ServiceTools, find_tool, tool_name
from astra.worlds.soundness import WorldFault
from astra.worlds.specs import ToolSpec

_NOT_COMPILED = (ValueError, LookupError, TypeError, AttributeError)
"""What a tree that is no expression may raise where it is put into code or words."""


def service_world(source: ServiceSource, shape: WorldShape) -> World:
    """The world of a service; nothing of it is proved yet. A small ``shape`` has a short policy.
    Raises ServiceRefused."""
    files = read_service(source)
    known = _operations(files)
    tables = service_tables(files, known)
    specs = _specs(files.rules, tables, known)
    rules = _rules(files.rules, tables)
    shapes = (*(table.shape for table in tables.values()), outcomes_table())
    reasons = tuple(dict.fromkeys([*(rule.reason for rule in rules), *REFUSALS]))
    ending = [decline("decline_request", reasons), hand_over("hand_over", (*files.rules.topics,))]
    clock, topics = files.rules.clock, files.rules.topics
    about = " ".join(filter(None, [files.rules.about.strip(), *_nouns(tables)]))
    return World(
        domain=source.name,
        title=files.rules.title,
        split=source.split,
        variant=0,
        shape=WorldShape.SERVICE,
        language="en",
        clock=clock,
        tables=shapes,
        rows={**{name: [*table.rows] for name, table in tables.items()}, shapes[-1].name: []},
        tools=tuple(_compiled([*guarded_specs(specs, rules).values(), *ending], shapes)),
        rules=rules,
        invariants=(
            *(one for table in tables.values() for one in table.invariants),
            *files.rules.invariants,
        ),
        policy=desk_policy(
            files.rules.title, about, [rule.text for rule in rules], topics, shape, clock
        ),
        topics=topics,
        refusals=REFUSALS,
        checks={},
    )


def _operations(files: ServiceFiles) -> list[ApiOperation]:
    """The document's operations. Raises ServiceRefused where there are none, and where rules.yaml
    knows others."""
    try:
        found = [*operations(files.document)]
    except NotOpenApi as error:
        why = f"openapi: {error}: bring an OpenAPI 3 or Swagger 2 document"
        raise ServiceRefused([WorldFault("no_openapi", why)]) from None
    if not found:
        raise ServiceRefused([WorldFault("no_operations", "openapi: `paths` has no operation")])
    names = [tool_name(one) for one in found]
    if strange := sorted(set(files.rules.operations) - set(names)):
        why = f"rules.yaml, operations: {strange} are none of the document's: {names}"
        raise ServiceRefused([WorldFault("unknown_operation", why)])
    return found


def _specs(
    rules: ServiceRules, tables: Mapping[str, ServiceTable], known: Sequence[ApiOperation]
) -> dict[str, ToolSpec]:
    """The tools by name. Raises ServiceRefused with every operation that cannot be hosted."""
    maker, found = ServiceTools(tables, rules.operations), list[WorldFault]()
    specs: list[ToolSpec] = []
    try:
        specs.append(find_tool(rules.party, tables))
    except NotHosted as error:
        found.append(WorldFault(error.reason, f"rules.yaml, {error.detail}"))
    for operation in known:
        place = f"{operation.method.upper()} {operation.path} ({tool_name(operation)})"
        try:
            specs.append(maker.tool(operation))
        except NotHosted as error:
            found.append(WorldFault(error.reason, f"{place}: {error.detail}"))
    names = [spec.name for spec in specs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        why = f"{twice} are the names of two tools: give each operation an `operationId` of its own"
        found.append(WorldFault("duplicate_tool", why))
    if found:
        raise ServiceRefused(found)
    owners = Owners(specs, tables, rules.party.table)
    return {spec.name: owners.checked(spec) for spec in specs}


def _rules(rules: ServiceRules, tables: Mapping[str, ServiceTable]) -> tuple[PolicyRule, ...]:
    """The rules with their sentences. Raises ServiceRefused for trees that are no conditions."""
    shapes = tuple(table.shape for table in tables.values())
    wording = RuleWording(shapes, {name: table.noun for name, table in tables.items()})
    made: list[PolicyRule] = []
    for rule in rules.rules:
        try:
            text = wording.sentence(rule.tools, rule.when, rule.require, rule.reason)
        except _NOT_COMPILED as error:
            why = f"rules.yaml, rule {rule.id}: {type(error).__name__} {error}"
            raise ServiceRefused([WorldFault("bad_expression", why)]) from None
        made.append(PolicyRule(text=text, **dict(rule)))
    return tuple(made)


def _compiled(specs: Sequence[ToolSpec], shapes: tuple[WorldTable, ...]) -> Iterator[WorldTool]:
    """The tools as code. Raises ServiceRefused for trees that are no expressions."""
    for spec in specs:
        try:
            yield world_tool(spec, shapes)
        except _NOT_COMPILED as error:
            why = f"{spec.name}: rules.yaml has no expression there that code can tell: {error}"
            raise ServiceRefused([WorldFault("bad_expression", why)]) from None


def _nouns(tables: Mapping[str, ServiceTable]) -> Iterator[str]:
    """How the tables belong together, in words."""
    for table in tables.values():
        others = [tables[column.references].noun for column in table.shape.columns
                  if column.references]  # fmt: skip
        if others:
            named = listed([f"one {noun}" for noun in dict.fromkeys(others)], "and")
            yield f"A {table.noun} belongs to {named}."
