"""One rank of a two-process run, started by test_ranks.py through torchrun; prints JSON."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from test_grpo import ScriptedRoller, trainer

from astra.rollout.chat import PolicyConfig, load_policy
from astra.train.filling import Filled
from astra.train.groups import Group


class TranscriptRoller(ScriptedRoller):
    """Its groups have rollouts; what they hold is nobody's business here."""

    def _group(self, uid: int) -> Group:
        transcripts: list[Any] = [f"transcript {uid}"]
        return replace(super()._group(uid), rollouts=transcripts)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    policy = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
    roller = TranscriptRoller(4)
    one = trainer(policy, folder, roller, steps=2, micro_batch_size=2)
    chosen: list[list[int]] = []
    readable: list[int] = []

    def on_batch(step: int, filled: Filled[Group]) -> None:
        chosen.append([group.uid for group in filled.groups])
        readable.extend(group.uid for group in filled.groups if group.rollouts)

    one._on_batch = on_batch
    one.train()
    total = hashlib.sha256()
    for _, parameter in sorted(policy.model.named_parameters()):
        total.update(parameter.detach().numpy().tobytes())
    report = {
        "world": one.accelerator.num_processes,
        "chosen": chosen,
        "readable": readable,
        "rolled": roller.rolled,
        "trained": [sample.prompt_ids for sample in one._replayed],
        "weights": total.hexdigest(),
    }
    (folder / f"rank-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
