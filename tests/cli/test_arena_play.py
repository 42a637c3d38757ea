"""One arena played by hand: through a terminal and through a pipe; and how calls are typed."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from astra.cli.play import UnreadableCommand, read_call
from astra.envsynth.interpreter.arenas import assemble
from astra.envsynth.interpreter.problems import Problem
from astra.export.episode import ArenaEpisode
from astra.export.rows import EpisodeOptions, export_row, row_line
from astra.records.environment import Arena, ArenaStep, ArenaTool
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.tool import Tool
from astra.sandbox.local import LocalSandbox
from astra.store.tables import write_records

COMMAND = [sys.executable, "-c", "from astra.cli.main import app; app()", "arena", "play"]
PRICE = 'def get_price(listing):\n    return {"Amber Cove": 812, "Jade Mill": 455}[listing]\n'
ROOMS = 'def count_rooms(listing, floor=None):\n    return {"Amber Cove": 33}[listing]\n'
TEXT = {"type": "string"}


def tool(name: str, code: str, **properties: object) -> ArenaTool:
    schema = {"type": "object", "properties": properties, "required": ["listing"],
              "additionalProperties": False}  # fmt: skip
    return ArenaTool(tool=Tool(name=name, description=f"{name}.", parameters=schema), code=code)


def number(value: int) -> Answer:
    return Answer(type=AnswerType.NUMBER, value=value)


def arena() -> Arena:
    asked = {"listing": "Amber Cove"}
    return Arena(
        qa_id="qa", split=Split.HELDOUT, domain="d", language="en", source="test",
        kind=QuestionKind.READ_ONLY, scenario=Scenario.PARALLEL_SINGLE_HOP, hops=2,
        main_question="How much is Amber Cove per room?", final_answer=number(845),
        tools=(tool("get_price", PRICE, listing=TEXT),
               tool("count_rooms", ROOMS, listing=TEXT, floor={"type": "integer"})),
        steps=(
            ArenaStep(id=1, hop_level=1, question="p", answer=number(812), tool_name="get_price",
                      arguments=asked),
            ArenaStep(id=2, hop_level=1, question="r", answer=number(33), tool_name="count_rooms",
                      arguments=asked),
        ),
        entities=("Amber Cove",), composition="c",
    )  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("play") / "arenas.parquet"
    write_records(path, [arena()], Arena)
    return path


def test_a_pipe_gets_plain_lines_and_the_reward(table: Path) -> None:
    typed = 'nonsense\nget_price Amber Cove\ncount_rooms("Nobody")\nnext\nnext\nanswer 845\n'
    done = subprocess.run(
        [*COMMAND, str(table), arena().id[:6]], input=typed, capture_output=True, text=True,
        check=True, timeout=300,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == f"arena {arena().id}: How much is Amber Cove per room?"
    assert "  count_rooms(listing: string, floor?: integer): count_rooms." in lines
    assert "'nonsense' is no tool and no command; `help` says what can be typed" in lines
    assert lines[lines.index("> get_price Amber Cove") + 1] == "812"
    assert "error: KeyError: 'Nobody'" in lines
    assert "  final answer: right" in lines
    assert "  sub-tasks solved: 3 of 3" in lines
    assert "  calls: 4" in lines
    assert lines[-1] == "  reward (f1, final answer: subtask): 0.750000"
    assert "\x1b" not in done.stdout


def test_a_terminal_gets_frames_and_colours(table: Path) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, str(table), arena().id], stdin=follower, stdout=follower, stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}, close_fds=True,
    )  # fmt: skip
    os.close(follower)
    screen = Screen(leader)
    try:
        screen.until("> ")
        assert "╭" in screen.text
        screen.type('get_price(listing="Amber Cove")\n')
        screen.until("812")
        screen.type("answer 845\n")
        screen.until("0.800000")
    finally:
        process.wait(timeout=60)
        os.close(leader)
    assert process.returncode == 0
    assert "\x1b[32m812" in screen.text
    assert "right" in screen.text


class Screen:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def until(self, wanted: str, timeout_s: float = 240.0) -> None:
        """Read until the text appears after what was read before."""
        start, deadline = len(self.text), time.monotonic() + timeout_s
        while wanted not in self.text[start:]:
            left = deadline - time.monotonic()
            assert left > 0, f"{wanted!r} never came: {self.text}"
            if select.select([self._descriptor], [], [], left)[0]:
                self.text += os.read(self._descriptor, 4096).decode()


def test_an_unknown_id_is_told(table: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(table), "zzz"], input="", capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 1
    assert "0 arenas have an id that starts with 'zzz' (none)" in done.stderr


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox() as opened:
        yield opened


@pytest.fixture(scope="module")
def episode(sandbox: LocalSandbox) -> ArenaEpisode:
    return ArenaEpisode(export_row(arena(), EpisodeOptions()), sandbox)


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ('count_rooms(listing="Amber Cove", floor=2)', '{"listing": "Amber Cove", "floor": 2}'),
        ('count_rooms("Amber Cove", 2)', '{"listing": "Amber Cove", "floor": 2}'),
        ('count_rooms {"listing": "x"}', '{"listing": "x"}'),
        ("get_price Amber Cove", '{"listing": "Amber Cove"}'),
        ("get_price(x", '{"listing": "(x"}'),
        ("get_price", "{}"),
    ],
)
def test_calls_can_be_typed_in_several_ways(
    episode: ArenaEpisode, line: str, arguments: str
) -> None:
    call = read_call(line, iter(()), episode)
    assert (call.name, call.arguments) == (line.split("(")[0].split(" ")[0], arguments)


@pytest.mark.parametrize("line", ["count_rooms Amber", "sell(x=1)", "get_price(listing=y)", "?"])
def test_what_is_no_call_is_told(episode: ArenaEpisode, line: str) -> None:
    with pytest.raises(UnreadableCommand):
        read_call(line, iter(()), episode)


def test_several_lines_are_one_argument(sandbox: LocalSandbox) -> None:
    problem = Problem(question="q", answer=number(812), split=Split.TRAIN, domain="d", source="s",
                      composition="c")  # fmt: skip
    code = ArenaEpisode(export_row(assemble(problem), EpisodeOptions()), sandbox)
    typed = iter(["for n in (1, 2):", "    print(n)", ".", "rest"])
    call = read_call("python <<", typed, code)
    assert call.arguments == '{"code": "for n in (1, 2):\\n    print(n)"}'
    assert next(typed) == "rest"


def test_exported_lines_can_be_played(tmp_path: Path) -> None:
    path = tmp_path / "arenas.jsonl"
    path.write_text(row_line(export_row(arena(), EpisodeOptions())) + "\n")
    done = subprocess.run(
        [*COMMAND, str(path), arena().id], input="quit\n", capture_output=True, text=True,
        check=True, timeout=300,
    )  # fmt: skip
    assert "  final answer: not given" in done.stdout
    assert done.stdout.endswith("reward (f1, final answer: subtask): 0.000000\n")
