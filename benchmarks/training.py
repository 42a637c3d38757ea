"""Rollouts, RL steps and SFT against TRL's own, each pair in one run on one machine.

    python benchmarks/training.py [--policy models/sft] [--rows 32] [--part rollout|step|sft]

Rollouts: our driver over the batched engine against GRPOTrainer's tool loop (`tools=`), with the
same model, prompts, tools and limits, at tools of 0, 50 and 200 ms; TRL's with synchronous and
with asynchronous tools. Step: AdaptiveGRPOTrainer against GRPOTrainer on identical rollouts. SFT:
our training against SFTTrainer on identical rows. Quote the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer, SFTTrainer
from trl import SFTConfig as TRLSFTConfig
from trl.chat_template_utils import qwen3_template

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.records.environment import Arena, ArenaStep, ArenaTool
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.tool import Tool
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import Sampling
from astra.rollout.live import Job, RolloutLimits
from astra.sandbox.protocol import SandboxResult, SandboxStatus
from astra.tracking.mlflow import Run
from astra.train.config import RLConfig, SFTConfig
from astra.train.groups import Group, PromptStream, Sample
from astra.train.grpo import AdaptiveGRPOTrainer, grpo_arguments
from astra.train.sft import Encoded, train_sft

PRICES = {"Amber Cove": 45, "Cedar Hill": 52, "Maple Court": 61, "Silver Bay": 73}
RESPONSE, TURN = 128, 48
TURNS = 4


def get_asking_price(listing: str) -> str:
    """The asking price of a listing.

    Args:
        listing: its name
    """
    return str(PRICES.get(listing, "error: no such listing"))


def tools(latency: float, asynchronous: bool) -> Callable[..., Any]:
    """The tool as TRL takes it, after ``latency`` seconds."""
    if asynchronous:

        async def later(listing: str) -> str:
            await asyncio.sleep(latency)
            return get_asking_price(listing)

        made: Callable[..., Any] = later
    else:

        def now(listing: str) -> str:
            time.sleep(latency)
            return get_asking_price(listing)

        made = now
    made.__name__, made.__doc__ = "get_asking_price", get_asking_price.__doc__
    return made


class SleepySandbox:
    """Sessions that answer in the process, ``latency`` seconds late, beside each other."""

    tier = "none"

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._pool = ThreadPoolExecutor(128)

    def session(self, sources: Mapping[str, str]) -> Any:
        return self

    alive = True

    def sessions(self, sources: Sequence[Mapping[str, str]]) -> list[Any]:
        return [self for _ in sources]

    def call_many(self, requests: Sequence[tuple[Any, str, Mapping[str, Any]]]) -> list[Any]:
        def one(request: tuple[Any, str, Mapping[str, Any]]) -> SandboxResult:
            time.sleep(self._latency)
            value = get_asking_price(**request[2])
            return SandboxResult(SandboxStatus.OK, value, "", "", self._latency)

        return list(self._pool.map(one, requests))

    def close(self) -> None:
        pass


def questions(rows: int) -> list[str]:
    names = list(PRICES)
    return [f"What is the asking price of {names[at % len(names)]}?" for at in range(rows)]


def arena(question: str) -> Arena:
    name = question.split(" of ")[-1].rstrip("?")
    answer = Answer(type=AnswerType.NUMBER, value=PRICES[name])
    schema = {
        "type": "object",
        "properties": {"listing": {"type": "string", "description": "its name"}},
        "required": ["listing"],
    }
    tool = Tool(
        name="get_asking_price", description="The asking price of a listing.", parameters=schema
    )
    step = ArenaStep(id=1, hop_level=1, question=question, answer=answer, tool_name=tool.name)
    return Arena(
        qa_id=name, split=Split.TRAIN, domain="listing", language="en", source="bench",
        kind=QuestionKind.READ_ONLY, scenario=Scenario.SINGLE_HOP, hops=1, main_question=question,
        final_answer=answer, tools=(ArenaTool(tool=tool, code="pass"),), steps=(step,),
        entities=(name,), composition="single",
    )  # fmt: skip


def ours(policy: LoadedPolicy, rows: int, latency: float) -> tuple[int, float]:
    """Sampled tokens and seconds of one batch of rollouts."""
    limits = RolloutLimits(max_turns=TURNS, max_turn_tokens=TURN, max_response_tokens=RESPONSE)
    engine = BatchedEngine(policy.model, policy.codec.eos_id, policy.codec.pad_id, rows)
    sandbox: Any = SleepySandbox(latency)
    driver = RolloutDriver(engine, policy.codec, sandbox, limits, overlap=latency > 0)
    jobs = [Job(arena(question)) for question in questions(rows)]
    started = time.monotonic()
    rollouts = driver.run(jobs, Sampling(1.0, 0))
    return sum(sum(one.mask) for one in rollouts), time.monotonic() - started


def theirs(
    policy: LoadedPolicy, rows: int, latency: float, asynchronous: bool
) -> tuple[int, float]:
    """The same through GRPOTrainer's tool loop."""
    tokenizer = policy.codec.tokenizer
    tokenizer.response_template = qwen3_template
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
            tools=[tools(latency, asynchronous)],
        )  # fmt: skip
        prompts = [
            [{"role": "system", "content": AGENT_SYSTEM_PROMPT}, {"role": "user", "content": text}]
            for text in questions(rows)
        ]
        started = time.monotonic()
        masks = trainer._generate(prompts)[2]
        return sum(sum(mask) for mask in masks), time.monotonic() - started


