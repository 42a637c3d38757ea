"""Conversations under other names: the same everywhere, and nothing else is touched."""

from __future__ import annotations

import json
import random
import re

import pytest

from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool
from astra.records.trajectory import SFTSample
from astra.records.world import OUTCOMES, World, WorldShape
from astra.worlds.composition import lexicon
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate
from astra.worlds.name_draw import KEPT, NameDraw
from astra.worlds.renaming import renamed


def conversation(world: World) -> SFTSample:
    """The list of a party's contracts asked for, shown and told, in the world's own names."""
    party, contract = (
        next(one for one in world.tables if one.name == name)
        for name in (world.tables[0].name, world.tables[2].name)
    )
    row = world.rows[contract.name][0]
    listing = next(one.tool for one in world.tools if contract.name in one.tool.name.lower())
    call = ToolCall(
        id="call_0", name=listing.name, arguments=json.dumps({party.key: row[party.key]})
    )
    asked = (
        f"What about my {contract.name.removesuffix('s').replace('_', ' ')} {row[contract.key]}?"
    )
    return SFTSample(
        trajectory_id="1", split="train", language="en", domain=world.domain,
        tools=tuple(one.tool for one in world.tools),
        messages=(
            Message(role=MessageRole.SYSTEM, content=world.policy),
            Message(role=MessageRole.USER, content=asked),
            Message(role=MessageRole.ASSISTANT, tool_calls=(call,)),
            Message(role=MessageRole.TOOL, content=json.dumps([row]), tool_call_id="call_0"),
            Message(role=MessageRole.ASSISTANT, content="That is done."),
        ),
        scores={}, mean_score=1.0,
    )  # fmt: skip


@pytest.fixture(params=["library_loans", "museum_ticketing"])
def world(request: pytest.FixtureRequest) -> World:
    return generate(load_domains()[request.param], 0, WorldShape.SMALL, 0)


def text(sample: SFTSample) -> str:
    return sample.model_dump_json(include={"tools", "messages"})


def test_no_name_of_the_world_is_left(world: World) -> None:
    told = text(renamed(conversation(world), world, 1)).lower().replace("_", " ")
    for table in world.tables:
        if table.name != OUTCOMES:
            word = table.key.removesuffix("_id").replace("_", " ")
            assert not re.search(rf"(?<![a-z]){word}s?(?![a-z])", told), word
            prefix = re.sub("[0-9]+", "", world.rows[table.name][0][table.key])
            assert not re.search(rf"(?<![a-z]){prefix.lower()}[0-9]{{4}}", told), prefix


def test_calls_fit_the_documents_and_rows_keep_their_shape(world: World) -> None:
    before = conversation(world)
    after = renamed(before, world, 1)
    tools: dict[str, Tool] = {tool.name: tool for tool in after.tools}
    assert len(tools) == len(before.tools)
    (call,) = after.messages[2].tool_calls
    assert set(json.loads(call.arguments)) == set(tools[call.name].parameters["properties"])
    (row,), (old,) = (json.loads(one.messages[3].content) for one in (after, before))
    assert len(row) == len(old)
    assert json.loads(call.arguments).items() <= row.items()
    key, *_ = row.values()
    assert key in after.messages[1].content
    assert [tool for tool in tools if f"`{tool}`" in after.messages[0].content]
    assert {"decline_request", "hand_over"} <= set(tools)
    assert after.messages[4] == before.messages[4]


def test_codes_of_refusals_are_others_in_policy_and_documents_alike(world: World) -> None:
    after = renamed(conversation(world), world, 1)
    reasons = {one.name: one.parameters["properties"].get("reason") for one in after.tools}
    codes = reasons["decline_request"]["enum"]
    old = {*(rule.reason for rule in world.rules), *world.refusals}
    assert len(codes) == len(old)
    assert not old & set(codes)
    assert all(f"`{code}`" in after.messages[0].content for code in codes)
    assert not [code for code in old if f"`{code}`" in after.messages[0].content]
    assert set(reasons["hand_over"]["enum"]) == set(world.topics)


def test_each_copy_has_names_of_its_own_and_is_drawn_alike(world: World) -> None:
    before = conversation(world)
    first, second = (renamed(before, world, copy) for copy in (1, 2))
    assert first == renamed(before, world, 1)
    assert not {t.name for t in first.tools} & {t.name for t in second.tools} - {
        "decline_request", "hand_over"}  # fmt: skip
    assert len({before.id, first.id, second.id}) == 3


def test_keys_begin_with_any_letter_that_a_domain_uses(world: World) -> None:
    """A policy that never copied a Q misread every key of the applicants of a permit office."""
    told = " ".join(text(renamed(conversation(world), world, copy)) for copy in range(80))
    used = {
        letter for pair in re.findall("(?<![A-Za-z])([A-Z]{2})[0-9]{4}", told) for letter in pair
    }
    nouns = [noun for domain in load_domains().values() for noun in domain.nouns.values()]
    assert used >= {letter for noun in nouns for letter in noun.prefix}


def test_names_begin_with_vowels_are_words_given_and_never_keywords() -> None:
    """A policy that never copied such a name wrote ``shlete`` for ``athlete``; a column called
    ``with`` is no argument that code can have."""
    names = NameDraw(random.Random(0), ["hexagon", "athlete", "at", "with", "from", "else"])
    drawn = [names.word(set(), ["loan"]) for _ in range(2000)]
    assert {"hexagon", "athlete", "loan"} <= {*drawn}
    assert not {"at", "with", "from", "else", *KEPT} & {*drawn}
    made_up = [NameDraw(random.Random(at)).word(set(), ["loan"]) for at in range(400)]
    assert 0.1 < sum(one[0] in "aeiou" for one in made_up) / len(made_up) < 0.25


def test_made_up_names_are_spelled_as_words_are(world: World) -> None:
    """A policy copies what it has met: doubled letters, and plurals that are not just an s."""
    before = conversation(world)
    usual = {*re.findall("[a-z]+", f"{lexicon()} {text(before)}".lower())}
    told = " ".join(text(renamed(before, world, copy)) for copy in range(150))
    told = re.sub("([a-z])([A-Z])", r"\1 \2", told).lower()
    made_up = {word for word in re.findall("[a-z]{3,}", told) if word not in usual}
    doubled = [word for word in made_up if re.search(r"([bcdfglmnprstz])\1.", word)]
    assert len(doubled) > 0.1 * len(made_up)
    assert [word for word in made_up if re.search("[^aeiou]ies$", word)]
    assert not [word for word in made_up if re.search("([^aeiou]y|ch|sh|x)s$", word)]


def test_documents_stay_schemas_where_a_column_is_called_as_a_keyword() -> None:
    """A library at full shape has columns ``type`` and ``format``."""
    world = generate(load_domains()["library_loans"], 0, WorldShape.FULL, 0)
    assert {"type", "format"} <= {column.name for table in world.tables for column in table.columns}
    small = generate(load_domains()["library_loans"], 0, WorldShape.SMALL, 0)
    before = conversation(small).model_copy(
        update={"tools": tuple(one.tool for one in world.tools)}
    )
    for old, new in zip(before.tools, renamed(before, world, 1).tools, strict=True):
        assert new.parameters["type"] == "object"
        kinds, others = (
            [(one["type"], one.get("format")) for one in tool.parameters["properties"].values()]
            for tool in (old, new)
        )
        assert kinds == others
