"""Rollouts, RL steps and SFT against TRL's own, each pair in one run on one machine.

    python benchmarks/training.py [--policy models/sft] [--rows 32] [--part rollout]

Needs a built policy that calls tools and data/envs_merged.parquet (`dvc pull` or `dvc repro`).
Parts, all without ``--part``:

- rollout: our driver over the batched engine against GRPOTrainer's tool loop (`tools=`), with the
  same model, prompts, tools and limits, at tools of 0, 50 and 200 ms; TRL's with synchronous and
  with asynchronous tools.
- results: the engine with long results of tools computed apart, against feeding them token by
  token beside the other rows.
- step: AdaptiveGRPOTrainer against GRPOTrainer on identical rollouts.
- sft: our training against SFTTrainer on identical rows.

Quote the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from staged import composed
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer, SFTTrainer
from trl import SFTConfig as TRLSFTConfig
from trl.trainer import grpo_trainer

from astra.agent.toolcalls import parse_assistant
from astra.arena.prompt import initial_messages
from astra.records.environment import Arena, ArenaTool
from astra.records.qa import Split
from astra.rollout import row_batch
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import Sampling
from astra.rollout.live import PAPER_LIMITS, EpisodeJob
from astra.sandbox.protocol import SandboxResult, SandboxStatus
from astra.store.tables import read_records
from astra.tracking.mlflow import Run
from astra.train.ahead import Ahead
from astra.train.groups import Group, PromptStream, TrainingSample
from astra.train.grpo import AdaptiveGRPOTrainer, grpo_arguments
from astra.train.rl_config import RLConfig
from astra.train.sft import Encoded, train_sft
from astra.train.sft_config import SFTConfig

ARENAS = Path("data/envs_merged.parquet")
PARTS = ("rollout", "results", "step", "sft")
RESPONSE, TURN, TURNS = 192, 64, 4
TRIED = 24
"""Training arenas among which the one is chosen in which the policy calls most."""


class Clock:
    """Wall and CPU seconds of a block. The second do not depend on what else the machine does."""

    wall = cpu = 0.0

    def __enter__(self) -> Clock:
        self._started = time.monotonic(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.monotonic() - self._started[0]
        self.cpu = time.process_time() - self._started[1]


def function_of(tool: ArenaTool) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(tool.code, scope)
    return scope[tool.tool.name]


def for_trl(tool: ArenaTool, latency: float, asynchronous: bool) -> Callable[..., Any]:
    """The tool as TRL takes it (typed signature, documented), ``latency`` seconds late."""
    kinds = {"integer": "int", "number": "float", "boolean": "bool"}
    schema: dict[str, Any] = tool.tool.parameters
    typed = {
        name: kinds.get(str(one.get("type")), "str") for name, one in schema["properties"].items()
    }
    documented = "".join(f"        {name}: {name}\n" for name in typed)
    source = (
        f"{'async ' if asynchronous else ''}def {tool.tool.name}("
        + ", ".join(f"{name}: {kind}" for name, kind in typed.items())
        + f') -> str:\n    """{tool.tool.description}\n\n    Args:\n{documented}    """\n'
        + f"    {'await sleep' if asynchronous else 'sleep'}({latency})\n"
        + f"    return str(run({', '.join(f'{name}={name}' for name in typed)}))\n"
    )
    scope: dict[str, Any] = {
        "sleep": asyncio.sleep if asynchronous else time.sleep,
        "run": function_of(tool),
    }
    file = Path(tempfile.mkdtemp()) / "tool.py"  # TRL reads a tool's source
    file.write_text(source)
    exec(compile(source, str(file), "exec"), scope)
    return scope[tool.tool.name]


class SleepySandbox:
    """Sessions that answer in the process, ``latency`` seconds late, beside each other."""

    tier = "none"
    alive = True

    def __init__(self, arena: Arena, latency: float) -> None:
        self._functions = {tool.tool.name: function_of(tool) for tool in arena.tools}
        self._latency = latency
        self._pool = ThreadPoolExecutor(128)

    def session(self, sources: Mapping[str, str]) -> Any:
        return self

    def sessions(self, sources: Sequence[Mapping[str, str]]) -> list[Any]:
        return [self for _ in sources]

    def call_many(self, requests: Sequence[tuple[Any, str, Mapping[str, Any]]]) -> list[Any]:
        def one(request: tuple[Any, str, Mapping[str, Any]]) -> SandboxResult:
            time.sleep(self._latency)
            try:
                value = self._functions[request[1]](**request[2])
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                return SandboxResult(SandboxStatus.EXCEPTION, None, text, "", self._latency)
            return SandboxResult(SandboxStatus.OK, value, "", "", self._latency)

        return list(self._pool.map(one, requests))

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Batch:
    """What one batch of rollouts took and made."""

    tokens: int
    calls: int
    took: Clock

    @property
    def rate(self) -> float:
        return self.tokens / self.took.wall


def ours(policy: LoadedPolicy, arena: Arena, rows: int, latency: float) -> Batch:
    limits = PAPER_LIMITS.model_copy(
        update={"max_turns": TURNS, "max_turn_tokens": TURN, "max_response_tokens": RESPONSE}
    )
    engine = BatchedEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, rows)
    sandbox: Any = SleepySandbox(arena, latency)
    driver = RolloutDriver(engine, policy.codec, sandbox, limits, overlap=latency > 0)
    with Clock() as took:
        rollouts = driver.run([EpisodeJob(arena)] * rows, Sampling(1.0, 0))
    tokens = sum(sum(one.mask) for one in rollouts)
    return Batch(tokens, driver.tool_calls, took)


def parsed(tokenizer: Any, ids: Sequence[int], **_: Any) -> dict[str, Any]:
    """TRL's parsers do not know the tiny policy's headers, and would run old calls again."""
    message = parse_assistant(tokenizer.decode([i for i in ids if i != tokenizer.eos_token_id]))
    document: dict[str, Any] = {"role": "assistant", "content": message.content}
    calls: list[dict[str, Any]] = []
    for call in message.tool_calls:
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = {}
        function = {"name": call.name, "arguments": arguments}
        calls.append({"type": "function", "function": function})
    return {**document, "tool_calls": calls} if calls else document


def theirs(
    policy: LoadedPolicy, arena: Arena, rows: int, latency: float, asynchronous: bool
) -> Batch:
    """The same through GRPOTrainer's tool loop."""
    tokenizer = policy.codec.tokenizer
    tokenizer.response_template = "ours"  # that it has one makes TRL parse at all
    with tempfile.TemporaryDirectory() as folder:
        trainer: Any = GRPOTrainer(
            model=policy.model,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=GRPOConfig(
                output_dir=folder, use_cpu=not torch.cuda.is_available(), bf16=False,
                report_to="none", per_device_train_batch_size=rows, num_generations=2,
                max_completion_length=RESPONSE, max_tool_calling_iterations=TURNS - 1,
                temperature=1.0,
            ),
            train_dataset=Dataset.from_list([{"prompt": ""}] * rows),
            processing_class=tokenizer,
            tools=[for_trl(tool, latency, asynchronous) for tool in arena.tools],
        )  # fmt: skip
        messages = [
            {"role": message.role.value, "content": message.content}
            for message in initial_messages(arena)
        ]
        generate, made, took = trainer._generate, [], Clock()

        def timed(given: list[Any]) -> Any:
            with took:
                made.append(generate(given))
            return made[0]

        trainer._generate = timed
        trainer.model.train()
        trainer._generate_and_score_completions([{"prompt": messages} for _ in range(rows)])
        trainer.model.eval()
        calls = trainer._metrics["train"]["tools/call_frequency"][-1] * rows
        return Batch(sum(sum(mask) for mask in made[0][2]), round(calls), took)