def rollout_part(policy: LoadedPolicy, rows: int) -> None:
    print(f"rollouts, {rows} conversations: sampled tokens per second")
    print("| tools | ours | TRL sync | TRL async | ours / sync | ours / async |")
    print("|---|---|---|---|---|---|")
    policy.model.eval()
    ours(policy, rows, 0.0)  # the first batch pays for what torch sets up
    for latency in (0.0, 0.05, 0.2):
        runs = [ours(policy, rows, latency)]
        runs += [theirs(policy, rows, latency, asynchronous) for asynchronous in (False, True)]
        mine, sync, later = (tokens / seconds for tokens, seconds in runs)
        print(
            f"| {latency * 1000:.0f} ms | {mine:.0f} | {sync:.0f} | {later:.0f} "
            f"| {mine / sync:.2f} | {mine / later:.2f} |",
            flush=True,
        )


class ReadyRoller:
    """Groups that were rolled already: what is left is the trainer."""

    lost_to_infra = 0

    def __init__(self, config: RLConfig) -> None:
        self._config = config

    def weights_are(self, version: int) -> None:
        self._version = version

    def roll(self, prompts: Sequence[tuple[int, Any]], seed: int) -> list[Group]:
        return [Group(uid, samples(uid, self._config, self._version), {}) for uid, _ in prompts]


def samples(uid: int, config: RLConfig, version: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(uid)
    made: list[Sample] = []
    for index in range(config.group_size):
        ids = torch.randint(0, 2000, (224,), generator=generator).tolist()
        mask = ([1] * 24 + [0] * 8) * 4
        logprobs = [-3.0 * m for m in mask]
        made.append(Sample(ids[:96], ids[96:], mask, logprobs, index / 10, version))
    return made


def step_part(policy: LoadedPolicy) -> None:
    config = RLConfig.model_validate(
        {"steps": 3, "groups": 8, "group_size": 8, "micro_batch_size": 32, "save_steps": 99,
         "old_logprobs": "trainer"}
    )  # fmt: skip
    rows = Dataset.from_list([{"prompt": ""}] * config.groups)
    seconds: dict[str, list[float]] = {"ours": [], "TRL": []}
    for _ in range(3):  # alternating, so that what neighbours do meets both
        for name, times in seconds.items():
            with tempfile.TemporaryDirectory() as folder:
                shared: dict[str, Any] = {
                    "model": policy.model,
                    "args": grpo_arguments(config, Path(folder), config.steps, "float32"),
                    "train_dataset": rows,
                    "processing_class": policy.codec.tokenizer,
                }
                if name == "ours":
                    stream = PromptStream([arena(questions(1)[0])], 0)
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
                started = time.monotonic()
                trainer.train()
                times.append(time.monotonic() - started)
    best = {name: min(times) for name, times in seconds.items()}
    print(
        f"step: {config.steps} steps of 64 x 224 tokens: ours {best['ours']:.2f} s, TRL "
        f"{best['TRL']:.2f} s, overhead {best['ours'] / best['TRL'] - 1:+.1%}"
    )


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
    config = SFTConfig.model_validate(
        {"policy": {"path": "p"}, "max_steps": 4, "epochs": 9, "batch_size": 24,
         "micro_batch_size": 24, "save_steps": 99}
    )  # fmt: skip
    rates: dict[str, list[float]] = {"ours": [], "TRL": []}
    for _ in range(3):
        for name, found in rates.items():
            with tempfile.TemporaryDirectory() as folder:
                started = time.monotonic()
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
                found.append(4 * 24 * 256 / (time.monotonic() - started))
    best = {name: max(found) for name, found in rates.items()}
    print(
        f"SFT: ours {best['ours']:.0f} tokens/s, SFTTrainer {best['TRL']:.0f}, "
        f"ratio {best['ours'] / best['TRL']:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policy", default="models/sft", help="a policy that calls tools")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", choices=("rollout", "step", "sft"), action="append")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(chosen.threads)
    policy = load_policy(PolicyConfig(path=chosen.policy))
    parts = chosen.part or ["rollout", "step", "sft"]
    if "rollout" in parts:
        rollout_part(policy, chosen.rows)
    if "step" in parts:
        step_part(policy)
    if "sft" in parts:
        sft_part(policy)


if __name__ == "__main__":
    main()
