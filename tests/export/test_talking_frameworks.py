"""Goals with a user who talks, played in the real libraries: same rewards as in our own loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from in_frameworks import ROOT, Played, drive
from scripted import our_reward
from talkers import talking_rows, talking_scripts

from astra.arena.prompt import NEW_TOOLS
from astra.arena.worlds import goal_of
from astra.export.rows import ExportedArena
from astra.sandbox.protocol import Sandbox

pytestmark = pytest.mark.slow
Paid = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def rows() -> list[ExportedArena]:
    return talking_rows()


@pytest.fixture(scope="module")
def late(rows: list[ExportedArena]) -> ExportedArena:
    """A row whose user brings a tool."""
    return next(row for row in rows if goal_of(row.arena).withheld)


@pytest.fixture(scope="module")
def played(rows: list[ExportedArena]) -> Played:
    found: Played = {}
    for row in rows:
        for name, script in talking_scripts(row).items():
            found.setdefault(name, {})[row.id] = script
    return found


@pytest.fixture(scope="module")
def ours(rows: list[ExportedArena], played: Played, sandbox: Sandbox) -> Paid:
    """Our own loop's rewards: talking as the goal does is paid, saying nothing is not."""
    by_id = {row.id: row for row in rows}
    paid = {
        name: {at: our_reward(by_id[at], script, sandbox) for at, script in by_arena.items()}
        for name, by_arena in played.items()
    }
    assert min(paid["reference"].values()) > 0.8
    assert max(paid["says nothing"].values()) == 0.0
    return paid


def test_verifiers_pays_exactly_our_reward(
    framework_python: Callable[[str], Path],
    rows: list[ExportedArena],
    late: ExportedArena,
    played: Played,
    ours: Paid,
    tmp_path: Path,
) -> None:
    found = drive("verifiers", framework_python("verifiers"), rows, played, tmp_path)
    for name, by_arena in ours.items():
        for arena, reward in by_arena.items():
            trace = found[name][arena]
            assert trace["ok"], trace["errors"]
            assert trace["reward"] == reward, (name, arena)
            assert trace["messages"][:3] == ["system", "user", "assistant"]
    assert found["reference"][late.id]["messages"].count("user") >= 2
    offered = found["reference"][late.id]["tools"]
    assert offered[-1] == offered[0] + 1 == len(late.tools) + 1


def test_openenv_pays_exactly_our_reward(
    framework_python: Callable[[str], Path],
    rows: list[ExportedArena],
    played: Played,
    ours: Paid,
    tmp_path: Path,
) -> None:
    found = drive("openenv", framework_python("openenv"), rows, played, tmp_path)
    for client in ("typed", "generic"):
        for name, by_arena in ours.items():
            for arena, reward in by_arena.items():
                episode = found[client][name][arena]
                assert episode["reward"] == reward, (client, name, arena)
                assert episode["done"]
                assert episode["state"]["stop_reason"] in ("answered", "user_left")


def test_verl_pays_exactly_our_reward_and_masks_what_the_user_says(
    framework_python: Callable[[str], Path],
    rows: list[ExportedArena],
    late: ExportedArena,
    played: Played,
    ours: Paid,
    tmp_path: Path,
) -> None:
    tokenizer = str(ROOT / "policies" / "tiny")
    found = drive("verl", framework_python("verl"), rows, played, tmp_path, tokenizer)
    for name, by_arena in ours.items():
        for arena, reward in by_arena.items():
            episode = found["scores"][name][arena]
            assert episode["reward"] == reward, (name, arena)
            assert episode["lengths"] == [episode["logprobs"]] * 2
    heard = found["scores"]["reference"][late.id]
    assert NEW_TOOLS in heard["text"]
    assert NEW_TOOLS not in heard["own"]
