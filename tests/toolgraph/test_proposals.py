"""Proposed sources of arguments: which hold, and what walks make of them.

The tools are written like those of public listings: no result is described by its publisher.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from pydantic import ValidationError

from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep, ProposedChain
from astra.records.tool import Execution, InferredResult, Tool, ToolServer
from astra.text.paths import NoSuchPath, at_path, takes
from astra.toolgraph.arguments import (
    STATED,
    Binder,
    Unsatisfiable,
    replay,
    told_apart,
)
from astra.toolgraph.asks import PROPOSED_ORIGINS, ChainProposal, ChainProposals
from astra.toolgraph.chains import most_visits
from astra.toolgraph.graph import build_graph
from astra.toolgraph.linking import MAX_OUTPUTS, outputs
from astra.toolgraph.proposals import Reading, proposed_chains, read_proposal

TEXT = {"type": "string"}
PAGES = {
    "type": "object",
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": TEXT,
                    "title": TEXT,
                    "words": {"type": "integer"},
                    "owner": {"$ref": "#/$defs/person"},
                    "tags": {"type": "array", "items": TEXT},
                },
            },
        },
        "cursor": {"anyOf": [TEXT, {"type": "null"}]},
        "extra": {"type": "object"},
    },
    "$defs": {"person": {"type": "object", "properties": {"email": TEXT, "boss": {
        "$ref": "#/$defs/person"}}}},
}  # fmt: skip


def tool(name: str, needs: str = "", may: str = "", **fields: Any) -> Tool:
    """A tool with text parameters; a schema stands in ``fields`` under the parameter's name."""
    known = {key: fields.pop(key) for key in list(fields) if key not in Tool.model_fields}
    properties = {one: known.get(one, TEXT) for one in (needs + " " + may).split()}
    schema = {"type": "object", "properties": properties, "required": needs.split()}
    return Tool(name=name, description=f"{name}.", parameters=schema, **fields)


SEARCH = tool("search-pages", "query", "cursor limit", limit={"type": "number", "default": 10})
GET = tool("get-page", "page_id")
UPDATE = tool("update-page", "page_id", "text notify tags",
              notify={"type": "boolean"}, tags={"type": "array", "items": TEXT})  # fmt: skip
MOVE = tool("move-page", "page_id state", state={"enum": ["draft", "final"]})


def workspace(described: bool = False) -> ToolServer:
    guess = InferredResult(output_schema=PAGES, example={"results": [{"id": "p1"}]})
    search = SEARCH.model_copy(update={"inferred": guess}) if described else SEARCH
    return ToolServer(
        name="pages", title="Pages", description="A wiki.", domain="office", source="t",
        licence="MIT", language="en", execution=Execution.EMULATED, deterministic=True,
        tools=(search, GET, UPDATE, MOVE),
    )  # fmt: skip


def proposal(*steps: tuple[str, dict[str, Any]], task: str = "Do it.") -> ChainProposal:
    """``task`` or ``default`` as a source, or (step, *path) of an output."""

    def argument(name: str, source: Any) -> dict[str, Any]:
        if isinstance(source, str):
            return {"name": name, "origin": source}
        return {"name": name, "origin": "output", "step": source[0], "path": source[1:]}

    return ChainProposal.model_validate({
        "task": task, "reason": "why", "verdict": "yes",
        "steps": [
            {"tool": name, "arguments": [argument(*one) for one in arguments.items()]}
            for name, arguments in steps
        ],
    })  # fmt: skip


def read(of: ToolServer, *steps: tuple[str, dict[str, Any]]) -> Reading:
    return read_proposal(of, proposal(*steps), "sample 0, proposal 0")


def output(step: int, *path: str | int) -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=step, path=path)


FOUND = ("search-pages", {"query": "task"})
FIRST = (0, "results", 0, "id")


