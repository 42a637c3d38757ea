"""ACEBench's official runner beside the loop here: the same scripted models on all 50 agent tasks.

    make bench-env acebench-env
    git clone https://github.com/ACEBench/ACEBench /somewhere/ACEBench
    PYTHONPATH=src python benchmarks/acebench_official.py --official /somewhere/ACEBench
        --python .venv-acebench/bin/python [--model oracle|floor|careless]

``oracle`` makes the calls of a solution, ``floor`` says "Done.", ``careless`` plays solutions badly
(``oracle_acebench.careless``). Users are simulated by one rule on both sides. ``generate.py`` and
``eval_main.py`` run unchanged, in a copy, since they write beside themselves; each task is then
judged once more by the ``agent_eval`` of ``eval_main.py``, which prints means only. Packages that
they import and never call here (vllm, google.generativeai) are empty stand-ins. The official
runner evaluates model text as code: play scripted models only.

Prints one JSON line per model; exits 1 where a task's score or process accuracy differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from astra.bench.harness import oracle_acebench as oracles
from astra.bench.harness.play import run_suite
from astra.bench.harness.protocol import Subject, SuiteConfig
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn, Writer, idle
from astra.records.bench import SuiteEpisode
from astra.records.score import Scored

Tasks = Mapping[str, Mapping[str, Any]]
Verdicts = dict[str, tuple[float, float]]
"""(score, process accuracy) by task."""
MODELS: dict[str, Callable[[Tasks], Writer]] = {
    "oracle": lambda tasks: oracles.oracle(tasks, "prompt"),
    "floor": lambda tasks: idle,
    "careless": oracles.careless,
}
USER_TURNS = 4
OFFICIAL_NAME = "gpt-4o"
"""One of the names that the official runner plays through an endpoint."""
CATEGORIES = ("agent_multi_step", "agent_multi_turn")
EVERY_TASK = """
import json, os, sys
import eval_main
eval_main.OUTPUT_PATH, eval_main.language = "./score_all/score_en/", "en"
model = sys.argv[1]
for category in sys.argv[2:]:
    paths = [f"result_all/result_en/{model}/data_{category}_result.json",
             f"data_all/data_en/data_{category}.json",
             f"data_all/data_en/possible_answer/data_{category}.json"]
    for rows in zip(*map(eval_main.load_file, paths)):
        assert len({row["id"] for row in rows}) == 1, rows
        verdict = eval_main.agent_eval(*([row] for row in rows), category, model)
        print("verdict", json.dumps([rows[0]["id"], *verdict]))
"""


class InOrder:
    """Tells which task an official request is about, which itself does not say.

    The official runner plays one task at a time; a task starts with its question.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._waiting = {name: str(sample["question"]) for name, sample in tasks.items()}
        self._current = ""

    def model(self, write: Writer) -> Writer:
        def told(entry: str, body: dict[str, Any]) -> ScriptedTurn:
            history = str(body["messages"][-1]["content"])
            # Of a multi-step task the history holds the question, then only results.
            if "execution result:" not in history:
                self._starts("multi_step", history)
            return write(self._current, body)

        return told

    def user(self, write: Writer) -> Writer:
        def told(entry: str, body: dict[str, Any]) -> ScriptedTurn:
            if len(body["messages"]) == 2:
                self._starts("multi_turn", str(body["messages"][0]["content"]))
            return write(self._current, body)

        return told

    def _starts(self, category: str, text: str) -> None:
        for name, question in self._waiting.items():
            if category in name and question in text:
                self._current = name
                del self._waiting[name]
                return


