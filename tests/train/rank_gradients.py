"""One rank of a run whose first gradient test_ranks.py compares with that of other worlds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from test_grpo import ScriptedRoller, trainer
from transformers import TrainerCallback

from astra.rollout.chat import PolicyConfig, load_policy

CASES: dict[str, tuple[int, int]] = {"even": (4, 1), "uneven": (3, 1), "spare": (3, 2)}
"""Groups of four samples in a batch, and which of them carry signal: every one, or every second."""


class Gradient(TrainerCallback):
    """Keeps the gradient of the first step, as all ranks have it."""

    def __init__(self) -> None:
        self.found: torch.Tensor | None = None

    def on_pre_optimizer_step(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        self.found = torch.cat([p.grad.flatten().clone() for p in model.parameters()])


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    found: dict[str, torch.Tensor | None] = {}
    for case, (groups, every) in CASES.items():
        policy = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
        gradient = Gradient()
        one = trainer(
            policy, folder / case, ScriptedRoller(4, every=every), steps=1, groups=groups,
            micro_batch_size=1, batch_filling=False, max_grad_norm=1e9, save_steps=9,
            importance={"type": "truncated", "cap": 2.0},
        )  # fmt: skip
        one.add_callback(gradient)
        one.train()
        found[case] = gradient.found
    rank, world = one.accelerator.process_index, one.accelerator.num_processes
    torch.save(found, folder / f"rank-{rank}-of-{world}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
