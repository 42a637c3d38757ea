"""One rank of a two-process run, started by test_ranks.py through torchrun; prints JSON.

``ahead`` as second argument: servers roll each batch while the one before trains.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from test_grpo import SERVERS, ScriptedRoller, trainer

from astra.rollout.chat import PolicyConfig, load_policy
from astra.train.filling import Filled
from astra.train.groups import Group


class TranscriptRoller(ScriptedRoller):
    """Its groups have rollouts; what they hold is nobody's business here."""

    def roll(self, prompts: Sequence[tuple[int, Any]], seed: int) -> list[Group]:
        time.sleep(0.1 * int(os.environ["RANK"]))  # ranks are done at different times
        return super().roll(prompts, seed)

    def _group(self, uid: int) -> Group:
        transcripts: list[Any] = [f"transcript {uid}"]
        return replace(super()._group(uid), rollouts=transcripts)


def main(folder: Path, ahead: bool) -> None:
    torch.set_num_threads(1)
    policy = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
    roller = TranscriptRoller(4)
    options = SERVERS if ahead else {}
    one = trainer(policy, folder, roller, steps=3, micro_batch_size=2, groups=3, **options)
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
        "staleness": [
            entry["filling/staleness"]
            for entry in one.state.log_history
            if "filling/staleness" in entry
        ],
        "weights": total.hexdigest(),
    }
    (folder / f"rank-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "ahead" in sys.argv[2:])