def busiest(policy: LoadedPolicy) -> Arena:
    """The arena, among the first few of one tool each, in which the policy calls most."""
    found = (one for one in read_records(ARENAS, Arena) if one.split == Split.TRAIN)
    simple = (one for one in found if len(one.tools) == 1)
    return max(islice(simple, TRIED), key=lambda one: ours(policy, one, 4, 0.0).calls)


def rollout_part(policy: LoadedPolicy, rows: int) -> None:
    policy.model.eval()
    arena = busiest(policy)
    print(f"rollouts, {rows} conversations, {arena.main_question!r}: sampled tokens per second")
    print("| tools | ours | TRL sync | TRL async | ours / sync | ours / async | calls | CPU-s |")
    print("|---|---|---|---|---|---|---|---|")
    for latency in (0.0, 0.05, 0.2):
        runs: list[list[Batch]] = [[], [], []]
        for _ in range(2):  # alternating; the better of two each, since neighbours only slow down
            runs[0].append(ours(policy, arena, rows, latency))
            for at, asynchronous in ((1, False), (2, True)):
                runs[at].append(theirs(policy, arena, rows, latency, asynchronous))
        best = [max(found, key=lambda one: one.rate) for found in runs]
        mine, sync, later = (one.rate for one in best)
        print(
            f"| {latency * 1000:.0f} ms | {mine:.0f} | {sync:.0f} | {later:.0f} "
            f"| {mine / sync:.2f} | {mine / later:.2f} "
            f"| {'/'.join(str(one.calls) for one in best)} "
            f"| {'/'.join(f'{one.took.cpu:.1f}' for one in best)} |",
            flush=True,
        )


