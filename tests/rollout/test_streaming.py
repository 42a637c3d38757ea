"""Episodes over engines that take a turn at any time: vLLM over HTTP, and a scripted one."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from configs import rollout_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
from training_world import make_arena
from vllm_server import ScriptedVLLM

from astra.records.environment import Arena
from astra.records.message import ToolCall, ToolResult
from astra.records.qa import Scenario
from astra.records.trajectory import StopReason
from astra.rollout import streaming, vllm
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import FakeEngine, Sampling, Turn
from astra.rollout.errors import EngineError, TurnLost
from astra.rollout.live import EpisodeJob, Rollout
from astra.rollout.streaming import Admission, StreamingDriver
from astra.rollout.vllm import VLLMConfig, VLLMEngine
from astra.sandbox.local import LocalSandbox

LIMITS = rollout_limits(
    max_turns=4, max_turn_tokens=200, max_prompt_tokens=500, max_response_tokens=600
)


@pytest.fixture(scope="module")
def codec() -> ChatCodec:
    return load_codec(PolicyConfig.saved("policies/tiny", "float32"))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox() as one:
        yield one


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "BACKOFF_S", 0.0)


ARENA = next(a for a in map(make_arena, range(99)) if a.scenario == Scenario.MULTI_HOP)


def call(arena: Arena, step: int) -> str:
    gold = arena.steps[step]
    (key, value), *_ = gold.arguments.items()
    body = f'{{"name": "{gold.tool_name}", "arguments": {{"{key}": "{value}"}}}}'
    return f"<tool_call>\n{body}\n</tool_call>"


TURNS = [call(ARENA, 0), call(ARENA, 1), f" <answer>{ARENA.final_answer.value}</answer>"]


def expert(codec: ChatCodec) -> Callable[[Sequence[int]], list[int]]:
    """The next turn of the gold conversation, told from how many turns the ids hold."""
    prompt_turns = 2  # EOS ends system and user too

    def reply(ids: Sequence[int]) -> list[int]:
        ended = sum(token == codec.eos_id for token in ids) - prompt_turns
        turn = ended // 2  # each turn and its results end with one
        return [*codec.tokenizer.encode(TURNS[turn], add_special_tokens=False), codec.eos_id]

    return reply


def over_http(
    codec: ChatCodec, sandbox: LocalSandbox, servers: Sequence[str], folder: Path, **options: Any
) -> tuple[StreamingDriver, VLLMEngine]:
    config = VLLMConfig(servers, folder=folder, **options)
    engine = VLLMEngine(config, codec.eos_id, save=lambda path: path.mkdir(parents=True) is None)
    return StreamingDriver(engine, codec, sandbox, LIMITS), engine


def solved(rollouts: Sequence[Rollout]) -> list[bool]:
    return [one.score is not None and one.score.success for one in rollouts]


def test_an_episode_over_http_is_token_in_token_out(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with ScriptedVLLM(lambda body, _: reply(body["prompt"])) as server:
        driver, engine = over_http(codec, sandbox, [server.url], tmp_path)
        driver.weights_are(3)
        (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling(0.7, seed=5))
    assert solved([rollout]) == [True]
    assert rollout.weight_version == 3
    # Every request is the one before, its sampled ids verbatim, and the results' ids.
    whole = rollout.prompt_ids + rollout.completion_ids
    for body in server.requests:
        assert body["prompt"] == whole[: len(body["prompt"])]
        assert body["temperature"] == 0.7
        assert (body["top_p"], body["top_k"]) == (1.0, -1), "nothing is cut off what is sampled"
        assert (body["stop_token_ids"], body["ignore_eos"]) == ([codec.eos_id], True)
        assert (body["logprobs"], body["return_token_ids"]) == (0, True)
    assert len({body["seed"] for body in server.requests}) == 3, "each turn has its own seed"
    assert [m for m, lp in zip(rollout.mask, rollout.logprobs, strict=True) if lp == -0.25] == [
        1
    ] * sum(rollout.mask)
    assert driver.tool_calls == 2
    assert 0 < engine.peak_tokens <= 16000


def test_it_equals_the_same_script_through_the_wave_driver(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with ScriptedVLLM(lambda body, _: reply(body["prompt"])) as server:
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
        (streamed,) = driver.run([EpisodeJob(ARENA)], Sampling())
    encoded = [codec.tokenizer.encode(turn, add_special_tokens=False) for turn in TURNS]
    engine = FakeEngine(lambda _, turn: encoded[turn], codec.eos_id)
    for overlap in (False, True):
        wave = RolloutDriver(engine, codec, sandbox, LIMITS, overlap=overlap)
        (rollout,) = wave.run([EpisodeJob(ARENA)], Sampling())
        assert rollout.completion_ids == streamed.completion_ids
        assert rollout.mask == streamed.mask
        assert rollout.messages == streamed.messages


def test_a_lost_server_costs_nothing_but_time(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with ScriptedVLLM(lambda body, _: reply(body["prompt"])) as kept:
        with ScriptedVLLM(lambda body, _: reply(body["prompt"])) as lost:
            driver, _ = over_http(codec, sandbox, [lost.url, kept.url], tmp_path)
        rollouts = driver.run([EpisodeJob(ARENA)] * 6, Sampling())
    assert solved(rollouts) == [True] * 6
    assert driver.infra_retries == 3, "the half that was on the lost server"


def test_no_server_left_is_one_clear_error(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    with ScriptedVLLM(lambda body, _: [7]) as server:
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
    with pytest.raises(EngineError, match=r"no vLLM server is left .*resumes from the last"):
        driver.run([EpisodeJob(ARENA)] * 3, Sampling())
    with pytest.raises(EngineError, match="does not answer"):
        over_http(codec, sandbox, [server.url], tmp_path)
    with pytest.raises(EngineError, match="rollout_servers is empty"):
        over_http(codec, sandbox, [], tmp_path)


def test_passing_server_errors_are_asked_again(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with ScriptedVLLM(lambda body, _: reply(body["prompt"]), {0: 503, 2: 500}) as server:
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
        rollouts = driver.run([EpisodeJob(ARENA)], Sampling())
    assert solved(rollouts) == [True]
    assert driver.infra_retries == 0
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        ({"token_ids": None}, "does not answer with token ids"),
        ({"logprobs": None}, "does not answer with token ids"),
        ({"logprobs": {"token_logprobs": [float("nan")] * 3}}, "not finite"),
        ({"logprobs": {"token_logprobs": [-1.0]}}, "3 ids, 1 log-prob"),
        ({"finish_reason": "stop"}, "generation-config vllm"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path, choice: dict[str, Any], named: str
) -> None:
    with ScriptedVLLM(lambda body, _: [7, 8, 9]) as server:
        server.choice = choice
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
        with pytest.raises(EngineError, match=named):
            driver.run([EpisodeJob(ARENA)], Sampling())


def test_a_request_the_server_refuses_is_an_error_at_once(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    with ScriptedVLLM(lambda body, _: [7], {0: 400}) as server:
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
        with pytest.raises(EngineError, match=r"HTTP 400: .*scripted"):
            driver.run([EpisodeJob(ARENA)], Sampling())
    assert len(server.requests) == 1


def test_weights_are_handed_over_once_per_version(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    with ScriptedVLLM(lambda body, _: [7]) as one, ScriptedVLLM(lambda body, _: [7]) as two:
        driver, engine = over_http(codec, sandbox, [one.url, two.url], tmp_path)
        for version in (0, 0, 1):
            driver.weights_are(version)
    assert engine.weight_version == 1
    for server in (one, two):
        assert [path for path, _ in server.posted] == ["/collective_rpc", "/reset_prefix_cache"] * 2
        paths = [body["kwargs"]["weights_path"] for _, body in server.posted if body]
        assert paths == [str(tmp_path / "version-0"), str(tmp_path / "version-1")]
    assert [path.name for path in tmp_path.iterdir()] == ["version-1"], "older ones are gone"


def test_a_server_that_would_go_on_with_stale_weights_is_refused(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    with ScriptedVLLM(lambda body, _: [7]) as server:
        server.administration = 404
        driver, engine = over_http(codec, sandbox, [server.url], tmp_path)
        with pytest.raises(EngineError, match=r"does not take .*VLLM_SERVER_DEV_MODE=1"):
            driver.weights_are(0)
        follower = VLLMEngine(VLLMConfig([server.url]), codec.eos_id, save=lambda _: False)
        follower.sync(0)
        assert (follower.weight_version, engine.weight_version) == (0, -1)
        assert len(server.posted) == 1, "a rank that does not hand over tells no server"
    with pytest.raises(EngineError, match="no vLLM server is left"):
        driver.weights_are(1)


def test_a_server_that_took_only_some_of_the_weights_is_refused(
    codec: ChatCodec, tmp_path: Path
) -> None:
    def reference() -> tuple[list[int], list[float]]:
        return [5, 6, 7], [-1.0, -1.0]

    with ScriptedVLLM(lambda body, _: [7]) as server:
        config = VLLMConfig([server.url], folder=tmp_path)
        engine = VLLMEngine(
            config, codec.eos_id, lambda path: path.mkdir(exist_ok=True) is None, reference
        )
        server.told = -1.0001
        engine.sync(0)
        server.told = -1.0005
        engine.sync(1)
        server.told = -1.01
        with pytest.raises(EngineError, match="has not taken all of the policy's weights"):
            engine.sync(2)
        assert engine.weight_version == 1
        server.told = float("nan")
        with pytest.raises(EngineError, match="computes other log-probabilities"):
            engine.sync(2)
        fresh = VLLMEngine(config, codec.eos_id, lambda path: True, reference)
        server.told = -1.2
        with pytest.raises(EngineError, match=r"0\.2000 nats apart, at most 0\.1000"):
            fresh.sync(0)


def test_memory_is_held_for_all_a_conversation_can_grow_to(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with ScriptedVLLM(lambda body, _: reply(body["prompt"])) as server:
        server.delay_s = 0.01
        driver, engine = over_http(codec, sandbox, [server.url], tmp_path, kv_tokens=1500)
        rollouts = driver.run([EpisodeJob(ARENA)] * 7, Sampling())
        assert solved(rollouts) == [True] * 7
        assert server.most_running == 2, "two times 600 tokens and a prompt fit into 1500"
        assert engine.peak_tokens <= 1500
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path, kv_tokens=600)
        with pytest.raises(EngineError, match="the engine has 600"):
            driver.run([EpisodeJob(ARENA)], Sampling())
        server.metrics = ""
        with pytest.raises(EngineError, match=r"set rl\.engine\.kv_tokens"):
            over_http(codec, sandbox, [server.url], tmp_path)


def test_admission_is_in_order_and_survives_cancelling() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []
        admission = Admission(10)

        async def one(name: str, tokens: int) -> None:
            async with admission.hold(tokens):
                seen.append(name)
                await asyncio.sleep(0.01)

        first = asyncio.create_task(one("a", 6))
        await asyncio.sleep(0)
        large = asyncio.create_task(one("large", 9))
        small = asyncio.create_task(one("small", 1))
        await asyncio.sleep(0)
        assert seen == ["a"], "the small one waits behind the large one: nobody starves"
        large.cancel()
        await asyncio.gather(first, small)
        assert admission.held == 0
        return seen

    assert asyncio.run(scenario()) == ["a", "small"]


class ScriptedTurns:
    """A TurnEngine in the process: ``reply(ids)`` may wait, or raise."""

    def __init__(self, reply: Callable[[Sequence[int]], Any]) -> None:
        self.weight_version = 0
        self.reply = reply

    def sync(self, version: int) -> None:
        self.weight_version = version

    @asynccontextmanager
    async def running(self, sampling: Sampling) -> AsyncGenerator[None]:
        yield

    @asynccontextmanager
    async def admitted(self, tokens: int) -> AsyncGenerator[Any]:
        async def talk(ids: Sequence[int], budget: int, sampling: Sampling) -> Turn:
            written = self.reply(ids)
            if asyncio.iscoroutine(written):
                written = await written
            return Turn(0, written, [-1.0] * len(written), "eos")

        yield talk


def test_a_slow_tool_holds_up_nobody_else(
    codec: ChatCodec, sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call returns only once the other episode has finished its last turn."""
    reply, finished = expert(codec), threading.Event()
    executed = streaming.execute_batch
    order: list[str] = []

    def tool(pairs: Sequence[tuple[Any, ToolCall]]) -> list[ToolResult]:
        if not order:
            order.append("slow call starts")
            assert finished.wait(10), "the others waited for a tool that is not theirs"
            order.append("slow call ends")
        return executed(pairs)

    def turn(ids: Sequence[int]) -> list[int]:
        written = reply(ids)
        if "<answer>" in codec.decode(written):
            order.append("answer")
            finished.set()
        return written

    monkeypatch.setattr(streaming, "execute_batch", tool)
    driver = StreamingDriver(ScriptedTurns(turn), codec, sandbox, LIMITS)
    assert solved(driver.run([EpisodeJob(ARENA)] * 2, Sampling())) == [True, True]
    assert order == ["slow call starts", "answer", "slow call ends", "answer"]


