"""The whole data side at a share of the paper's size: time, memory, disk, asks, cache per stage.

    PYTHONPATH=src python benchmarks/scale.py --share 0.05 [--folder PLACE] [--stages tools,graph]
                                              [--profile] [--dvc]
    PYTHONPATH=src python benchmarks/scale.py --growth SMALLER LARGER

``--share 1`` is the paper: 1,585 servers with 19,036 tools, 54,885 conversations, 6,596 arenas.
The stages run one after the other in a copy of the repository, as dvc would start them, with the
offline teacher and scale ``full`` except for the counts (``OVERRIDES``). Servers are made up from
the catalogue's word lists, twelve tools each. Results go to ``scale.json`` in the folder and, as a
table, to the terminal; ``--stages`` runs some of them again in a folder that has their inputs.

Wall and CPU seconds are those of the stage's process and of all its children. Memory is the most
that the whole tree held at once, shared pages counted once (PSS, once a second). The time inside
the offline teacher's rules is reported apart. Every answer is also committed to an answer cache,
as those of a paid teacher would be, so that its size is known; that time is reported apart too.
``--dvc`` puts the outputs under dvc at the end and times ``dvc status`` and an idle ``dvc repro``.
``--profile`` writes ``STAGE.prof`` beside the results.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import yaml
from staged import ROOT, children_cpu_s

PAPER = {"servers": 1585, "tools": 19036, "conversations": 54885, "arenas": 6596}
STAGES = ("tools", "graph", "chains", "tasks", "trajectories", "sft_set",
          "qa", "qa_valid", "envs", "envs_merged")  # fmt: skip
COPIED = ("src", "stages", "conf", "sources", "contamination", "problems", "policies")
OVERRIDES = (
    "scale=full",
    "tools.sources=[sources/scale.yaml]",
    "tools.filters.duplicate_similarity=1.0",  # made-up services share tools by design
    # The paper's set has 34.6 conversations a server; scale full would write twenty times that.
    "chains.max_chains=20",
    "tasks.samples=1",
    "tasks.server_tasks.per_server=1",
    "tasks.augment={share: 0.25, diverse: 1, complicate: 1, persona: 1, max_shared: null}",
    "trajectories.samples=1",
    # The paper's arenas read; ours that write, bar tools or run code come on top.
    "qa.kinds={read_only: 1, write: 0, mixed: 0, missing_tool: 0, missing_parameter: 0, "
    "infeasible: 0, already_satisfied: 0}",
    "envs_merged.code.instances={train: 0, dev: 0, heldout: 0}",
    "envs_merged.code.files=[]",
)


# -- the workspace --------------------------------------------------------------------------


def prepare(folder: Path, share: float) -> None:
    """A copy of the repository's inputs with as many servers and questions as asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=skipped, dirs_exist_ok=True)
    for name in ("dvc.yaml", ".dvcignore"):
        shutil.copy(ROOT / name, folder / name)
    servers = round(PAPER["servers"] * share)
    lines = (json.dumps(server) for server in services(servers, round(PAPER["tools"] * share)))
    (folder / "sources/scale.jsonl").write_text("".join(f"{line}\n" for line in lines))
    listed = {"documents": [{"path": "sources/scale.jsonl", "format": "mcp"}]}
    (folder / "sources/scale.yaml").write_text(yaml.safe_dump(listed))
    questions = f"qa.instances={{train: {round(PAPER['arenas'] * share)}, dev: 0, heldout: 0}}"
    command = [sys.executable, "-m", "astra.devtools.params", *OVERRIDES, questions]
    subprocess.run(command, cwd=folder, env=environment(folder), check=True)


def services(count: int, tools: int) -> Iterator[dict[str, Any]]:
    """``count`` documents that hold ``tools`` tools together, drawn from the catalogue's words."""
    from astra.toolbank.formats import catalogue
    from astra.toolbank.raw import RawServer

    words = yaml.safe_load((ROOT / "sources/documents/catalogue.yaml").read_text())
    drawn = catalogue.parse({**words, "servers": 10**9}, RawServer("", "", ()))
    for number in range(count):
        wanted = tools * (number + 1) // count - tools * number // count
        found: dict[str, dict[str, Any]] = {}
        first = None
        while len(found) < wanted:
            service = next(drawn)
            first = first or service
            for tool in service.tools:
                found.setdefault(tool.name, {
                    "name": tool.name, "description": tool.description,
                    "inputSchema": tool.parameters, "outputSchema": tool.output,
                })  # fmt: skip
        assert first is not None
        yield {
            "name": f"{first.name}_{number}", "title": first.title, "domain": first.domain,
            "description": first.description, "tools": list(found.values())[:wanted],
        }  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DVC", "MLFLOW"))}
    return inherited | {"PYTHONPATH": str(folder / "src"), "ASTRA_CACHE": str(folder / ".astra")}