RESULTS = (16, 48, 160, 480)
"""How many tokens the tools of ``results_part`` return."""


def conversed(policy: LoadedPolicy, rows: int, length: int, longest_fed: int) -> float:
    """CPU seconds of ``rows`` conversations, eight of each prompt of 400 tokens, with four turns of
    at most 24 tokens and results of ``length`` between them."""
    draw = random.Random(0)
    ids = range(policy.codec.eos_id)
    prompts = [prompt for _ in range(rows // 8) for prompt in [draw.choices(ids, k=400)] * 8]
    results = [draw.choices(ids, k=length) for _ in prompts]
    engine = BatchedEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, rows)
    left = [4] * rows
    usual, row_batch.FED = row_batch.FED, longest_fed
    try:
        with Clock() as clock:
            engine.start(prompts, [24] * rows, Sampling(1.0, 0))
            while turns := engine.poll():
                for turn in turns:
                    left[turn.row] -= 1
                    if left[turn.row]:
                        engine.resume(turn.row, results[turn.row], 24)
                    else:
                        engine.finish(turn.row)
    finally:
        row_batch.FED = usual
    return clock.cpu


def results_part(policy: LoadedPolicy, rows: int) -> None:
    policy.model.eval()
    print(f"results of tools, {rows} conversations of four turns: CPU-s, the better of two")
    print("| tokens of a result | all fed | as it is | ratio |")
    print("|---|---|---|---|")
    for length in RESULTS:
        runs = [[conversed(policy, rows, length, most) for most in (10**9, row_batch.FED)]
                for _ in range(2)]  # fmt: skip
        fed, mine = (min(found) for found in zip(*runs, strict=True))
        print(f"| {length} | {fed:.1f} | {mine:.1f} | {fed / mine:.2f} |", flush=True)


class ReadyRoller:
    """Groups that were rolled already: what is left is the trainer."""

    lost_to_infra = infra_retries = 0
    problem = ""

    def __init__(self, config: RLConfig) -> None:
        self._config = config
        self.ahead: Ahead[Any] = Ahead()

    def weights_are(self, version: int) -> None:
        self._version = version

    def roll(self, prompts: Sequence[tuple[int, Any]], seed: int) -> list[Group]:
        return [Group(uid, samples(uid, self._config, self._version), {}) for uid, _ in prompts]


def samples(uid: int, config: RLConfig, version: int) -> list[TrainingSample]:
    generator = torch.Generator().manual_seed(uid)
    made: list[TrainingSample] = []
    for index in range(config.group_size):
        ids = torch.randint(0, 2000, (224,), generator=generator).tolist()
        mask = ([1] * 24 + [0] * 8) * 4
        logprobs = [-3.0 * m for m in mask]
        made.append(TrainingSample(ids[:96], ids[96:], mask, logprobs, index / 10, version))
    return made


def step_part(policy: LoadedPolicy) -> None:
    files = ("rl=base", "+rl/engine=batched", "+rl/importance=trainer")
    changes = ("steps=3", "groups=8", "group_size=8", "micro_batch_size=32", "save_steps=99")
    composition = composed([*files, *(f"rl.{change}" for change in changes)])
    config = RLConfig.model_validate(composition["rl"])
    rows = Dataset.from_list([{"prompt": ""}] * config.groups)
    clocks: dict[str, list[Clock]] = {"ours": [], "TRL": []}
    for _ in range(3):  # alternating, so that what neighbours do meets both
        for name, times in clocks.items():
            with tempfile.TemporaryDirectory() as folder:
                shared: dict[str, Any] = {
                    "model": policy.model,
                    "args": grpo_arguments(config, Path(folder), config.steps),
                    "train_dataset": rows,
                    "processing_class": policy.codec.tokenizer,
                }
                if name == "ours":
                    arenas = list(islice(read_records(ARENAS, Arena), 1))
                    stream = PromptStream(arenas, 0)
                    roller: Any = ReadyRoller(config)
                    trainer: Any = AdaptiveGRPOTrainer(
                        roller=roller, stream=stream, config=config, **shared
                    )
                else:
                    trainer = GRPOTrainer(
                        reward_funcs=[lambda completions, reward, **_: reward],
                        rollout_func=lambda prompts, _: replayed(config),
                        **shared,
                    )
                trainer.remove_callback(PrinterCallback)
                with Clock() as took:
                    trainer.train()
                times.append(took)
    wall, cpu = least(clocks)
    print(
        f"step: {config.steps} steps of 64 x 224 tokens: ours {wall['ours']:.2f} s, TRL "
        f"{wall['TRL']:.2f} s, overhead {wall['ours'] / wall['TRL'] - 1:+.1%}; CPU-seconds "
        f"{cpu['ours']:.2f} and {cpu['TRL']:.2f}, {cpu['ours'] / cpu['TRL'] - 1:+.1%}"
    )


def least(clocks: Mapping[str, Sequence[Clock]]) -> tuple[dict[str, float], dict[str, float]]:
    """The least wall time and the least CPU time of each: neighbours only add to them."""
    wall = {name: min(one.wall for one in found) for name, found in clocks.items()}
    return wall, {name: min(one.cpu for one in found) for name, found in clocks.items()}


def replayed(config: RLConfig) -> dict[str, list[Any]]:
    made = [one for uid in range(config.groups) for one in samples(uid, config, 0)]
    return {
        "prompt_ids": [one.prompt_ids for one in made],
        "completion_ids": [one.completion_ids for one in made],
        "logprobs": [one.logprobs for one in made],
        "env_mask": [one.mask for one in made],
        "reward": [one.reward for one in made],
    }


def sft_part(policy: LoadedPolicy) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(0, 2000, (256,), generator=generator).tolist() for _ in range(96)]
    rows = [{"input_ids": one, "labels": [-100] * 128 + one[128:]} for one in ids]
    changes = ("max_steps=4", "epochs=9", "batch_size=24", "micro_batch_size=24", "save_steps=99")
    composition = composed(["sft=base", *(f"sft.{change}" for change in changes)])
    config = SFTConfig.model_validate(composition["sft"])
    clocks: dict[str, list[Clock]] = {"ours": [], "TRL": []}
    for _ in range(3):
        for name, found in clocks.items():
            with tempfile.TemporaryDirectory() as folder, Clock() as took:
                if name == "ours":
                    train_sft(
                        policy, Encoded(rows), Encoded(), config, Path(folder), Run(None, "", "")
                    )
                else:
                    SFTTrainer(
                        model=policy.model,
                        args=TRLSFTConfig(
                            output_dir=folder, max_steps=4, per_device_train_batch_size=24,
                            use_cpu=not torch.cuda.is_available(), bf16=False, report_to="none",
                            disable_tqdm=True, max_length=None, save_steps=99,
                            activation_checkpointing=False,
                            dataset_kwargs={"skip_prepare_dataset": True},
                        ),
                        train_dataset=Dataset.from_list(rows),
                        processing_class=policy.codec.tokenizer,
                    ).train()  # fmt: skip
            found.append(took)
    wall, cpu = least(clocks)
    tokens = 4 * 24 * 256
    print(
        f"SFT: ours {tokens / wall['ours']:.0f} tokens/s, SFTTrainer {tokens / wall['TRL']:.0f}, "
        f"ratio {wall['TRL'] / wall['ours']:.2f}; by CPU time {cpu['TRL'] / cpu['ours']:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policy", default="models/sft", help="a policy that calls tools")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", choices=PARTS, action="append")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    grpo_trainer.parse_response = parsed
    torch.set_num_threads(chosen.threads)
    policy = load_policy(PolicyConfig.saved(chosen.policy, "float32"))
    parts = chosen.part or PARTS
    if "rollout" in parts:
        rollout_part(policy, chosen.rows)
    if "results" in parts:
        results_part(policy, chosen.rows)
    if "step" in parts:
        step_part(policy)
    if "sft" in parts:
        sft_part(policy)


if __name__ == "__main__":
    main()
