"""Work that ranks share out through files, and how long they wait for each other."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from training_world import make_arena

from astra.rollout.chat import PolicyConfig, load_codec
from astra.stage import Progress
from astra.train import shared_work as module
from astra.train.errors import TrainingError
from astra.train.exchange import UNBOUNDED_S, patience_s
from astra.train.prompts import PROMPTS_AT_ONCE, prompt_lengths
from astra.train.rl import choose_arenas
from astra.train.shared_work import shared_work
from configs import engine_options, rl_config

ITEMS = [(f"key-{n}", n) for n in range(5)]


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    monkeypatch.setattr(module, "rank", lambda: rank)
    monkeypatch.setattr(module, "world_size", lambda: world)


def share(folder: Path, made: list[int], patience: float = 5.0) -> list[Any]:
    def make(item: int) -> dict[str, int]:
        made.append(item)
        return {"square": item * item}

    return shared_work(ITEMS, make, folder, patience, Progress("items", len(ITEMS)))


SQUARES = [{"square": n * n} for n in range(5)]


def test_each_item_is_made_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    assert share(tmp_path, made) == SQUARES
    assert made == [0, 1, 2, 3, 4]
    (tmp_path / "key-3.json").unlink()
    as_rank(monkeypatch, 0, 1)
    assert share(tmp_path, made) == SQUARES
    assert made == [0, 1, 2, 3, 4, 3], "what is there counts, whoever made it"


def test_a_rank_makes_its_share_and_waits_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, 1, 2)
    monkeypatch.setattr(module, "POLL_S", 0.01)

    def other() -> None:
        for n in (0, 2, 4):
            time.sleep(0.05)
            fresh = tmp_path / f"{n}.new"
            fresh.write_text(json.dumps({"square": n * n}))
            fresh.rename(tmp_path / f"key-{n}.json")

    made: list[int] = []
    thread = threading.Thread(target=other)
    thread.start()
    assert share(tmp_path, made) == SQUARES
    thread.join()
    assert made == [1, 3]


def test_a_rank_that_owes_its_share_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, 0, 2)
    monkeypatch.setattr(module, "POLL_S", 0.01)
    with pytest.raises(TrainingError, match=r"rank 0 waited 0 s for rank 1 to write .*key-1\.json"):
        share(tmp_path, [], patience=0.1)


def test_prompts_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = load_codec(PolicyConfig.saved("policies/tiny", "float32"))
    arenas = [make_arena(seed) for seed in range(PROMPTS_AT_ONCE + 3)]
    lengths = prompt_lengths(arenas, codec, tmp_path, 5.0)
    assert len(lengths) == len(arenas)
    longest = sorted(lengths)[-5]
    config = rl_config(limits={"max_prompt_tokens": longest})
    folder = tmp_path / "run"
    chosen = choose_arenas(arenas, codec, config, folder)
    assert {one.item for one in chosen.rejections} == {
        arena.id for arena, length in zip(arenas, lengths, strict=True) if length > longest
    }
    monkeypatch.setattr(codec, "encode_prompt", None)
    assert choose_arenas(arenas, codec, config, folder) == chosen, "nothing is encoded again"


def test_ranks_wait_as_long_as_rollouts_may_take() -> None:
    vllm = rl_config(engine=engine_options("vllm", timeout_s=100.0))
    # three attempts, each after three other episodes, and a hand-over of at most 600 s
    assert patience_s(vllm) == 3 * 4 * 100 + 600
    assert patience_s(rl_config(engine=engine_options("vllm", timeout_s=None))) == UNBOUNDED_S
    assert patience_s(rl_config()) == UNBOUNDED_S, "no clock bounds episodes in the process"
