"""Continuous batching in the process, with the tiny model: log-probabilities, budgets, memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from astra.rollout.chat import PolicyConfig, load_policy
from astra.rollout.continuous import PAGE, ContinuousEngine
from astra.rollout.engine import Sampling, Turn
from astra.rollout.errors import EngineError

PROMPTS = [[5, 6, 7, 8], [9, 10], list(range(20, 60)), [5, 6, 7, 8]]


@pytest.fixture(scope="module")
def policy() -> Any:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


def turns(engine: ContinuousEngine, sampling: Sampling, budgets: list[int]) -> list[Turn]:
    async def one(prompt: list[int], budget: int) -> Turn:
        async with engine.admitted(len(prompt) + budget) as talk:
            return await talk(prompt, budget, sampling)

    async def every() -> list[Turn]:
        async with engine.running(sampling):
            return await asyncio.gather(*map(one, PROMPTS, budgets))

    return asyncio.run(every())


def test_sampled_log_probabilities_are_those_of_a_plain_forward_pass(policy: Any) -> None:
    engine = ContinuousEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, 8 * PAGE)
    for temperature in (1.0, 0.7):  # a second batch gets a manager of its own
        budgets = [6, 3, 5, 4]
        made = turns(engine, Sampling(temperature, 3), budgets)
        for prompt, budget, turn in zip(PROMPTS, budgets, made, strict=True):
            assert turn.finish == ("eos" if turn.ids[-1] == policy.codec.eos_id else "length")
            assert len(turn.ids) == budget or turn.finish == "eos"
            ids = torch.tensor([[*prompt, *turn.ids]])
            with torch.no_grad():
                logits = policy.model(ids).logits[0, len(prompt) - 1 : -1].float() / temperature
            scores = torch.log_softmax(logits, -1)
            own = scores[torch.arange(len(turn.ids)), torch.tensor(turn.ids)].tolist()
            assert turn.logprobs == pytest.approx(own, abs=1e-4)
    assert engine.admission.peak == 4 * PAGE, "whole pages are held"
    assert engine.admission.held == 0


def test_it_takes_no_more_memory_than_it_was_given(policy: Any) -> None:
    """Left to itself the manager fills most of the machine, and masks 8,192 rows of it."""
    held = 8 * PAGE
    engine = ContinuousEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, held)
    seen: list[Any] = []

    async def look() -> None:
        async with engine.running(Sampling()):
            async with engine.admitted(2 * PAGE) as talk:
                await talk(PROMPTS[0], 2, Sampling())
            seen.append(engine._manager)
            seen.append(engine._manager.batch_processor)

    asyncio.run(look())
    manager, processor = seen
    cache = processor.cache
    assert (cache.num_blocks, cache.max_tokens_read) == (8, held)
    assert cache.max_batch_tokens == held
    (mask,) = processor.inputs_and_outputs.attention_mask.values()
    assert mask.numel() == held * 2 * held
    assert not manager.is_running(), "it is gone before the optimizer moves the weights"
    assert engine._manager is None


def test_a_conversation_larger_than_the_cache_is_refused(policy: Any) -> None:
    engine = ContinuousEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, PAGE)
    with pytest.raises(EngineError, match=f"the engine has {PAGE}"):
        turns(engine, Sampling(), [PAGE] * 4)
