from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from astra import prompting
from astra.cli import doctor
from astra.cli.main import app, commands
from astra.llm.cache import AnswerCache
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.sandbox.probe import ProbeReport
from astra.sandbox.servers import CageRefused
from astra.store.tables import write_records


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, list(arguments))


def tasks(path: Path, count: int = 12) -> list[Task]:
    source = ArgumentSource(origin=ArgumentOrigin.TASK, value="Amber Cove")
    made = [
        Task(
            server_id="s", chain_id=None, kind=TaskKind.CHAIN, language="en",
            question=f"what is the price of house {n}?",
            plan=(ChainStep(tool="get_price", arguments={"house": source}),),
        )
        for n in range(count)
    ]  # fmt: skip
    write_records(path, made, Task)
    return made


def test_show_prints_readable_records_and_counts(workspace: Path) -> None:
    made = tasks(workspace / "tasks.parquet")
    output = run("show", "tasks.parquet", "--limit", "2").output
    assert output.count("Task ") == 2
    assert "question: what is the price of house" in output
    assert "2 shown, 12 match, 12 in tasks.parquet" in output
    assert "\x1b" not in output
    wanted = made[3]
    output = run("show", "tasks.parquet", "--id", wanted.id[:10]).output
    assert wanted.question in output
    assert "1 shown, 1 match" in output


def test_show_as_json_gives_the_records_back(workspace: Path) -> None:
    made = tasks(workspace / "tasks.parquet", 3)
    lines = run("show", "tasks.parquet", "--json", "--limit", "0").output.splitlines()
    assert {Task.model_validate_json(line).id for line in lines} == {task.id for task in made}


