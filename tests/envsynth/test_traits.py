"""Each trait of a hard arena is told from what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest

from astra.envsynth.traits import traits_of
from astra.records.environment import DEEP, Arena, ArenaStep, ArenaTool, Trait
from astra.records.qa import Answer, QuestionKind, Scenario, Split
from astra.records.tool import Tool

STRING, NUMBER = {"type": "string"}, {"type": "integer"}
CREW = [{"sailor": "Ida Moor", "years": 4}, {"sailor": "Per Voss", "years": 9}]


def answer(value: Any) -> Answer:
    kinds = {str: "string", int: "number", list: "list", dict: "record"}
    return Answer.model_validate({"type": kinds[type(value)], "value": value})


def step(
    number: int, tool: str | None, value: Any, *needs: int, question: str = "", **given: Any
) -> ArenaStep:
    return ArenaStep(
        id=number, hop_level=1 + len(needs), question=question or f"What does {tool} say?",
        answer=answer(value), dependencies=needs, tool_name=tool, arguments=given,
    )  # fmt: skip


def tool(name: str, output: str = "string", **parameters: dict[str, Any]) -> Tool:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return Tool(name=name, description="d", parameters=schema, output_schema={"type": output})


def arena(
    *steps: ArenaStep, tools: tuple[Tool, ...] = (), question: str = "", final: Any = None,
    hops: int = 1, kind: QuestionKind = QuestionKind.READ_ONLY,
) -> Arena:  # fmt: skip
    named = {one.name: one for one in tools}
    for one in steps:
        if one.tool_name:
            named.setdefault(one.tool_name, tool(one.tool_name))
    return Arena(
        qa_id="q", split=Split.TRAIN, domain="harbour", language="en", source="test", kind=kind,
        scenario=Scenario.MULTI_HOP, hops=hops, main_question=question or "Tell me all of it.",
        final_answer=answer(final) if final is not None else steps[-1].answer,
        tools=tuple(ArenaTool(tool=one) for one in named.values()), steps=steps,
        entities=(), composition="c",
    )  # fmt: skip


def has(trait: Trait, one: Arena) -> bool:
    return trait in traits_of(one)


@pytest.mark.parametrize(
    ("steps", "final"),
    [
        ((step(1, "list_crew", CREW), step(2, "get_home", "Aby", 1, sailor="Per Voss")), None),
        ((step(1, "list_crew", CREW), step(2, None, "Ida Moor", 1)), None),  # picked without a tool
        ((step(1, "list_crew", CREW),), "Per Voss"),
        ((step(1, "get_ship", {"length": 12, "flag": "Malta"}),), "Malta"),
        ((step(1, "list_names", ["Ida Moor", "Per Voss"]),
          step(2, "get_home", "Aby", 1, sailors=["Per Voss"])), None),
        ((step(1, "get_ship", {"length": 12, "flag": "Malta"}), step(2, None, "Swan", 1)), None),
    ],
)  # fmt: skip
def test_a_part_of_a_result_is_selected(steps: tuple[ArenaStep, ...], final: Any) -> None:
    assert has(Trait.SELECTION, arena(*steps, final=final))


@pytest.mark.parametrize(
    "steps",
    [
        (step(1, "list_crew", CREW),),  # the whole result is the answer
        (step(1, "get_age", 4), step(2, "list_crew", CREW, 1, age=4)),
        (step(1, "get_one", [CREW[0]["sailor"]]), step(2, "get_home", "Aby", 1, sailor="Ida Moor")),
        (step(1, "list_crew", CREW), step(2, "get_home", "Aby", sailor="Per Voss")),  # told
        (step(1, "get_agent", "Ida Moor"), step(2, None, "Ida Moor", 1)),
        (step(1, "list_names", ["Ida Moor", "Per Voss"]), step(2, None, "Swan", 1)),
        (step(1, "get_ship", {"open": True, "x": 3}), step(2, "get_home", "Aby", 1, all=True)),
    ],
)
def test_whole_results_are_no_selection(steps: tuple[ArenaStep, ...]) -> None:
    assert not has(Trait.SELECTION, arena(*steps))


def pages(**second: Any) -> Arena:
    first = step(1, "browse_crew", {"rows": CREW, "next_page": 2}, ship="Swan", page=1)
    return arena(first, step(2, "browse_crew", {"rows": [], "next_page": 9}, 1, **second))


def test_a_page_is_turned_by_what_the_page_before_says() -> None:
    assert has(Trait.PAGES, pages(ship="Swan", page=2))
    assert not has(Trait.SELECTION, pages(ship="Swan", page=2))
    token = step(1, "search_crew", {"items": CREW, "cursor": "k7"}, ship="Swan")
    after = step(2, "search_crew", {"items": CREW, "cursor": "k8"}, 1, ship="Swan", cursor="k7")
    assert has(Trait.PAGES, arena(token, after))  # whatever it is called


@pytest.mark.parametrize(
    "second",
    [{"ship": "Swan", "page": 3}, {"ship": "Heron", "page": 2}, {"page": 2}, {"ship": "Swan"}, {}],
)
def test_another_call_of_the_same_tool_is_no_next_page(second: dict[str, Any]) -> None:
    assert not has(Trait.PAGES, pages(**second))


def test_pages_need_a_list_a_dependency_and_one_tool() -> None:
    record = step(1, "get_ship", {"next_ship": "Heron", "length": 3}, ship="Swan")
    follows = step(2, "get_ship", {"next_ship": "Crane", "length": 4}, 1, ship="Heron")
    assert not has(Trait.PAGES, arena(record, follows))
    first = step(1, "browse_crew", {"rows": CREW, "next_page": 2}, page=1)
    assert not has(Trait.PAGES, arena(first, step(2, "browse_crew", {"rows": CREW}, page=2)))
    other = step(2, "browse_ships", {"rows": CREW, "next_page": 3}, 1, page=2)
    assert not has(Trait.PAGES, arena(first, other))


@pytest.mark.parametrize(
    ("one", "other", "twins"),
    [
        (tool("list_ships", ship=STRING), tool("list_ships_by", ship=STRING, bound=NUMBER), True),
        (tool("count_ships", port=STRING), tool("count_ships_2", port=STRING, flag=STRING), True),
        (tool("list_ships", ship=STRING), tool("list_sailors", ship=STRING, age=NUMBER), False),
        (tool("list_ships", ship=STRING), tool("sort_ships", ship=STRING), False),
        (tool("list_ships", port=STRING), tool("list_ships_of", ship=STRING, age=NUMBER), False),
        (tool("list_ships", ship=STRING), tool("find_ships", ship=NUMBER, age=NUMBER), False),
        (tool("list_ships", ship=STRING), tool("count_ships", "integer", ship=STRING, age=NUMBER),
         False),
        (tool("list_ships"), tool("list_ships_of", ship=STRING), False),
        (tool("list_ships", a=STRING), tool("list_ships_2", a=STRING, b=STRING, c=STRING), False),
    ],
)  # fmt: skip
def test_twins_differ_by_one_parameter(one: Tool, other: Tool, twins: bool) -> None:
    asked = step(1, one.name, "x")
    assert has(Trait.TWINS, arena(asked, tools=(one, other))) is twins
    assert has(Trait.TWINS, arena(asked, tools=(other, one))) is twins


def test_names_are_unlike_neither_question() -> None:
    def named(name: str, question: str, main: str = "") -> bool:
        asked = step(1, name, "x", question=question)
        return has(Trait.UNLIKE_NAMES, arena(asked, question=main))

    assert named("find_boarding_point", "Which gate does it leave from?")
    assert not named("get_gate", "Which gate does it leave from?")
    assert not named("find_boarding_point", "Where?", "At which point do I board KX 204?")
    assert not named("find_boarding_point", "它从哪个登机口出发？")
    offered = arena(step(1, "get_gate", "x", question="Which gate?"), tools=(tool("read_port"),))
    assert not has(Trait.UNLIKE_NAMES, offered)  # nobody needs that tool


SAID = {"type": "string", "description": "As it is kept."}


@pytest.mark.parametrize(
    ("question", "value", "schema", "found"),
    [
        ("What did Ada Finch pay?", "Finch, Ada", SAID, True),
        ("What is at Amber Cove?", "AMBER-COVE", SAID, True),
        ("What was due on 2024-05-03?", "03/05/2024", SAID, True),
        ("What do I get for 12.50 crowns?", 1250, {"type": "integer", "description": "c"}, True),
        ("What did Ada Finch pay?", "Ada Finch", SAID, False),
        ("What did ADA FINCH pay?", "Ada Finch", SAID, False),
        ("What did Ada Finch pay?", "Finch, Ada", STRING, False),  # no form is stated
        ("What did Finch, Ada pay?", "Finch, Ada", SAID, False),
        ("What did she pay?", "Finch, Ada", SAID, False),
        ("What do I get for 1,250 crowns, or 12.50?", 1250, {"description": "c"}, False),
        ("Is it open?", True, {"type": "boolean", "description": "c"}, False),
    ],
)
def test_a_value_told_in_another_form_is_found(
    question: str, value: Any, schema: dict[str, Any], found: bool
) -> None:
    asked = step(1, "get_it", "x", question=question, key=value)
    assert has(Trait.FORMATS, arena(asked, tools=(tool("get_it", key=schema),))) is found


def test_an_earlier_answer_is_told_too() -> None:
    wants = tool("get_weekday", day=SAID)
    first = step(1, "get_arrival", "2024-05-03")
    for needs, found in (((1,), True), ((), False)):
        second = step(2, "get_weekday", "Friday", *needs, day="03/05/2024")
        assert has(Trait.FORMATS, arena(first, second, tools=(wants,))) is found
    same = step(2, "get_weekday", "Friday", 1, day="2024-05-03")
    assert not has(Trait.FORMATS, arena(first, same, tools=(wants,)))


def test_hops_are_counted_by_level() -> None:
    assert has(Trait.HOPS, arena(step(1, "get_it", "x"), hops=DEEP))
    assert not has(Trait.HOPS, arena(step(1, "get_it", "x"), hops=DEEP - 1))


def test_two_traits_make_a_hard_arena_and_code_has_none() -> None:
    one = pages(ship="Swan", page=2)
    assert not one.model_copy(update={"traits": traits_of(one)}).is_hard
    deep = one.model_copy(update={"hops": 4})
    found = deep.model_copy(update={"traits": traits_of(deep)})
    assert found.traits == (Trait.PAGES, Trait.HOPS)
    assert found.is_hard
    single = found.model_copy(update={"steps": found.steps[:1]})
    assert not single.is_hard  # one call, however well hidden
    assert traits_of(deep.model_copy(update={"kind": QuestionKind.CODE})) == ()


def test_an_arena_without_traits_is_kept_as_before() -> None:
    plain = arena(step(1, "get_it", "x"))
    assert "traits" in Arena.sparse
    assert plain.id == plain.model_copy(update={"traits": (Trait.HOPS,)}).id
    read = Arena.model_validate(
        plain.model_copy(update={"traits": (Trait.HOPS,)}).model_dump(mode="json")
    )
    assert read.traits == (Trait.HOPS,)
