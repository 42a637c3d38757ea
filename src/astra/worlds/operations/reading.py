"""Tools that look things up: find, get, list, search and quote."""

from __future__ import annotations

from astra.records.world import ToolRole
from astra.worlds.domain import Archetype
from astra.worlds.layout import Layout
from astra.worlds.operations.shared import (
    Operation,
    enum_parameter,
    free_asset,
    key_parameter,
    row_result,
    seats,
    words,
)
from astra.worlds.sentences import with_article
from astra.worlds.specs import Check, Filter, ListResult, Parameter, RecordResult, ToolSpec


def find(layout: Layout, name: str) -> ToolSpec:
    """The party with that email, or with that name and postcode."""
    noun, party = layout.noun(Archetype.PARTY).noun, Archetype.PARTY
    email, full, code = (layout.column(party, x) for x in ("email", "name", "postcode"))
    parameters = [Parameter(email, "string", "Email address", optional=not layout.small)]
    checks: tuple[Check, ...] = ()
    if not layout.small:
        parameters += [
            Parameter(full, "string", "Full name", optional=True),
            Parameter(code, "string", "Postcode", optional=True),
        ]

        def given(argument: str) -> object:
            return {"not": {"eq": [{"arg": argument}, None]}}

        enough = {"or": [given(email), {"and": [given(full), given(code)]}]}
        checks = (Check(enough, f"give {words(email)}, or {words(full)} and {words(code)}"),)
    how = "email" if layout.small else "email, or by full name and postcode"
    return ToolSpec(
        "find", name, ToolRole.FIND, f"Find the {noun} by {how}.", tuple(parameters),
        ListResult(
            layout.table(party),
            tuple(Filter(p.name, p.name) for p in parameters),
            layout.columns(party),
            "only",
        ),
        checks,
    )  # fmt: skip


def _get(operation: str, archetype: Archetype) -> Operation:
    def make(layout: Layout, name: str) -> ToolSpec:
        parameter = key_parameter(layout, archetype)
        text = f"Show one {layout.noun(archetype).noun}."
        return ToolSpec(
            operation, name, ToolRole.GET, text, (parameter,),
            row_result(layout, archetype, {"arg": parameter.name}),
        )  # fmt: skip

    return make


def _list(operation: str, archetype: Archetype, owner: Archetype, state: str = "") -> Operation:
    """The rows of an owner, all or those in one state."""

    def make(layout: Layout, name: str) -> ToolSpec:
        parameters = [key_parameter(layout, owner)]
        if state and not layout.small:
            text = f"Only those with this {words(layout.column(archetype, state))}"
            parameters.append(enum_parameter(layout, archetype, state, text, optional=True))
        of, what = layout.noun(owner).noun, layout.noun(archetype).plural
        return ToolSpec(
            operation, name, ToolRole.LIST, f"List the {what} of {with_article(of)}.",
            tuple(parameters),
            ListResult(
                layout.table(archetype),
                tuple(Filter(p.name, p.name) for p in parameters),
                layout.columns(archetype),
                "all",
            ),
        )  # fmt: skip

    return make


def _search(operation: str, archetype: Archetype) -> Operation:
    """Rows by up to four filters, ten to a page."""

    def make(layout: Layout, name: str) -> ToolSpec:
        parameters: list[Parameter] = []
        filters: list[Filter] = []
        for column in ("kind", "category", "place", "state", "date"):
            if column not in layout.names(archetype):
                continue
            text = f"Only those with this {words(layout.column(archetype, column))}"
            if column == "kind":
                parameter = key_parameter(layout, Archetype.KIND, optional=True)
            elif column == "date":
                shown = layout.column(archetype, column)
                parameter = Parameter(shown, "date", text, optional=True)
            else:
                parameter = enum_parameter(layout, archetype, column, text, optional=True)
            parameters.append(parameter)
            filters.append(Filter(parameter.name, parameter.name))
        if "price" in layout.names(archetype):
            shown = layout.column(archetype, "price")
            parameters.append(
                Parameter(
                    f"most_{shown}",
                    "integer",
                    f"The highest {words(shown)}",
                    optional=True,
                    least=0,
                )
            )
            filters.append(Filter(shown, f"most_{shown}", "most"))
        parameters, filters = parameters[:4], filters[:4]
        parameters.append(
            Parameter("page", "integer", "Page of ten, from 1", optional=True, least=1)
        )
        what = layout.noun(archetype).plural
        return ToolSpec(
            operation, name, ToolRole.SEARCH, f"Search {what}, ten to a page.",
            tuple(parameters),
            ListResult(
                layout.table(archetype), tuple(filters), layout.columns(archetype), "page"
            ),
        )  # fmt: skip

    return make


def quote(layout: Layout, name: str) -> ToolSpec:
    """What a contract for an asset would cost, refused where the asset is not to be had."""
    asset = key_parameter(layout, Archetype.ASSET)
    contract = layout.noun(Archetype.CONTRACT).noun
    if layout.slots:
        amount = Parameter(seats(layout), "integer", "How many places", least=1, most=12)
    else:
        amount = Parameter("days", "integer", "How many days", least=1, most=90)
    price = {"mul": [layout.price_of({"arg": asset.name}), {"arg": amount.name}]}
    return ToolSpec(
        "quote", name, ToolRole.QUOTE,
        f"What {with_article(contract)} would cost, without making it.",
        (asset, amount),
        RecordResult({layout.column(Archetype.CONTRACT, "price"): price}),
        (free_asset(layout, {"arg": asset.name}),),
    )  # fmt: skip


READING: dict[str, Operation] = {
    "find": find,
    "get_contract": _get("get_contract", Archetype.CONTRACT),
    "get_asset": _get("get_asset", Archetype.ASSET),
    "list_contracts": _list("list_contracts", Archetype.CONTRACT, Archetype.PARTY, "state"),
    "list_means": _list("list_means", Archetype.MEANS, Archetype.PARTY),
    "list_ledger": _list("list_ledger", Archetype.LEDGER, Archetype.PARTY, "entry"),
    "list_lines": _list("list_lines", Archetype.LINE, Archetype.CONTRACT),
    "list_tickets": _list("list_tickets", Archetype.TICKET, Archetype.PARTY, "state"),
    "search_assets": _search("search_assets", Archetype.ASSET),
    "search_kinds": _search("search_kinds", Archetype.KIND),
    "quote": quote,
}