def test_show_filters_and_refuses_an_unknown_field(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tasks(workspace / "tasks.parquet")
    condition = f"question={made[0].question}"
    assert "1 shown, 1 match" in run("show", "tasks.parquet", "--where", condition).output
    for arguments in (["--where", "colour=red"], ["--where", "question"]):
        monkeypatch.setattr(sys, "argv", ["astra", "show", "tasks.parquet", *arguments])
        with pytest.raises(SystemExit) as stop:
            app()
        assert stop.value.code == 1
        assert "give FIELD=VALUE with one of id, server_id" in capsys.readouterr().err


REJECTED = (
    Rejection(item="chain-1", part="2", reason="low_realism", detail="give me rain", said="Vague."),
    Rejection(item="chain-1", part="3", reason="low_realism", detail="price?", said="Too short."),
    Rejection(item="chain-2", reason="low_quality", detail='{"a": 1}', attempt=1),
    Rejection(item="chain-2", reason="low_quality", detail="cut off", final=False),
)


def rejected(workspace: Path) -> None:
    write_records(workspace / "data/rejected/tasks.parquet", REJECTED, Rejection)


def test_rejections_are_found_by_their_stage_and_told_in_few_lines(workspace: Path) -> None:
    rejected(workspace)
    for named in ("rejected/tasks", "data/rejected/tasks", "data/rejected/tasks.parquet"):
        output = run("show", named, "--where", "reason=low_realism", "--where", "part=2").output
        assert output.splitlines()[1:] == [
            "  item: chain-1",
            "  part: 2",
            "  reason: low_realism",
            "  detail: give me rain",
            "  said: Vague.",
            "",
            "1 shown, 1 match, 4 in data/rejected/tasks.parquet",
            "low_realism 1",
        ]
    output = run("show", "rejected/tasks", "--limit", "1").output
    assert output.splitlines()[-1] in (
        "low_realism 2, low_quality 2",
        "low_quality 2, low_realism 2",
    )


@pytest.mark.parametrize(
    ("where", "items"),
    [
        ("item=chain-1", 2), ("part=3", 1), ("reason~quality", 2), ("detail~RAIN", 1),
        ("said~short", 1), ("attempt=1", 1), ("attempt>=1", 1), ("final=false", 1),
        ("final=False", 1), ("final!=false", 3), ("final=yes", 0),
    ],
)  # fmt: skip
def test_rejections_are_filtered_by_every_field(workspace: Path, where: str, items: int) -> None:
    rejected(workspace)
    output = run("show", "rejected/tasks", "--where", where).output
    assert f"{items} shown, {items} match, 4 in" in output


def test_a_try_says_that_it_was_one_and_refused_text_stays_text(workspace: Path) -> None:
    rejected(workspace)
    tried = run("show", "rejected/tasks", "--where", "final=false").output
    assert "  final: false\n" in tried
    assert "attempt" not in tried
    last = run("show", "rejected/tasks", "--where", "attempt=1").output
    assert "  attempt: 1\n" in last
    assert "final" not in last
    chosen = run("show", "rejected/tasks", "--where", "part=2", "--fields", "attempt,final").output
    assert "  attempt: 0\n  final: true\n" in chosen
    lines = run("show", "rejected/tasks", "--json").output.splitlines()
    found = {one.id: one for one in map(Rejection.model_validate_json, lines)}
    assert found == {one.id: one for one in REJECTED}


DVC = """
stages:
  chains: {outs: [data/chains.parquet, data/chain_verdicts.parquet]}
  tasks: {outs: [data/tasks.parquet, data/rejected/tasks.parquet]}
  rl: {outs: [models/rl: {persist: true}]}
  many: {foreach: [a], do: {outs: [data/many.parquet]}}
"""


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("tasks", "data/tasks.parquet not found; build it with `dvc repro tasks`"),
        ("chain_verdicts", "chain_verdicts.parquet not found; build it with `dvc repro chains`"),
        ("data/tasks.parquet", "not found; build it with `dvc repro tasks` or `dvc pull`"),
        ("tasks_rejected", "no table 'tasks_rejected'; tables in data/: graph, rejected/graph"),
        ("rejected/rl", "no table 'rejected/rl'; tables in data/: graph, rejected/graph"),
        ("rejected", "no table 'rejected'; tables in data/: graph, rejected/graph"),
        ("other/x.parquet", "no table 'other/x.parquet'; tables in data/: graph, rejected/graph"),
        ("many", "build it with `dvc repro many`"),
        ("rejected/tasks", "rejected/tasks.parquet not found; build it with `dvc repro tasks`"),
    ],
)  # fmt: skip
def test_a_table_that_is_not_there_names_its_stage_or_what_there_is(
    workspace: Path,
    named: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (workspace / "dvc.yaml").write_text(DVC)
    write_records(workspace / "data/rejected/graph.parquet", [], Rejection)
    write_records(workspace / "data/graph.parquet", [], Rejection)
    monkeypatch.setattr(sys, "argv", ["astra", "show", named])
    with pytest.raises(SystemExit) as stop:
        app()
    assert stop.value.code == 1
    assert said in capsys.readouterr().err


def test_without_any_table_the_commands_that_bring_them_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["astra", "show", "task"])
    with pytest.raises(SystemExit):
        app()
    assert "none yet; `dvc repro` builds them, `dvc pull` brings them" in capsys.readouterr().err


def estimate(mean: float, low: float, high: float) -> dict[str, float]:
    return {"mean": mean, "low": low, "high": high, "n": 24}


def scores_file(path: Path) -> None:
    document: dict[str, Any] = {
        "suite": "held-out arenas",
        "arenas": 24,
        "sampling": {"confidence": 0.95},
        "checkpoints": {
            name: {"scores": {"f1": estimate(mean, mean - 0.1, mean + 0.1)}}
            for name, mean in (("base", 0.1), ("sft", 0.5), ("rl", 0.6))
        },
        "differences": {
            "sft-base": {"f1": estimate(0.4, 0.3, 0.5)},
            "rl-sft": {"f1": estimate(0.1, -0.05, 0.2)},
        },
        "references": {"floor": {"f1": 0.0}, "ceiling": {"f1": 1.0}},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def test_scores_stand_side_by_side_with_intervals(workspace: Path) -> None:
    scores_file(workspace / "metrics/bench.json")
    output = run("scores").output
    row = next(line for line in output.splitlines() if line.startswith("F1 (answer counts)"))
    for shown in ("0.100 [0.000, 0.200]", "0.500", "0.600", "1.000"):
        assert shown in row
    assert "+0.400 [+0.300, +0.500] *" in output
    assert "+0.100 [-0.050, +0.200]\n" in output  # its interval holds 0: no star
    assert f"mlflow ui --backend-store-uri sqlite:///{workspace / 'mlflow.db'}" in output
    assert "dvc plots show" in output


def test_missing_scores_name_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["astra", "scores"])
    with pytest.raises(SystemExit) as stop:
        app()
    assert stop.value.code == 1
    assert "dvc repro bench" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b'{"checkpoints": 3}'])
