"""The engine against a plain forward pass over whole sequences, the slowest right answer."""

import random
from typing import Any

import pytest
import torch

from astra.rollout import row_batch
from astra.rollout.batched import BatchedEngine, draw_tokens
from astra.rollout.engine import Sampling, Turn
from astra.train.tiny.base import build_model
from astra.train.tiny.tokenizer import build_tokenizer

EOS, PAD = 2047, 2046


@pytest.fixture(scope="module")
def model() -> Any:
    torch.set_num_threads(1)
    return build_model(build_tokenizer(), seed=3).eval()


def engine(model: Any, **options: Any) -> BatchedEngine:
    return BatchedEngine(model, eos_id=EOS, pad_id=PAD, **options)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    unique = [[rng.randrange(2000) for _ in range(rng.randrange(1, 30))] for _ in range(count)]
    return [*unique, unique[0], unique[-1]]


@torch.no_grad()
def reference(model: Any, ids: list[int], start: int, temperature: float = 1.0) -> list[float]:
    """Log-probabilities of ``ids[start:]``, computed without any cache."""
    logits = model(torch.tensor([ids])).logits[0, :-1].float() / temperature
    scores = torch.log_softmax(logits, -1)
    return scores[torch.arange(len(ids) - 1), torch.tensor(ids[1:])][start - 1 :].tolist()


def drain(one: BatchedEngine) -> list[Turn]:
    turns: list[Turn] = []
    while found := one.poll():
        turns += found
        for turn in found:
            one.finish(turn.row)
    return sorted(turns, key=lambda turn: turn.row)


def test_greedy_equals_the_argmax_of_a_plain_forward(model: Any) -> None:
    given = prompts(6)
    one = engine(model)
    one.start(given, [7] * len(given), Sampling(0.0))
    for prompt, turn in zip(given, drain(one), strict=True):
        ids = list(prompt)
        for token in turn.ids:
            with torch.no_grad():
                assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_sampled_distribution(model: Any, temperature: float) -> None:
    given = prompts(5, seed=1)
    one = engine(model)
    one.start(given, [3, 9, 1, 12, 5, 8, 2], Sampling(temperature, seed=4))
    for prompt, turn in zip(given, drain(one), strict=True):
        expected = reference(model, [*prompt, *turn.ids], len(prompt), temperature)
        assert turn.logprobs == pytest.approx(expected, abs=2e-5)
        assert turn.finish == "length"


@pytest.mark.parametrize("longest_fed", [row_batch.FED, 5, 0])
def test_rows_pause_resume_and_compact_without_disturbing_each_other(
    model: Any, monkeypatch: pytest.MonkeyPatch, longest_fed: int
) -> None:
    """Turns of unequal length, suffixes of unequal length, rows that leave at every point; of
    the suffixes all, some or none are fed token by token."""
    monkeypatch.setattr(row_batch, "FED", longest_fed)
    rng = random.Random(9)
    given = prompts(8, seed=2)
    one = engine(model)
    transcript = {row: list(prompt) for row, prompt in enumerate(given)}
    spans: dict[int, list[tuple[int, list[float]]]] = {row: [] for row in transcript}
    left = {row: rng.randrange(1, 4) for row in transcript}
    one.start(given, [rng.randrange(1, 9) for _ in given], Sampling(1.0, seed=5))
    while turns := one.poll():
        for turn in turns:
            spans[turn.row].append((len(transcript[turn.row]), turn.logprobs))
            transcript[turn.row] += turn.ids
            left[turn.row] -= 1
            if left[turn.row] == 0:
                one.finish(turn.row)
                continue
            suffix = [rng.randrange(2000) for _ in range(rng.randrange(1, 12))]
            transcript[turn.row] += suffix
            one.resume(turn.row, suffix, rng.randrange(1, 9))
    for row, ids in transcript.items():
        for start, logprobs in spans[row]:
            expected = reference(model, ids[: start + len(logprobs)], start)
            assert logprobs == pytest.approx(expected, abs=2e-5)


def test_a_long_suffix_takes_no_step_of_the_other_rows(model: Any) -> None:
    """It outgrows the shared columns, and what follows is as if it had been fed."""
    given, suffix = prompts(2, seed=6), [index % 2000 for index in range(row_batch.FED + 1)]
    one = engine(model)
    one.start(given, [2, 2, 2, 9], Sampling(0.0))
    first = one.poll()
    before = {turn.row: [*given[turn.row], *turn.ids, *suffix] for turn in first}
    steps = 0
    for turn in first:
        one.resume(turn.row, suffix, 3)
    later: list[Turn] = []
    while len(later) < len(first):
        steps += 1
        later += [turn for turn in one._batch.step(one._sample) if turn.row in before]
    assert steps == 3
    for turn in later:
        expected = reference(model, before[turn.row] + turn.ids, len(before[turn.row]))
        assert turn.logprobs == pytest.approx(expected, abs=2e-5)


def test_same_seed_same_tokens(model: Any) -> None:
    given = prompts(4)

    def sample(seed: int) -> list[list[int]]:
        one = engine(model)
        one.start(given, [10] * len(given), Sampling(1.0, seed))
        return [turn.ids for turn in drain(one)]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    wanted = torch.tensor([0.5, 0.0, 0.3, 0.2, 0.0])
    drawn = draw_tokens(wanted.repeat(100_000, 1), torch.Generator().manual_seed(3))
    assert drawn.shape == (100_000, 1)
    shares = torch.bincount(drawn[:, 0], minlength=5) / 100_000
    assert shares.tolist() == pytest.approx(wanted.tolist(), abs=0.01)
    assert shares[1] == shares[4] == 0


def test_too_many_rows_and_wrong_resumes_are_refused(model: Any) -> None:
    one = engine(model, max_rows=2)
    with pytest.raises(ValueError, match="at most 2"):
        one.start([[1], [2], [3]], [1, 1, 1], Sampling())
    one.start([[1, 2], [3, 4]], [4, 4], Sampling())
    with pytest.raises(ValueError, match="has not ended a turn"):
        one.resume(0, [5], 4)
