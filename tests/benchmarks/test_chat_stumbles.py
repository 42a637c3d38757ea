"""Gold episodes of the chat model in which a call fails before the right one is made."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from astra.records.message import CallStatus, ExecutedCall, MessageRole, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.rollout.chat import PolicyConfig, load_codec
from astra.sandbox.local import LocalSandbox

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
import chat_data
import chat_stumbles
from chat_model import Settings
from training_world import make_arena


def tool(name: str, key: str, kind: str = "string") -> Tool:
    schema = {"type": "object", "properties": {key: {"type": kind}}}
    return Tool.model_validate({"name": name, "description": "d", "parameters": schema})


TOOLS = [
    tool("get_agent", "listing"), tool("read_office", "agent"), tool("find_ward", "patient"),
    tool("add", "number", "number"),
]  # fmt: skip
HOMES: list[chat_stumbles.Call] = [
    ("get_agent", {"listing": "Amber Cove"}),
    ("get_agent", {"listing": "Jade Mill"}),
]
AGENTS: list[chat_stumbles.Call] = [("read_office", {"agent": "Otto Nash"})]
SCRIPT = [*map(chat_stumbles.rendered, (HOMES, AGENTS)), "done. <answer>Gold Lane</answer>"]


def wrong(way: Any, turns: Sequence[Any], at: int) -> list[Any] | None:
    found: list[Any] | None = way(turns, at, TOOLS, random.Random(3))
    return found


def test_each_way_goes_wrong_as_it_says() -> None:
    turns = [HOMES, AGENTS]
    assert wrong(chat_stumbles.next_hop, turns, 0) == [
        ("read_office", {"agent": "Amber Cove"}),
        ("read_office", {"agent": "Jade Mill"}),
    ]
    assert wrong(chat_stumbles.next_hop, turns, 1) is None, "no hop follows"
    others = wrong(chat_stumbles.other_tool, turns, 0)
    assert others in (
        [("read_office", {"agent": "Amber Cove"}), ("read_office", {"agent": "Jade Mill"})],
        [("find_ward", {"patient": "Amber Cove"}), ("find_ward", {"patient": "Jade Mill"})],
    )


def test_a_turn_without_text_to_look_up_does_not_go_wrong() -> None:
    turns: list[Any] = [[("add", {"number": 3})], AGENTS]
    assert wrong(chat_stumbles.other_tool, turns, 0) is None
    assert wrong(chat_stumbles.next_hop, turns, 0) is None
    script = [*map(chat_stumbles.rendered, turns[:1]), "done. <answer>3</answer>"]
    scripts = [chat_stumbles.stumbling(str(n), script, TOOLS, 6) for n in range(20)]
    assert scripts == [(script, set())] * 20


def test_a_script_goes_wrong_at_most_twice_before_one_turn_and_is_whole_without() -> None:
    scripts = [chat_stumbles.stumbling(str(n), SCRIPT, TOOLS, 6) for n in range(60)]
    assert scripts == [chat_stumbles.stumbling(str(n), SCRIPT, TOOLS, 6) for n in range(60)]
    assert {len(places) for _, places in scripts} == {0, 1, 2}
    for turns, places in scripts:
        assert [text for at, text in enumerate(turns) if at not in places] == SCRIPT
        assert all(turns[at] not in SCRIPT for at in places)
        assert len({turns[at] for at in places}) == len(places)


def test_no_turn_is_added_beyond_the_limit() -> None:
    places = {most: [chat_stumbles.stumbling(str(n), SCRIPT, TOOLS, most)[1] for n in range(30)]
              for most in (2, 3, 4)}  # fmt: skip
    assert {len(one) for one in places[2] + places[3]} == {0}
    assert {len(one) for one in places[4]} == {0, 1}


def test_turns_in_which_a_call_failed_are_told_by_status() -> None:
    def executed(turn: int, status: CallStatus) -> ExecutedCall:
        call = ToolCall(id="a", name="f", arguments="{}")
        return ExecutedCall(turn=turn, call=call, result=ToolResult(status=status, content=""))

    calls = [
        executed(0, CallStatus.OK), executed(0, CallStatus.ERROR), executed(1, CallStatus.OK),
        executed(2, CallStatus.UNKNOWN_TOOL),
    ]  # fmt: skip
    assert chat_stumbles.failed_turns(calls) == {0, 2}


def test_a_mask_loses_the_turns_that_are_not_trained() -> None:
    mask = [0, 1, 1, 0, 0, 1, 0, 1, 1]
    assert chat_stumbles.untrained(mask, set()) == mask
    assert chat_stumbles.untrained(mask, {0, 2}) == [0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert chat_stumbles.untrained([1, 0, 1], {0}) == [0, 0, 1]


def test_gold_episodes_fail_where_they_were_to_and_train_what_mends_them() -> None:
    codec = load_codec(PolicyConfig.saved("policies/tiny", "float32"))
    config = Settings.of(["bench.irrelevant_tools=none"]).bench
    arenas = [make_arena(number) for number in range(12)]
    with LocalSandbox() as sandbox:
        plain = list(chat_data.gold(arenas, config, sandbox, codec))
        shown = list(chat_data.gold(arenas, config, sandbox, codec, stumbles=True))
    assert len(plain) == 12
    assert not any(one.untrained for one in plain)
    assert len(shown) >= 10
    assert 3 <= sum(bool(one.untrained) for one in shown) < len(shown)
    for one in shown:
        turns = [at for at, said in enumerate(one.messages) if said.role == MessageRole.ASSISTANT]
        for turn in one.untrained:
            answered = one.messages[turns[turn] + 1 : turns[turn + 1]]
            assert any(said.content.startswith("error") for said in answered)
        ((ids, whole),) = codec.training_rows(one.messages, one.tools)
        mask = chat_stumbles.untrained(whole, one.untrained)
        trained = codec.decode([i for i, kept in zip(ids, mask, strict=True) if kept])
        assert "<answer>" in trained
        assert trained.count("<tool_call>") == sum(
            len(one.messages[at].tool_calls)
            for turn, at in enumerate(turns) if turn not in one.untrained
        )  # fmt: skip
