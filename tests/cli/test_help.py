"""Every command explains itself: examples that parse, exit codes, completion, plain text."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from astra.cli.display import ShowError, condition, show_table
from astra.cli.examples import EXAMPLES, command_name
from astra.cli.main import app, commands
from astra.records.task import Task, TaskKind
from astra.store.tables import write_records


def every(group: typer.Typer, above: tuple[str, ...] = ()) -> Iterator[str]:
    for command in group.registered_commands:
        yield " ".join([*above, command_name(command)])
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from every(inner.typer_instance, (*above, str(inner.name)))


@pytest.mark.parametrize("command", sorted(every(commands)))
def test_every_command_has_help_with_examples_that_parse(command: str) -> None:
    result = CliRunner().invoke(commands, [*command.split(), "--help"], terminal_width=200)
    assert result.exit_code == 0
    shown = " ".join(result.output.split())
    assert "Examples:" in shown
    assert EXAMPLES[command]
    for example in EXAMPLES[command]:
        assert example in shown
        words = shlex.split(example)
        assert words[0] == "astra"
        assert example.startswith(f"astra {command}")
        parse(typer.main.get_command(commands), words[1:])


def test_the_module_is_the_command_too(root: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    ended = subprocess.run(
        [sys.executable, "-m", "astra.cli.main", "--help"], env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert "Usage: astra [OPTIONS] COMMAND" in ended.stdout
    assert "doctor" in ended.stdout


def parse(found: Any, words: list[str]) -> None:
    """Raises a usage error for an option or argument that the command does not have."""
    context = found.make_context("astra", list(words))
    while hasattr(found, "commands"):
        name, found, rest = found.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = found.make_context(name, rest, parent=context)


def test_exit_codes_are_documented_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    top = CliRunner().invoke(commands, ["--help"], terminal_width=200).output
    assert "Exit codes: 0 done; 1 the error" in " ".join(top.split())
    for arguments, code in (
        (["--help"], 0),
        (["show", "tasks"], 1),  # no such table
        (["show"], 2),  # an argument is missing
        (["show", "tasks", "--colour"], 2),  # no such option
        (["nothing"], 2),
    ):
        monkeypatch.setattr(sys, "argv", ["astra", *arguments])
        with pytest.raises(SystemExit) as stop:
            app()
        assert stop.value.code == code, arguments
    assert (
        "data/tasks.parquet not found; build it with `dvc repro tasks`" in capsys.readouterr().err
    )


WAITS = """
import sys, time, typer
from astra.cli import main
@main.commands.command("wait")
def wait():
    print("waiting", flush=True)
    time.sleep(100)
sys.argv = ["astra", "wait"]
main.app()
"""


def test_an_interrupt_ends_with_130(root: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        # What is started in the background of a script ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        process.wait(timeout=60)


def complete(line: str) -> list[str]:
    """What bash is offered after ``line``."""
    environment = {
        "_ASTRA_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    return CliRunner().invoke(commands, env=environment, prog_name="astra").output.split()


def test_shells_complete_commands_tables_and_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/rejected").mkdir(parents=True)
    (tmp_path / "data/tasks.parquet").touch()
    (tmp_path / "data/rejected/tasks.parquet").touch()
    assert {"show", "report", "prompts"} <= set(complete("astra "))
    assert complete("astra show ta") == ["tasks"]
    assert complete("astra show rejected/t") == ["rejected/tasks"]
    assert complete("astra prompts render qa/d") == ["qa/decompose", "qa/dependency"]


def test_output_off_a_terminal_is_plain() -> None:
    output = CliRunner().invoke(commands, ["--help"]).output
    assert "Commands:" in output
    assert not {"\x1b", "╭", "│"} & set(output)


def test_prompts_are_listed_with_stages_and_variables(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    output = CliRunner().invoke(commands, ["prompts", "list", "--stage", "qa"]).output
    assert "  qa/decompose\n" in output
    assert "scoring/" not in output
    everything = CliRunner().invoke(commands, ["prompts", "list", "--json"]).output
    rows = {row["template"]: row for row in map(json.loads, everything.splitlines())}
    assert "qa" in rows["qa/decompose"]["stages"]
    assert rows["qa/decompose"]["variables"]
    assert len(everything.splitlines()) == len(list((root / "src").glob("astra/*/prompts/*.j2")))


ROW = {"hops": 3, "question": "What is the Price of Amber Cove?", "kind": "chain", "none": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hops>=3", True), ("hops>3", False), ("hops<4", True), ("hops<=2", False),
        ("hops=3", True), ("hops!=3", False), ("question~price of amber", True),
        ("question~rent", False), ("kind=chain", True), ("kind!=chain", False),
        ("question=What is the Price of Amber Cove?", True), ("none>1", False), ("kind>1", False),
    ],
)  # fmt: skip
def test_conditions(text: str, expected: bool) -> None:
    assert condition(text, list(ROW))(ROW) is expected


@pytest.mark.parametrize("text", ["colour=red", "question", "hops>many", "=3", ""])
def test_a_condition_that_cannot_be_answered_is_refused(text: str) -> None:
    with pytest.raises(ShowError, match="--where"):
        condition(text, list(ROW))


def test_show_takes_a_stage_and_shows_chosen_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = Task(
        server_id="s", chain_id=None, kind=TaskKind.SERVER, language="en", question="how far?",
        plan=(),
    )  # fmt: skip
    write_records(tmp_path / "data/tasks.parquet", [task], Task)
    output = CliRunner().invoke(commands, ["show", "tasks", "--fields", "id,question"]).output
    assert "question: how far?" in output
    assert "language" not in output
    alone = CliRunner().invoke(commands, ["show", "tasks", "--fields", "question"]).output
    assert alone.splitlines()[:2] == [f"Task {task.id}", "  question: how far?"]
    with pytest.raises(ShowError, match="no field 'colour'; there are id, server_id"):
        list(show_table(Path("data/tasks.parquet"), "", [], 1, False, ["colour"]))
