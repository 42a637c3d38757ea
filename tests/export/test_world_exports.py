"""Arenas in worlds leave the project whole: policy, tools, rows and verdict; users do not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted import our_reward
from talkers import talking_rows, talking_scripts, without_script
from typer.testing import CliRunner

from astra.arena.env import UserFault
from astra.arena.reward import CALL_COST
from astra.arena.world_scripts import agent_turns
from astra.arena.world_table import read_arenas
from astra.arena.worlds import UnknownWorld, base_of, goal_of
from astra.cli.arena import arena_app
from astra.export.adapters import trl
from astra.export.episode import ArenaEpisode, ArenaFault
from astra.export.rows import (
    EpisodeOptions,
    ExportedArena,
    ExportError,
    export_row,
    has_user,
    lacks_user,
    read_rows,
    worlds_file,
)
from astra.export.write import ExportFormat, write_export
from astra.records.environment import Arena
from astra.records.qa import QuestionKind
from astra.records.trajectory import StopReason
from astra.sandbox.protocol import Sandbox
from astra.store.tables import read_records, write_records
from world_goals import write_tables


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("worlds"))


@pytest.fixture(scope="module")
def rows(table: Path) -> list[ExportedArena]:
    alone = [without_script(one) for one in read_arenas(table)]
    found = [export_row(one, EpisodeOptions()) for one in alone if not lacks_user(one)]
    assert len(found) >= 3
    return found


def messages(arena: Arena) -> list[dict[str, Any]]:
    """The goal's own trace as a chat's assistant messages, thoughts in front of what is said."""
    return [
        {
            "role": "assistant", "content": f"<think>1042</think>{turn.text}",
            "tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}
                           for name, arguments in turn.calls],
        }
        for turn in agent_turns(goal_of(arena).trace)
    ]  # fmt: skip


def played(row: ExportedArena, said: list[dict[str, Any]], sandbox: Sandbox) -> ArenaEpisode:
    episode = ArenaEpisode(row, sandbox)
    for message in said:
        if not episode.done:
            episode.offer(message)
    return episode


def test_a_row_shows_the_policy_and_the_tools(rows: list[ExportedArena]) -> None:
    for row in rows:
        world = base_of(row.arena).world
        assert row.prompt[0]["content"] == world.policy
        offered = {tool["function"]["name"] for tool in row.tools}
        assert offered == {t.tool.name for t in world.tools} - {*goal_of(row.arena).withheld}


def test_the_reference_is_paid_and_silence_is_not(
    rows: list[ExportedArena], sandbox: Sandbox
) -> None:
    for row in rows:
        said = messages(row.arena)
        calls = sum(len(message["tool_calls"]) for message in said)
        episode = played(row, said, sandbox)
        assert episode.score().reward == pytest.approx(1 - CALL_COST * calls)
        silent = played(row, [{"role": "assistant", "content": "done."}], sandbox)
        assert silent.score().reward == 0.0
        episode.close()
        silent.close()


def test_what_is_said_decides_and_thoughts_are_not_said(
    rows: list[ExportedArena], sandbox: Sandbox
) -> None:
    asking = [row for row in rows if goal_of(row.arena).say]
    assert asking
    for row in asking:
        hushed = [
            {**one, "content": f"<think>{one['content'].replace('</think>', '')}</think>"}
            for one in messages(row.arena)
        ]
        episode = played(row, hushed, sandbox)
        assert (episode.score().success, episode.score().state_reached) == (False, True)
        episode.close()


@pytest.mark.parametrize("target", [one for one in ExportFormat if one != ExportFormat.TAU2])
def test_a_world_is_written_once_and_read_back(
    target: ExportFormat, rows: list[ExportedArena], tmp_path: Path
) -> None:
    files = write_export(rows, target, tmp_path / "out")
    (written,) = [one for one in files if one.name in ("arenas.jsonl", "out")]
    beside = worlds_file(written)
    assert beside in files
    assert len(beside.read_text().splitlines()) == 1
    assert rows[0].arena.state not in written.read_text()
    assert list(read_rows(written)) == rows
    beside.unlink()
    with pytest.raises(ExportError, match=r"line 1: its world \w+ is not in"):
        list(read_rows(written))
    beside.write_text("{}\n")
    with pytest.raises(ExportError, match="line 1 is no world"):
        list(read_rows(written))


def test_trl_puts_calls_between_what_was_said(
    rows: list[ExportedArena], sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trl, "shared_sandbox", lambda limits: sandbox)
    for row in rows:
        environment = trl._environment_class(row)()
        assert score(environment, row, played_by_trl(environment, row)) > 0.5
        unsaid = [{**one, "content": ""} for one in played_by_trl(environment, row)]
        assert (score(environment, row, unsaid) == 0.0) is bool(goal_of(row.arena).say)
        first = [{"role": "assistant", "content": said_in(row)}, *unsaid]
        assert (score(environment, row, first) == 0.0) is bool(goal_of(row.arena).say)


def said_in(row: ExportedArena) -> str:
    return " ".join(turn.text for turn in agent_turns(goal_of(row.arena).trace))


def played_by_trl(environment: trl.ArenaEnvironment, row: ExportedArena) -> list[Mapping[str, Any]]:
    """The messages of an episode as TRL keeps them, its calls made."""
    environment.reset()
    kept: list[Mapping[str, Any]] = []
    for turn in agent_turns(goal_of(row.arena).trace):
        calls = [
            {"function": {"name": name, "arguments": dict(given)}} for name, given in turn.calls
        ]
        kept.append({"role": "assistant", "content": turn.text, "tool_calls": calls})
        for name, given in turn.calls:
            kept.append({"role": "tool", "content": getattr(environment, name)(**given)})
    return kept


def score(
    environment: trl.ArenaEnvironment, row: ExportedArena, said: Sequence[Mapping[str, Any]]
) -> float:
    return trl._score(environment, said, True)


def test_a_goal_that_needs_a_user_and_has_none_is_refused_with_its_reason(tmp_path: Path) -> None:
    table = write_tables(tmp_path)
    alone = [without_script(one) for one in read_records(table, Arena)]
    write_records(table, sorted(alone, key=lambda one: one.id), Arena)
    talking = [one for one in read_arenas(table) if lacks_user(one)]
    assert talking
    with pytest.raises(ExportError, match="no script of a user"):
        export_row(talking[0], EpisodeOptions())
    out = tmp_path / "out.jsonl"
    given = ["--format", "jsonl", "--table", str(table), "--out", str(out)]
    done = CliRunner().invoke(arena_app, ["export", *given])
    assert f"{len(talking)} arenas left out: their goals need a user who talks" in done.output
    assert not [row for row in read_rows(out) if lacks_user(row.arena)]


def test_a_goal_with_a_script_is_exported_and_its_user_answers(sandbox: Sandbox) -> None:
    for row in talking_rows():
        assert has_user(row.arena)
        script = talking_scripts(row)["reference"]
        episode = played(row, [dict(message) for message in script], sandbox)
        assert episode.stop_reason == StopReason.ANSWERED
        assert episode.score().reward == our_reward(row, script, sandbox) > 0.8
        episode.close()


def test_a_user_who_fails_is_a_fault_and_no_score(sandbox: Sandbox) -> None:
    class Fails:
        def reply(self, trace: Sequence[Any], rows: Any) -> Any:
            raise UserFault("nobody is there")

    episode = ArenaEpisode(talking_rows()[0], sandbox)
    episode._env.user = Fails()
    with pytest.raises(ArenaFault, match="the user failed: nobody is there"):
        episode.offer({"role": "assistant", "content": "Hello."})
    with pytest.raises(ArenaFault, match="the sandbox or the user failed"):
        episode.score()
    episode.close()


def test_a_table_without_its_worlds_is_refused(table: Path, tmp_path: Path) -> None:
    alone = tmp_path / "goals.parquet"
    alone.write_bytes(table.read_bytes())
    with pytest.raises(UnknownWorld, match=r"worlds\.parquet is not there"):
        list(read_arenas(alone))


def test_every_kind_without_a_user_is_there(rows: list[ExportedArena]) -> None:
    kinds = {row.arena.kind for row in rows}
    assert kinds >= {QuestionKind.WRITE}
