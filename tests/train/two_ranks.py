"""One rank of a two-process run, started by test_ranks.py through torchrun; prints JSON."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from test_grpo import ScriptedRoller, trainer

from astra.rollout.chat import PolicyConfig, load_policy


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    policy = load_policy(PolicyConfig(path="policies/tiny"))
    roller = ScriptedRoller(4)
    one = trainer(policy, folder, roller, steps=2, micro_batch_size=2)
    chosen: list[list[int]] = []
    one._on_batch = lambda step, filled: chosen.append([group.uid for group in filled.groups])
    one.train()
    total = hashlib.sha256()
    for _, parameter in sorted(policy.model.named_parameters()):
        total.update(parameter.detach().numpy().tobytes())
    report = {
        "world": one.accelerator.num_processes,
        "chosen": chosen,
        "rolled": roller.rolled,
        "trained": [sample.prompt_ids for sample in one._replayed],
        "weights": total.hexdigest(),
    }
    (folder / f"rank-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
