"""Adapters or all weights: which learns more of the chat model's SFT in a CPU second?

    python benchmarks/chat_adapters.py

25 steps of ``chat_model.py sft_arenas`` from the base, a quarter of its conversations, by adapters
of rank 16 and by all weights in float32, at two learning rates each, along a cosine of its own.
The held-out loss after every fifth step and the CPU seconds go to
``policies/chat-model/adapters.json``; the weights are not kept. What was run is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from chat_model import KEPT, WORK, Settings, contents, curves_of, policy_folder, write_json
from staged import ROOT, children_cpu_s, keyed

STEPS = 25
ARMS = {
    "adapters of rank 16": ("sft.lora.rank=16", "sft.learning_rate=5e-4"),
    "adapters of rank 16, faster": ("sft.lora.rank=16", "sft.learning_rate=2e-3"),
    "all weights": ("sft.lora.rank=0", "sft.learning_rate=1e-4"),
    "all weights, slower": ("sft.lora.rank=0", "sft.learning_rate=3e-5"),
}
COMMON = (f"sft.max_steps={STEPS}", f"sft.save_steps={STEPS}", "sft.eval_steps=5",
          "sft.micro_batch_size=2", "runtime.threads=1")  # fmt: skip
FOUND = KEPT / "adapters.json"


def learned(changes: tuple[str, ...]) -> dict[str, object]:
    """Train in a process of its own; held-out loss by step, and CPU seconds."""
    settings, base = Settings.of([*COMMON, *changes]), policy_folder("base")
    config, shown = settings.sft.model_dump(mode="json"), contents("sft_arenas", settings, base)
    folder = keyed(WORK, "adapters", config, shown, str(base))
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "told.json"
    if not told.exists():
        command = [
            *(sys.executable, "benchmarks/chat_model.py", "sft_arenas"),
            *("--worker", str(folder), "--set", *COMMON, *changes),
        ]
        before = children_cpu_s()
        subprocess.run(command, cwd=ROOT, check=True)
        curve = curves_of(folder / f"checkpoint-{STEPS}")["eval_loss"]
        found = {"eval_loss": curve, "cpu_s": round(children_cpu_s() - before)}
        told.write_text(json.dumps(found))
    return json.loads(told.read_text())


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    os.chdir(ROOT)
    found = {name: learned(changes) for name, changes in ARMS.items()}
    write_json(FOUND, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
