"""Training arenas for the chat model's RL that no part of its SFT was shown.

The stages qa, qa_valid, envs and envs_merged make them anew, of the built data's parameters and
with another seed: other rows, names and compositions of the same relations.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from staged import ROOT, keyed, link_inputs, run

from astra.envsynth.splits import SplitGuard
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.records.qa import QAInstance, Split
from astra.store.tables import read_records

STAGES = ("qa", "qa_valid", "envs", "envs_merged")
PARAMS_FILE = ROOT / "params.yaml"
TOOLS_FILE, BUILT_QA = ROOT / "data/tools.parquet", ROOT / "data/qa_valid.parquet"
INPUTS = ("data/tools.parquet", "stages", "src", "sources", "contamination")
CHANGES = {"seed": 1, "instances": {"train": 900, "dev": 0, "heldout": 0}}
"""What differs in ``qa`` from the built data."""


def fresh_arenas(work: Path, shown: Iterable[Arena]) -> list[Arena]:
    """Training arenas of another seed, made below ``work`` where they are not there, apart from
    the built data."""
    data = made(work) / "data"
    return apart(
        read_records(data / "envs_merged.parquet", Arena),
        read_records(data / "qa_valid.parquet", QAInstance),
        read_records(BUILT_QA, QAInstance),
        shown,
    )


def apart(
    arenas: Iterable[Arena],
    instances: Iterable[QAInstance],
    built: Iterable[QAInstance],
    shown: Iterable[Arena],
) -> list[Arena]:
    """The training arenas of ``instances`` that share no entity and no composition with what is
    measured of ``built``, as in ``envs_merged``, and ask no question of ``shown``."""
    guard = SplitGuard(built)
    allowed = {one.id for one in instances if guard.violation(one) is None}
    asked = {one.main_question for one in shown}
    return [
        one
        for one in arenas
        if one.split == Split.TRAIN and one.qa_id in allowed and one.main_question not in asked
    ]


def made(work: Path) -> Path:
    """The folder in which the stages have made their tables."""
    params: dict[str, Any] = yaml.safe_load(PARAMS_FILE.read_text())
    params["qa"].update(CHANGES)
    tools = content_id([TOOLS_FILE.read_bytes().hex()])
    folder = keyed(work, "fresh", [params[stage] for stage in STAGES], tools)
    link_inputs(folder, INPUTS)
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    for stage in STAGES:
        run(folder, stage, Path(f"data/{stage}.parquet"))
    return folder
