"""Worlds as domains of tau2-Bench: tasks, what is left out, and tools as its toolkit runs them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted import sample_rows
from tau2_stand_in import Environment, Registry, put_in_place
from typer.testing import CliRunner

from astra.arena.verdict import expected_rows
from astra.arena.world_table import read_arenas
from astra.arena.worlds import base_of, goal_of
from astra.cli.arena import arena_app
from astra.export.rows import EpisodeOptions, ExportError, export_row
from astra.export.tau2 import Unplayable, communicated, instructions, tau2_domains, tau2_task
from astra.export.write import ExportFormat, write_domains, write_export
from astra.records.environment import Arena
from astra.records.qa import Answer, AnswerType
from astra.records.world import (
    OUTCOMES,
    EventKind,
    FactTime,
    GoalOutcome,
    OutcomeKind,
    Say,
    TraceEvent,
    UserAct,
    UserFact,
    UserScript,
    UserTurn,
    WorldGoal,
)
from world_goals import worlds_and_goals, write_tables


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("worlds"))


@pytest.fixture(scope="module")
def arenas(table: Path) -> list[Arena]:
    return list(read_arenas(table))


def with_goal(arena: Arena, **changes: Any) -> Arena:
    goal = goal_of(arena).model_copy(update=changes)
    return arena.model_copy(update={"goal": goal.model_dump_json()})


def said(*texts: str) -> tuple[TraceEvent, ...]:
    opening = TraceEvent(kind=EventKind.USER, act=UserAct.OPENING, text="Hello.")
    return (opening, *(TraceEvent(kind=EventKind.ASSISTANT, text=text) for text in texts))


def asking(answer: Answer, *texts: str, **more: Any) -> dict[str, Any]:
    """A goal's fields: look something up, and tell it."""
    return {"effect": (), "outcome": GoalOutcome(kind=OutcomeKind.DONE), "withheld": (),
            "say": (Say(answer=answer, read=()),), "trace": said(*texts), **more}  # fmt: skip


# Tasks ---------------------------------------------------------------------------------------


def test_a_task_holds_the_goals_calls_and_words(arenas: list[Arena]) -> None:
    playable = [arena for arena in arenas if not goal_of(arena).withheld]
    assert any(goal_of(arena).needs_user for arena in playable)
    for arena in playable:
        task, goal = tau2_task(arena), goal_of(arena)
        calls = [(event.tool, event.arguments) for event in goal.trace if event.tool]
        criteria = task["evaluation_criteria"]
        assert [(one["name"], one["arguments"]) for one in criteria["actions"]] == calls
        assert criteria["reward_basis"] == ["DB", "COMMUNICATE"]
        assert bool(criteria["communicate_info"]) == bool(goal.say)
        assert goal.trace[0].text in task["user_scenario"]["instructions"]["reason_for_call"]


NUMBER, TEXT = AnswerType.NUMBER, AnswerType.STRING


@pytest.mark.parametrize(
    ("answer", "text", "told"),
    [
        (Answer(type=NUMBER, value=1042.5), "That is 1,042.50 in all.", ["1042.5"]),
        (Answer(type=NUMBER, value=12.0), "It is 12.", ["12"]),
        (Answer(type=AnswerType.ENUM, value="in_order"), "It is in order.", ["in order"]),
        (Answer(type=TEXT, value="Rex, Max"), "They are Rex, Max.", ["Rex Max"]),
        (Answer(type=AnswerType.LIST, value=["a1", "b2"]), "A1 and B2.", ["a1", "b2"]),
        (Answer(type=AnswerType.RECORD, value={"n": 3, "d": "x9"}), "3, x9", ["3", "x9"]),
    ],
)
def test_what_must_be_told_is_a_text_that_the_reference_says(
    answer: Answer, text: str, told: list[str]
) -> None:
    goal = WorldGoal(kind="read_only", **asking(answer, text))  # type: ignore[arg-type]
    assert communicated(goal) == told


