"""Figures on the pages that can be computed: scores, counts, what a change makes stale, minutes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
from pages import blocks

from astra.cli.main import commands

TRAINED = ("sft", "rl", "bench")
ROWS = {
    "F1 (final answer counts)": "f1", "F1 (the paper's)": "f1_plain", "precision": "precision",
    "recall": "recall", "success": "success", "final answer": "answer",
    "malformed calls": "malformed", "calls per episode": "calls",
}  # fmt: skip
"""Rows of README's table of scores and their names in metrics/bench.json."""
COUNTS = {
    "tools": ("{tools[servers_found]:,} servers", "{tools[servers]:,} with {tools[tools]:,} tools"),
    "chains": ("{chains[walks]:,} walks", "{chains[chains]:,}"),
    "tasks": ("{tasks[asked]:,} asked", "{tasks[tasks]:,}"),
    "trajectories": (
        "{trajectories[episodes]:,} episodes",
        "{trajectories[trajectories]:,}, with {trajectories[calls]:,} calls",
    ),
    "sft_set": ("{sft_set[trajectories]:,}", "{sft_set[samples]:,}"),
    "qa, qa_valid": (
        "{qa[in]:,}",
        "{qa_valid[out]:,} with {qa_valid[sub_questions]:,} sub-questions",
    ),
    "envs": ("{envs[needing_tool]:,} that need a tool", "{envs[environments]:,}"),
    "envs_merged": ("{envs_merged[instances]:,}", "{envs_merged[arenas]:,} arenas"),
}
"""Rows of the tutorial's table of counts: what came in and what left, from metrics/*.json."""
QUOTED = (
    ("README.md", r"reruns rl and bench, (\d+) minutes", ("rl", "bench")),
    ("README.md", r"9 experiments of (\d+) minutes", ("rl", "bench")),
    ("docs/tutorial.md", r"rl and bench: (\d+) minutes", ("rl", "bench")),
    ("docs/tutorial.md", r"here rl and bench, (\d+) minutes", ("rl", "bench")),
    ("docs/tutorial.md", r"the same experiment takes (\d+) minutes", ("rl", "bench")),
    ("docs/tutorial.md", r"(\d+) for SFT", ("sft",)),
    ("docs/tutorial.md", r"(\d+) for RL", ("rl",)),
    ("docs/tutorial.md", r"(\d+) for the scores", ("bench",)),
    ("docs/experiments.md", r"reruns rl and bench: (\d+) minutes", ("rl", "bench")),
    ("docs/experiments.md", r"4 experiments of (\d+) minutes", ("rl", "bench")),
    ("docs/experiments.md", r"at scale smoke (\d+) minutes each", ("rl", "bench")),
    ("docs/extending.md", r"trains with it \((\d+) minutes", ("rl", "bench")),
)
"""Page, what it says, and the stages whose minutes these are."""


def text(root: Path, page: str) -> str:
    return (root / page).read_text(encoding="utf-8")


def table(page: str, head: str) -> list[list[str]]:
    """The cells of the Markdown table whose first line starts with ``head``."""
    rows: list[list[str]] = []
    for line in page[page.index(head) :].splitlines():
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


@pytest.fixture(scope="module")
def bench(root: Path) -> dict[str, Any]:
    return json.loads(text(root, "metrics/bench.json"))


@pytest.fixture(scope="module")
def graph(root: Path) -> dict[str, Any]:
    return yaml.safe_load(text(root, "dvc.yaml"))["stages"]


@pytest.fixture(scope="module")
def seconds(root: Path) -> dict[str, int]:
    """Stage -> seconds in the build of docs/performance.md."""
    page = text(root, "docs/performance.md")
    head, row, *_ = table(page, "| tools | graph |")
    return {name: int(cell) for name, cell in zip(head, row, strict=True)}


def minutes(seconds: dict[str, int], stages: Iterator[str] | tuple[str, ...]) -> float:
    return sum(seconds[stage] for stage in stages) / 60


@pytest.mark.parametrize("label", ROWS)
def test_the_scores_in_readme_are_those_of_the_build(
    root: Path, bench: dict[str, Any], label: str
) -> None:
    head, *rows = table(text(root, "README.md"), "| | base | SFT | RL |")
    assert head == ["", "base", "SFT", "RL", "RL − SFT, paired"]
    cells = next(row[1:] for row in rows if row[0] == label)
    digits = 1 if label == "calls per episode" else 3
    for cell, name in zip(cells, ("base", "sft", "rl"), strict=False):
        estimate = bench["checkpoints"][name]["scores"].get(ROWS[label])
        agree(cell, estimate, f"{{:.{digits}f}}")
    agree(cells[3], bench["differences"]["rl-sft"][ROWS[label]], f"{{:+.{digits}f}}")


