"""A policy behind an endpoint: the same tokens as in process, many at once, honest refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from serving_chat import NAME, Scripted, ask, chat, serving
from taught import TAUGHT, engine_of

from astra.llm.policy import wire_message
from astra.records.message import CallStatus
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_codec
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, Rollout
from astra.sandbox.protocol import Sandbox
from astra.serving.chat import ChatHistory
from astra.serving.generation import GenerationError, GenerationSettings
from astra.serving.local import LocalGenerator
from astra.serving.server import Limits
from astra.serving.wire import read_request
from configs import rollout_limits

LIMITS = rollout_limits(max_turns=4, max_turn_tokens=96, max_response_tokens=400)


@pytest.fixture(scope="module")
def in_process(policy: LoadedPolicy, sandbox: Sandbox) -> list[Rollout]:
    engine = BatchedEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id)
    driver = RolloutDriver(engine, policy.codec, sandbox, LIMITS)
    return driver.run([EpisodeJob(arena) for arena in TAUGHT], Sampling(temperature=0.0))


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


def test_thoughts_are_parted_from_the_text_and_taken_back(policy: LoadedPolicy) -> None:
    generator = Scripted(policy.codec, lambda n: "<think>\nlook first\n</think>\n\ndone.")
    with serving(policy.codec, generator) as url:
        message = ask(url, chat("go on"))[1]["choices"][0]["message"]
    assert message["reasoning_content"] == "look first"
    assert message["content"] == "done."
    request = read_request(
        chat("", messages=[{"role": "user", "content": "go on"}, message,
                           {"role": "assistant", "content": "", "reasoning": "again"}])
    )  # fmt: skip
    assert [one.reasoning for one in request.messages] == ["", "look first", "again"]


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
    codec = load_codec(PolicyConfig.saved(str(root / "policies/tiny"), "float32"))
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
    codec = load_codec(PolicyConfig.saved(str(root / "policies/tiny"), "float32"))
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