@pytest.mark.parametrize("described", [False, True])
def test_find_look_and_act_is_bound_without_a_published_result(described: bool) -> None:
    of = workspace(described)
    whole = (FOUND, ("get-page", {"page_id": FIRST}),
             ("update-page", {"page_id": FIRST, "text": "task", "notify": "default"}))  # fmt: skip
    reading = read(of, *whole)
    assert reading.rejections == ()
    graph = build_graph(of, [reading])
    names = [name for name, _ in whole]
    steps = Binder(of.tools, graph.proposed).bind(names)
    assert steps[0].arguments == {"query": STATED}
    assert steps[1].arguments == {"page_id": output(*FIRST)}
    # An optional parameter is there if the request is about it, not for its default.
    assert steps[2].arguments == {"page_id": output(*FIRST), "text": STATED}
    calls = replay(steps, {one.name: one for one in of.tools}, random.Random(0))
    assert ("page_id" in calls[1]) is described


@pytest.mark.parametrize(
    ("arguments", "reason", "detail"),
    [
        ({"page_id": (1, "id")}, "source_not_earlier", "get-page is step 1, the source is step 1"),
        ({"page_id": (2, "id")}, "source_not_earlier", "the source is step 2"),
        ({"page_id": (-1, "id")}, "source_not_earlier", "the source is step -1"),
        ({"page_id": (0, "pages", 0, "id")}, "source_path_unknown", "there are: results, cursor"),
        ({"page_id": (0, "results", "id")}, "source_path_unknown", "only positions"),
        ({"page_id": (0, "results", -1, "id")}, "source_path_unknown", "no position -1"),
        ({"page_id": (0, "results", 0, "id", "x")}, "source_path_unknown", "a string has no 'x'"),
        ({"page_id": (0, 0, "id")}, "source_path_unknown", "an object has no position 0"),
        ({"page_id": (0, "results", 0)}, "source_type_differs", "is no get-page.page_id"),
        ({"page_id": (0, "results")}, "source_type_differs", "get-page.page_id"),
        ({"page": "task"}, "unknown_parameter", "get-page has no 'page', only page_id"),
        ({"page_id": "default"}, "no_default", "get-page.page_id has no default"),
    ],
)
def test_a_source_that_cannot_be_is_refused_with_its_reason(
    arguments: dict[str, Any], reason: str, detail: str
) -> None:
    of = workspace(described=True)
    reading = read(of, FOUND, ("get-page", arguments))
    (rejection,) = reading.rejections
    assert (rejection.item, rejection.reason) == (of.id, reason)
    assert rejection.part.startswith("sample 0, proposal 0, step 1, argument page")
    assert detail in rejection.detail
    assert rejection.said == "Do it."
    # The chain stays: what is missing gets another source.
    assert reading.steps[1].arguments == {}
    graph = build_graph(of, [reading])
    assert [(edge.source, edge.target) for edge in graph.edges] == [("search-pages", "get-page")]
    bound = Binder(of.tools, graph.proposed).bind(("search-pages", "get-page"))
    assert bound[1].arguments["page_id"] == output(*FIRST)  # by name: page and id


def test_a_step_without_number_and_a_list_of_texts() -> None:
    of = workspace(described=True)
    missing = ChainProposal.model_validate(
        proposal(FOUND, ("get-page", {"page_id": "task"})).model_dump()
        | {"steps": [{"tool": "get-page", "arguments": [{"name": "page_id", "origin": "output"}]}]}
    )
    (rejection,) = read_proposal(of, missing, "sample 0").rejections
    assert rejection.reason == "source_not_earlier"
    tags = {"page_id": FIRST, "tags": (0, "results", 0, "tags")}
    assert read(of, FOUND, ("update-page", tags)).rejections == ()
    (rejection,) = read(of, FOUND, ("update-page", tags | {"tags": (0, "results")})).rejections
    assert rejection.reason == "source_type_differs"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (("results", 0, "id"), "string"),
        (("results", "0", "id"), "string"),
        (("results", 7, "owner", "boss", "boss", "email"), "string"),
        (("cursor",), "string"),
        (("extra", "anything", "goes"), None),
        ((), "object"),
    ],
)
def test_paths_lead_through_lists_references_and_open_objects(
    path: tuple[str | int, ...], kind: str | None
) -> None:
    walked, schemas = at_path(PAGES, path)
    assert walked == tuple(int(part) if str(part).isdigit() else part for part in path)
    assert [schema.get("type") for schema in schemas if schema.get("type") != "null"] == [kind]


