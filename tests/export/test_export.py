"""What an export holds: rows that read back, a runtime that stands alone, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scripted import our_reward, sample_arena, sample_rows, scripts, turn, write_arena
from typer.testing import CliRunner

from astra.cli.arena import arena_app
from astra.export.bundle import ROOT, closure
from astra.export.episode import ArenaEpisode, ArenaFault, assistant_message
from astra.export.rows import EpisodeOptions, ExportError, export_row, read_rows
from astra.export.write import TARGETS, ExportFormat, write_export
from astra.records.environment import Arena, Band
from astra.records.qa import Split
from astra.records.trajectory import StopReason
from astra.sandbox.protocol import Sandbox
from astra.store.tables import read_records, write_records

ALONE = """
import sys
sys.path.insert(0, {folder!r})
from arenas.runtime.export.episode import ArenaEpisode
from arenas.runtime.export.rows import read_rows
from pathlib import Path
rows = list(read_rows(Path({folder!r}) / "arenas" / "arenas.jsonl"))
episode = ArenaEpisode(rows[0])
call = {{"name": "get_price", "arguments": {{"listing": "Amber Cove"}}}}
print(episode.offer({{"tool_calls": [{{"function": call}}]}})[0]["content"])
hostile = ArenaEpisode(rows[1])
call = {{"name": "peek", "arguments": "{{}}"}}
print(hostile.offer({{"tool_calls": [{{"function": call}}]}})[0]["content"])
print(sorted(name for name in sys.modules if name == "astra" or name.startswith("astra.")))
"""
PEEK = "def peek():\n    open('/etc/passwd').read()\n    return 'outside'\n"


def test_rows_read_back_and_say_what_an_agent_sees(tmp_path: Path) -> None:
    rows = sample_rows()
    path = write_export(rows, ExportFormat.JSONL, tmp_path / "deep" / "arenas.jsonl")[0]
    assert list(read_rows(path)) == rows
    line = json.loads(path.read_text().splitlines()[0])
    assert [message["role"] for message in line["prompt"]] == ["system", "user"]
    names = [tool["function"]["name"] for tool in line["tools"]]
    assert names == ["count_rooms", "find_news", "get_price"]
    assert "812" not in json.dumps([line["prompt"], line["tools"]])


def test_candidates_that_were_not_drawn_stay_behind() -> None:
    arena = sample_arena("Amber Cove", 812, 3)
    extra = sample_rows()[0].extra_tools
    offered = arena.model_copy(update={"irrelevant": {Band.LOW: extra}})
    assert export_row(offered, EpisodeOptions()).arena.irrelevant == {}


@pytest.mark.parametrize("target", list(TARGETS))
def test_the_runtime_stands_alone_and_runs_tools_in_the_sandbox(
    target: ExportFormat, tmp_path: Path
) -> None:
    first = sample_arena("Amber Cove", 812, 3)
    tool = first.tools[0].model_copy(
        update={
            "tool": first.tools[0].tool.model_copy(update={"name": "peek", "parameters": {}}),
            "code": PEEK,
        }
    )
    hostile = first.model_copy(update={"tools": (tool,), "id": ""})
    rows = [
        export_row(first, EpisodeOptions()),
        export_row(Arena.model_validate(hostile.model_dump()), EpisodeOptions()),
    ]
    out = tmp_path / "out"
    files = write_export(rows, target, out, "arenas")
    for file in files:
        if file.suffix == ".py":
            source = file.read_text()
            assert "from astra." not in source
            assert "pyright:" not in source
            compile(source, str(file), "exec")
    if target != ExportFormat.VERIFIERS:  # one run is enough: the runtime is the same
        return
    (out / "arenas" / "__init__.py").write_text("")  # the adapter needs its framework
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import site; site.main()\n" + ALONE.format(folder=str(out))],
        capture_output=True, text=True, check=True, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"},
        timeout=300,
    )  # fmt: skip
    price, peeked, loaded = done.stdout.splitlines()
    assert price == "812"
    assert peeked.startswith("error:")
    assert "outside" not in peeked
    assert loaded == "[]", "the project itself must not be needed"


@pytest.mark.parametrize("target", [one for one in ExportFormat if one != ExportFormat.TAU2])
def test_documents_arguments_and_tables_keep_their_order(
    target: ExportFormat, tmp_path: Path
) -> None:
    """From the table of arenas to every package, where ``listing`` comes before ``guest``."""
    write_records(tmp_path / "arenas.parquet", [write_arena()], Arena)
    (arena,) = read_records(tmp_path / "arenas.parquet", Arena)
    files = write_export([export_row(arena, EpisodeOptions())], target, tmp_path / "out")
    (written,) = [file for file in files if file.suffix == ".jsonl" or target == "jsonl"]
    (row,) = read_rows(written)
    shown = {tool["function"]["name"]: tool["function"]["parameters"] for tool in row.tools}
    assert list(shown["reserve_room"]["properties"]) == ["listing", "guest"]
    assert list(row.arena.tools[0].tool.parameters["properties"]) == ["listing", "guest"]
    assert list(row.arena.steps[0].arguments) == ["listing", "guest"]
    (booking,) = json.loads(row.arena.expected_state)["bookings"]
    assert list(booking) == ["booking", "listing", "guest"]


def test_the_closure_has_the_sandbox_and_nothing_heavy() -> None:
    names = {str(path.relative_to(ROOT)) for path in closure(["export/episode.py"])}
    assert {"arena/env.py", "arena/reward.py", "arena/state.py", "sandbox/local.py"} <= names
    heavy = ("llm", "rollout", "train", "store", "cli")
    assert not [name for name in names if name.split("/")[0] in heavy]


def test_exports_are_refused_where_they_would_hurt(tmp_path: Path) -> None:
    rows = sample_rows()
    with pytest.raises(ExportError, match="no arena"):
        write_export([], ExportFormat.TRL, tmp_path / "x")
    with pytest.raises(ExportError, match="package's name"):
        write_export(rows, ExportFormat.TRL, tmp_path / "x", "my-arenas")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(ExportError, match="no export wrote it"):
        write_export(rows, ExportFormat.TRL, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()
    write_export(rows, ExportFormat.TRL, tmp_path / "x")
    write_export(rows, ExportFormat.VERL, tmp_path / "x")  # its own it may replace
    assert (tmp_path / "x" / "train.parquet").is_file()
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": 1}\n')
    with pytest.raises(ExportError, match="line 1 is no exported arena"):
        list(read_rows(bad))


def test_a_cut_episode_has_no_final_answer(sandbox: Sandbox) -> None:
    row = sample_rows()[0]
    episode = ArenaEpisode(row, sandbox)
    episode.cut()
    assert episode.done
    assert episode.stop_reason == StopReason.MAX_TOKENS
    assert episode.score().reward == 0.0


def test_a_failed_sandbox_is_a_fault_and_no_score(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astra.export import episode as module
    from astra.records.message import CallStatus, ToolResult

    lost = ToolResult(status=CallStatus.INFRA, content="error: the zygote died")
    monkeypatch.setattr(module, "execute_batch", lambda pairs: [lost for _ in pairs])
    row = sample_rows()[0]
    episode = ArenaEpisode(row, sandbox)
    with pytest.raises(ArenaFault, match="zygote died"):
        episode.offer(scripts(row)["gold"][0])
    with pytest.raises(ArenaFault):
        episode.score()


def test_messages_of_several_shapes_are_understood() -> None:
    parts = {"content": [{"type": "text", "text": "a"}, {"type": "image"}], "tool_calls": None}
    assert assistant_message(parts).content == "a"
    bare = {"tool_calls": [{"name": "f", "arguments": {"x": 1}}]}
    call = assistant_message(bare, 3).tool_calls[0]
    assert (call.id, call.name, call.arguments) == ("call_3", "f", '{"x": 1}')
    assert assistant_message(turn("", ("f", "{broken"))).tool_calls[0].arguments == "{broken"


def test_the_command_picks_splits_and_draws_irrelevant_tools(tmp_path: Path) -> None:
    offered = {Band.LOW: sample_rows()[0].extra_tools}
    arenas = [
        sample_arena("Amber Cove", 812, 3).model_copy(update={"irrelevant": offered}),
        sample_arena("Jade Mill", 455, 3),
        write_arena(),
    ]
    arenas[1] = sample_arena("Jade Mill", 455, 3, Split.HELDOUT)
    table = tmp_path / "arenas.parquet"
    write_records(table, arenas, Arena)

    def export(*more: str) -> list[str]:
        out = tmp_path / "out.jsonl"
        arguments = ["export", "--format", "jsonl", "--table", str(table), "--out", str(out)]
        done = CliRunner().invoke(arena_app, [*arguments, *more])
        assert done.exit_code == 0, done.output
        rows = list(read_rows(out))
        return sorted(f"{row.split.value} {len(row.extra_tools)} {row.options.reward.value}"
                      for row in rows)  # fmt: skip

    assert export() == ["train 0 f1", "train 1 f1"]
    assert export("--split", "heldout", "--reward", "recall") == ["heldout 0 recall"]
    assert export("--irrelevant", "none", "--limit", "1") == ["train 0 f1"]


EXPECTED = {
    "gold": (1.0, 1.0),
    "one by one": (1.0, 4 / 5),  # the second looks a price up first
    "idle": (0.0, 0.0),
    "answer only": (0.0, 0.0),
    "calls only": (4 / 6, 2 / 4),
    "three times": (6 / 14, 0.0),  # the second reserves three rooms
    "checked": (6 / 8, 1.0),  # a price read again; the reservation looked up
}


@pytest.mark.parametrize(("name", "rewards"), EXPECTED.items())
def test_what_the_scripted_agents_are_paid(
    sandbox: Sandbox, name: str, rewards: tuple[float, float]
) -> None:
    reads, _, writes = sample_rows()
    for row, reward in zip((reads, writes), rewards, strict=True):
        assert our_reward(row, scripts(row)[name], sandbox) == pytest.approx(reward, abs=1e-6)


def test_a_document_runs_like_any_tool_in_an_export(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write_export(sample_rows(), ExportFormat.JSONL, tmp_path / "arenas.jsonl")[0]
    episode = ArenaEpisode(next(read_rows(path)), sandbox)
    (reply,) = episode.offer(turn("", ("find_news", {"topic": "Amber Cove"})))
    assert reply["content"] == "error: no topic named Amber Cove"
    episode.close()
