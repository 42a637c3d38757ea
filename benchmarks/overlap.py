"""How long rollout servers idle while a policy trains, with and without rolling ahead.

    python benchmarks/overlap.py [--steps 5] [--latency 3] [--pause 6]

Needs data/envs_merged.parquet (`dvc pull` or `dvc repro`). Two scripted servers answer each turn
after ``latency`` seconds: the gold conversation, or an answer without a call. The trainer is the
stage's, with the tiny policy; each of its steps takes ``pause`` seconds longer, in place of a
large policy's. Two arms in one run, twice in turn, the faster of two each, since neighbours only
slow down: max_staleness 0 (servers wait while the policy trains) and 1 (they roll the next batch).
Quote the ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from staged import composed
from transformers import PrinterCallback, TrainerCallback

from astra.records.environment import Arena
from astra.records.qa import Split
from astra.rollout.chat import ChatCodec, LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.driver import EpisodeSetting
from astra.rollout.engines.vllm import drive
from astra.rollout.scripted_server import ScriptedVLLM
from astra.rollout.transfer import FolderTransfer
from astra.rollout.vllm import VLLMConfig, VLLMEngine
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox
from astra.store.tables import read_records
from astra.train.groups import GroupRoller, PromptStream
from astra.train.grpo import AdaptiveGRPOTrainer, grpo_arguments
from astra.train.rl_config import RLConfig

ARENAS, TINY = Path("data/envs_merged.parquet"), "policies/tiny"
ARENA_COUNT, SERVERS = 64, 2
CHANGES = (
    "groups=8", "group_size=4", "micro_batch_size=8", "save_steps=999", "dtype=float32",
    "limits.max_turn_tokens=128", "limits.max_response_tokens=500",
)  # fmt: skip


class Pause(TrainerCallback):
    """Makes each optimizer step take longer, as a large policy's does."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        time.sleep(self._seconds)


class Server(ScriptedVLLM):
    """Plays the gold conversation where the seed of its first turn is even."""

    def __init__(self, codec: ChatCodec, arenas: Sequence[Arena], latency: float) -> None:
        super().__init__(lambda body, _: self._turn(body))
        self.spans: list[tuple[float, float]] = []
        """When each turn was generated."""
        self.faults.delay_s = latency
        self._codec, self._arenas = codec, arenas

    def _turn(self, body: dict[str, Any]) -> list[int]:
        ended = time.monotonic()
        self.spans.append((ended - self.faults.delay_s, ended))
        text = self._codec.decode(body["prompt"])
        arena = next(one for one in self._arenas if one.main_question in text)
        done = (sum(token == self._codec.eos_id for token in body["prompt"]) - 2) // 2
        said = f"<answer>{arena.final_answer.value}</answer>"
        if done < len(arena.steps) and (done or body["seed"] % 2 == 0):
            step = arena.steps[done]
            call = {"name": step.tool_name, "arguments": step.arguments}
            said = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        ids = self._codec.tokenizer.encode(said, add_special_tokens=False)
        return [*ids, self._codec.eos_id]


@dataclass(frozen=True)
class Arm:
    """What one arm took, in seconds, between the first and the last turn that was generated."""

    wall: float
    idle: list[float]
    """Each server's seconds without a turn in the making."""
    stale: float
    """Mean age of the batches, in steps."""
    steps: int


def busy(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one turn was generated."""
    total, end = 0.0, 0.0
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, end))
        end = max(end, ended)
    return total


def trained(
    policy: LoadedPolicy, config: RLConfig, arenas: Sequence[Arena], servers: Sequence[Server],
    sandbox: Sandbox, folder: Path, pause: float,
) -> Any:  # fmt: skip
    """The trainer after its steps."""
    ids = list(range(5, 25))
    engine = VLLMEngine(
        VLLMConfig([server.url for server in servers]),
        policy.codec.eos_id,
        FolderTransfer(folder / "weights", lambda path: path.mkdir(parents=True) is None),
        lambda: (ids, [servers[0].told] * (len(ids) - 1)),
    )
    setting = EpisodeSetting(
        policy.codec, sandbox, config.limits, config.reward, config.final_answer
    )
    options: Any = config.engine
    trainer: Any = AdaptiveGRPOTrainer(
        roller=GroupRoller(drive(engine, options, setting), config),
        stream=PromptStream(arenas, config.seed),
        config=config,
        model=policy.model,
        args=grpo_arguments(config, folder, config.steps),
        train_dataset=Dataset.from_list([{"prompt": ""}] * config.groups),
        processing_class=policy.codec.tokenizer,
        callbacks=[Pause(pause)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


def arm(staleness: int, steps: int, latency: float, pause: float, sandbox: Sandbox) -> Arm:
    files = ("rl=base", "+rl/engine=vllm", "+rl/importance=sampler")
    changes = (*CHANGES, f"steps={steps}", f"max_staleness={staleness}")
    composition = composed([*files, *(f"rl.{change}" for change in changes)])
    config = RLConfig.model_validate(composition["rl"])
    policy = load_policy(PolicyConfig.saved(TINY, "float32"))
    playable = (
        arena
        for arena in read_records(ARENAS, Arena)
        if arena.split == Split.TRAIN and all(step.tool_name for step in arena.steps)
    )
    arenas = list(islice(playable, ARENA_COUNT))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = [Server(policy.codec, arenas, latency) for _ in range(SERVERS)]
        for server in servers:
            stack.enter_context(server)
        trainer = trained(policy, config, arenas, servers, sandbox, folder, pause)
    spans = [span for server in servers for span in server.spans]
    wall = max(ended for _, ended in spans) - min(began for began, _ in spans)
    logged = [one for one in trainer.state.log_history if "filling/staleness" in one]
    stale = sum(one["filling/staleness"] for one in logged) / len(logged)
    return Arm(wall, [wall - busy(server.spans) for server in servers], stale, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--latency", type=float, default=3.0)
    parser.add_argument("--pause", type=float, default=6.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[int, list[Arm]] = {0: [], 1: []}
    with LocalSandbox() as sandbox:
        for staleness in (0, 1, 0, 1):
            one = arm(staleness, options.steps, options.latency, options.pause, sandbox)
            found[staleness].append(one)
            print(f"max_staleness {staleness}: {one.wall:.0f} s", file=sys.stderr, flush=True)
    best = {staleness: min(arms, key=lambda one: one.wall) for staleness, arms in found.items()}
    print("| max_staleness | servers idle | seconds a step | staleness |\n|---|---|---|---|")
    for staleness, one in best.items():
        idle = sum(one.idle) / len(one.idle) / one.wall
        # The last step is not counted: nothing is rolled while it trains.
        print(f"| {staleness} | {idle:.0%} | {one.wall / (one.steps - 1):.2f} | {one.stale:.2f} |")
    print(f"rolling ahead, a step takes {best[1].wall / best[0].wall:.2f} of the time")


if __name__ == "__main__":
    main()
