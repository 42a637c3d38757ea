"""What each stage kept and dropped, how its data are distributed, what they share with suites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from astra.contamination.index import ContaminationError, ContaminationIndex
from astra.report.charts import Charts, Series, trailing_mean
from astra.report.rejections import reasons
from astra.report.workspace import DATA_STAGES, STAGES, Workspace

INDEX = "contamination/index.parquet"
OVERLAP = "metrics/suite_overlap.json"
CHECKED = "checked_for_contamination"
SMOOTHED = 10
"""Steps over which a noisy curve's mean is drawn."""


@dataclass(frozen=True)
class Flow:
    """What a stage counts: units that came in and that left, by their names in its metrics."""

    stage: str
    unit: str
    came: str
    left: str


FLOWS = (
    Flow("tools", "servers", "servers_found", "servers"),
    Flow("graph", "servers → graphs", "servers", "graphs"),
    Flow("chains", "walks → chains", "walks", "chains"),
    Flow("tasks", "tasks", "asked", "tasks"),
    Flow("trajectories", "episodes → trajectories", "episodes", "trajectories"),
    Flow("sft_set", "trajectories → samples", "trajectories", "samples"),
    Flow("worlds", "worlds", "planned", "out"),
    Flow("goals", "goals", "in", "out"),
    Flow("conversations", "goals → conversations", "in", "out"),
    Flow("qa", "questions", "in", "out"),
    Flow("qa_valid", "questions", "in", "out"),
    Flow("envs", "sub-questions → environments", "needing_tool", "environments"),
    Flow("envs_merged", "questions → arenas", "instances", "arenas"),
    Flow("sft", "training samples", "", "train_samples"),
    Flow("rl", "training arenas", "", "train_arenas"),
)
CURVES = {
    "Reward": (("rl", "train_reward", "training"), ("rl", "dev_reward", "development")),
    "Precision and recall, development arenas": (
        ("rl", "dev_precision", "precision"), ("rl", "dev_recall", "recall"),
    ),
    "Success, development arenas": (
        ("rl", "dev_success", "success"), ("rl", "dev_answered", "answered"),
    ),
    "Turns and calls per training rollout": (
        ("rl", "train_turns", "turns"), ("rl", "train_calls", "calls"),
    ),
    "Batch filling: groups per step": (
        ("rl", "filling_rolled", "rolled"), ("rl", "filling_informative", "informative"),
    ),
    "Entropy": (("rl", "entropy", "entropy"),),
    "SFT loss": (("sft", "loss", "training"), ("sft", "eval_loss", "evaluation")),
    "SFT token accuracy": (
        ("sft", "mean_token_accuracy", "training"),
        ("sft", "eval_mean_token_accuracy", "evaluation"),
    ),
}  # fmt: skip


def funnels(workspace: Workspace, charts: Charts) -> list[dict[str, Any]]:
    """One row per stage, with its drops and failed tries; just the name of one that has not run."""
    return [
        _funnel(flow, document, charts) if document else {"flow": flow, "absent": True}
        for flow in FLOWS
        for document in (workspace.metrics(flow.stage),)
    ]


def _funnel(flow: Flow, document: Mapping[str, Any], charts: Charts) -> dict[str, Any]:
    dropped = reasons(document, "dropped")
    gone = sum(dropped.values())
    row: dict[str, Any] = {
        "flow": flow, "dropped": dropped, "tries": reasons(document, "tries"), "unexplained": 0,
    }  # fmt: skip
    came = row["came"] = _count(document, flow.came)
    left = row["left"] = _count(document, flow.left)
    if came is not None and left is not None:
        # Nothing may vanish without a reason; where units differ the page says so as well.
        row["unexplained"] = came - left - gone
    if left is not None:
        row["bar"] = charts.flow(f"{flow.stage}: kept and dropped", left, gone, left + gone)
    return row


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def distributions(workspace: Workspace, charts: Charts) -> dict[str, list[Any]]:
    """The charts of each data stage."""
    found: dict[str, list[Any]] = {}
    for stage in DATA_STAGES:
        for name, rows in workspace.histograms(stage).items():
            title = name.replace("_", " ")
            found.setdefault(stage, []).append({"title": title, "svg": charts.counts(title, rows)})
    return found


