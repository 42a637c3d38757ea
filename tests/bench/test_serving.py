"""A checkpoint behind an endpoint: the same tokens as in process, many at once, honest refusals."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from serving import NAME, Scripted, ask, chat, serving
from test_bench_arenas import ARENAS

from astra.bench.harness.protocol import ModelEndpoint, SuiteError
from astra.bench.harness.served import (
    RunningEndpoints,
    ServedCheckpoints,
    WithFloor,
    identity,
    served,
)
from astra.llm.policy import wire_message
from astra.records.message import CallStatus
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_codec
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, Rollout, RolloutLimits
from astra.sandbox.protocol import Sandbox
from astra.serving import vllm
from astra.serving.chat import ChatHistory
from astra.serving.engine import ServingEngine, draw
from astra.serving.generation import GenerationError, GenerationSettings
from astra.serving.local import LocalGenerator
from astra.serving.main import ServeConfig, ServingOptions
from astra.serving.server import Limits
from astra.settings import RuntimeConfig

LIMITS = RolloutLimits(max_turns=4, max_turn_tokens=96, max_response_tokens=400)
TAUGHT = ARENAS[:4]


@pytest.fixture(scope="module")
def in_process(policy: LoadedPolicy, sandbox: Sandbox) -> list[Rollout]:
    engine = BatchedEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id)
    driver = RolloutDriver(engine, policy.codec, sandbox, LIMITS)
    return driver.run([EpisodeJob(arena) for arena in TAUGHT], Sampling(temperature=0.0))


def engine_of(policy: LoadedPolicy, rows: int = 8, keep: int = 1 << 26) -> ServingEngine:
    return ServingEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, rows, keep)


def replay(url: str, rollout: Rollout, tools: list[dict[str, Any]]) -> tuple[list[int], list[Any]]:
    """Ask the server for every assistant turn of a rollout; its ids and its messages."""
    ids: list[int] = []
    said: list[Any] = []
    for at, message in enumerate(rollout.messages):
        if message.role != "assistant":
            continue
        body = {
            "model": NAME, "temperature": 0, "max_tokens": 96, "tools": tools, "store": False,
            "return_token_ids": True, "nobody_knows": 1,
            "messages": [wire_message(one) for one in rollout.messages[:at]],
        }  # fmt: skip
        status, reply = ask(url, body)
        assert status == 200, reply
        whole = reply["prompt_token_ids"] + reply["choices"][0]["token_ids"]
        assert whole[: len(ids)] == ids, "history was not continued as it was sampled"
        ids = whole
        said.append(reply["choices"][0]["message"])
        assert reply["usage"]["total_tokens"] == len(whole)
    return ids, said


def test_a_greedy_episode_has_the_same_tokens_through_the_server(
    policy: LoadedPolicy, in_process: list[Rollout], sandbox: Sandbox
) -> None:
    assert all(r.score is not None and r.score.success for r in in_process), "taught in vain"
    generator = LocalGenerator(engine_of(policy), 2048)
    history = ChatHistory(policy.codec)
    with serving(policy.codec, generator, history=history) as url, ThreadPoolExecutor(4) as pool:
        tools = [[offer.tool.openai() for offer in arena.tools] for arena in TAUGHT]
        played = list(
            pool.map(lambda pair: replay(url, *pair), zip(in_process, tools, strict=True))
        )
    for rollout, (ids, said) in zip(in_process, played, strict=True):
        assert ids == rollout.prompt_ids + rollout.completion_ids
        calls = [call for message in said for call in message.get("tool_calls") or ()]
        assert [(c["function"]["name"], c["function"]["arguments"]) for c in calls] == [
            (one.call.name, one.call.arguments) for one in rollout.calls
        ]
        assert said[-1]["content"] == rollout.messages[-1].content
        assert {one.result.status for one in rollout.calls} == {CallStatus.OK}
    assert history.continued == sum(rollout.turns - 1 for rollout in in_process)


def test_history_that_is_not_ours_is_rendered(policy: LoadedPolicy) -> None:
    history = ChatHistory(policy.codec)
    generator = Scripted(policy.codec, lambda n: "done.")
    messages = [
        {"role": "user", "content": "what is the price?"},
        {"role": "assistant", "content": "which one?"},
        {"role": "user", "content": "of all"},
    ]
    with serving(policy.codec, generator, history=history) as url:
        status, reply = ask(url, chat("", messages=messages))
    assert status == 200, reply
    assert reply["choices"][0]["message"]["content"] == "done."
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert history.continued == 0


def test_rows_join_and_leave_without_changing_each_other(policy: LoadedPolicy) -> None:
    """Prompts of different lengths, staggered, more than there are rows, with prefixes reused."""
    codec = policy.codec
    prompts = [
        codec.tokenizer.encode("what is the price of Amber Cove ? " * n, add_special_tokens=False)
        for n in (1, 7, 3, 5, 2, 7, 6)
    ]
    budgets = [5, 40, 17, 30, 3, 25, 11]
    alone = [
        _alone(policy, prompt, budget) for prompt, budget in zip(prompts, budgets, strict=True)
    ]

    engine = engine_of(policy, rows=3)
    waiting, rows, found = list(range(len(prompts))), {}, {}
    while waiting or rows:
        if waiting and engine.live < 3:
            at = waiting.pop(0)
            rows[engine.add(prompts[at], GenerationSettings(budgets[at], temperature=0.0))] = at
        for turn in engine.step():
            engine.leave(turn.row, turn)
            found[rows.pop(turn.row)] = turn.ids
    assert [found[at] for at in range(len(prompts))] == alone
    assert engine.reused > 0


def _alone(policy: LoadedPolicy, prompt: list[int], budget: int) -> list[int]:
    engine = BatchedEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id)
    engine.start([prompt], [budget], Sampling(temperature=0.0))
    return engine.poll()[0].ids


def test_what_is_kept_is_bounded_and_can_be_nothing(policy: LoadedPolicy) -> None:
    engine = engine_of(policy, keep=0)
    prompt = list(range(10, 60))
    for _ in range(2):
        row = engine.add(prompt, GenerationSettings(4, temperature=0.0))
        turns = [turn for _ in range(4) for turn in engine.step()]
        assert [turn.row for turn in turns] == [row]
        engine.leave(row, turns[0])
    assert engine.reused == 0
    assert engine.live == 0


def test_a_seed_decides_a_sampled_reply_whatever_else_is_generated(policy: LoadedPolicy) -> None:
    generator = LocalGenerator(engine_of(policy), 2048)
    body = chat("tell me", temperature=1.5, max_tokens=24, seed=5, return_token_ids=True)
    with serving(policy.codec, generator) as url, ThreadPoolExecutor(6) as pool:
        first = ask(url, body)[1]["choices"][0]["token_ids"]
        others = [pool.submit(ask, url, {**body, "seed": n}) for n in range(5)]
        again = ask(url, body)[1]["choices"][0]["token_ids"]
        different = [one.result()[1]["choices"][0]["token_ids"] for one in others]
        several = ask(url, {**body, "n": 3})[1]["choices"]
    assert first == again
    assert len({tuple(ids) for ids in different}) > 1
    assert [choice["index"] for choice in several] == [0, 1, 2]
    assert several[0]["token_ids"] == first


def test_requests_are_generated_side_by_side(policy: LoadedPolicy) -> None:
    generator = LocalGenerator(engine_of(policy), 2048)
    body = chat("go on", temperature=1.0, max_tokens=60)
    with serving(policy.codec, generator) as url, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: ask(url, {**body, "seed": n}), range(8)))
    assert [status for status, _ in replies] == [200] * 8
    assert generator.peak_rows > 1


def test_top_k_and_top_p_leave_the_likeliest(policy: LoadedPolicy) -> None:
    logits = torch.log(torch.tensor([0.1, 0.5, 0.25, 0.15]))

    def drawn(**fields: Any) -> set[int]:
        decoding = GenerationSettings(1, **fields)
        generator = torch.Generator().manual_seed(3)
        return {draw(logits, decoding, generator) for _ in range(200)}

    assert drawn() == {0, 1, 2, 3}
    assert drawn(top_k=2) == {1, 2}
    assert drawn(top_p=0.6) == {1, 2}
    assert drawn(top_p=0.5) == {1}
    assert drawn(top_k=3, top_p=0.84) == {1, 2, 3}  # 0.9 after top_k: of it .83 are two tokens
    assert drawn(top_k=1, temperature=5.0) == {1}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "no JSON"),
        ([], 400, "object"),
        ({"model": NAME}, 400, "messages"),
        (chat("x", model="gpt-4"), 404, "not served"),
        (chat("x", messages=[{"role": "king", "content": "x"}]), 400, "king"),
        (chat("x", messages=[{"role": "user", "content": [{"type": "image"}]}]), 400, "text"),
        (chat("x", messages=[{"role": "assistant", "tool_calls": [{}]}]), 400, "tool_calls"),
        (chat("x", tools={"a": 1}), 400, "tools"),
        (chat("x", tools=[{"type": "function"}]), 400, "tools[0]"),
        (chat("x", temperature="hot"), 400, "temperature"),
        (chat("x", temperature=-1), 400, "temperature"),
        (chat("x", max_tokens=0), 400, "max_tokens"),
        (chat("x", top_p=1.5), 400, "top_p"),
        (chat("x", n=True), 400, "n must be"),
        (chat("x", stop=[1]), 400, "stop"),
        (chat("x", stream=True), 400, "stream"),
        (chat("x", response_format={"type": "json_object"}), 400, "response_format"),
        (chat("x", tool_choice="required"), 400, "tool_choice"),
    ],
)
def test_bad_requests_are_refused_in_openai_form(
    refusing: str, body: Any, status: int, said: str
) -> None:
    found, reply = ask(refusing, body)
    assert found == status
    assert said in reply["error"]["message"]
    assert reply["error"]["type"] == "invalid_request_error"


@pytest.fixture(scope="module")
def refusing(root: Path) -> Iterator[str]:
    codec = load_codec(PolicyConfig(path=str(root / "policies/tiny")))
    with serving(codec, Scripted(codec, lambda n: "hello there"), Limits(new_tokens=40)) as url:
        yield url


def test_a_prompt_that_fills_the_context_is_an_overflow(refusing: str) -> None:
    status, reply = ask(refusing, chat("price " * 600))
    assert status == 400
    assert reply["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 512 tokens" in reply["error"]["message"]
    assert ask(refusing, None, "/models")[1]["data"][0]["id"] == NAME
    assert ask(refusing, None, "/nowhere")[0] == 404


def test_replies_say_how_they_ended(root: Path) -> None:
    codec = load_codec(PolicyConfig(path=str(root / "policies/tiny")))
    call = '<tool_call>\n{"name": "get_price", "arguments": {"listing": "a"}}\n</tool_call>'
    broken = '<tool_call>\n{"name": "get_price", "arguments": {"listing": \n</tool_call>'
    said = [call, f"{call}\n{call[:-20]}", "one stop two", broken, "word " * 40]
    generator = Scripted(codec, lambda n: said[n])
    tools = [{"type": "function", "function": {"name": "get_price"}}]
    with serving(codec, generator) as url:
        whole = ask(url, chat("x", tools=tools))[1]["choices"][0]
        tokens = len(codec.tokenizer.encode(said[1], add_special_tokens=False))
        cut = ask(url, chat("x", tools=tools, max_tokens=tokens - 1))[1]["choices"][0]
        stopped = ask(url, chat("x", stop=["stop"]))[1]["choices"][0]
        malformed = ask(url, chat("x", tools=tools))[1]["choices"][0]
        long = ask(url, chat("x", max_completion_tokens=7))[1]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] is None
    assert json.loads(whole["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "listing": "a"
    }
    assert cut["finish_reason"] == "length"
    assert len(cut["message"]["tool_calls"]) == 1  # the one that was being written is no call
    assert "<tool_call>" in cut["message"]["content"]
    assert stopped["message"]["content"] == "one"
    assert stopped["finish_reason"] == "stop"
    assert malformed["message"]["tool_calls"][0]["function"]["name"] == "get_price"
    assert long["choices"][0]["finish_reason"] == "length"
    assert long["usage"]["completion_tokens"] == 7
    assert [d.max_tokens for d in generator.decodings][-1] == 7


def test_a_failing_engine_is_a_server_error_and_the_next_request_works(
    policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(policy)
    step, failures = engine.step, [RuntimeError("out of memory")]

    def failing() -> Any:
        if failures:
            raise failures.pop()
        return step()

    monkeypatch.setattr(engine, "step", failing)
    with serving(policy.codec, LocalGenerator(engine, 2048)) as url:
        status, reply = ask(url, chat("x", max_tokens=3))
        assert status == 500
        assert "out of memory" in reply["error"]["message"]
        assert ask(url, chat("x", max_tokens=3))[0] == 200


def test_a_request_that_was_given_up_frees_its_row(policy: LoadedPolicy) -> None:
    async def give_up() -> int:
        generator = LocalGenerator(engine_of(policy), 2048)
        asked = asyncio.create_task(
            generator.generate(
                [5, 6, 7], GenerationSettings(1500, temperature=1.5, top_k=40, seed=1)
            )
        )
        await asyncio.sleep(0.05)
        asked.cancel()
        short = await generator.generate([5, 6, 7], GenerationSettings(2, temperature=0.0))
        assert len(short.ids) <= 2
        await asyncio.wait_for(generator.close(), 20)
        with pytest.raises(GenerationError, match="shutting down"):
            await generator.generate([5], GenerationSettings(2))
        return generator.peak_rows

    assert asyncio.run(give_up()) >= 1


def test_a_served_checkpoint_is_a_process_that_ends(root: Path) -> None:
    config = ServeConfig(policy=PolicyConfig(path=str(root / "policies/tiny")), name="tiny")
    with ServedCheckpoints({"base": config})("base") as subject:
        assert subject.checkpoint == "base"
        assert (
            subject.identity
            == identity(config)
            != identity(config.model_copy(update={"new_tokens": 5}))
        )
        url = subject.endpoint.base_url
        body = {**chat("hello", max_tokens=3), "model": subject.endpoint.model}
        assert ask(url, body)[0] == 200
        pids = _children()
        assert pids
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(OSError, match="refused"):
        ask(url, body)
    missing = config.model_copy(update={"policy": PolicyConfig(path="models/none")})
    with pytest.raises(SuiteError, match="no such folder"), served(missing):
        pass


def test_the_floor_is_beside_checkpoints_and_running_endpoints(root: Path) -> None:
    running = ModelEndpoint(base_url="https://models.example/v1", model="closed", api_key_env="KEY")
    serving_all = WithFloor(RunningEndpoints({"closed": running}))
    with serving_all("closed") as subject:
        assert subject.endpoint == running
    with serving_all("floor") as subject:
        body = {**chat("hello"), "model": subject.endpoint.model}
        reply = ask(subject.endpoint.base_url, body)[1]
    assert reply["choices"][0]["message"]["content"] == "Done."
    assert subject.checkpoint == "floor"

    base = PolicyConfig(path=str(root / "policies/tiny"), dtype="bfloat16")
    options = ServingOptions(rows=3, new_tokens=64)
    runtime = RuntimeConfig(device="cpu", threads=1)
    made = ServedCheckpoints.of(base, {"rl": Path("models/rl")}, options, runtime)
    assert made.configs["rl"].policy == PolicyConfig(path="models/rl", dtype="bfloat16")
    assert made.configs["base"].policy == base
    assert {one.rows for one in made.configs.values()} == {3}


def _children() -> list[int]:
    """Processes that this one started and that serve."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    return [
        int(line.split()[0]) for line in listed.stdout.splitlines() if "bench.serving.main" in line
    ]