def test_running_out_of_time_keeps_what_was_done(codec: ChatCodec, sandbox: LocalSandbox) -> None:
    reply = expert(codec)

    async def slow_second(ids: Sequence[int]) -> list[int]:
        written = reply(ids)
        if sum(token == codec.eos_id for token in ids) > 2:
            await asyncio.sleep(30)
        return written

    driver = StreamingDriver(ScriptedTurns(slow_second), codec, sandbox, LIMITS, timeout_s=0.5)
    (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling())
    assert rollout.stop_reason == StopReason.TIMEOUT
    assert rollout.score is not None
    assert 0 < rollout.score.reward < 1
    assert rollout.mask[-1] == 0, "the result it got is there, the turn that never came is not"


def test_an_episode_without_any_turn_is_ours_to_answer_for(
    codec: ChatCodec, sandbox: LocalSandbox
) -> None:
    reply, asked = expert(codec), []

    async def late(ids: Sequence[int]) -> list[int]:
        asked.append(1)
        if len(asked) == 1:
            await asyncio.sleep(30)
        return reply(ids)

    driver = StreamingDriver(ScriptedTurns(late), codec, sandbox, LIMITS, timeout_s=0.5)
    assert solved(driver.run([EpisodeJob(ARENA)], Sampling())) == [True]
    assert driver.infra_retries == 1

    def never(ids: Sequence[int]) -> list[int]:
        raise TurnLost("gone")

    driver = StreamingDriver(ScriptedTurns(never), codec, sandbox, LIMITS)
    (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling())
    assert rollout.stop_reason == StopReason.INFRA
    assert rollout.score is None, "never scored 0"
