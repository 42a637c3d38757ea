from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from astra.records.bench import (
    BenchEpisode,
    EpisodeClass,
    SuiteEpisode,
    SuiteOutcome,
    SuiteRun,
)
from astra.records.message import (
    CallStatus,
    ExecutedCall,
    Message,
    MessageRole,
    ToolCall,
    ToolResult,
)
from astra.records.qa import QuestionKind, Scenario
from astra.records.score import Rejection, Scored
from astra.records.trajectory import StopReason
from astra.store.tables import write_records

RUN = "window.owned = (window.owned || 0) + 1; document.title = 'owned'"
HOSTILE = (
    f"<script>{RUN}</script>",
    f'<img src=x onerror="{RUN}">',
    f'"></details></section><svg onload="{RUN}">',
    f"</style><script>{RUN}</script>",
    f"<a href=\"javascript:{RUN}\">harmless</a><iframe srcdoc='<script>{RUN}</script>'></iframe>",
    "{{ 7 * 7 }}{% include 'page.html.j2' %} \x00\x1b[31m \u202egnp.exe \ud800",
)


def episode(
    checkpoint: str, arena: str, good: bool, said: str = "<answer>45</answer>"
) -> BenchEpisode:
    call = ToolCall(id="c", name="get_price", arguments='{"listing": "Amber Cove"}')
    result = ToolResult(status=CallStatus.OK, content="45", value=45)
    return BenchEpisode(
        suite="arenas", checkpoint=checkpoint, arena_id=arena, scenario=Scenario.SINGLE_HOP,
        kind=QuestionKind.READ_ONLY, hops=1, domain="real_estate", tools=3,
        scores={"f1": Scored(value=float(good))},
        outcome=EpisodeClass.SUCCESS if good else EpisodeClass.FAILED,
        stop_reason=StopReason.ANSWERED,
        messages=(
            Message(role=MessageRole.SYSTEM, content="the system prompt"),
            Message(role=MessageRole.USER, content=f"What is the price of {arena}?"),
            Message(role=MessageRole.ASSISTANT, tool_calls=(call,)),
            Message(role=MessageRole.TOOL, content="45", name="get_price", tool_call_id="c"),
            Message(role=MessageRole.ASSISTANT, content=said),
        ),
        calls=(ExecutedCall(turn=0, call=call, result=result),),
    )  # fmt: skip