@pytest.mark.parametrize(
    ("result", "path"),
    [
        ({"type": "array", "items": False}, (0,)),
        ({"type": "array", "prefixItems": [TEXT], "items": False}, (1,)),
        ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": False}, ("b",)),
        ({"type": "object", "properties": {"a": False}}, ("a",)),
        ({"anyOf": [TEXT, {"type": "integer"}]}, ("a",)),
        ({"$ref": "#"}, ("a",)),
        ({"anyOf": [{"$ref": "#"}] * 9}, ("a",)),
    ],
)
def test_paths_that_no_result_has(result: dict[str, Any], path: tuple[str | int, ...]) -> None:
    with pytest.raises(NoSuchPath):
        at_path(result, path)


def test_a_parameter_takes_what_its_type_and_its_list_of_values_allow() -> None:
    def fits(parameter: Any, given: dict[str, Any]) -> bool:
        return takes(parameter, {"$defs": {"n": {"type": "integer"}}}, [given], {})

    assert fits({"type": "number"}, {"type": "integer"})
    assert fits({"type": "integer"}, {"type": "number"})  # publishers call integers numbers
    assert fits({"type": ["string", "null"]}, TEXT)
    assert fits({"$ref": "#/$defs/n"}, {"type": "integer"})
    assert not fits({"$ref": "#/$defs/n"}, TEXT)
    assert fits({}, TEXT)
    assert fits(TEXT, {})
    assert fits({"anyOf": [{"type": "integer"}, TEXT]}, TEXT)
    assert not fits({"enum": ["a", "b"]}, TEXT)
    assert fits({"enum": ["a", "b"]}, {"enum": ["b", "c"]})
    assert not fits({"const": "a"}, {"enum": ["b", "c"]})
    assert fits({"type": "string", "pattern": "^[A-Z]{3}$"}, TEXT)
    assert not fits(
        {"type": "array", "items": TEXT}, {"type": "array", "items": {"type": "integer"}}
    )
    assert not fits(False, TEXT)


def chain_of(*steps: tuple[str, dict[str, Any]], weight: int = 1) -> ProposedChain:
    (one,) = proposed_chains([read(workspace(), *steps)])
    return one.model_copy(update={"weight": weight})


def test_other_walks_take_what_proposals_of_the_same_tools_mostly_took() -> None:
    tools = workspace().tools
    by_result = chain_of(FOUND, ("get-page", {"page_id": FIRST}), weight=2)
    by_user = chain_of(FOUND, ("get-page", {"page_id": "task"}), ("move-page", {"state": "task"}))
    walk = ("search-pages", "get-page", "update-page")

    def source(*proposed: ProposedChain) -> ArgumentSource:
        return Binder(tools, proposed).bind(walk)[1].arguments["page_id"]

    assert source(by_result) == output(*FIRST)
    assert source(by_result, by_user) == output(*FIRST)
    assert source(by_result, by_user.model_copy(update={"weight": 3})) == STATED
    assert source() == STATED


def test_the_user_states_again_what_most_proposals_let_them_state() -> None:
    """Also where a result has the name: two pages are looked at, not one page twice."""
    of = workspace(described=True)
    walk = ("search-pages", "get-page", "update-page")
    stated = read(of, FOUND, ("get-page", {"page_id": "task"}))
    taken = read(of, FOUND, ("get-page", {"page_id": FIRST}))

    def source(*readings: Reading) -> ArgumentSource:
        proposed = proposed_chains(readings)
        return Binder(of.tools, proposed).bind(walk)[1].arguments["page_id"]

    assert source() == output(*FIRST)
    assert source(stated) == STATED
    assert source(stated, taken) == output(*FIRST)
    assert source(stated, stated, taken) == STATED


