"""The stages that ask, each in a folder of its own, with a local teacher's answers recorded.

What a stage reads was made by the stages before it, offline; its main input is cut to as many
rows as make some 3,300 asks. Servers are made up as in benchmarks/scale.py, twelve tools each.
"""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import scale
import yaml
from local_teacher import recording

SHARE = 0.505
"""The built share of the paper's size: 800 servers with twelve tools each, 3,331 questions."""
SERVERS = 3_300
"""How many servers stage ``tools`` reads where it asks; each has three tools."""
MODEL = "local"
SCENARIOS = {"single_hop": 0, "parallel_single_hop": 0.7, "multi_hop": 0, "parallel_multi_hop": 0.3}
"""Questions with something to merge, so that few of them make many asks of ``envs_merged``."""
LINKED = (*scale.COPIED, "dvc.yaml", ".dvcignore")


@dataclass(frozen=True)
class Load:
    """How one stage is put to work."""

    inputs: tuple[str, ...] = ()
    rows: int | None = None
    """How many rows of its first input it reads; None: all there are."""
    recorded: int | None = None
    """How many it reads when its answers are recorded, if other stages need more of its rows."""
    chain: int = 1
    """Asks of one item that can only come one after the other."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values of its block, beside those of benchmarks/scale.py."""


LOADS: Mapping[str, Load] = {
    "tools": Load(settings={"sources": ["sources/many.yaml"]}),
    "graph": Load(("tools",)),
    "chains": Load(("graph", "tools"), 60, recorded=120, chain=3, settings={"max_chains": 6}),
    "tasks": Load(("chains", "tools"), chain=3),
    "trajectories": Load(("tasks", "tools"), 620, chain=6),
    "sft_set": Load(("trajectories", "tasks"), 430),
    "qa": Load(settings={"scenarios": SCENARIOS}),
    "qa_valid": Load(("qa",), 700, recorded=1650),
    "envs": Load(("qa_valid",), 260, recorded=1650, chain=4),
    "envs_merged": Load(("qa_valid", "envs", "tools"), chain=2),
}
ASKING = tuple(stage for stage in LOADS if stage != "tools")
"""``tools`` asks as well where a model names the domains, as scale ``full`` has it."""