def agree(cell: str, estimate: dict[str, float] | None, form: str) -> None:
    """A cell is the mean, with or without its interval; a dash where there is no estimate."""
    if estimate is None:
        assert cell == "–"
        return
    shown = [form.format(estimate[name]).replace("-", "−") for name in ("mean", "low", "high")]
    mean, low, high = shown
    assert cell.replace("*", "") in (mean, f"{mean} [{low}, {high}]")


def test_the_floor_and_the_ceiling_are_those_of_the_build(
    root: Path, bench: dict[str, Any]
) -> None:
    floor, ceiling = bench["references"]["floor"], bench["references"]["ceiling"]
    assert (
        f"does nothing scores {floor['f1']:.3f}. Replaying the reference calls "
        f"({ceiling['calls']:.1f} per arena) scores {ceiling['f1']:.3f}."
    ) in text(root, "README.md")


def test_the_scores_in_the_tutorial_are_what_the_command_prints(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    printed = CliRunner().invoke(commands, ["scores"]).output.splitlines()
    shown = next(
        one.text for one in blocks(root / "docs/tutorial.md") if "held-out arenas," in one.text
    )
    *lines, dots = shown.splitlines()
    assert dots == "..."
    assert lines == printed[: len(lines)]


def test_the_counts_in_the_tutorial_are_those_of_the_build(root: Path) -> None:
    counts = {path.stem: json.loads(path.read_text()) for path in (root / "metrics").glob("*.json")}
    _, *rows = table(text(root, "docs/tutorial.md"), "| stage | in | out |")
    assert {name: (came, left) for name, came, left, _ in rows} == {
        name: (came.format(**counts), left.format(**counts))
        for name, (came, left) in COUNTS.items()
    }
    for name, _, _, drops in rows:
        listed = {int(number) for number in re.findall(r"\b(\d+) ", drops)}
        assert listed == set(counts[name.split(", ")[-1]]["dropped"].values()), name


def test_what_a_change_makes_stale(
    root: Path, graph: dict[str, Any], seconds: dict[str, int]
) -> None:
    _, *rows = table(text(root, "docs/experiments.md"), "| what changes |")
    changed = [re.findall(r"`(\w+)`", row[0])[0] for row in rows]
    assert sorted(changed) == sorted(graph)
    for stage, row in zip(changed, rows, strict=True):
        stale = [name for name in graph if name in downstream(graph, {stage})]
        assert list(spelled_out(row[1], list(graph))) == stale
        assert int(row[2]) == sum(seconds[name] for name in stale if name not in TRAINED)
        assert int(row[3]) == pytest.approx(minutes(seconds, tuple(stale)), abs=0.51)


def spelled_out(cell: str, order: list[str]) -> Iterator[str]:
    """The stages of "`a`, `c` to `e`"."""
    for part in cell.split(", "):
        first, *last = re.findall(r"`(\w+)`", part)
        yield from order[order.index(first) : order.index(last[0] if last else first) + 1]


def downstream(graph: dict[str, Any], changed: set[str]) -> set[str]:
    """``changed`` and every stage that reads an output of one of them."""
    reached = set(changed)
    for name, stage in graph.items():  # a stage stands behind those it reads
        made = {str(out) for one in reached for out in graph[one]["outs"]}
        if made & set(stage["deps"]):
            reached.add(name)
    return reached


def test_a_section_on_extending_says_what_becomes_stale(root: Path, graph: dict[str, Any]) -> None:
    page = root / "docs/extending.md"
    sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    lines = {
        one.splitlines()[0]: re.findall(r"^Becomes stale: (.*)\.$", one, re.M) for one in sections
    }
    assert sum(map(len, lines.values())) == 5
    for title, body in zip(lines, sections, strict=True):
        added = re.findall(r'title="(src/[^"]+)"', body)
        assert len(added) == len(lines[title])
        for file, line in zip(added, lines[title], strict=True):
            readers = [
                name
                for name, stage in graph.items()
                if any(Path(dep) in (Path(file), *Path(file).parents) for dep in stage["deps"])
            ]
            assert re.findall(r"`(\w+)`", line) == readers, title


@pytest.mark.parametrize(("page", "pattern", "stages"), QUOTED)
def test_minutes_are_those_of_the_measured_build(
    root: Path, seconds: dict[str, int], page: str, pattern: str, stages: tuple[str, ...]
) -> None:
    found = re.findall(pattern, text(root, page))
    assert found, f"{page} does not say {pattern}"
    assert {int(number) for number in found} == {round(minutes(seconds, stages))}


@pytest.mark.parametrize(
    ("page", "pattern"),
    [
        ("docs/experiments.md", r"train 20 steps, score nothing: (\d+) minutes"),
        ("docs/extending.md", r"rl\.steps=20 rl +# (\d+) minutes"),
    ],
)
def test_minutes_of_a_short_training(
    root: Path, seconds: dict[str, int], page: str, pattern: str
) -> None:
    steps = json.loads(text(root, "metrics/rl.json"))["steps"]
    (found,) = re.findall(pattern, text(root, page))
    assert int(found) == round(minutes(seconds, ("rl",)) * 20 / steps)