def write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def write_curve(path: Path, name: str, values: Sequence[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([("step", name), *enumerate(values)])


def bench_metrics() -> dict[str, Any]:
    def found(mean: float) -> dict[str, float]:
        return {"mean": mean, "low": mean - 0.05, "high": mean + 0.05, "n": 3}

    means = {"base": 0.1, "sft": 0.5, "rl": 0.625}
    return {
        "suite": "held-out arenas",
        "arenas": 3,
        "sampling": {"temperature": 0.0, "runs": 1, "confidence": 0.95},
        "checkpoints": {
            name: {
                "scores": {"f1": found(mean), "precision": found(mean), "recall": found(mean),
                           "success": found(mean)},
                "outcomes": {"success": 1, "failed": 2},
                "excluded_infra": 0,
                "by_hops": {"1": {"n": 3, "f1": mean}},
                "by_scenario": {"single_hop": {"n": 3, "f1": mean}},
                "by_domain": {"real_estate": {"n": 3, "f1": mean}},
            }
            for name, mean in means.items()
        },
        "differences": {"sft-base": {"f1": found(0.4)}, "rl-sft": {"f1": found(0.02)}},
        "references": {"floor": {"n": 3, "f1": 0.0}, "ceiling": {"n": 3, "f1": 1.0}},
    }  # fmt: skip


def suite_run(
    root: Path,
    checkpoint: str,
    values: Sequence[float],
    of: int,
    parts: Sequence[str] = ("miss_func", "base"),
    label: str = "bfcl",
) -> None:
    """A run of BFCL: one entry per value, the parts in turn."""
    episodes = [
        SuiteEpisode(
            suite=label, checkpoint=checkpoint, entry_id=f"e{at}", attempt=0,
            category=f"multi_turn_{parts[at % len(parts)]}", outcome=SuiteOutcome.SCORED,
            scores={"accuracy": Scored(value=value)}, reason="wrong state" if value < 1 else "",
            steps=3, prompt_tokens=100, completion_tokens=60,
            messages=(
                Message(role=MessageRole.USER, content=f"Please do task {at}."),
                Message(role=MessageRole.ASSISTANT, content=HOSTILE[0]),
            ),
        )
        for at, value in enumerate(values)
    ]  # fmt: skip
    run = SuiteRun(
        suite=label, checkpoint=checkpoint, model="m", harness="bfcl", score="accuracy",
        versions={"bfcl-eval": "1.2"}, sample_count=len(values), sample_of=of, sample_seed=0,
        tries=1, decoding={"temperature": 0.6}, options={}, outcomes={"scored": len(values)},
    )  # fmt: skip
    folder = root / "data/suites" / label
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder / f"{checkpoint}.parquet", episodes, SuiteEpisode)
    (folder / f"{checkpoint}.json").write_text(run.model_dump_json(), encoding="utf-8")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small workspace with something for each section, model output hostile throughout."""
    monkeypatch.chdir(tmp_path)
    for name in ("DVC_ROOT", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    write_json(tmp_path / "metrics/bench.json", bench_metrics())
    write_json(
        tmp_path / "metrics/tasks.json",
        {"asked": 10, "tasks": 6, "dropped": {"low_quality": 3, "ask_failed": 1},
         "tries": {"low_quality": 2}},
    )  # fmt: skip
    rejections = [
        *(Rejection(item="chain-1", part=f"{n}", reason="low_quality", detail=HOSTILE[n],
                    said=HOSTILE[n + 2], attempt=n) for n in range(3)),
        Rejection(item="chain-2", reason="ask_failed", detail="x" * 2000),
        *(Rejection(item="chain-1", part=f"{n}", reason="low_quality", detail="worse",
                    final=False) for n in range(2)),
    ]  # fmt: skip
    write_records(tmp_path / "data/rejected/tasks.parquet", rejections, Rejection)
    hostile = Rejection(item=HOSTILE[1], part=HOSTILE[2], reason=HOSTILE[0], detail=HOSTILE[3])
    write_records(tmp_path / "data/rejected/sft_set.parquet", [hostile], Rejection)
    write_json(
        tmp_path / "metrics/sft_set.json",
        {"trajectories": 9, "samples": 5, "checked_for_contamination": 9,
         "dropped": {"contaminated_text": 2, HOSTILE[0]: 1}},
    )  # fmt: skip
    write_curve(tmp_path / "plots/rl/train_reward.csv", "train_reward", [i / 60 for i in range(60)])
    write_curve(tmp_path / "plots/rl/dev_reward.csv", "dev_reward", [0.2, 0.3, 0.4])
    (tmp_path / "plots/tasks").mkdir()
    (tmp_path / "plots/tasks/kinds.csv").write_text(f"value,count\nchain,4\n{HOSTILE[1]!r},2\n")
    episodes = [
        episode(name, arena, good, HOSTILE[(at + place) % 5])
        for at, (arena, goods) in enumerate(
            {"Amber Cove": (0, 0, 1), "Pine Haven": (0, 1, 1), "Sage Beacon": (0, 0, 0)}.items()
        )
        for place, (name, good) in enumerate(
            zip(("base", "sft", "rl"), map(bool, goods), strict=True)
        )
    ]
    episodes += [episode("ceiling", arena, True) for arena in ("Amber Cove", "Pine Haven")]
    write_records(tmp_path / "data/bench.parquet", episodes, BenchEpisode)
    suite_run(tmp_path, "rl", [1.0, 0.0, 1.0, 1.0], of=800)
    write_json(
        tmp_path / "metrics/suite_overlap.json",
        {"bfcl": {"prompts": 4, "ngram": 10, "ngrams": 40, "tables": {
            "sft_set": {"items": 5, "items_overlapping": 1, "prompts_overlapping": 2}}}},
    )  # fmt: skip
    usage = {"stage": "qa", "model": "openai:m", "requests": 4, "answers": 3, "cache_hits": 1,
             "failures": 0, "prompt_tokens": 1000, "completion_tokens": 50,
             "cost": 0.25}  # fmt: skip
    (tmp_path / "runs").mkdir()
    lines = [json.dumps(usage), json.dumps(usage), "{broken"]
    (tmp_path / "runs/usage.jsonl").write_text("\n".join(lines), encoding="utf-8")
    params = {"runtime": {}, "tasks": {"min_quality": 3, "note": HOSTILE[0]}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    lock = {"stages": {"tasks": {
        "cmd": "python stages/tasks.py",
        "deps": [{"path": "data/chains.parquet", "md5": "0a", "size": 1500},
                 {"path": "src/astra/tasking", "md5": "0b.dir"}],
        "params": {"params.yaml": {"tasks": {"min_quality": 4, "note": HOSTILE[0]}}},
        "outs": [{"path": "data/tasks.parquet", "md5": "77cafe", "size": 2_500_000},
                 {"path": "metrics/tasks.json", "md5": "0d", "size": 10}],
    }}}  # fmt: skip
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    return tmp_path


@pytest.fixture
def add_run(build: Path) -> Callable[..., None]:
    """Adds a run of BFCL to ``build``."""
    return partial(suite_run, build)