def official(folder: Path, python: str, tasks: Tasks, model: Writer) -> Verdicts:
    """What the official runner makes of a model. Raises CalledProcessError where it fails."""
    order = InOrder(tasks)
    with (
        tempfile.TemporaryDirectory() as place,
        ScriptedServer(order.model(model)) as server,
        ScriptedServer(order.user(oracles.offline_user(USER_TURNS))) as user,
    ):
        run = Path(place, "run")
        shutil.copytree(folder, run, ignore=shutil.ignore_patterns(".git", "result_all"))
        (run / "score_all/score_en" / OFFICIAL_NAME).mkdir(parents=True)
        stand_ins = Path(place, "stand_ins")
        (stand_ins / "google").mkdir(parents=True)
        (stand_ins / "google/generativeai.py").touch()
        (stand_ins / "vllm.py").write_text("LLM = SamplingParams = None\n")
        environment = {
            **os.environ, "PYTHONPATH": str(stand_ins), "GPT_API_KEY": "none",
            "GPT_AGENT_API_KEY": "none", "GPT_AGENT_BASE_URL": server.endpoint.base_url,
            "GPT_BASE_URL": user.endpoint.base_url,
        }  # fmt: skip

        def ran(*arguments: str) -> str:
            done = subprocess.run(
                [python, *arguments], cwd=run, env=environment, text=True, capture_output=True
            )
            if done.returncode:
                raise SystemExit(f"the official {arguments[0]} failed:\n{done.stderr[-3000:]}")
            return done.stdout

        named = ("--model", OFFICIAL_NAME, "--category")
        ran("generate.py", *named, "agent", "--language", "en")
        said = ran("eval_main.py", *named, "agent", "--language", "en")
        print(*(line for line in said.splitlines() if "Process" in line), sep="\n", file=sys.stderr)
        lines = ran("-c", EVERY_TASK, OFFICIAL_NAME, *CATEGORIES).splitlines()
    rows = [json.loads(line.partition(" ")[2]) for line in lines if line.startswith("verdict ")]
    return {name: (score, process) for name, score, process in rows}


def ours(name: str, data: Path, model: Writer) -> Verdicts:
    """What the suite here makes of the same model."""
    with (
        tempfile.TemporaryDirectory() as journal,
        ScriptedServer(model) as server,
        ScriptedServer(oracles.offline_user(USER_TURNS)) as user,
    ):
        config = SuiteConfig(
            name="acebench", endpoints={"user": user.endpoint}, options={"data": str(data)}
        )
        _, episodes = run_suite(config, Subject(name, server.endpoint, name), Path(journal))
    return {one.entry_id: (_value(one, "accuracy"), _value(one, "process")) for one in episodes}


def _value(episode: SuiteEpisode, score: str) -> float:
    measured = episode.scores[score]
    assert isinstance(measured, Scored), f"{episode.entry_id}: {episode.reason}"
    return measured.value


def compare(name: str, folder: Path, python: str, data: Path) -> bool:
    """Play one model on both sides, print how they compare, and say whether they agree."""
    tasks = oracles.samples(data)
    theirs = official(folder, python, tasks, MODELS[name](tasks))
    mine = ours(name, data, MODELS[name](tasks))
    differing = {
        task: {"official": theirs.get(task), "here": mine.get(task)}
        for task in tasks
        if task not in theirs or task not in mine or not _same(theirs[task], mine[task])
    }
    document = {
        "model": name, "tasks": len(tasks), "agree": len(tasks) - len(differing),
        "solved": sum(score for score, _ in mine.values()),
        "process": round(sum(process for _, process in mine.values()) / len(tasks), 3),
        "differing": differing,
    }  # fmt: skip
    print(json.dumps(document), flush=True)
    return not differing


def _same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] == other[0] and abs(one[1] - other[1]) < 5e-4  # both rounded to 3 digits


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--official", type=Path, required=True, help="a clone of ACEBench")
    parser.add_argument("--python", required=True, help="of an environment that runs it")
    parser.add_argument("--model", choices=MODELS, action="append")
    wanted = parser.parse_args()
    data = wanted.official / "data_all/data_en"
    agree = [compare(name, wanted.official, wanted.python, data) for name in wanted.model or MODELS]
    raise SystemExit(0 if all(agree) else 1)


if __name__ == "__main__":
    main()
