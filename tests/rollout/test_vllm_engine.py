"""vLLM's client over HTTP: turns, weights that every server takes, faults that stay harmless."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from aiohttp import web
from episodes import ARENA, LIMITS, TURNS, expert, solved

from astra.records.trajectory import StopReason
from astra.rollout import streaming, vllm, vllm_admin
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import FakeEngine, Sampling
from astra.rollout.errors import EngineError, TurnLost
from astra.rollout.live import EpisodeJob
from astra.rollout.scripted_server import BLOCK, INITIAL, ScriptedVLLM
from astra.rollout.streaming import StreamingDriver
from astra.rollout.transfer import FolderTransfer, NCCLTransfer, nccl_join
from astra.rollout.vllm import ATTEMPTS, ENOUGH, Lengths, VLLMConfig, VLLMEngine
from astra.sandbox.local import LocalSandbox

IDS = list(range(5, 25))


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
    monkeypatch.setattr(vllm_admin, "RESET_WAIT_S", 0.0)


def reference() -> tuple[list[int], list[float]]:
    """What a scripted server says of every prompt."""
    return IDS, [-1.0] * (len(IDS) - 1)


def engine_of(
    servers: Sequence[str],
    folder: Path,
    expected: Callable[[], tuple[list[int], list[float]]] = reference,
    eos_id: int = 7,
    gather: Callable[[Any], list[Any]] = lambda value: [value],
    gives: bool = True,
    **options: Any,
) -> VLLMEngine:
    def save(path: Path) -> bool:
        path.mkdir(parents=True, exist_ok=True)
        return gives

    transfer = FolderTransfer(folder, save)
    return VLLMEngine(VLLMConfig(servers, **options), eos_id, transfer, expected, gather)


def over_http(
    codec: ChatCodec, sandbox: LocalSandbox, servers: Sequence[str], folder: Path, **options: Any
) -> tuple[StreamingDriver, VLLMEngine]:
    engine = engine_of(servers, folder, eos_id=codec.eos_id, **options)
    return StreamingDriver(engine, codec, sandbox, LIMITS), engine


Server = TypeVar("Server", bound=ScriptedVLLM)


def answering(
    reply: Callable[[Sequence[int]], list[int]], kind: type[Server] = ScriptedVLLM
) -> Server:
    """A server that answers every prompt as ``reply`` does."""
    return kind(lambda body, _: reply(body["prompt"]))


def paths(server: ScriptedVLLM) -> list[str]:
    return [path for path, _ in server.posted]


# --- turns


def test_an_episode_over_http_is_token_in_token_out(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with answering(reply) as server:
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
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
    assert not driver.faults


def test_it_equals_the_same_script_through_the_wave_driver(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with answering(reply) as server:
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
    with answering(reply) as kept:
        with answering(reply) as lost:
            driver, engine = over_http(codec, sandbox, [lost.url, kept.url], tmp_path)
        rollouts = driver.run([EpisodeJob(ARENA)] * 6, Sampling())
        assert solved(rollouts) == [True] * 6
        assert driver.infra_retries == 3, "the half that was on the lost server"
        assert engine.faults == {"unreachable": 1, "turns_lost": 3}
        lost.start()
        driver.weights_are(1)
        assert lost.weights == "version-1"
        before = len(lost.requests)
        driver.run([EpisodeJob(ARENA)] * 2, Sampling())
    assert len(lost.requests) > before, "it came back, took the weights, and is used again"


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
    with answering(reply) as server:
        server.faults.status = {0: 503, 2: 500}
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
        rollouts = driver.run([EpisodeJob(ARENA)], Sampling())
    assert solved(rollouts) == [True]
    assert driver.infra_retries == 0
    assert len(server.requests) == 5


def test_a_server_that_stalls_is_left_out_and_its_episodes_move(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with answering(reply) as stuck, answering(reply) as well:
        stuck.faults.stalls = True
        driver, engine = over_http(
            codec, sandbox, [stuck.url, well.url], tmp_path, request_timeout_s=0.5
        )
        rollouts = driver.run([EpisodeJob(ARENA)] * 8, Sampling())
        assert solved(rollouts) == [True] * 8
        assert engine.faults == {"stalled": 1, "turns_lost": 4}
        assert len(stuck.requests) == 4, "nothing is asked twice of a server that is silent"
        stuck.faults.stalls = False
        driver.weights_are(1)
        driver.run([EpisodeJob(ARENA)] * 2, Sampling())
        assert len(stuck.requests) > 4


def test_a_turn_that_its_episodes_clock_cuts_off_is_lost_and_never_scored(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    """The clock runs out before the server's own time does, which is then never told."""
    reply = expert(codec)
    with answering(reply) as stuck, answering(reply) as well:

        def last(body: dict[str, Any], _: int) -> list[int]:
            stuck.faults.stalls = True
            return reply(body["prompt"])

        stuck.reply = last
        _, engine = over_http(codec, sandbox, [stuck.url, well.url], tmp_path)
        driver = StreamingDriver(engine, codec, sandbox, LIMITS, timeout_s=3.0)
        try:
            rollouts = driver.run([EpisodeJob(ARENA)] * 8, Sampling())
        finally:
            stuck.faults.stalls = False
        assert solved(rollouts) == [True] * 8, "none ended as TIMEOUT, with half of its reward"
        assert engine.faults["stalled"] == 1
        assert driver.infra_retries == engine.faults["turns_lost"] >= 4