def test_what_tau2_cannot_play_or_would_pay_for_nothing_is_left_out(arenas: list[Arena]) -> None:
    first = arenas[0]
    number = Answer(type=NUMBER, value=7)
    yes = Answer(type=AnswerType.BOOLEAN, value=True)
    odd = {
        "no_world": sample_rows()[0].arena,
        "withheld_tool": with_goal(first, withheld=("find",)),
        "untellable": with_goal(first, **asking(yes, "Yes, it is true.")),
        "pays_for_nothing": with_goal(first, **asking(number, "7", say=())),
    }
    for reason, arena in odd.items():
        with pytest.raises(Unplayable, match=f"^{reason}$"):
            tau2_task(arena)
    greeting = Answer(type=TEXT, value="help")
    with pytest.raises(Unplayable, match="pays_for_nothing"):
        tau2_task(with_goal(first, **asking(greeting, "help")))
    assert tau2_task(with_goal(first, **asking(number, "7")))
    with pytest.raises(ExportError, match=r"none of 4 arenas.*'withheld_tool': 1"):
        tau2_domains(list(odd.values()))


def test_without_a_script_the_user_is_told_what_the_trace_holds(arenas: list[Arena]) -> None:
    world, goal = base_of(arenas[0]).world, goal_of(arenas[0])
    turn = TraceEvent(kind=EventKind.USER, act=UserAct.CHANGE, text="No, 5.", facts={"days": 5})
    opening = goal.trace[0].model_copy(update={"facts": {"days": 3}})
    told = instructions(world, goal.model_copy(update={"script": None, "trace": (opening, turn)}))
    assert told["known_info"] == "days: 3\ndays: 5 (once you have changed your mind)"
    assert 'change your mind. Say: "No, 5."' in str(told["task_instructions"])


def test_the_user_is_told_what_the_script_says_and_when(arenas: list[Arena]) -> None:
    world, goal = base_of(arenas[0]).world, goal_of(arenas[0])
    script = UserScript(
        facts=(UserFact(slot="own email", value="a@b.example", when=FactTime.OPENING),
               UserFact(slot="days", value=3, when=FactTime.ASKED),
               UserFact(slot="hires.tool", value="saw", when=FactTime.CHANGE)),
        turns=(UserTurn(act=UserAct.ANSWER, slots=("days",), wordings=("Three days.", "3.")),
               UserTurn(act=UserAct.ANSWER, slots=("days",), changed=True, wordings=("Five.",)),
               UserTurn(act=UserAct.CHANGE, wordings=("Rather the saw.",)),
               UserTurn(act=UserAct.REQUEST, wordings=("And extend it.",)),
               UserTurn(act=UserAct.LEAVE, wordings=("I give up.",))),
        patience=2, most_turns=10,
    )  # fmt: skip
    told = instructions(world, goal.model_copy(update={"script": script}))
    assert told["known_info"] == (
        "own email: a@b.example\ndays: 3 (only when you are asked for it)\n"
        "hires.tool: saw (once you have changed your mind)"
    )
    lines = str(told["task_instructions"]).splitlines()
    assert lines[0] == 'When you are asked for days, say: "Three days."'
    assert lines[1] == 'Once you have changed your mind, and are asked for days, say: "Five."'
    assert lines[2].endswith('change your mind. Say: "Rather the saw."')
    assert lines[3].endswith('Say: "And extend it."')
    assert len(lines) == 5  # what always holds comes last; giving up is the simulator's own


# The package ---------------------------------------------------------------------------------