def test_what_a_result_repeats_of_its_call_is_no_source() -> None:
    echo = {"type": "object", "properties": {"place_name": TEXT, "station_id": TEXT}}
    now = tool("get-weather", "place_name", output_schema=echo)
    later = tool("get-forecast", "place_name")
    look = tool("get-station", "station_id")
    bound = Binder([now, later, look]).bind(("get-weather", "get-forecast", "get-station"))
    assert bound[1].arguments == {"place_name": STATED}
    assert bound[2].arguments == {"station_id": output(0, "station_id")}


def test_a_proposed_optional_source_comes_along_in_other_walks() -> None:
    once = chain_of(FOUND, ("search-pages", {"query": "task", "cursor": (0, "next")}))
    binder = Binder(workspace().tools, [once])
    assert binder.bind(("get-page", "search-pages", "search-pages"))[2].arguments == {
        "query": STATED,
        "cursor": output(1, "next"),
    }
    assert binder.bind(("search-pages",))[0].arguments == {"query": STATED}


def test_the_proposal_of_the_very_walk_is_taken_at_its_word() -> None:
    """Also where a rule would find a result: two pages of one kind are compared."""
    tools = workspace(described=True).tools
    compared = chain_of(
        ("search-pages", {"query": "task"}), ("search-pages", {"query": "task"}),
        ("get-page", {"page_id": FIRST}), ("get-page", {"page_id": (1, "results", 0, "id")}),
    )  # fmt: skip
    binder = Binder(tools, [compared])
    names = [step.tool for step in compared.steps]
    assert binder.bind(names) == compared.steps
    assert binder.sketch(names) == "Do it."
    assert binder.sketch(names[:2]) == ""
    assert most_visits([compared]) == {"search-pages": 2, "get-page": 2}
    rare = chain_of(*[(name, {}) for name in names])
    often = rare.model_copy(update={"weight": 2})
    assert Binder(tools, [rare, compared]).bind(names) == compared.steps
    assert Binder(tools, [often, compared]).bind(names) != compared.steps


def test_equal_proposals_count_and_unknown_tools_do_not() -> None:
    of = workspace()
    same = (FOUND, ("get-page", {"page_id": FIRST}))
    readings = [
        read(of, *same),
        read_proposal(of, proposal(*same, task="Other words."), "sample 1"),
        read(of, FOUND, ("get-page", {"page_id": "task"})),
        read(of, FOUND, ("drop-page", {"page_id": FIRST})),
    ]
    assert [rejection.reason for rejection in readings[3].rejections] == ["unknown_tool"]
    graph = build_graph(of, readings)
    assert [(one.weight, one.task) for one in graph.proposed] == [(2, "Do it."), (1, "Do it.")]
    assert graph.proposals == 3
    assert graph.edges[0].weight == 3


def test_a_value_that_no_rule_can_make_up_is_looked_up_in_the_guessed_example() -> None:
    odd = {"type": "string", "pattern": "^(?=.*7)[0-9]{9}$"}
    guess = InferredResult(
        output_schema={"type": "object", "properties": {"code": odd, "other": odd}},
        example={"code": "123456789"},
    )
    find, use = tool("find", inferred=guess), tool("use", "code other", code=odd, other=odd)
    steps = (
        ChainStep(tool="find", arguments={}),
        ChainStep(tool="use", arguments={"code": output(0, "code"), "other": output(0, "other")}),
    )
    calls = replay(steps, {"find": find, "use": use}, random.Random(0))
    assert calls[1] == {"code": "123456789"}


def test_outputs_are_found_deep_and_are_bounded() -> None:
    deep = {"type": "object", "properties": {"page": PAGES["properties"]["results"]}}
    nested = {"type": "array", "items": {"type": "object", "properties": {"data": deep}}}
    paths = {one.path for one in outputs(tool("list", output_schema=nested))}
    assert (0, "data", "page", 0, "id") in paths
    wide = {"type": "object", "properties": {f"p{n}": TEXT for n in range(5000)}}
    assert len(outputs(tool("list", output_schema=wide))) == MAX_OUTPUTS
    endless = {"type": "object", "properties": {"next": {"$ref": "#"}, "id": TEXT}}
    assert ("next", "id") in {one.path for one in outputs(tool("list", output_schema=endless))}
    assert outputs(tool("list")) == ()


