"""Training arenas for the chat model's RL that no part of its SFT was shown.

The stages qa, qa_valid, envs and envs_merged make them anew, of the built data's parameters and
with another seed: other rows, names and compositions of the same relations. Look-ups are thinned
out. Some are asked without their tools, since RL where something can always be called unlearns to
refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from staged import ROOT, keyed, link_inputs, run

from astra.agent.prompt import NO_TOOL
from astra.envsynth.splits import SplitGuard
from astra.records.base import content_id
from astra.records.environment import Arena, ArenaStep
from astra.records.qa import Answer, AnswerType, QAInstance, QuestionKind, Split
from astra.store.tables import read_records

STAGES = ("qa", "qa_valid", "envs", "envs_merged")
PARAMS_FILE = ROOT / "params.yaml"
TOOLS_FILE, BUILT_QA = ROOT / "data/tools.parquet", ROOT / "data/qa_valid.parquet"
INPUTS = ("data/tools.parquet", "stages", "src", "sources", "contamination")
CHANGES = {"seed": 1, "instances": {"train": 900, "dev": 0, "heldout": 0}}
"""What differs in ``qa`` from the built data."""
LOOK_UPS = 3
"""One look-up in so many is kept beside all hard arenas: RL gained in these alone, and in a look-up
most groups are alike in reward."""


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


def mostly_hard(arenas: Iterable[Arena]) -> list[Arena]:
    """All hard arenas and one in ``LOOK_UPS`` of the others, in their order."""
    others = count()
    return [one for one in arenas if one.is_hard or next(others) % LOOK_UPS == 0]


def some_without_tools(arenas: Iterable[Arena], every: int) -> list[Arena]:
    """One arena in ``every`` asked without its tools, the others as they are."""
    return [without_tools(one) if at % every == 0 else one for at, one in enumerate(arenas)]


def without_tools(arena: Arena) -> Arena:
    """An arena's question where only irrelevant tools are offered: the answer is that none helps,
    and every call costs."""
    answer = Answer(type=AnswerType.ENUM, value=NO_TOOL)
    step = ArenaStep(id=1, hop_level=1, question=arena.main_question, answer=answer)
    asked = arena.model_dump(exclude={"id"}) | {
        "kind": QuestionKind.MISSING_TOOL, "final_answer": answer, "tools": (), "steps": (step,),
    }  # fmt: skip
    return Arena.model_validate(asked)


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