# -- one stage, measured from outside -------------------------------------------------------


class Memory(threading.Thread):
    """The most that a process and its descendants held at once, in MB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.done = threading.Event()
        self.peak_mb = 0.0

    def run(self) -> None:
        while not self.done.wait(1.0):
            self.peak_mb = max(self.peak_mb, held_mb(self._pid))


def held_mb(pid: int) -> float:
    try:
        tree = [parent := psutil.Process(pid), *parent.children(recursive=True)]
    except psutil.Error:
        return 0.0
    held = 0
    for process in tree:
        try:
            held += process.memory_full_info().pss
        except psutil.Error:
            continue  # it ended meanwhile
    return held / 2**20


def measure(folder: Path, stage: str, profile: bool) -> dict[str, Any]:
    started = time.monotonic()
    command = [sys.executable, str(Path(__file__).resolve()), "--child", stage]
    command += ["--profile"] * profile
    with (folder / f"{stage}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(folder), stderr=log)
        memory = Memory(process.pid)
        memory.start()
        _, status, usage = os.wait4(process.pid, 0)
        memory.done.set()
        memory.join()
    if status:
        raise SystemExit(f"stage {stage} failed: see {folder / f'{stage}.log'}")
    inside = json.loads((folder / f"{stage}.inside.json").read_text())
    made = [folder / f"data/{stage}.parquet"]
    made += [folder / "data/chain_verdicts.parquet"] * (stage == "chains")
    return {
        "wall_s": round(time.monotonic() - started, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(max(memory.peak_mb, inside["self_peak_mb"])),
        "disk_mb": round(sum(path.stat().st_size for path in made) / 2**20, 2),
        "rows": rows(made[0]),
        **inside,
    }


def rows(path: Path) -> int:
    from astra.store.tables import count_records

    return count_records(path)


# -- one stage, measured from inside --------------------------------------------------------


def child(stage: str, profile: bool) -> None:
    """Run a stage file as dvc would, with the offline teacher's time and answers counted."""
    import cProfile
    import runpy

    from astra.llm.cache import AnswerCache, answer_key
    from astra.llm.offline import OfflineTeacher

    cache = AnswerCache(Path(f"cache/{stage}"))
    spent = {"asks": 0, "teacher_s": 0.0, "cache_s": 0.0}
    answer = OfflineTeacher.ask

    async def ask(self: Any, ask: Any) -> Any:
        started = time.thread_time()
        try:
            reply = await answer(self, ask)  # rules never wait, so this is their time alone
        finally:
            told = time.thread_time()
            spent["asks"] += 1
            spent["teacher_s"] += told - started
        content = {"model": self.name, "variables": dict(ask.variables), "sample": ask.sample}
        key = answer_key({"template": ask.template, **content})
        cache.put(key, self.name, reply.model_dump(mode="json"))
        spent["cache_s"] += time.thread_time() - told
        return reply

    OfflineTeacher.ask = ask  # type: ignore[method-assign]
    sys.argv = [f"stages/{stage}.py"]
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        if profile:
            profiler.disable()
            profiler.dump_stats(f"{stage}.prof")
    cache.close()
    size = sum(path.stat().st_size for path in Path(f"cache/{stage}").iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {**spent, "cache_mb": size / 2**20 * (spent["asks"] > 0), "self_peak_mb": peak}
    rounded = {name: round(value, 2) for name, value in found.items()}
    Path(f"{stage}.inside.json").write_text(json.dumps(rounded))


# -- dvc, with these data sets in place -----------------------------------------------------


def under_dvc(folder: Path) -> dict[str, float]:
    """Seconds of ``dvc commit`` of the data stages, then of ``dvc status`` and ``dvc repro``."""
    env = environment(folder)
    if not (folder / ".dvc").is_dir():
        subprocess.run(["dvc", "init", "-q", "--no-scm"], cwd=folder, env=env, check=True)
    found: dict[str, float] = {}
    ends = ["sft_set", "envs_merged"]
    for name, command in (
        ("dvc commit", ["dvc", "commit", "-q", "-f", *STAGES]),
        ("dvc status, first", ["dvc", "status", *ends]),
        ("dvc status", ["dvc", "status", *ends]),
        ("dvc repro, nothing to do", ["dvc", "repro", *ends]),
    ):
        started, before = time.monotonic(), children_cpu_s()
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        found[name] = round(time.monotonic() - started, 2)
        found[f"{name}, CPU"] = round(children_cpu_s() - before, 2)
        if done.returncode or "Running stage" in done.stdout:
            raise SystemExit(f"{' '.join(command)} did not find its state:\n{done.stdout}"
                             f"{done.stderr}")  # fmt: skip
    return found


# -- what a person reads --------------------------------------------------------------------

COLUMNS = ("rows", "wall_s", "cpu_s", "teacher_s", "cache_s", "peak_mb", "disk_mb",
           "asks", "cache_mb")  # fmt: skip


def show(results: dict[str, Any]) -> None:
    print("| stage | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
    stages = results["stages"]
    for name, one in stages.items():
        print(f"| {name} | " + " | ".join(f"{one[column]:,}" for column in COLUMNS) + " |")
    total = {c: round(sum(one[c] for one in stages.values()), 1) for c in COLUMNS}
    total |= {"rows": "", "peak_mb": max(one["peak_mb"] for one in stages.values())}
    print("| all | " + " | ".join(str(total[column]) for column in COLUMNS) + " |")
    for name, seconds in results.get("dvc", {}).items():
        print(f"{name}: {seconds} s")


def growth(small: dict[str, Any], large: dict[str, Any]) -> None:
    """What a stage costs at once and per row, by two measured shares, and a line drawn to 1.

    A straight line: what grows faster comes out too cheap, so watch cost per row over shares.
    """
    columns = ("rows", "CPU s, fixed", "ms a row", "CPU s", "of that teacher", "memory MB",
               "table MB", "asks", "cache MB")  # fmt: skip
    print("| at share 1 | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
    total: dict[str, float] = dict.fromkeys(columns, 0.0)
    for stage, more in large["stages"].items():
        less = small["stages"].get(stage)
        if less is None or more["rows"] == less["rows"]:
            continue
        rows = more["rows"] / large["share"]

        def line(name: str, a: dict[str, Any] = less, b: dict[str, Any] = more) -> float:
            return (b[name] - a[name]) / (b["rows"] - a["rows"])

        fixed = max(0.0, less["cpu_s"] - line("cpu_s") * less["rows"])
        scaled = {name: more[name] / large["share"] for name in more}
        found = {
            "rows": rows, "CPU s, fixed": fixed, "ms a row": 1e3 * line("cpu_s"),
            "CPU s": fixed + line("cpu_s") * rows, "of that teacher": scaled["teacher_s"],
            "memory MB": more["peak_mb"] + max(0.0, line("peak_mb")) * (rows - more["rows"]),
            "table MB": scaled["disk_mb"], "asks": scaled["asks"], "cache MB": scaled["cache_mb"],
        }  # fmt: skip
        for name, value in found.items():
            total[name] += value
        print(f"| {stage} | " + " | ".join(f"{found[name]:,.1f}" for name in columns) + " |")
    summed = ("CPU s", "of that teacher", "table MB", "asks", "cache MB")
    print(
        "| all | " + " | ".join(f"{total[c]:,.1f}" if c in summed else "" for c in columns) + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--dvc", action="store_true")
    parser.add_argument("--growth", nargs=2, type=Path, metavar="FOLDER", help="Compare two runs.")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.profile)
        return
    if asked.growth:
        growth(*(json.loads((one / "scale.json").read_text()) for one in asked.growth))
        return
    folder = (asked.folder or Path(tempfile.mkdtemp(prefix="astra-scale-"))).resolve()
    place = folder / "scale.json"
    results: dict[str, Any] = {"share": asked.share, "stages": {}}
    if place.is_file():
        results = json.loads(place.read_text())
    else:
        prepare(folder, asked.share)
    for stage in filter(None, asked.stages.split(",")):
        results["stages"][stage] = measure(folder, stage, asked.profile)
        results["load"] = os.getloadavg()[0]
        place.write_text(json.dumps(results, indent=2) + "\n")
        print(stage, results["stages"][stage], file=sys.stderr)
    if asked.dvc:
        results["dvc"] = under_dvc(folder)
        place.write_text(json.dumps(results, indent=2) + "\n")
    print(folder)
    show(results)


if __name__ == "__main__":
    main()
