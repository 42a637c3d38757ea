"""The data card: numbers computed from the tables, the paper's beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_scoring import AGENT, FAR, GOOD, OFFICE, PRICE, QUESTION, TOOLS, trajectory
from typer.testing import CliRunner

from astra.cli.main import commands
from astra.errors import AstraError
from astra.records.score import Scored, Unscored
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, ToolServer
from astra.records.trajectory import SFTSample, Trajectory
from astra.store.tables import write_records

SERVER = ToolServer(
    name="homes", title="Homes", description="", domain="d", source="test", licence="CC0-1.0",
    language="en", execution=Execution.EMULATED, deterministic=True, tools=TOOLS,
)  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of three samples, metrics and params, as the stages leave them."""
    monkeypatch.chdir(tmp_path)
    tasks = [
        Task(server_id=SERVER.id, chain_id=None, kind=kind, language="en", question=q, plan=())
        for kind, q in (
            (TaskKind.CHAIN, QUESTION), (TaskKind.CHAIN, FAR), (TaskKind.IRRELEVANT, "Sing?"),
        )
    ]  # fmt: skip
    runs = [
        trajectory(QUESTION, [PRICE], answer=GOOD),
        trajectory(FAR, [AGENT], [OFFICE], answer="The office is <answer>Pine Dock</answer>"),
        trajectory("Sing?", answer="No. <answer>no tool</answer>"),
    ]
    owned = [
        Trajectory.model_validate(
            run.model_dump() | {"id": "", "task_id": task.id, "server_id": SERVER.id}
        )
        for run, task in zip(runs, tasks, strict=True)
    ]
    samples = [
        SFTSample(
            trajectory_id=run.id, split="eval" if n == 2 else "train", language="en", domain="d",
            tools=run.tools, messages=run.messages, mean_score=1.0,
            scores={
                "final_answer": Scored(value=1 - n / 4),
                "tool_status": Scored(value=1) if run.calls else Unscored(reason="none"),
            },
            selection={"faithfulness": Scored(value=1), "own_tool_status": Scored(value=0.5)},
        )
        for n, run in enumerate(owned)
    ]  # fmt: skip
    for name, records, model in (
        ("tools", [SERVER], ToolServer), ("tasks", tasks, Task),
        ("trajectories", owned, Trajectory), ("sft_set", samples, SFTSample),
    ):  # fmt: skip
        write_records(Path(f"data/{name}.parquet"), records, model)
    Path("metrics").mkdir()
    metrics = {"trajectories": 5, "dropped": {"below_min_score": 2}}
    Path("metrics/sft_set.json").write_text(json.dumps(metrics))
    Path("params.yaml").write_text("scale: test\n")
    return tmp_path


def card(*options: str) -> str:
    done = CliRunner().invoke(commands, ["sft", "card", *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return Path("docs/data-cards/sft_set.md").read_text()


def test_the_card_says_what_the_tables_hold(workspace: Path) -> None:
    text = card()
    for row in (
        "| conversations | 54,885 | 3 |",
        "| messages | 580,983 | 15 |",
        "| messages per sample | 10.59 | 5.00 |",
        "| share of tool messages | 41.8 % | 20.0 % |",
        "| calls per sample | 4.42 | 1.00 |",
        "| share of samples with 1 to 5 calls | 72.2 % | 66.7 % |",
        "| functions called | 6,765 | 3 |",
        "| servers collected | 1,585 | 1 |",
        "| 0 | 1 | 33.3 % |",
        "| chain | 2 | 66.7 % |",
        "| irrelevant | 1 | 33.3 % |",
        "| CC0-1.0 | 3 | 100.0 % |",
        "| final_answer | 0.750 | 3 |",
        "| tool_status | 1.000 | 2 |",
        "| faithfulness | 1.000 | 3 |",
        "| own_tool_status | 0.500 | 3 |",
        "| below_min_score | 2 |",
    ):
        assert row in text, row
    assert "(1 eval, 2 train)" in text
    assert "was not checked" in text
    assert card() == text


def test_the_card_names_the_suites_that_were_checked(workspace: Path) -> None:
    metrics = {"trajectories": 5, "dropped": {}, "contamination_suites": {"bench-b": {}, "a": {}}}
    Path("metrics/sft_set.json").write_text(json.dumps(metrics))
    assert "overlap with benchmark suites: a, bench-b." in card()


def test_check_tells_whether_the_card_is_current(workspace: Path) -> None:
    with pytest.raises(AstraError, match="run `astra sft card`"):
        card("--check")
    card()
    card("--check")
    Path("docs/data-cards/sft_set.md").write_text("old")
    with pytest.raises(AstraError, match="is not the card of the present data"):
        card("--check")


def test_export_writes_one_file_per_split(workspace: Path) -> None:
    done = CliRunner().invoke(commands, ["sft", "export", "--out", "out"])
    assert done.exit_code == 0, done.output
    assert "out/train.parquet: 2 conversations" in done.output
    assert Path("out/eval.parquet").is_file()


def test_the_committed_card_is_of_the_committed_metrics(root: Path) -> None:
    text = (root / "docs" / "data-cards" / "sft_set.md").read_text()
    metrics = json.loads((root / "metrics" / "sft_set.json").read_text())
    assert f"| {metrics['samples']:,} |" in text, "run `astra sft card`"
    assert f"| functions called | 6,765 | {metrics['functions_covered']:,} |" in text
    for reason, count in metrics["dropped"].items():
        assert f"| {reason} | {count:,} |" in text
