"""``astra world play`` from a pipe: calls, rows, turns of the user and the verdict; ``astra show``
of worlds."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from astra.arena.world_runner import WorldRunner
from astra.arena.world_table import read_arenas
from astra.arena.worlds import base_of, goal_of
from astra.cli.main import commands
from astra.cli.play import Screen
from astra.cli.world import WorldPlayError, _chosen
from astra.cli.world_play import WorldPlay
from astra.export.rows import ExportError
from astra.records.environment import Arena
from astra.records.world import EventKind, OutcomeKind, World
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from world_goals import worlds_and_goals, write_tables


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("play"))


def typed(
    arena: Arena | World, lines: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[list[str], bool | None]:  # fmt: skip
    """What a pipe sees after these lines, and whether the verdict is a success."""
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    world, goal = (
        (arena, None) if isinstance(arena, World) else (base_of(arena).world, goal_of(arena))
    )
    with LocalSandbox(SandboxLimits(cpu_s=60)) as sandbox, WorldRunner(world, sandbox) as runner:
        verdict = WorldPlay(runner, goal, Screen()).play()
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    return shown.splitlines(), verdict.success if verdict else None


def arenas(table: Path, **wanted: object) -> list[Arena]:
    found = [
        one for one in read_arenas(table)
        if all(getattr(goal_of(one), name) == value for name, value in wanted.items())
    ]  # fmt: skip
    assert found
    return found


def test_every_goals_own_steps_are_a_success(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arena in read_arenas(table):
        steps = ["next"] * len(goal_of(arena).trace)
        shown, success = typed(arena, [*steps, "quit"], monkeypatch, capsys)
        assert success, shown[-9:]
        assert "there is no further step" in shown
        assert shown[-1] == "  success: yes"


def test_doing_nothing_is_told_apart(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declined = next(
        one for one in read_arenas(table) if goal_of(one).outcome.kind == OutcomeKind.DECLINED
    )
    shown, success = typed(declined, ["say I cannot do that.", "diff"], monkeypatch, capsys)
    assert not success
    assert "nothing has changed" in shown
    assert "  reasons: outcome_missing:declined" in shown
    assert "you: I cannot do that." in shown


def test_a_write_shows_the_row_and_reset_takes_it_back(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = next(one for one in read_arenas(table) if goal_of(one).effect)
    steps = ["next"] * (len(goal_of(arena).trace) - 1)
    lines = [*steps, "diff", "reset", "diff", "verdict"]
    shown, success = typed(arena, lines, monkeypatch, capsys)
    at = shown.index("> diff")
    tables = {write.table for write in goal_of(arena).effect}
    assert {line.split()[1] for line in shown[at + 1 : shown.index("> reset")]} == tables
    assert all(line[0] in "+~-" for line in shown[at + 1 : shown.index("> reset")])
    assert "nothing has changed" in shown[at:]
    assert not success


def test_tools_that_are_withheld_come_with_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, (late, *_) = worlds_and_goals("tool_rental", goals=3, late_tools=True)
    goal = goal_of(late)
    name = goal.withheld[0]
    resolved = late.model_copy(update={"state": json.dumps(world.model_dump(mode="json"))})
    users = sum(event.kind == EventKind.USER for event in goal.trace) - 1
    lines = [f"{name}()", *["user"] * (users + 1), f"{name}()"]
    shown, _ = typed(resolved, lines, monkeypatch, capsys)
    assert f"'{name}' is no tool and no command; `help` says what can be typed" in shown
    assert f"[now on offer: {name}]" in shown
    assert "the user has nothing more to say" in shown
    last = shown[len(shown) - 1 - shown[::-1].index(f"> {name}()") + 1]
    assert last.startswith("error: ")


def test_the_user_answers_what_is_said(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = next(one for one in read_arenas(table) if goal_of(one).outcome.kind == OutcomeKind.DONE)
    steps = ["next"] * len(goal_of(arena).trace)
    said = ["say Please wait.", "tell I am looking.", "say Please wait."]
    shown, _ = typed(
        arena, [*said, "reset", *steps, "say I have prolonged it for you."], monkeypatch, capsys
    )
    assert sum(line.startswith("user (nudge): ") for line in shown) == 2
    assert sum(line.startswith("user (close): ") for line in shown) == 1
    assert "[the conversation is over: answered]" in shown
    script = goal_of(arena).script
    assert script is not None
    alone = arena.model_copy(update={"goal": json.dumps(
        goal_of(arena).model_copy(update={"script": None}).model_dump(mode="json"))})  # fmt: skip
    shown, _ = typed(alone, said, monkeypatch, capsys)
    assert not any(line.startswith("user (nudge)") for line in shown)


def test_a_world_alone_has_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, _ = worlds_and_goals()
    table = next(one.name for one in world.tables if one.name != "outcomes")
    lines = ["verdict", "goal", "user", "next", "state", f"state {table}"]
    shown, success = typed(world, lines, monkeypatch, capsys)
    assert success is None
    assert "no goal: there is nothing to judge by" in shown
    assert f"  {table}: {len(world.rows[table])} rows" in shown
    head = shown[shown.index(f"> state {table}") + 1].split()
    assert head == list(world.rows[table][0])


def test_an_id_that_names_nothing_is_told(table: Path, tmp_path: Path) -> None:
    with pytest.raises(WorldPlayError, match="0 worlds or arenas"):
        _chosen(table, "zzz")
    with pytest.raises(WorldPlayError, match="not found"):
        _chosen(tmp_path / "goals.parquet", "")
    world, goal = _chosen(table.with_name("worlds.parquet"), "")
    assert (world.domain, goal) == ("tool_rental", None)


def test_look_up_arenas_and_worlds_have_commands_of_their_own(table: Path) -> None:
    for needed in (True, False):
        (arena, *_) = arenas(table, needs_user=needed)
        done = CliRunner().invoke(commands, ["arena", "play", str(table), arena.id])
        assert isinstance(done.exception, ExportError)
        assert f"astra world play {table} {arena.id}" in str(done.exception)


def test_a_world_is_shown_as_a_page(table: Path) -> None:
    worlds = str(table.with_name("worlds.parquet"))
    page = CliRunner().invoke(commands, ["show", worlds]).output
    world, _ = worlds_and_goals()
    for rule in world.rules:
        assert rule.text in page
    for tool in world.tools:
        assert f"{tool.tool.name}(" in page
    assert all(f"{one.name} ({len(world.rows[one.name])} rows" in page for one in world.tables)
    assert world.policy.splitlines()[0] in page
    fields = CliRunner().invoke(commands, ["show", worlds, "--fields", "domain"]).output
    assert "policy" not in fields
    line = CliRunner().invoke(commands, ["show", worlds, "--json"]).output.splitlines()[0]
    assert json.loads(line)["title"] == world.title