def test_an_episode_whose_calls_took_its_time_is_scored(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply, executed = expert(codec), streaming.execute_batch

    def slow(pairs: Any) -> Any:
        time.sleep(2.5)
        return executed(pairs)

    monkeypatch.setattr(streaming, "execute_batch", slow)
    with answering(reply) as server:
        _, engine = over_http(codec, sandbox, [server.url], tmp_path)
        driver = StreamingDriver(engine, codec, sandbox, LIMITS, timeout_s=2.0)
        (rollout,) = driver.run([EpisodeJob(ARENA)], Sampling())
    assert (rollout.stop_reason, rollout.score is None) == (StopReason.TIMEOUT, False)
    assert not engine.faults


def test_a_slow_server_that_answers_others_is_not_stalled(tmp_path: Path) -> None:
    """Episodes that began together lose their last turns together, and the server nothing."""

    async def cut_off(engine: VLLMEngine) -> None:
        async with engine.admitted(100) as talk, asyncio.timeout(2):
            await talk(IDS, 5, Sampling())

    async def scenario(engine: VLLMEngine, server: ScriptedVLLM) -> list[Any]:
        async with engine.running(Sampling()):
            waiting = [asyncio.create_task(cut_off(engine)) for _ in range(ATTEMPTS)]
            while server.running < ATTEMPTS:
                await asyncio.sleep(0.01)
            server.faults.delay_s = 0.0
            async with engine.admitted(100) as talk:
                await talk(IDS, 5, Sampling())
            return await asyncio.gather(*waiting, return_exceptions=True)

    with ScriptedVLLM(lambda body, _: [7]) as server:
        server.faults.delay_s = 4.0
        engine = engine_of([server.url], tmp_path)
        errors = asyncio.run(scenario(engine, server))
    assert all(isinstance(error, TurnLost) for error in errors)
    assert engine.faults == {"turns_lost": ATTEMPTS}
    assert engine._somebody()


class Ailing(ScriptedVLLM):
    """Gives half of its first answer, and a page with 503 when it is asked how it is."""

    well = True

    async def _metrics(self, request: web.Request) -> web.Response:
        return await super()._metrics(request) if self.well else web.Response(status=503, text="x")

    def _answer(self, *args: Any) -> web.Response:
        answer = super()._answer(*args)
        if len(self.requests) == 1:
            answer.text = str(answer.text)[:40]
        return answer


def test_an_answer_that_is_no_json_is_asked_again(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with answering(reply, Ailing) as server:
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
        assert solved(driver.run([EpisodeJob(ARENA)], Sampling())) == [True]
    assert (driver.infra_retries, len(server.requests)) == (0, 4)


def test_a_server_whose_metrics_are_an_error_page_is_left_out(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with answering(reply, Ailing) as ailing, answering(reply) as well:
        driver, engine = over_http(codec, sandbox, [ailing.url, well.url], tmp_path)
        ailing.well = False
        assert solved(driver.run([EpisodeJob(ARENA)] * 2, Sampling())) == [True] * 2
        assert engine.faults == {"unreachable": 1, "turns_lost": 1}
        assert "503" in engine._servers[0].problem


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
    with ScriptedVLLM(lambda body, _: [7]) as server:
        server.faults.status = {0: 400}
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path)
        with pytest.raises(EngineError, match=r"HTTP 400: .*scripted"):
            driver.run([EpisodeJob(ARENA)], Sampling())
    assert len(server.requests) == 1


@pytest.mark.parametrize("late", [False, True])
def test_what_a_server_generated_before_a_restart_is_not_used(tmp_path: Path, late: bool) -> None:
    """``late``: the episode's own time ran out, which alone would keep what it did."""

    async def episode(engine: VLLMEngine, server: ScriptedVLLM) -> None:
        async with engine.running(Sampling()), engine.admitted(100) as talk:
            await talk(IDS, 5, Sampling())
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await talk(IDS, 5, Sampling())
            if late:
                raise TimeoutError

    with ScriptedVLLM(lambda body, _: [7]) as one, ScriptedVLLM(lambda body, _: [7]) as other:
        engine = engine_of([one.url, other.url], tmp_path)
        engine.sync(1)
        with pytest.raises(TurnLost, match="was started anew, with other weights"):
            asyncio.run(episode(engine, one))
        assert one.weights == INITIAL
        assert engine.faults == {"restarted": 1, "turns_lost": 1}
        engine.sync(2)
        assert (one.weights, other.weights) == ("version-2", "version-2")
        one.faults.tells_start = False
        with pytest.raises(EngineError, match="lack process_start_time_seconds"):
            engine_of([one.url], tmp_path, kv_tokens=9)


# --- weights


def test_weights_are_handed_over_once_per_version(tmp_path: Path) -> None:
    with ScriptedVLLM(lambda body, _: [7]) as one, ScriptedVLLM(lambda body, _: [7]) as two:
        engine = engine_of([one.url, two.url], tmp_path)
        for version in (0, 0, 1):
            engine.sync(version)
    assert engine.weight_version == 1
    for server in (one, two):
        assert paths(server) == ["/collective_rpc", "/reset_prefix_cache"] * 2
        given = [body["kwargs"]["weights_path"] for _, body in server.posted if body]
        assert given == [str(tmp_path / "version-0"), str(tmp_path / "version-1")]
    assert [path.name for path in tmp_path.iterdir()] == ["version-1"], "older ones are gone"


def test_servers_take_weights_side_by_side(tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=20)

    def load(folder: Path) -> Callable[[list[int]], list[float]]:
        together.wait()  # nobody is done before all have begun
        return lambda ids: [-1.0] * (len(ids) - 1)

    servers = [ScriptedVLLM(lambda body, _: [7], load=load) for _ in range(3)]
    with servers[0], servers[1], servers[2]:
        engine_of([server.url for server in servers], tmp_path).sync(0)
        assert [server.weights for server in servers] == ["version-0"] * 3


def test_servers_that_take_no_weights_are_left_out_and_none_left_is_an_error(
    tmp_path: Path,
) -> None:
    with ScriptedVLLM(lambda body, _: [7]) as one, ScriptedVLLM(lambda body, _: [7]) as two:
        engine = engine_of([one.url, two.url], tmp_path)
        one.faults.administration = 500
        engine.sync(0)
        assert engine.faults == {"weights_refused": 1}
        assert [server.url for server in engine._somebody()] == [two.url]
        two.faults.administration = 404
        with pytest.raises(EngineError, match=r"does not take .*VLLM_SERVER_DEV_MODE=1 and see"):
            engine.sync(1)
        assert engine.weight_version == 0


def test_a_server_whose_prefix_cache_was_not_reset_is_not_used(tmp_path: Path) -> None:
    """It answers 200 to the reset, as vLLM does, whatever came of it."""
    with ScriptedVLLM(lambda body, _: [7]) as kept, ScriptedVLLM(lambda body, _: [7]) as well:
        engine = engine_of([kept.url, well.url], tmp_path)
        kept.faults.refuses_reset = True
        engine.sync(1)
        assert paths(kept).count("/reset_prefix_cache") == vllm_admin.RESETS
        assert [server.url for server in engine._somebody()] == [well.url]
        assert engine.faults == {"cache_kept": 1}
        kept.faults.refuses_reset = False
        engine.sync(2)
        assert [server.url for server in engine._somebody()] == [kept.url, well.url]
        kept.faults.refuses_reset = well.faults.refuses_reset = True
        with pytest.raises(EngineError, match=f"keeps {4 * BLOCK} tokens in its prefix cache"):
            engine.sync(3)


def test_a_reset_that_cannot_be_proven_is_no_reset(tmp_path: Path) -> None:
    with ScriptedVLLM(lambda body, _: [7]) as server:
        server.faults.tells_cached = False
        with pytest.raises(EngineError, match="--enable-prompt-tokens-details"):
            engine_of([server.url], tmp_path).sync(1)


def test_a_server_that_took_only_some_of_the_weights_is_refused(tmp_path: Path) -> None:
    with ScriptedVLLM(lambda body, _: [7]) as server:
        engine = engine_of([server.url], tmp_path)
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
        server.told = -1.2
        with pytest.raises(EngineError, match=r"0\.2000 nats apart, at most 0\.1000"):
            engine_of([server.url], tmp_path).sync(0)


@pytest.mark.parametrize("step", [1e-4, 2e-6])
def test_a_lost_reload_is_found_however_little_the_weights_moved(
    tmp_path: Path, step: float
) -> None:
    """The server's kernels are 0.003 off the trainer's, thirty times what one step moves."""
    version = 0

    def scores(version: int, off: float) -> list[float]:
        return [-1.0 - 0.1 * at - step * version * (at % 3) + off for at in range(len(IDS) - 1)]

    def load(folder: Path) -> Callable[[list[int]], list[float]]:
        mine = int(folder.name.removeprefix("version-"))
        return lambda ids: scores(mine, 0.003) if ids == IDS else [-1.0] * (len(ids) - 1)

    with (
        ScriptedVLLM(lambda body, _: [7], load=load) as one,
        ScriptedVLLM(lambda body, _: [7], load=load) as two,
    ):
        engine = engine_of([one.url, two.url], tmp_path, lambda: (IDS, scores(version, 0.0)))
        for version in range(30):
            engine.sync(version)
        assert not engine.faults, "a server that follows is never suspected"
        one.faults.loses_reload = True
        for version in range(30, 45):
            engine.sync(version)
            if engine.faults:
                break
        assert engine.faults == {"weights_kept": 1}
        # What moved less than can be told from the kernels' noise may add up for a while.
        assert version == 30 if step == 1e-4 else step * (version - 29) <= 2 * vllm_admin.MOVED
        one.faults.loses_reload = False
        engine.sync(50)
        assert len(engine._somebody()) == 2


@pytest.mark.parametrize("first", ["keeps its cache", "dies", "dies after it followed"])
def test_a_lost_reload_is_found_of_a_server_that_was_left_out_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """What it holds is older than what the trainer has, by a step that noise would hide."""
    version = 0

    def scores(version: int, off: float) -> list[float]:
        return [-1.0 - 0.1 * at - 1e-4 * version * (at % 3) + off for at in range(len(IDS) - 1)]

    def load(folder: Path) -> Callable[[list[int]], list[float]]:
        mine = int(folder.name.removeprefix("version-"))
        return lambda ids: scores(mine, 0.003) if ids == IDS else [-1.0] * (len(ids) - 1)

    begin = ScriptedVLLM._begin

    def with_the_policy(server: ScriptedVLLM) -> None:
        begin(server)
        server._scorer = load(Path("version-0"))  # a real one starts with the policy's weights

    monkeypatch.setattr(ScriptedVLLM, "_begin", with_the_policy)
    with (
        ScriptedVLLM(lambda body, _: [7], load=load) as one,
        ScriptedVLLM(lambda body, _: [7], load=load) as well,
    ):
        engine = engine_of([one.url, well.url], tmp_path, lambda: (IDS, scores(version, 0.0)))
        if first == "dies after it followed":
            for version in range(3):
                engine.sync(version)
        if first == "keeps its cache":
            one.faults.refuses_reset = True
        else:
            one.stop()
        version += 1
        engine.sync(version)
        assert engine.faults == {"cache_kept" if first == "keeps its cache" else "unreachable": 1}
        one.faults.refuses_reset = False
        if first != "keeps its cache":
            one.start()
        one.faults.loses_reload = True
        for _ in range(3):
            version += 1
            engine.sync(version)
            assert [server.url for server in engine._somebody()] == [well.url]
        assert engine.faults["weights_kept"] == 3
        one.faults.loses_reload = False
        version += 1
        engine.sync(version)
        assert len(engine._somebody()) == 2, "it is used again once it follows"


def test_every_rank_leaves_out_what_the_one_that_gives_found(tmp_path: Path) -> None:
    ranks, told = threading.Barrier(2, timeout=20), [None, None]

    def gather(rank: int) -> Callable[[Any], list[Any]]:
        def call(value: Any) -> list[Any]:
            told[rank] = value
            ranks.wait()
            everyones = list(told)
            ranks.wait()
            return everyones

        return call

    with ScriptedVLLM(lambda body, _: [7]) as kept, ScriptedVLLM(lambda body, _: [7]) as well:
        urls = [kept.url, well.url]
        first = engine_of(urls, tmp_path, gather=gather(0))
        other = engine_of(urls, tmp_path, gather=gather(1), gives=False)
        kept.faults.refuses_reset = True
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda engine: engine.sync(1), (first, other)))
        for engine in (first, other):
            assert [server.url for server in engine._somebody()] == [well.url]
            assert engine.weight_version == 1
        assert (first.faults, other.faults) == ({"cache_kept": 1}, {}), "counted once"
        assert paths(well).count("/collective_rpc") == 1, "one rank gives"
        well.faults.refuses_reset = True
        errors: list[str] = []

        def fails(engine: VLLMEngine) -> None:
            with pytest.raises(EngineError) as raised:
                engine.sync(2)
            errors.append(str(raised.value))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(fails, (first, other)))
        assert errors[0] == errors[1], "no rank is left waiting for one that gave up"


