"""The commands around teachers: cache, prompts, teacher check."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from astra.cli import prompts
from astra.cli.cache import CacheFileError
from astra.cli.main import commands
from astra.llm.cache import AnswerCache, Spent
from astra.prompting import PromptError, template_hash
from chat_server import Answer, ChatServer

ONLINE = {"backend": "openai", "model": "m", "temperature": 0.0, "max_tokens": 64}


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, list(arguments))


def filled(*models: str) -> None:
    cache = AnswerCache()
    for number, model in enumerate(models):
        cache.put(f"{number:064x}", model, {"reply": number})
    cache.spend("workspace", "qa", "m", Spent(3, 120, 0.5))
    cache.close()


def test_stats_show_answers_and_what_was_spent() -> None:
    filled("openai:m", "openai:m", "openai:n")
    output = run("cache", "stats").output
    assert "openai:m: 2 answers" in output
    assert "spent under 'workspace', stage qa, m: 3 requests, 120 tokens, cost 0.5000" in output


def test_an_exported_cache_is_the_same_elsewhere_to_the_byte(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled("openai:m", "openai:n")
    assert "2 answers written" in run("cache", "export", "a.jsonl.gz").output
    assert "1 answers written" in run("cache", "export", "n.jsonl.gz", "--model", "openai:n").output
    monkeypatch.setenv("ASTRA_CACHE", str(workspace / "elsewhere"))
    assert "1 answers added, 0 were" in run("cache", "import", "n.jsonl.gz").output
    assert "1 answers added, 1 were" in run("cache", "import", "a.jsonl.gz").output
    run("cache", "export", "b.jsonl.gz")
    assert (workspace / "a.jsonl.gz").read_bytes() == (workspace / "b.jsonl.gz").read_bytes()
    assert AnswerCache().get(f"{1:064x}") == {"reply": 1}


@pytest.mark.parametrize(
    ("models", "wanted", "said"),
    [
        (("openai:m", "openai:n"), ("--model", "openai:typo"), "no answers of openai:typo; "
         "it has those of: openai:m, openai:n"),
        ((), (), "no answers of any model; it has those of: none"),
    ],
)  # fmt: skip
def test_an_export_of_nothing_leaves_the_last_one_alone(
    workspace: Path, models: tuple[str, ...], wanted: tuple[str, ...], said: str
) -> None:
    (workspace / "a.jsonl.gz").write_bytes(b"a good one")
    filled(*models)
    done = run("cache", "export", "a.jsonl.gz", *wanted)
    assert isinstance(done.exception, CacheFileError), done.output
    assert said in str(done.exception)
    assert (workspace / "a.jsonl.gz").read_bytes() == b"a good one"


def test_an_export_that_fails_leaves_the_last_one_and_nothing_else(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a.jsonl.gz").write_bytes(b"a good one")
    filled("openai:m")
    (workspace / "folder").mkdir()
    assert "folder is a folder; name a file" in str(run("cache", "export", "folder").exception)

    def full(line: object) -> str:
        raise OSError("the disk is full")

    monkeypatch.setattr("astra.cli.cache.compact_json", full)
    assert run("cache", "export", "a.jsonl.gz").exit_code == 1
    assert (workspace / "a.jsonl.gz").read_bytes() == b"a good one"
    assert {one.name for one in workspace.iterdir()} == {"a.jsonl.gz", "cache", "folder"}


def test_an_imported_answer_has_its_keys_in_the_order_in_which_it_was_given(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hour = {"reply": {"result": {"06:00": 4, "23:00": 9, "00:00": 7}, "error": ""}}
    with closing(AnswerCache()) as cache:
        cache.put("a" * 64, "m", by_hour)
    run("cache", "export", "a.jsonl.gz")
    monkeypatch.setenv("ASTRA_CACHE", str(workspace / "elsewhere"))
    run("cache", "import", "a.jsonl.gz")
    assert json.dumps(AnswerCache().get("a" * 64)) == json.dumps(by_hour)


@pytest.mark.parametrize(
    "line", ["no json", '{"key": "short", "model": "m", "value": {}}', '{"key": 3}', "[]"]
)
def test_a_bad_file_imports_nothing_and_names_the_line(workspace: Path, line: str) -> None:
    good = json.dumps({"key": "0" * 64, "model": "m", "value": {"reply": 1}})
    (workspace / "bad.gz").write_bytes(gzip.compress(f"{good}\n{line}\n".encode()))
    result = run("cache", "import", "bad.gz")
    assert "line 2" in str(result.exception)
    assert AnswerCache().stats().models == {}
    (workspace / "plain.gz").write_text("not compressed")
    assert "plain.gz line 1" in str(run("cache", "import", "plain.gz").exception)


def test_prune_deletes_by_model_and_age_and_never_all_by_accident() -> None:
    filled("openai:m", "openai:n")
    assert "say what to delete" in str(run("cache", "prune", "--yes").exception)
    assert "0 answers deleted" in run("cache", "prune", "--older-than-days", "1", "--yes").output
    assert run("cache", "prune", "--model", "openai:m").exit_code == 1  # nobody said yes
    assert "1 answers deleted" in run("cache", "prune", "--model", "openai:m", "--yes").output
    assert list(AnswerCache().stats().models) == ["openai:n"]


def params(workspace: Path, url: str, **runtime: Any) -> None:
    endpoint = {"base_url": url, "api_key_env": ""}
    document = {
        "qa": {"teacher": ONLINE},
        "runtime": {"endpoints": [endpoint], "concurrency": 4, "max_attempts": 2, **runtime},
    }
    (workspace / "params.yaml").write_text(yaml.safe_dump(document))


def able(body: dict[str, Any]) -> Answer:
    if "tools" in body:
        function = {"name": "get_price", "arguments": '{"house": "Amber Cove"}'}
        return Answer(None, tool_calls=[{"id": "x", "type": "function", "function": function}])
    return Answer('{"colour": "red"}', delay_s=0.01)


def test_teacher_check_passes_an_able_endpoint(workspace: Path) -> None:
    with ChatServer(default=able) as server:
        params(workspace, server.url)
        result = run("teacher", "check")
        assert result.exit_code == 0, result.output
        assert len(server.requests) == 3 + 12
    for text in ("JSON schemas are enforced", "calls tools", "12 asks, 4 in flight", "p95"):
        assert text in result.output
    cache = AnswerCache()
    assert cache.stats().models == {}
    assert cache.spent("workspace", "check").requests == 15


def test_teacher_check_says_what_an_endpoint_lacks(workspace: Path) -> None:
    def poor(body: dict[str, Any]) -> Answer:
        if "response_format" in body or "tools" in body:
            return Answer(status=400, error="not supported")
        return Answer("I like red.")

    with ChatServer(default=poor) as server:
        params(workspace, server.url)
        result = run("teacher", "check", "--asks", "2")
    assert result.exit_code == 0, result.output
    for text in ("not usable at the first try", "JSON schemas are refused", "tools are refused"):
        assert text in result.output
    with ChatServer(default=lambda _: Answer(status=401, error="no such key")) as server:
        params(workspace, server.url)
        result = run("teacher", "check")
    assert result.exit_code == 1
    assert "no such key" in result.output
    params(workspace, "http://127.0.0.1:9/v1")
    result = run("teacher", "check", "--model", "other")
    assert result.exit_code == 1
    assert "no connection" in result.output


def test_prompts_list_tells_which_template_a_hash_is(root: Path, workspace: Path) -> None:
    lines = run("prompts", "list").stdout.splitlines()
    assert len(lines) == len(list((root / "src/astra").glob("*/prompts/*.md.j2")))
    assert f"{template_hash('qa/atomicity')}  qa/atomicity" in lines


@pytest.mark.parametrize("template", ["nix", "nix/decompose", ""])
def test_an_unknown_prompt_is_told_where_names_are(template: str) -> None:
    for given in ([], ["--example"], ["--params", "{}"]):
        error = run("prompts", "render", template, *given).exception
        assert isinstance(error, PromptError)
        assert "names are <domain>/<name>" in str(error)
        assert "`astra prompts list`" in str(error)


def test_a_file_of_params_that_cannot_be_read_is_named() -> None:
    for place in ("@missing", "@."):
        error = run("prompts", "render", "qa/decompose", "--params", place).exception
        assert isinstance(error, PromptError)
        assert f"--params {place} cannot be read" in str(error)


def test_prompts_render_shows_the_request_for_a_real_record(root: Path, workspace: Path) -> None:
    composed = yaml.safe_load((root / "params.yaml").read_text())
    composed["qa"]["instances"] = {"train": 4, "dev": 2, "heldout": 2}
    composed["qa_valid"]["audit_share"] = 1.0  # planned questions are hardly judged otherwise
    composed["qa_valid"]["judge"] = ONLINE  # no endpoint and no key: nothing may be asked
    for name in ("stages", "sources", "contamination"):
        (workspace / name).symlink_to(root / name)
    (workspace / "dvc.yaml").write_text((root / "dvc.yaml").read_text())
    (workspace / "params.yaml").write_text(yaml.safe_dump(composed))
    assert "not found; build it with `dvc repro qa`" in str(
        run("prompts", "render", "qa/atomicity").exception
    )
    prompts._run(workspace / "stages/qa.py")
    made = (workspace / "data/qa.parquet").read_bytes()
    (workspace / "data/qa_valid.parquet").write_text("mine")
    (workspace / "data/rejected/qa_valid.parquet").write_text("mine too")
    result = run("prompts", "render", "qa/atomicity", "--json")
    assert result.exit_code == 0, result.exception
    bodies = json.loads(result.stdout)
    assert bodies["structured"]["model"] == "m"
    assert bodies["structured"]["response_format"]["type"] == "json_schema"
    question = json.loads(run("show", "data/qa.parquet", "--json", "--limit", "1").output)[
        "main_question"
    ]
    shown = run("prompts", "render", "qa/atomicity", "--match", question)
    assert question in shown.stdout
    assert "JSON Schema" in shown.stdout
    # Nothing of the stage is kept, also where it runs to its end.
    missing = run("prompts", "render", "qa/atomicity", "--match", "no such text anywhere")
    assert "makes no such ask" in str(missing.exception)
    assert (workspace / "data/qa_valid.parquet").read_text() == "mine"
    assert (workspace / "data/rejected/qa_valid.parquet").read_text() == "mine too"
    assert not (workspace / "metrics/qa_valid.json").exists()
    assert (workspace / "data/qa.parquet").read_bytes() == made


def test_an_ask_that_only_a_models_agent_brings_about_is_shown(root: Path, workspace: Path) -> None:
    """A user's second wish is written only where the agent is a model; nothing may be asked."""
    composed = yaml.safe_load((root / "params.yaml").read_text())
    block = composed["trajectories"]
    block |= dict.fromkeys(("agent", "emulator", "user"), ONLINE)
    block["conversations"]["share"] = 1.0
    for name in ("stages", "sources"):
        (workspace / name).symlink_to(root / name)
    (workspace / "dvc.yaml").write_text((root / "dvc.yaml").read_text())
    (workspace / "params.yaml").write_text(yaml.safe_dump(composed))
    (workspace / "data").mkdir()
    for name in ("tools", "tasks"):
        table = root / "examples" / "pilot" / f"{name}.parquet"
        (workspace / "data" / table.name).symlink_to(table)
    shown = run("prompts", "render", "trajectories/follow_up")
    assert shown.exit_code == 0, shown.exception
    assert "You write what a user of an assistant asks for next" in shown.stdout
    missing = run("prompts", "render", "trajectories/follow_up", "--match", "no such text")
    assert "makes no such ask" in str(missing.exception)
    user = run("prompts", "render", "trajectories/user").stdout
    assert "You play a user" in user, "rules as agent bring that one about"
