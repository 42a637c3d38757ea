"""Exported packages in the real libraries, each in its own environment: same rewards as ours."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from in_frameworks import ROOT, Played, drive
from scripted import BROKEN_JSON, our_reward, sample_rows, scripts

from astra.export.rows import ExportedArena
from astra.sandbox.protocol import Sandbox


@pytest.fixture(scope="module")
def rows() -> list[ExportedArena]:
    return sample_rows()


@pytest.fixture(scope="module")
def played(rows: list[ExportedArena]) -> Played:
    found: Played = {}
    for row in rows:
        for name, script in {**scripts(row), **BROKEN_JSON}.items():
            found.setdefault(name, {})[row.id] = script
    return found


@pytest.fixture(scope="module")
def ours(
    rows: list[ExportedArena], played: Played, sandbox: Sandbox
) -> dict[str, dict[str, float]]:
    """Our own loop's rewards; varied enough for equality to mean something."""
    by_id = {row.id: row for row in rows}
    rewards = {
        name: {at: our_reward(by_id[at], script, sandbox) for at, script in by_arena.items()}
        for name, by_arena in played.items()
    }
    assert len({reward for found in rewards.values() for reward in found.values()}) >= 8
    return rewards


@pytest.mark.slow
def test_verifiers_pays_exactly_our_reward(
    framework_python: Callable[[str], Path],
    rows: list[ExportedArena],
    played: Played,
    ours: dict[str, dict[str, float]],
    tmp_path: Path,
) -> None:
    found = drive("verifiers", framework_python("verifiers"), rows, played, tmp_path)
    for name, by_arena in ours.items():
        for arena, reward in by_arena.items():
            trace = found[name][arena]
            assert trace["ok"], trace["errors"]
            assert trace["reward"] == reward, (name, arena)
    gold = found["gold"][rows[0].id]
    assert gold["messages"] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert gold["harness"] == "astra-arenas"


@pytest.mark.slow
def test_openenv_pays_exactly_our_reward(
    framework_python: Callable[[str], Path],
    rows: list[ExportedArena],
    played: Played,
    ours: dict[str, dict[str, float]],
    tmp_path: Path,
) -> None:
    python = framework_python("openenv")
    found = drive("openenv", python, rows, played, tmp_path)
    for client in ("typed", "generic"):
        for name, by_arena in ours.items():
            for arena, reward in by_arena.items():
                episode = found[client][name][arena]
                assert episode["reward"] == reward, (client, name, arena)
                assert episode["done"]
                assert episode["rewards"][:-1] == [0.0] * (len(episode["rewards"]) - 1)
                assert episode["state"]["arena_id"] == arena
    validated = subprocess.run(
        [python.with_name("openenv"), "validate", "--level", "static", "--skip-build", "."],
        cwd=tmp_path / "export", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Verdict: PASS" in validated.stdout, validated.stdout + validated.stderr


@pytest.mark.slow
def test_verl_reads_the_rows_and_its_agent_loop_pays_exactly_our_reward(
    framework_python: Callable[[str], Path],
    rows: list[ExportedArena],
    played: Played,
    ours: dict[str, dict[str, float]],
    tmp_path: Path,
) -> None:
    tokenizer = str(ROOT / "policies" / "tiny")
    found = drive("verl", framework_python("verl"), rows, played, tmp_path, tokenizer)
    assert found["rows"] == [[row.id, "astra_arena"] for row in rows]
    assert found["registered"] == found["configured"]
    for name, by_arena in ours.items():
        for arena, reward in by_arena.items():
            episode = found["scores"][name][arena]
            assert episode["reward"] == reward, (name, arena)
            assert episode["lengths"] == [episode["logprobs"]] * 2
    gold = found["scores"]["gold"][rows[0].id]
    assert 0 < gold["written"] < gold["lengths"][0], "what tools return must be masked out"
    assert "<tool_response>812" in gold["text"].replace("\n", "").replace("> ", ">")