# --- over a broadcast


class StoreGroup:
    """Broadcasts through a TCP store: what NCCL does, where there is no GPU."""

    def __init__(self, info: Mapping[str, Any], rank: int) -> None:
        assert info["world_size"] == 2
        address, port = info["master_address"], info["master_port"]
        distributed: Any = torch.distributed
        self._store = distributed.TCPStore(
            address, port, is_master=rank == 0, wait_for_workers=False
        )
        self._rank, self.count = rank, 0

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        key = f"tensor-{self.count}"
        self.count += 1
        if self._rank == src:
            self._store.set(key, tensor.view(torch.uint8).numpy().tobytes().hex())
        else:
            sent = bytearray.fromhex(self._store.get(key).decode())
            tensor.copy_(torch.frombuffer(sent, dtype=tensor.dtype).view(tensor.shape))


def receiver() -> ScriptedVLLM:
    return ScriptedVLLM(lambda body, _: [7], join=lambda info: StoreGroup(info, 1))


def test_a_transfer_gives_every_tensor_to_every_server_and_outlives_a_restart(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    made: list[StoreGroup] = []

    def join(info: Mapping[str, Any]) -> StoreGroup:
        made.append(StoreGroup(info, 0))
        return made[-1]

    def weights() -> dict[str, torch.Tensor]:
        shapes = {"embed": (40, 8), "norm": (8,), "layer.0": (8, 8), "scalar": (1,)}
        return {name: torch.randn(shape).bfloat16() for name, shape in shapes.items()}

    newest = weights()
    with receiver() as one, receiver() as two:
        engine = VLLMEngine(
            VLLMConfig([one.url, two.url]), 7, NCCLTransfer(lambda: newest, join), reference
        )
        for version in range(3):
            newest = weights()
            engine.sync(version)
            for server in (one, two):
                assert list(server.received) == list(newest)
                assert all(torch.equal(server.received[name], newest[name]) for name in newest)
        assert len(made) == 2, "a group is formed once per server"
        assert [group.count for group in made] == [12, 12], "one broadcast per tensor"
        one.stop()
        one.start()
        engine.sync(3)
        assert len(made) == 3, "another process is another group"
        assert list(one.received) == list(newest)
        two.faults.administration = 500
        engine.sync(4)
        assert engine.faults == {"weights_refused": 1}
        two.faults.administration = 200
        engine.sync(5)
        assert len(engine._somebody()) == 2
    order = ["/init_weight_transfer_engine"]
    update = ["/start_weight_update", "/update_weights", "/finish_weight_update"]
    assert paths(one)[:8] == [*order, *update, "/reset_prefix_cache", *update]


def test_nccl_without_vllm_beside_the_trainer_says_so() -> None:
    with pytest.raises(EngineError, match=r"set rl\.engine\.transfer=folder"):
        nccl_join()


# --- memory


def test_memory_is_held_for_what_a_conversation_may_grow_to(
    codec: ChatCodec, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    reply = expert(codec)
    with answering(reply) as server:
        server.faults.delay_s = 0.01
        driver, engine = over_http(codec, sandbox, [server.url], tmp_path, kv_tokens=1500)
        assert solved(driver.run([EpisodeJob(ARENA)] * 7, Sampling())) == [True] * 7
        assert server.most_running == 2, "two times 600 tokens and a prompt fit into 1500"
        for _ in range(ENOUGH):  # now it is known that they stay far below what they may take
            engine._lengths.add(300)
        server.most_running = 0
        assert solved(driver.run([EpisodeJob(ARENA)] * 7, Sampling())) == [True] * 7
        assert server.most_running in (3, 4, 5)
        shared, _ = over_http(codec, sandbox, [server.url], tmp_path, kv_tokens=1500, ranks=2)
        server.most_running = 0
        assert solved(shared.run([EpisodeJob(ARENA)] * 3, Sampling())) == [True] * 3
        assert server.most_running == 1, "half of it is another rank's"
        driver, _ = over_http(codec, sandbox, [server.url], tmp_path, kv_tokens=600)
        with pytest.raises(EngineError, match="has 600"):
            driver.run([EpisodeJob(ARENA)], Sampling())
        many, _ = over_http(codec, sandbox, [server.url], tmp_path, kv_tokens=900, ranks=8)
        assert solved(many.run([EpisodeJob(ARENA)] * 2, Sampling())) == [True] * 2, "one at a time"
        server.metrics = ""
        with pytest.raises(EngineError, match=r"set rl\.engine\.kv_tokens"):
            over_http(codec, sandbox, [server.url], tmp_path)


def test_lengths_are_estimated_by_mean_and_spread_and_never_above_the_most() -> None:
    lengths = Lengths()
    for _ in range(ENOUGH - 1):
        lengths.add(100)
    assert lengths.likely(1000) == 1000, "too few to tell"
    lengths.add(100)
    assert (lengths.likely(1000), lengths.likely(60)) == (100, 60)
    for _ in range(ENOUGH):
        lengths.add(300)
    assert lengths.likely(1000) == 400, "mean 200, standard deviation 100"
