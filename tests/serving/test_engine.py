"""Rows of the serving engine join and leave, and what they leave behind saves others work."""

from __future__ import annotations

from typing import Any

import torch
from taught import engine_of

from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy
from astra.rollout.engine import Sampling
from astra.rollout.row_batch import KeysValues
from astra.serving.engine import PrefixCache, draw
from astra.serving.generation import GenerationSettings


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


def states(tokens: int) -> KeysValues:
    """One layer of 8 bytes a token, its columns numbered."""
    columns = torch.arange(tokens, dtype=torch.float32)[None, :, None]
    return [(columns, columns.clone())]


def test_the_longest_kept_prefix_is_found_and_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(keep_bytes=8 * 120)
    first, second, third = ([n, *range(40)] for n in (1, 2, 3))
    cache.keep(first, states(41))
    cache.keep(second, states(41))
    length, known = cache.longest([*first[:30], 99])
    assert length == 30
    assert known[0][0].flatten().tolist() == list(range(30))
    cache.keep(third, states(41))  # too many for three: the second was used least recently
    assert [cache.longest(ids)[0] for ids in (first, second, third)] == [41, 0, 41]
    cache.keep([*first, 5, 6], states(43))  # it continues the first, and takes its place
    assert cache.longest(first)[0] == 41
    assert cache.longest(third)[0] == 41
    assert cache.longest(first[:15]) == (0, []), "too short to be worth copying"
