"""Whole episodes over a real sandbox, with a scripted engine in place of a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from configs import rollout_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
from training_world import make_arena

from astra.arena.env import ArenaError
from astra.records.environment import Arena
from astra.records.message import CallStatus
from astra.records.qa import Scenario
from astra.records.trajectory import StopReason
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.rollout.driver import INFRA_ATTEMPTS, RolloutDriver, RolloutLimits
from astra.rollout.engine import FakeEngine, Sampling
from astra.rollout.live import EpisodeJob
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import (
    Sandbox,
    SandboxLoadError,
    SandboxResult,
    SandboxStatus,
    SandboxUnavailable,
    Session,
)

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


def arena_of(scenario: Scenario) -> Arena:
    return next(a for a in map(make_arena, range(99)) if a.scenario == scenario)


def call(arena: Arena, step: int) -> str:
    gold = arena.steps[step]
    (key, value), *_ = gold.arguments.items()
    return (
        f'<tool_call>\n{{"name": "{gold.tool_name}", "arguments": {{"{key}": "{value}"}}}}\n'
        "</tool_call>"
    )


def answer(arena: Arena) -> str:
    value = arena.final_answer.value
    text = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f" <answer>{text}</answer>"


def driver(
    codec: ChatCodec, sandbox: Sandbox, turns: Sequence[str], limits: RolloutLimits = LIMITS
) -> tuple[RolloutDriver, FakeEngine]:
    """A driver whose engine writes ``turns`` in order, the last one for ever."""
    encoded = [codec.tokenizer.encode(turn, add_special_tokens=False) for turn in turns]
    engine = FakeEngine(lambda _, turn: encoded[min(turn, len(encoded) - 1)], codec.eos_id)
    return RolloutDriver(engine, codec, sandbox, limits), engine


def test_two_hops_solved(codec: ChatCodec, sandbox: LocalSandbox) -> None:
    arena = arena_of(Scenario.MULTI_HOP)
    turns = [call(arena, 0), call(arena, 1), answer(arena)]
    one, engine = driver(codec, sandbox, turns)
    (rollout,) = one.run([EpisodeJob(arena)], Sampling())
    assert rollout.score is not None
    assert rollout.score.success
    assert rollout.score.reward == pytest.approx(1.0, abs=1e-5)
    assert rollout.stop_reason == StopReason.ANSWERED
    sampled = [i for i, m in zip(rollout.completion_ids, rollout.mask, strict=True) if m]
    written = [[*codec.tokenizer.encode(t, add_special_tokens=False), codec.eos_id] for t in turns]
    assert sampled == list(chain.from_iterable(written))
    fed_back = [i for i, m in zip(rollout.completion_ids, rollout.mask, strict=True) if not m]
    assert fed_back == list(chain.from_iterable(suffix for _, suffix in engine.suffixes))
    assert [lp for lp, m in zip(rollout.logprobs, rollout.mask, strict=True) if not m] == [
        0.0
    ] * len(fed_back)
    # Token by token the rollout is what the template makes of the transcript.
    tools = [offer.tool for offer in arena.tools]
    ids, _ = codec.encode_conversation(rollout.messages, tools)
    assert rollout.prompt_ids + rollout.completion_ids == ids


def test_what_was_sampled_is_never_decoded_and_encoded_again(
    codec: ChatCodec, sandbox: LocalSandbox
) -> None:
    """Ids that no tokenizer would write, which decoding and encoding changes."""
    arena = arena_of(Scenario.SINGLE_HOP)
    written = codec.tokenizer.encode(call(arena, 0), add_special_tokens=False)
    spelled: list[int] = []
    for token in written:
        piece = codec.tokenizer.decode([token])
        letters = [codec.tokenizer.encode(c, add_special_tokens=False) for c in piece.strip()]
        plain = piece.strip().isalpha() and all(len(one) == 1 for one in letters)
        spelled += [token] if not plain else [*chain.from_iterable(letters)]
    again = codec.tokenizer.encode(codec.decode(spelled), add_special_tokens=False)
    assert again != spelled, "these ids drift"
    turns = [spelled, codec.tokenizer.encode(answer(arena), add_special_tokens=False)]
    engine = FakeEngine(lambda _, turn: turns[turn], codec.eos_id)
    (rollout,) = RolloutDriver(engine, codec, sandbox, LIMITS).run([EpisodeJob(arena)], Sampling())
    sampled = [i for i, m in zip(rollout.completion_ids, rollout.mask, strict=True) if m]
    assert sampled == [*turns[0], codec.eos_id, *turns[1], codec.eos_id]


def test_malformed_calls_get_an_error_each_and_good_ones_still_run(
    codec: ChatCodec, sandbox: LocalSandbox
) -> None:
    arena = arena_of(Scenario.SINGLE_HOP)
    broken = '<tool_call>\n{"name": "get_x", "arguments": {oops}\n</tool_call>\n'
    name = arena.steps[0].tool_name
    wrong = f'<tool_call>\n{{"name": "{name}", "arguments": {{"q": 1}}}}\n</tool_call>\n'
    one, engine = driver(codec, sandbox, [broken + wrong + call(arena, 0), answer(arena)])
    (rollout,) = one.run([EpisodeJob(arena)], Sampling())
    assert [c.result.status for c in rollout.calls] == [
        CallStatus.UNKNOWN_TOOL,
        CallStatus.MALFORMED,
        CallStatus.OK,
    ]
    assert rollout.score is not None
    assert rollout.score.success
    assert rollout.score.precision < 1, "failed calls cost precision"
    (_, suffix), *_ = engine.suffixes
    text = codec.tokenizer.decode(suffix)
    assert text.count("<tool_response>") == 3
    assert text.count("error:") == 2


def test_turn_limit(codec: ChatCodec, sandbox: LocalSandbox) -> None:
    arena = arena_of(Scenario.SINGLE_HOP)
    one, _ = driver(codec, sandbox, [call(arena, 0)])
    (rollout,) = one.run([EpisodeJob(arena)], Sampling())
    assert rollout.stop_reason == StopReason.MAX_TURNS
    assert len(rollout.calls) == 4
    assert rollout.mask[-1] == 1, "results that nobody will read are not appended"


@pytest.mark.parametrize("limit", ["max_turn_tokens", "max_response_tokens"])
def test_token_limits_end_the_episode_without_an_invented_eos(
    codec: ChatCodec, sandbox: LocalSandbox, limit: str
) -> None:
    arena = arena_of(Scenario.SINGLE_HOP)
    limits = LIMITS.model_copy(update={limit: 9})
    one, _ = driver(codec, sandbox, [call(arena, 0)], limits)
    (rollout,) = one.run([EpisodeJob(arena)], Sampling())
    assert rollout.stop_reason == StopReason.MAX_TOKENS
    assert len(rollout.completion_ids) == 9
    assert codec.eos_id not in rollout.completion_ids
    assert not rollout.calls, "a call that was cut off is not executed"


def test_response_limit_holds_however_the_results_grow(
    codec: ChatCodec, sandbox: LocalSandbox
) -> None:
    arena = arena_of(Scenario.MULTI_HOP)
    for limit in range(1, 80, 7):
        limits = LIMITS.model_copy(update={"max_response_tokens": limit})
        one, _ = driver(codec, sandbox, [call(arena, 0), call(arena, 1), answer(arena)], limits)
        (rollout,) = one.run([EpisodeJob(arena)], Sampling())
        assert 1 <= len(rollout.completion_ids) <= limit
        assert len(rollout.completion_ids) == len(rollout.mask) == len(rollout.logprobs)


class Flaky:
    """A sandbox whose first calls fail for reasons of its own."""

    def __init__(self, inner: LocalSandbox, failures: int) -> None:
        self._inner, self.failures = inner, failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def call_many(
        self, requests: Sequence[tuple[Session, str, Mapping[str, Any]]]
    ) -> list[SandboxResult]:
        results = self._inner.call_many(requests)
        for at, _ in enumerate(results):
            if self.failures > 0:
                self.failures -= 1
                results[at] = SandboxResult(SandboxStatus.INFRA, None, "zygote died", "", 0.0)
        return results


def test_infrastructure_failures_are_rolled_again(codec: ChatCodec, sandbox: LocalSandbox) -> None:
    arena = arena_of(Scenario.SINGLE_HOP)
    flaky: Any = Flaky(sandbox, failures=2)  # the call and its retry
    one, _ = driver(codec, flaky, [call(arena, 0), answer(arena)])
    (rollout,) = one.run([EpisodeJob(arena)], Sampling())
    assert one.infra_retries == 1
    assert rollout.score is not None
    assert rollout.score.success


def test_what_infrastructure_never_answers_is_not_scored(
    codec: ChatCodec, sandbox: LocalSandbox
) -> None:
    arena = arena_of(Scenario.SINGLE_HOP)
    flaky: Any = Flaky(sandbox, failures=10**6)
    one, _ = driver(codec, flaky, [call(arena, 0), answer(arena)])
    (rollout,) = one.run([EpisodeJob(arena)], Sampling())
    assert rollout.score is None
    assert rollout.stop_reason == StopReason.INFRA


def test_more_jobs_than_rows_keep_their_order(codec: ChatCodec, sandbox: LocalSandbox) -> None:
    arenas = [make_arena(seed) for seed in range(5)]
    one, engine = driver(codec, sandbox, [" <answer>1</answer>"])
    engine.max_rows = 2
    rollouts = one.run([EpisodeJob(arena) for arena in arenas], Sampling())
    assert [rollout.arena.id for rollout in rollouts] == [arena.id for arena in arenas]


class Crowded:
    """A sandbox whose first openings fail as a busy machine makes them fail."""

    def __init__(self, inner: LocalSandbox, failures: Sequence[str]) -> None:
        self._inner, self.failures = inner, list(failures)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def session(self, sources: Mapping[str, str]) -> Session:
        (opened,) = self.sessions([sources])
        if isinstance(opened, SandboxLoadError):
            raise opened
        return opened

    def sessions(self, sources: Sequence[Mapping[str, str]]) -> list[Session | SandboxLoadError]:
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "no room":
            raise SandboxUnavailable("no room in time for another session")
        opened = self._inner.sessions(sources)
        if failure:
            opened[0] = SandboxLoadError(failure)
        return opened


@pytest.mark.parametrize("failure", ["no room", "timeout: loading took too long"])
def test_an_unlucky_opening_is_rolled_again(
    codec: ChatCodec, sandbox: LocalSandbox, failure: str
) -> None:
    arena = arena_of(Scenario.SINGLE_HOP)
    crowded: Any = Crowded(sandbox, [failure, failure])
    one, _ = driver(codec, crowded, [call(arena, 0), answer(arena)])
    rollouts = one.run([EpisodeJob(arena)] * 2, Sampling())
    assert [one.score is not None and one.score.success for one in rollouts] == [True, True]
    assert one.infra_retries == (4 if failure == "no room" else 2), "only what was not opened"


def test_a_sandbox_that_never_has_room_is_named(codec: ChatCodec, sandbox: LocalSandbox) -> None:
    arena = arena_of(Scenario.SINGLE_HOP)
    crowded: Any = Crowded(sandbox, ["no room"] * 9)
    one, _ = driver(codec, crowded, [call(arena, 0), answer(arena)])
    (rollout,) = one.run([EpisodeJob(arena)], Sampling())
    assert (rollout.score, rollout.stop_reason) == (None, StopReason.INFRA)
    assert rollout.problem == "no room in time for another session"
    assert len(crowded.failures) == 9 - INFRA_ATTEMPTS


def test_code_that_does_not_load_is_the_arenas_fault(
    codec: ChatCodec, sandbox: LocalSandbox
) -> None:
    arena = arena_of(Scenario.SINGLE_HOP)
    crowded: Any = Crowded(sandbox, ["exception: ZeroDivisionError"])
    one, _ = driver(codec, crowded, [call(arena, 0), answer(arena)])
    with pytest.raises(ArenaError, match="does not load: exception: ZeroDivisionError"):
        one.run([EpisodeJob(arena)], Sampling())