def test_a_number_of_a_result_is_the_text_that_a_parameter_takes() -> None:
    games = {"type": "array", "items": {"type": "object", "properties": {
        "id": {"type": "integer"}, "rank": {"type": "boolean"}}}}  # fmt: skip
    hot = tool("list-hot", output_schema=games)
    price = Tool(name="get-price", description="", parameters={"type": "object", "properties": {
        "ids": TEXT, "ranked": {"type": "string"}}, "required": ["ids"]})  # fmt: skip
    shop = workspace().model_copy(update={"tools": (hot, price)})
    good = read(shop, ("list-hot", {}), ("get-price", {"ids": (0, 0, "id")}))
    assert not good.rejections
    assert good.steps[1].arguments["ids"] == output(0, 0, "id")
    assert not good.rejections
    replay(good.steps, {one.name: one for one in shop.tools}, random.Random(0))
    wrong = read(shop, ("list-hot", {}), ("get-price", {"ids": (0, 0, "rank")}))
    assert [one.reason for one in wrong.rejections] == ["source_type_differs"]
    whole = read(shop, ("list-hot", {}), ("get-price", {"ids": (0, 0)}))
    assert [one.reason for one in whole.rejections] == ["source_type_differs"]


def test_a_proposal_leaves_no_value_to_the_agent() -> None:
    schema = ChainProposals.model_json_schema()
    assert schema["$defs"]["ArgumentOrigin"]["enum"] == list(PROPOSED_ORIGINS)
    step = {"tool": "t", "arguments": [{"name": "a", "origin": "task"}]}
    proposal = {"task": "?", "steps": [step], "reason": "", "verdict": "yes"}
    assert ChainProposal.model_validate(proposal).steps[0].arguments[0].origin == "task"
    step["arguments"] = [{"name": "a", "origin": "chosen"}]
    with pytest.raises(ValidationError, match="one of task, default, output"):
        ChainProposal.model_validate(proposal)


def test_a_default_of_a_required_parameter_is_an_example() -> None:
    keyword = {"type": "string", "default": "womens shoes"}
    search = Tool(name="search-products", description="", parameters={"type": "object",
        "properties": {"keyword": keyword, "unit": {"const": "km"}, "count": {"default": 25}},
        "required": ["keyword", "unit"]})  # fmt: skip
    (step,) = Binder([search]).bind([search.name])
    assert step.arguments["keyword"] == STATED
    assert step.arguments["unit"].value == "km"
    shop = workspace().model_copy(update={"tools": (search,)})
    said = read(shop, ("search-products", {"keyword": "default", "count": "default"}))
    assert not said.rejections
    assert said.steps[0].arguments == {"keyword": STATED}


def test_a_call_that_is_made_again_for_nothing() -> None:
    tools = {one.name: one for one in (SEARCH, GET, UPDATE)}
    find = ChainStep(tool="search-pages", arguments={"query": STATED})
    get = ChainStep(tool="get-page", arguments={"page_id": output(0, "results", 0, "id")})
    update = ChainStep(
        tool="update-page",
        arguments={"page_id": output(0, "results", 0, "id"), "text": STATED},
    )
    replay([find, get, update, get], tools, random.Random(0))  # what the change made of it
    replay([find, find], tools, random.Random(0))  # the user states two subjects
    with pytest.raises(Unsatisfiable, match="once more"):
        replay([find, get, get], tools, random.Random(0))


def test_equal_calls_of_a_composed_walk_take_different_elements() -> None:
    def get(position: int) -> ChainStep:
        path = ("results", position, "id")
        return ChainStep(tool="get-page", arguments={"page_id": output(0, *path)})

    find = ChainStep(tool="search-pages", arguments={"query": STATED})
    assert told_apart([find, get(0), get(0), get(0)]) == (find, get(0), get(1), get(2))
    assert told_apart([find, find]) == (find, find)  # the user states two subjects
    whole = ChainStep(tool="get-page", arguments={"page_id": output(0)})
    assert told_apart([find, whole, whole]) == (find, whole, whole)  # refused later