class Workplace:
    """Folders of stages below one folder; what was recorded there is not recorded again."""

    def __init__(self, folder: Path, more: int = 1, rows: Mapping[str, int] | None = None) -> None:
        """``more``: how many times the asks that ``LOADS`` make; a folder has one of it. ``rows``:
        of the first input of a stage, where it reads fewer than ``LOADS`` says.
        """
        self.folder = folder.resolve()
        self._more = more
        self._fewer = rows or {}
        self._base = self.folder / "base"
        if not self._table("tools").exists():
            scale.prepare(self._base, SHARE)
            many_servers(self._base)
            command = [sys.executable, "stages/tools.py"]
            subprocess.run(command, cwd=self._base, env=scale.environment(self._base), check=True)

    def at(self, stage: str) -> Path:
        return self.folder / stage

    def replies(self, stage: str) -> Path:
        """The recorded answers of a stage, made if they are not there."""
        place = self.at(stage) / "replies.jsonl"
        if not place.exists():
            self._record(stage)
        return place

    def ready(self, stage: str, url: str, places: int) -> None:
        """Have the stage start from nothing but its inputs, and ask at ``url``."""
        folder = self.at(stage)
        self._supply(stage, self._fewer.get(stage, self._rows(stage)))
        for made in ("cache", "metrics", "plots", "runs"):
            shutil.rmtree(folder / made, ignore_errors=True)
        document = self._parameters(stage, "openai")
        document["runtime"] |= {
            "endpoints": [{"base_url": url, "api_key_env": ""}],
            "concurrency": places,
        }
        (folder / "params.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))

    def _table(self, name: str) -> Path:
        """What stages read: servers as benchmarks/scale.py has them, the rest as recorded."""
        folder = self._base / "data" if name == "tools" else self.at(name) / "made"
        return folder / f"{name}.parquet"

    def _record(self, stage: str) -> None:
        load, folder = LOADS[stage], self.at(stage)
        for before in load.inputs:
            if not self._table(before).exists():
                self.replies(before)
        folder.mkdir(exist_ok=True)
        for name in LINKED:
            if not (folder / name).exists():
                (folder / name).symlink_to(self._base / name)
        # What a stage asks depends on all of its rows: where fewer are wanted, on those.
        self._supply(stage, self._fewer.get(stage, self._rows(stage, load.recorded)))
        document = self._parameters(stage, "offline")
        (folder / "params.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))
        command = [sys.executable, str(Path(__file__).resolve()), stage]
        with (folder / "recording.log").open("wb") as log:
            done = subprocess.run(command, cwd=folder, env=self.environment(stage), stderr=log)
        if done.returncode:
            raise SystemExit(f"stage {stage} failed offline: see {folder / 'recording.log'}")
        shutil.rmtree(folder / "made", ignore_errors=True)
        (folder / "data").rename(folder / "made")
        (folder / "replies.partial").rename(folder / "replies.jsonl")

    def _rows(self, stage: str, recorded: int | None = None) -> int | None:
        rows = recorded or LOADS[stage].rows
        return rows and rows * self._more

    def _supply(self, stage: str, rows: int | None) -> None:
        """The stage's inputs, and no other data."""
        data = self.at(stage) / "data"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        if not LOADS[stage].inputs:
            return
        first, *others = (pq.read_table(self._table(name)) for name in LOADS[stage].inputs)
        first = first.slice(0, rows)
        if stage == "tasks":  # servers without chains would be asked about as well
            others = [one.filter(pc.field("id").isin(first["server_id"])) for one in others]
        for name, table in zip(LOADS[stage].inputs, [first, *others], strict=True):
            pq.write_table(table, data / f"{name}.parquet", compression="zstd")

    def _parameters(self, stage: str, agent: str) -> dict[str, Any]:
        """``params.yaml`` with a model behind every role; who acts is the expert or a model."""
        document = yaml.safe_load((self._base / "params.yaml").read_text())
        for name, load in LOADS.items():
            document[name] = _with_models(document[name] | load.settings)
        if agent == "offline":
            document["trajectories"]["agent"] = {"backend": "offline", "model": "v1"}
        return document

    def environment(self, stage: str) -> dict[str, str]:
        folder = self.at(stage)
        store = f"sqlite:///{self.folder}/mlflow.db"
        kept = {"ASTRA_CACHE": str(folder / "cache"), "MLFLOW_TRACKING_URI": store}
        return scale.environment(folder) | kept


def _with_models(block: Any) -> Any:
    """A block of parameters with the one model wherever the offline rules stand.

    Equal models of a panel differ in a field of the request, so that each is asked for itself.
    """
    if isinstance(block, list):
        return [_with_models(one) for one in block]
    if not isinstance(block, dict):
        return block
    if block.get("backend") == "offline":
        return {"backend": "openai", "model": MODEL, "max_tokens": 900}
    changed = {name: _with_models(value) for name, value in block.items()}
    for seed, model in enumerate(changed.get("models") or ()):
        model["extra"] = {"seed": seed}
    return changed


def many_servers(folder: Path) -> None:
    """A source of stage ``tools`` with one small server for each ask."""
    lines = [json.dumps(server) for server in scale.services(SERVERS, 3 * SERVERS)]
    (folder / "sources/many.jsonl").write_text("".join(f"{line}\n" for line in lines))
    listed = {"documents": [{"path": "sources/many.jsonl", "format": "mcp"}]}
    (folder / "sources/many.yaml").write_text(yaml.safe_dump(listed))


def record(stage: str) -> None:
    """Run the stage file here, every role overheard."""
    sys.argv = [f"stages/{stage}.py"]
    with recording(Path("replies.partial")) as recorder:
        runpy.run_path(sys.argv[0], run_name="__main__")
        if stage == "trajectories":
            recorder.learn_turns(Path("data/trajectories.parquet"))


if __name__ == "__main__":
    record(sys.argv[1])
