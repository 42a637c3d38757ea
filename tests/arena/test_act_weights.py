"""The weights by which acts are read: whole numbers, few, and right where they have to be."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from astra.arena.act_rules import ruled_act
from astra.arena.act_weights import ACTS, ALWAYS, MOST, likeliest, packed, stored, unpacked
from astra.arena.acts import message_features, read_message, wanted_calls
from astra.arena.heard_message import heard_message, last_words
from astra.arena.world_words import world_words
from astra.records.world import AgentAct, EventKind, TraceEvent, World, WorldGoal

FOLDER = Path(__file__).parents[1] / "fixtures/users"
LARGEST = 300_000
READ = 0.97
"""So many of the messages that the weights were learned from are read as labelled."""


def lines(name: str) -> Iterator[Any]:
    for path in sorted(FOLDER.glob(name)):
        data = path.read_bytes()
        text = gzip.decompress(data) if name.endswith(".gz") else data
        yield from map(json.loads, text.decode().splitlines())


@pytest.fixture(scope="module")
def contexts() -> dict[str, tuple[World, WorldGoal, tuple[TraceEvent, ...]]]:
    worlds = {one.id: one for one in map(World.model_validate, lines("worlds*.jsonl.gz"))}
    return {
        one["id"]: (
            worlds[one["world_id"]],
            WorldGoal.model_validate(one["goal"]),
            tuple(map(TraceEvent.model_validate, one["trace"])),
        )
        for one in lines("contexts*.jsonl.gz")
    }


def test_weights_are_packed_and_unpacked() -> None:
    weights = (0, MOST, -MOST, 13, 1, -1)
    assert unpacked(packed(weights)) == weights
    assert unpacked(packed([1000])) == (MOST,)
    assert json.dumps(packed(range(-MOST, MOST + 1))).count("\\") == 0


def test_the_weights_are_few() -> None:
    text = resources.files("astra").joinpath("arena", "act_weights.json").read_text("utf-8")
    assert len(text.encode()) < LARGEST
    assert all(len(one) == len(ACTS) for one in stored().values())


def test_the_act_with_the_largest_sum_is_read_and_the_first_of_equal_ones() -> None:
    weights = {ALWAYS: (0, 0, 0, 0, 0, 2), "a": (0, 3, 0, 0, 0, 0), "b": (0, 0, 0, 4, 0, 0)}
    assert likeliest((), weights) == AgentAct.OTHER
    assert likeliest(("a", "unknown"), weights) == AgentAct.OFFER
    assert likeliest(("a", "b"), weights) == AgentAct.REFUSE
    assert likeliest((), {}) == AgentAct.PROPOSE


def test_the_goals_own_ways_are_read_as_the_rules_read_them(contexts: Any) -> None:
    sealed = {contexts[one["context"]][0].id for one in lines("utterances_test.jsonl")}
    for world, goal, _ in contexts.values():
        for at, event in enumerate(() if world.id in sealed else goal.trace):
            waits = at + 1 == len(goal.trace) or goal.trace[at + 1].kind == EventKind.USER
            if event.kind != EventKind.ASSISTANT or not waits:
                continue
            said = goal.trace[: at + 1]
            raw = last_words(said)
            message = heard_message(world, raw, said)
            ruled = ruled_act(world, raw, message, wanted_calls(world, goal, said))
            assert read_message(world, goal, said).act == ruled, event.text


@pytest.mark.parametrize(
    "split",
    ["tune", "opened", "second", "third", "fourth", "fifth", "sixth", "fluent", "rough", "mixed",
     "spoken", "sampled", "drawn", "contrasts", "natural", "varied", "babbled"],
)  # fmt: skip
def test_nearly_all_labelled_messages_are_read_as_labelled(split: str, contexts: Any) -> None:
    acts = {one["id"]: one["act"] for one in lines(f"labels_{split}_a.jsonl")}
    right: list[bool] = []
    for one in lines(f"utterances_{split}.jsonl"):
        world, goal, trace = contexts[one["context"]]
        said = TraceEvent(kind=EventKind.ASSISTANT, text=one["text"])
        right.append(read_message(world, goal, (*trace, said)).act == acts[one["id"]])
    assert sum(right) / len(right) >= READ


def test_words_of_a_world_are_marked(contexts: Any) -> None:
    world, goal, trace = contexts["f318de4e-1"]
    said = TraceEvent(kind=EventKind.ASSISTANT, text="Nora, shall I extend LN8141 by 7 days?")
    found = message_features(world, goal, (*trace, said))
    assert {"NAME ,", "i CHANGE KEY", "by NUM", "r:act propose", "user opening"} <= found


def test_what_rules_find_counts_together_with_where_it_is_said(contexts: Any) -> None:
    world, goal, trace = contexts["f318de4e-1"]
    said = TraceEvent(kind=EventKind.ASSISTANT, text="Nora, shall I extend LN8141 by 7 days?")
    found = message_features(world, goal, (*trace, said))
    assert {"@user opening: r:act propose", "@after user: q:KEY"} <= found
    assert "@after user: q:KEY,NUM" not in found


def test_words_of_another_world_are_strange(contexts: Any) -> None:
    world, goal, trace = contexts["f318de4e-1"]
    for text, many in (("Shall I extend the loan?", 0), ("Californian webpack manifests", 3)):
        said = TraceEvent(kind=EventKind.ASSISTANT, text=text)
        assert f"strange {many}" in message_features(world, goal, (*trace, said))


def test_worlds_that_share_an_id_have_words_of_their_own(contexts: Any) -> None:
    world, _, _ = contexts["f318de4e-1"]
    other = world.model_copy(update={"policy": f"{world.policy} Californian."})
    assert other.id == world.id
    assert "californian" not in world_words(world).known
    assert "californian" in world_words(other).known