def test_scores_that_cannot_be_read_are_one_clear_error(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    content: bytes,
) -> None:  # fmt: skip
    path = workspace / "metrics/bench.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["astra", "scores"])
    with pytest.raises(SystemExit) as stop:
        app()
    assert stop.value.code == 1
    said = capsys.readouterr().err
    assert "metrics/bench.json cannot be read, or is not of this version" in said
    assert "Traceback" not in said


def params(workspace: Path, backend: str = "offline", **runtime: Any) -> None:
    document = {"tasks": {"teacher": {"backend": backend}}, "runtime": {"threads": 1, **runtime}}
    (workspace / "params.yaml").write_text(yaml.safe_dump(document))
    (workspace / ".dvc").mkdir(exist_ok=True)
    (workspace / ".dvc/config").write_text(
        "[core]\n    remote = s\n['remote \"s\"']\n    url = x\n"
    )


@pytest.fixture
def tier(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {"tier": "A"}
    monkeypatch.setattr(
        doctor, "probe", lambda: ProbeReport(found["tier"], {"tier A": "no namespaces"})
    )
    monkeypatch.setattr(doctor, "try_cage", lambda: None)
    return found


def test_doctor_passes_a_sound_machine(workspace: Path, tier: dict[str, str]) -> None:
    params(workspace)
    result = run("doctor")
    assert result.exit_code == 0, result.output
    assert "DVC remote s: x" in result.output
    assert "error" not in result.output


def test_doctor_names_what_is_missing(
    workspace: Path, tier: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    params(workspace, backend="openai")
    result = run("doctor")
    assert result.exit_code == 1
    assert "these blocks use backend openai: tasks.teacher" in result.output
    reached: list[str] = []

    def get(url: str, **options: Any) -> Any:
        reached.append(url)
        return SimpleNamespace(status_code=200 if len(reached) == 1 else 401)

    monkeypatch.setattr(doctor.httpx2, "get", get)
    endpoint = {"base_url": "http://h/v1", "api_key_env": "ASTRA_TEST_KEY"}
    params(workspace, backend="openai", endpoints=[endpoint])
    monkeypatch.delenv("ASTRA_TEST_KEY", raising=False)
    assert "export ASTRA_TEST_KEY=" in run("doctor").output
    monkeypatch.setenv("ASTRA_TEST_KEY", "sk-hidden")
    result = run("doctor")
    assert result.exit_code == 0, result.output
    assert "sk-hidden" not in result.output
    assert reached == ["http://h/v1/models"]
    assert "the key is refused (HTTP 401)" in run("doctor").output
    tier["tier"] = "C"
    result = run("doctor")
    assert result.exit_code == 1
    assert "best tier here is C, B is required" in result.output


def test_doctor_says_whether_live_servers_are_caged(
    workspace: Path, tier: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    params(workspace, live_servers="uncaged")
    assert "warning live MCP servers run UNCAGED" in run("doctor").output

    def refused() -> None:
        raise CageRefused("no user namespaces; set live_servers: uncaged")

    monkeypatch.setattr(doctor, "try_cage", refused)
    params(workspace)
    result = run("doctor")
    assert result.exit_code == 1
    assert "error   no user namespaces; set live_servers: uncaged" in result.output


def test_doctor_says_that_git_does_not_know_who_commits(
    workspace: Path, tier: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    params(workspace)
    given = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
             "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.useConfigOnly",
             "GIT_CONFIG_VALUE_0": "true"}  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for name in ("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    assert "git config --global user.name" in run("doctor").output
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ada")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ada@example.org")
    assert "git commits as Ada <ada@example.org>" in run("doctor").output


def test_doctor_names_what_is_broken(
    workspace: Path, tier: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge that was left half done, an escaped URL, a driver that hangs."""
    params(workspace)
    config = workspace / ".dvc/config"
    config.write_text(config.read_text().replace("url = x", "url = s3://bucket/my%20data"))
    assert "DVC remote s: s3://bucket/my%20data" in run("doctor").output
    (workspace / "params.yaml").write_text("<<<<<<< HEAD\nrl: {steps: 1}\n=======\n")
    result = run("doctor")
    assert result.exit_code == 1
    assert "params.yaml" in result.output
    params(workspace)
    config.write_text("[core\n")
    result = run("doctor")
    assert result.exit_code == 1
    assert "error   remote: " in result.output
    hung = workspace / "nvidia-smi"
    hung.write_text("#!/bin/sh\nsleep 5\n")
    hung.chmod(0o755)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: str(hung))
    monkeypatch.setattr(doctor, "REACH_S", 0.2)
    result = run("doctor")
    assert result.exit_code == 1
    assert "error   gpu: " in result.output


def test_doctor_reports_an_unreadable_mlflow_store(workspace: Path, tier: dict[str, str]) -> None:
    store = workspace / "broken.db"
    store.write_bytes(b"no database at all, certainly not one of SQLite" * 50)
    params(workspace, tracking_uri=f"sqlite:///{store}")
    result = run("doctor")
    assert result.exit_code == 1
    assert "MLflow store" in result.output


def test_doctor_says_soon_that_a_tracking_server_does_not_answer(
    workspace: Path, tier: dict[str, str]
) -> None:
    params(workspace, tracking_uri="http://127.0.0.1:9")
    result = run("doctor")
    assert result.exit_code == 1
    assert "MLflow store http://127.0.0.1:9: " in result.output


def test_the_password_of_the_store_is_not_shown(
    workspace: Path, tier: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores_file(workspace / "metrics/bench.json")
    params(workspace, tracking_uri="http://ada:secret@127.0.0.1:9")
    doctors, scores = run("doctor").output, run("scores").output
    assert "MLflow store http://127.0.0.1:9: " in doctors
    assert "mlflow ui --backend-store-uri http://127.0.0.1:9\n" in scores
    monkeypatch.setattr(doctor, "check_store", lambda uri: None)
    monkeypatch.setattr("mlflow.MlflowClient", _one_experiment)
    sound = run("doctor").output
    assert "MLflow store http://127.0.0.1:9, 1 experiments" in sound
    for shown in (doctors, scores, sound):
        assert "secret" not in shown


def _one_experiment(tracking_uri: str) -> Any:
    return SimpleNamespace(search_experiments=lambda: ["astra/sft"])


def test_doctor_without_params_says_how_to_make_them(tier: dict[str, str]) -> None:
    result = run("doctor")
    assert result.exit_code == 1
    assert "make params" in result.output


def test_cache_stats_count_answers_per_model() -> None:
    assert "no answers yet" in run("cache", "stats").output
    cache = AnswerCache()
    cache.put("a", "openai:m", {"reply": 1})
    cache.put("b", "openai:m", {"reply": 2})
    assert "openai:m: 2 answers" in run("cache", "stats").output


def test_prompts_render_with_values_and_with_placeholders(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "Say {{ word }}{% for item in items %}, {{ item.name }} {{ item | json }}{% endfor %}"
    monkeypatch.setattr(prompting, "_source", {"demo/say": source}.__getitem__)
    monkeypatch.setattr(prompting, "templates", lambda: ["demo/say"])
    prompting._compiled.cache_clear()
    try:
        values = json.dumps({"word": "it's {{ word }}", "items": []})
        assert (
            "Say it's {{ word }}\n"
            in run("prompts", "render", "demo/say", "--params", values).output
        )
        assert (
            "Say <word>, <items[0].name>"
            in run("prompts", "render", "demo/say", "--example").output
        )
    finally:
        prompting._compiled.cache_clear()
