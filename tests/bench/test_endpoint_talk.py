"""Conversations over endpoints: late tools, ends that are the users', faults that are nobody's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
from serving_chat import NAME, Scripted, serving

from astra.arena.prompt import NEW_TOOLS, document
from astra.arena.world_scripts import agent_turns
from astra.bench.arenas import _episode
from astra.bench.endpoint_episode import EndpointEpisode
from astra.bench.episodes import classify, rollout_scores
from astra.bench.harness.client import ChatClient
from astra.bench.harness.protocol import ModelEndpoint
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn, Writer
from astra.records.bench import EpisodeClass
from astra.records.message import Message, MessageRole
from astra.records.score import Scored
from astra.records.tool import Tool
from astra.records.trajectory import StopReason
from astra.rollout.chat import load_codec
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import FakeEngine, Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.sandbox.protocol import Sandbox
from astra.serving.chat import ChatHistory
from astra.serving.generation import Generated, GenerationSettings
from astra.serving.wire import ChatRequest
from configs import policy_config, rollout_limits
from talking import TRACE, ByTrace, Fails, Leaves, spoken, talking_arena, users_are

LIMITS = rollout_limits(
    max_turns=9, max_turn_tokens=300, max_prompt_tokens=4000, max_response_tokens=4000
)
JOB = EpisodeJob(talking_arena())


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch) -> None:
    users_are(monkeypatch, ByTrace)


def turns() -> list[ScriptedTurn]:
    return [
        ScriptedTurn(turn.text or None, tuple((name, dict(given)) for name, given in turn.calls))
        for turn in agent_turns(TRACE)
    ]


def play(write: Writer, sandbox: Sandbox) -> Rollout:
    with ScriptedServer(write) as server, closing(ChatClient(server.endpoint)) as client:
        return EndpointEpisode(JOB, client, LIMITS, {"temperature": 0.0}).play(sandbox)


def says(asked: list[Mapping[str, Any]], written: Sequence[ScriptedTurn]) -> Writer:
    """A model that writes these turns, the last one for ever, and keeps what it was asked."""

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        asked.append(body)
        return written[min(len(asked), len(written)) - 1]

    return write


def test_a_conversation_over_an_endpoint(sandbox: Sandbox) -> None:
    asked: list[Mapping[str, Any]] = []
    rollout = play(says(asked, turns()), sandbox)
    assert rollout.stop_reason == StopReason.ANSWERED
    assert rollout.score is not None
    assert rollout.score.success
    names = [{tool["function"]["name"] for tool in body["tools"]} for body in asked]
    assert ["book_boat" in one for one in names] == [False, False, False, True, True]
    last = asked[-1]["messages"]
    assert [one["role"] for one in last] == [
        "system", "user", "assistant", "user", "assistant", "tool", "assistant", "user",
        "assistant", "tool",
    ]  # fmt: skip
    assert NEW_TOOLS in last[7]["content"]
    scores = rollout_scores(rollout)
    assert scores["questions_per_needed_fact"] == Scored(value=1.0)
    assert scores["user_fault"] == Scored(value=0.0)
    assert scores["turns"] == Scored(value=5.0)


def test_a_user_who_leaves_ends_it_and_one_who_fails_is_never_scored(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    users_are(monkeypatch, Leaves)
    left = play(says([], [ScriptedTurn("Hm.")]), sandbox)
    assert left.stop_reason == StopReason.USER_LEFT
    assert classify(left) == EpisodeClass.NO_CALL
    assert rollout_scores(left)["user_left"] == Scored(value=1.0)
    users_are(monkeypatch, Fails)
    failed = play(says([], [ScriptedTurn("Hm.")]), sandbox)
    assert (failed.stop_reason, failed.score) == (StopReason.INFRA, None)
    assert failed.problem == "the user failed: the model of the user is gone"
    assert classify(failed) == EpisodeClass.INFRA
    assert rollout_scores(failed) == {"user_fault": Scored(value=1.0)}
    assert _episode("base", JOB, failed).scores == {"user_fault": Scored(value=1.0)}


class Recording(Scripted):
    """A generator that keeps the prompts that it is given."""

    def __init__(self, codec: Any, reply: Any) -> None:
        super().__init__(codec, reply, context=4096)
        self.prompts: list[list[int]] = []

    async def generate(self, ids: Sequence[int], decoding: GenerationSettings) -> Generated:
        self.prompts.append(list(ids))
        return await super().generate(ids, decoding)


@pytest.mark.parametrize("template", ["compact", "hermes", "qwen3"])
def test_what_is_served_is_what_is_rolled(template: str, sandbox: Sandbox) -> None:
    """The prompts of our own server are those of training, also once a tool has come late."""
    codec = load_codec(policy_config(template=template))
    gap = " " if template == "compact" else ""
    texts = [one if one.startswith("<") else gap + one for one in spoken()]
    written = [codec.tokenizer.encode(one, add_special_tokens=False) for one in texts]
    engine = FakeEngine(lambda _, turn: written[turn], codec.eos_id)
    (rolled,) = RolloutDriver(engine, codec, sandbox, LIMITS).run([JOB], Sampling())
    generator, history = Recording(codec, lambda at: texts[at]), ChatHistory(codec)
    with serving(codec, generator, history=history) as url:
        endpoint = ModelEndpoint(base_url=url, model=NAME)
        with closing(ChatClient(endpoint)) as client:
            served = EndpointEpisode(JOB, client, LIMITS, {"temperature": 0.0}).play(sandbox)
    whole = rolled.prompt_ids + rolled.completion_ids
    assert [whole[: len(ids)] == ids for ids in generator.prompts] == [True] * 5
    assert history.continued == 4
    assert served.score == rolled.score
    assert [one.content.strip() for one in served.messages] == [
        one.content.strip() for one in rolled.messages
    ]


def test_a_tool_that_no_message_shows_is_rendered_for_the_model() -> None:
    """A client that adds a tool without its document gets a prompt that has it."""
    codec = load_codec(policy_config())
    history = ChatHistory(codec)
    tools = JOB.arena.tools
    opening = Message(role=MessageRole.USER, content="Hello.")
    first = request([opening], [tools[0].tool])
    ids = codec.tokenizer.encode(" Hm.", add_special_tokens=False)
    history.choice(first, history.prompt(first), Generated([*ids, codec.eos_id], "eos"))
    reply = Message(role=MessageRole.ASSISTANT, content="Hm.")
    told = Message(role=MessageRole.USER, content="There is a new tool.")
    both = [tools[0].tool, tools[1].tool]
    bare = history.prompt(request([opening, reply, told], both))
    assert history.continued == 0
    assert bare == codec.encode_prompt([opening, reply, told], both)
    shown = told.model_copy(update={"content": f"{told.content}\n{document(tools[1].tool)}"})
    history.prompt(request([opening, reply, shown], both))
    assert history.continued == 1


def request(messages: Sequence[Message], tools: Sequence[Tool]) -> ChatRequest:
    return ChatRequest(
        model=NAME, messages=tuple(messages), tools=tuple(tools), max_tokens=None, temperature=1.0,
        top_p=1.0, top_k=0, seed=None, n=1, stop=(), return_token_ids=False,
    )  # fmt: skip