FAKE_VLLM = """\
import json, sys
from aiohttp import web

async def complete(request):
    body = await request.json()
    assert body["stop_token_ids"] and body["ignore_eos"]
    ids = [body["prompt"][-1]] * min(3, body["max_tokens"] - 1) + body["stop_token_ids"]
    return web.json_response({"choices": [{"token_ids": ids, "finish_reason": "stop"}]})

async def models(request):
    return web.json_response({"data": [{"max_model_len": 777}]})

async def health(request):
    return web.Response()

given = sys.argv[1:]
print(json.dumps(given), flush=True)
if "--fail" in given:
    raise SystemExit("no such device")
app = web.Application()
app.router.add_get("/health", health)
app.router.add_get("/v1/models", models)
app.router.add_post("/v1/completions", complete)
web.run_app(app, host="127.0.0.1", port=int(given[given.index("--port") + 1]), print=None)
"""


@pytest.fixture
def fake_vllm(tmp_path: Path) -> Path:
    script = tmp_path / "vllm"
    script.write_text(f"#!{sys.executable}\n{FAKE_VLLM}")
    script.chmod(0o755)
    return script


def test_vllm_is_started_spoken_to_and_ended(
    root: Path, fake_vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = ServeConfig(
        policy=PolicyConfig(path=str(root / "policies/tiny")), name="tiny", engine="vllm",
        vllm=str(fake_vllm), vllm_args=("--tensor-parallel-size", "2"), context=600,
    )  # fmt: skip
    with served(config) as url:
        body = {**chat("hello", max_tokens=9, return_token_ids=True), "model": "tiny"}
        status, reply = ask(url, body)
        assert status == 200
        assert len(reply["choices"][0]["token_ids"]) == 4
        assert reply["choices"][0]["finish_reason"] == "stop"
        assert ask(url, None, "/models")[1]["data"][0]["max_model_len"] == 777
        (log,) = (tmp_path / "runs/serve").glob("vllm-*.log")
        told = json.loads(log.read_text().splitlines()[0])
        port = told[told.index("--port") + 1]
    assert told[:2] == ["serve", str(root / "policies/tiny")]
    assert told[told.index("--max-model-len") + 1] == "600"
    assert told[-2:] == ["--tensor-parallel-size", "2"]
    with pytest.raises(OSError, match="refused"):
        ask(f"http://127.0.0.1:{port}", None, "/health")


def test_a_vllm_that_does_not_start_says_why(fake_vllm: Path, tmp_path: Path) -> None:
    async def start(made: list[str], timeout_s: float = 30.0) -> None:
        async with vllm.launched(made, 1, tmp_path / "log", timeout_s):
            pass

    policy = PolicyConfig(path="somewhere", revision="a" * 40)
    made = vllm.command(str(fake_vllm), policy, 1, None, ["--fail"])
    assert made[made.index("--revision") + 1] == "a" * 40
    with pytest.raises(GenerationError, match="no such device"):
        asyncio.run(start(made))
    with pytest.raises(GenerationError, match="does not start"):
        asyncio.run(start(["/nowhere/vllm"]))
    started = time.monotonic()
    with pytest.raises(GenerationError, match="not healthy"):
        asyncio.run(start([sys.executable, "-c", "import time; time.sleep(60)"], 0.5))
    assert time.monotonic() - started < 30