def curves(workspace: Workspace, charts: Charts) -> list[dict[str, Any]]:
    """Training curves. A dense one is drawn as faint raw values with their trailing mean."""
    drawn: list[dict[str, Any]] = []
    for title, parts in CURVES.items():
        series: list[Series] = []
        for at, (stage, name, label) in enumerate(parts, start=1):
            points = workspace.curve(stage, name)
            if len(points) > 3 * SMOOTHED:
                series.append(Series(label, points, at, faint=True))
                label, points = f"{label}, mean of {SMOOTHED}", trailing_mean(points, SMOOTHED)
            if points:
                series.append(Series(label, points, at))
        if series:
            rows = {one.name: one.points for one in series if not one.faint}
            drawn.append({"title": title, "svg": charts.lines(title, series), "rows": rows})
    if not workspace.curve("rl", "train_reward"):
        workspace.lacks("plots/rl: no reward curve, stage rl has not run here")
    return drawn


def contamination(workspace: Workspace) -> dict[str, Any]:
    """What the index holds, and what each stage dropped for touching it."""
    suites: Mapping[str, Any] = {}
    try:
        index = ContaminationIndex.load(workspace.root / INDEX)
        suites = index.about
        if not suites:
            workspace.lacks(f"{INDEX} holds no suites: overlap cannot be found")
    except ContaminationError as error:
        workspace.lacks(str(error))
    stages: list[dict[str, Any]] = []
    for stage in STAGES:
        document = workspace.metrics(stage)
        drops = reasons(document, "dropped")
        dropped = {reason: count for reason, count in drops.items() if "contaminat" in reason}
        checked = document.get(CHECKED)
        if dropped or checked is not None:
            stages.append({"stage": stage, "checked": checked, "dropped": dropped})
    if not stages:
        workspace.lacks(
            "overlap of training data with benchmark suites was not checked in this build "
            "(sft_set.contamination and envs_merged.code.decontaminate are off)"
        )
    return {"suites": suites, "stages": stages, "overlap": _overlap(workspace)}


def _overlap(workspace: Workspace) -> list[dict[str, Any]]:
    """What `astra contamination overlap` counted of the suites that were played here."""
    document = workspace.document(OVERLAP)
    return [
        {"suite": suite, "prompts": found.get("prompts"), "ngram": found.get("ngram"),
         "table": table, "checked": _mapping(counts).get("items"),
         "items_overlapping": _mapping(counts).get("items_overlapping"),
         "prompts_overlapping": _mapping(counts).get("prompts_overlapping")}
        for suite, found in document.items()
        for table, counts in _mapping(_mapping(found).get("tables")).items()
    ]  # fmt: skip


def cost(workspace: Workspace) -> list[dict[str, Any]]:
    """The run log of asks, summed by stage and model."""
    numbers = (
        "requests", "answers", "cache_hits", "failures", "prompt_tokens", "completion_tokens",
        "cost",
    )  # fmt: skip
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for line in workspace.json_lines("runs/usage.jsonl"):
        key = str(line.get("stage")), str(line.get("model"))
        row = sums.setdefault(key, {"stage": key[0], "model": key[1], "runs": 0})
        row["runs"] += 1
        for name in numbers:
            value = line.get(name)
            row[name] = row.get(name, 0) + (value if isinstance(value, int | float) else 0)
    if not sums:
        workspace.lacks(
            "runs/usage.jsonl: no model was asked over the network; the offline teacher is free"
        )
    return [sums[key] for key in sorted(sums)]