@pytest.fixture
def exported(
    arenas: list[Arena], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, Registry]]:
    """The written package, imported where tau2 is the stand-in."""
    registry = put_in_place(monkeypatch)
    files, domains = write_domains(arenas, tmp_path / "out", "clinic_package")
    assert {file.name for file in files} >= {"db.json", "policy.md", "tasks.json", "__main__.py"}
    assert not [file for file in files if file.suffix == ".py" and "from astra" in file.read_text()]
    assert domains.count + sum(domains.left_out.values()) == len(arenas)
    monkeypatch.syspath_prepend(str(tmp_path / "out"))
    yield importlib.import_module("clinic_package"), registry
    for name in [name for name in sys.modules if name.startswith("clinic_package")]:
        del sys.modules[name]


def test_the_references_calls_reach_the_goals_state(
    exported: tuple[Any, Registry], arenas: list[Arena]
) -> None:
    package, registry = exported
    (name,) = package.register()
    tasks = registry.tasks[name](task_split_name="base")
    by_id = {arena.id: arena for arena in arenas}
    assert len(tasks) >= 3
    for task in tasks:
        world, goal = base_of(by_id[task.id]).world, goal_of(by_id[task.id])
        environment = registry.domains[name](solo_mode=False)
        assert environment.policy.strip() == world.policy.strip()
        for action in task.evaluation_criteria["actions"]:
            answer = environment.call(action["name"], **action["arguments"])
            assert not answer.startswith("Error"), answer
            json.loads(answer)
        reached = environment.tools.db.model_dump()
        for table, rows in expected_rows(world, goal).items():
            key = next(one.key for one in world.tables if one.name == table)
            assert reached[table] == {row[key]: row for row in rows}
        outcomes = [(row["outcome"], row["reason"]) for row in reached[OUTCOMES].values()]
        done = goal.outcome.kind == OutcomeKind.DONE
        assert outcomes == ([] if done else [(goal.outcome.kind.value, goal.outcome.reason)])
    with pytest.raises(ValueError, match="no split 'dev'"):
        registry.tasks[name](task_split_name="dev")


def test_a_call_that_fails_changes_nothing_and_says_why(
    exported: tuple[Any, Registry], arenas: list[Arena]
) -> None:
    package, registry = exported
    (name,) = package.register()
    environment: Environment = registry.domains[name]()
    before = environment.tools.db.model_dump()
    world = base_of(arenas[0]).world
    for one in world.tools:
        answer = environment.call(one.tool.name, no_such_argument=1)
        assert answer.startswith(f"Error: arguments of {one.tool.name}: ")
        signature = environment.signature(one.tool.name)
        assert list(signature.parameters) == list(one.tool.parameters.get("properties", {}))
        method = type(environment.tools).marked[one.tool.name]
        assert method.tool_type == ("write" if one.writes else "read")
        assert one.tool.description in method.__doc__
    declining = {"reason": "no such reason"}
    assert environment.call("decline_request", **declining).startswith("Error: arguments of")
    assert environment.tools.db.model_dump() == before


def test_the_command_writes_domains_and_tells_what_it_left_out(table: Path, tmp_path: Path) -> None:
    world, _ = worlds_and_goals()
    arguments = ["export", "--format", "tau2", "--table", str(table), "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(arena_app, [*arguments, "--split", world.split.value])
    assert result.exit_code == 0, result.output
    assert "of 1 domains" in result.output
    (database,) = tmp_path.glob("o/*/*/db.json")
    assert set(json.loads(database.read_text())) == {one.name for one in world.tables}
    readme = (tmp_path / "o" / "README.md").read_text()
    assert f"--domain {database.parent.name}" in readme


def test_a_failed_export_leaves_the_last_one_alone(arenas: list[Arena], tmp_path: Path) -> None:
    write_domains(arenas, tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ExportError, match="tau2 can play none"):
        write_export(sample_rows(), ExportFormat.TAU2, tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before
    rows = [export_row(arena, EpisodeOptions()) for arena in arenas
            if not goal_of(arena).needs_user]  # fmt: skip
    assert write_export(rows, ExportFormat.TAU2, tmp_path / "out", "again")
    assert not (tmp_path / "out" / "astra_worlds").exists()
