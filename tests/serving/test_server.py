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
from astra.serving.generation import Generated, GenerationError, GenerationSettings
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


def test_replies_that_differ_in_their_thoughts_alone_are_told_apart(root: Path) -> None:
    codec = load_codec(PolicyConfig.saved(str(root / "policies/tiny"), "float32"))
    history = ChatHistory(codec)
    thoughts = ["look first", "ask first", "look first"]
    generator = Scripted(codec, lambda n: f"<think>\n{thoughts[n]}\n</think>\n\nwhich?")
    opening = {"role": "user", "content": "the price?"}
    more = {"role": "user", "content": "of all"}

    def prompt_after(message: dict[str, Any]) -> list[int]:
        return history.prompt(read_request(chat("", messages=[opening, message, more])))

    def asked(url: str) -> tuple[dict[str, Any], list[int]]:
        reply = ask(url, chat("the price?", return_token_ids=True))[1]
        (choice,) = reply["choices"]
        return choice["message"], reply["prompt_token_ids"] + choice["token_ids"]

    with serving(codec, generator, history=history) as url:
        looked, looked_ids = asked(url)
        bare = {"role": "assistant", "content": "which?"}
        assert prompt_after(bare)[: len(looked_ids)] == looked_ids, "there is but one"
        other, other_ids = asked(url)
    assert looked_ids != other_ids
    assert prompt_after(looked)[: len(looked_ids)] == looked_ids
    assert prompt_after(other)[: len(other_ids)] == other_ids
    spelt = {**bare, "reasoning": " ask first\n"}
    assert prompt_after(spelt) == prompt_after(other)
    continued = history.continued
    rendered = read_request(chat("", messages=[opening, bare, more])).messages
    assert prompt_after(bare) == codec.encode_prompt(rendered, ())
    foreign = {**bare, "reasoning_content": "never thought"}
    assert len(prompt_after(foreign)) < len(prompt_after(other))
    assert history.continued == continued + 1, "of these only the other's was known"


def test_what_is_remembered_is_bounded(root: Path) -> None:
    codec = load_codec(PolicyConfig.saved(str(root / "policies/tiny"), "float32"))
    history = ChatHistory(codec, remembered=2)

    def talk(text: str, thought: str) -> list[dict[str, Any]]:
        request = read_request(chat(text))
        said = codec.tokenizer.encode(f"<think>{thought}</think>ok", add_special_tokens=False)
        generated = Generated([*said, codec.eos_id], "eos")
        history.choice(request, history.prompt(request), generated)
        reply = {"role": "assistant", "content": "ok", "reasoning_content": thought}
        return [*chat(text)["messages"], reply, {"role": "user", "content": "on"}]

    talks = [talk("one", "a"), talk("two", "a"), talk("two", "b")]
    for messages in talks:
        history.prompt(read_request(chat("", messages=messages)))
    assert history.continued == 2, "the first was forgotten"


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
        (chat("x", frequency_penalty=0.5), 400, "frequency_penalty"),
        (chat("x", presence_penalty=-1), 400, "presence_penalty"),
        (chat("x", repetition_penalty=1.1), 400, "repetition_penalty"),
        (chat("x", min_p=0.05), 400, "min_p"),
        (chat("x", min_tokens=3), 400, "min_tokens"),
        (chat("x", logit_bias={"5": -100}), 400, "logit_bias"),
        (chat("x", functions=[{"name": "f"}]), 400, "functions"),
        (chat("x", function_call={"name": "f"}), 400, "function_call"),
        (chat("x", parallel_tool_calls="no"), 400, "parallel_tool_calls"),
        (chat("x", response_format="json"), 400, "response_format"),
        (chat("x", stop=5), 400, "stop"),
        (chat("x", messages=[{"role": [], "content": "x"}]), 400, "role"),
        (chat("x", messages=[{"role": "assistant", "tool_calls": 5}]), 400, "tool_calls"),
    ],
)
def test_bad_requests_are_refused_in_openai_form(
    refusing: str, body: Any, status: int, said: str
) -> None:
    found, reply = ask(refusing, body)
    assert found == status
    assert said in reply["error"]["message"]
    assert reply["error"]["type"] == "invalid_request_error"


def test_fields_that_change_nothing_are_taken(refusing: str) -> None:
    neutral = {
        "frequency_penalty": 0.0, "presence_penalty": None, "repetition_penalty": 1.0, "min_p": 0,
        "min_tokens": 0, "logit_bias": {}, "functions": [], "function_call": "auto",
        "parallel_tool_calls": True, "response_format": {"type": "text"}, "stop": [],
    }  # fmt: skip
    assert ask(refusing, chat("x", **neutral))[0] == 200


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


def test_a_call_that_a_stop_text_cuts_off_is_no_call(root: Path) -> None:
    codec = load_codec(PolicyConfig.saved(str(root / "policies/tiny"), "float32"))
    call = '<tool_call>\n{"name": "get_price", "arguments": {"listing": "a"}}\n</tool_call>'
    cut = call.replace("get_price", "stop_price")
    said = [cut, f"{call}\n{cut}"]
    with serving(codec, Scripted(codec, lambda n: said[n])) as url:
        alone, second = (ask(url, chat("x", stop=["stop"]))[1]["choices"][0] for _ in said)
    assert alone["finish_reason"] == "stop"
    assert "tool_calls" not in alone["message"]
    assert second["finish_reason"] == "tool_calls"
    assert len(second["message"]["tool_calls"]) == 1
    for one in (alone, second):
        assert one["message"]["content"].startswith("<tool_call>")


def test_a_client_that_wants_one_call_gets_the_first(root: Path) -> None:
    codec = load_codec(PolicyConfig.saved(str(root / "policies/tiny"), "float32"))
    history = ChatHistory(codec)
    calls = [
        f'<tool_call>\n{{"name": "get_price", "arguments": {{"listing": "{name}"}}}}\n</tool_call>'
        for name in "ab"
    ]
    generator = Scripted(codec, lambda n: "\n".join(calls))
    with serving(codec, generator, history=history) as url:
        both = ask(url, chat("x"))[1]["choices"][0]["message"]
        (choice,) = ask(url, chat("x", parallel_tool_calls=False))[1]["choices"]
        message = choice["message"]
        results = [{"role": "tool", "content": "1", "tool_call_id": "call_0"}]
        user = {"role": "user", "content": "x"}
        assert ask(url, chat("x", messages=[user, message, *results]))[0] == 200
    assert len(both["tool_calls"]) == 2
    assert message["tool_calls"] == both["tool_calls"][:1]
    assert choice["finish_reason"] == "tool_calls"
    assert history.continued == 0, "its ids hold a call that the client does not know"


def test_a_reply_is_given_even_if_the_engine_fails_after_it(
    policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(policy)

    def failing(row: int, turn: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine, "leave", failing)

    async def generate() -> list[int]:
        generator = LocalGenerator(engine, 2048)
        made = generator.generate([5, 6, 7], GenerationSettings(2, temperature=0.0))
        try:
            return (await asyncio.wait_for(made, 20)).ids
        finally:
            await generator.close()

    assert asyncio.run(generate())


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
