"""One arena played by hand: through a terminal and through a pipe; and how calls are typed."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.cli.play import Screen as PlayScreen
from astra.cli.play import play, readable
from astra.cli.typed_calls import UnreadableCommand, read_call
from astra.envsynth.interpreter.arenas import assemble
from astra.envsynth.interpreter.problems import Problem
from astra.export.episode import ArenaEpisode
from astra.export.rows import EpisodeOptions, export_row, row_line
from astra.records.environment import Arena, ArenaStep, ArenaTool
from astra.records.message import ToolCall
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.tool import Tool
from astra.sandbox.local import LocalSandbox
from astra.store.tables import write_records

COMMAND = [sys.executable, "-c", "from astra.cli.main import app; app()", "arena", "play"]
PRICE = 'def get_price(listing):\n    return {"Amber Cove": 812, "Jade Mill": 455}[listing]\n'
ROOMS = 'def count_rooms(listing, floor=None):\n    return {"Amber Cove": 33}[listing]\n'
TEXT = {"type": "string"}
FLOOR = {"type": "integer", "description": "Counted from 0.", "minimum": 0, "title": "floor"}


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
               tool("count_rooms", ROOMS, listing=TEXT, floor=FLOOR)),
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


def played(table: Path, typed: str, *options: str) -> list[str]:
    done = subprocess.run(
        [*COMMAND, str(table), arena().id[:6], *options], input=typed, capture_output=True,
        text=True, check=True, timeout=300,
    )  # fmt: skip
    assert "\x1b" not in done.stdout
    return done.stdout.splitlines()


def test_a_pipe_gets_plain_lines_and_the_reward(table: Path) -> None:
    typed = 'nonsense\nget_price Amber Cove\ncount_rooms("Nobody")\nnext\nnext\nanswer 845\n'
    lines = played(table, typed)
    assert lines[0] == f"system: {AGENT_SYSTEM_PROMPT}"
    assert lines[1] == f"arena {arena().id}: How much is Amber Cove per room?"
    shown = lines.index("  count_rooms(listing: string, floor?: integer): count_rooms.")
    assert lines[shown + 1] == "    floor: Counted from 0.; minimum 0"
    assert "'nonsense' is no tool and no command; `help` says what can be typed" in lines
    assert lines[lines.index("> get_price Amber Cove") + 1] == "812"
    assert "error: KeyError: 'Nobody'" in lines
    assert "  final answer: right" in lines
    assert "  sub-tasks solved: 3 of 3" in lines
    assert "  calls: 4, which cost 5" in lines
    assert lines[-1] == "  reward (f1, final answer: subtask): 0.666667"


def test_a_slip_costs_nothing_and_is_explained(table: Path) -> None:
    typed = "get_price(listing=Amber Cove)\ncount_rooms Amber Cove\nget_price (listing=x)\n"
    lines = played(table, typed)
    hints = [line for line in lines if line.endswith("`help` says what can be typed")]
    assert hints == [
        'text needs quotes: get_price(listing="Amber Cove"); `help` says what can be typed',
        "count_rooms has 2 parameters, so each is named: "
        'count_rooms(listing="Amber Cove"); `help` says what can be typed',
        'text needs quotes: get_price(listing="x"); `help` says what can be typed',
    ]
    assert "  calls: 0" in lines


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("answer 845", "right"),
        ("answer So it is <answer>845</answer>", "right"),
        ("<answer>845</answer>", "right"),
        ("It is <answer> 845 </answer>.", "right"),
        ("answer 8455", "wrong"),
        ("answer <answer>1</answer>", "wrong"),
    ],
)
def test_an_answer_may_have_the_agents_form(
    sandbox: LocalSandbox, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    typed: str, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO(f"next\nnext\n{typed}\n"))
    one = ArenaEpisode(export_row(arena(), EpisodeOptions()), sandbox)
    score = play(one, PlayScreen())
    one.close()
    assert f"final answer: {said}\n" in capsys.readouterr().out
    assert score.answer_correct is (said == "right")


def test_an_answer_that_no_call_led_to_does_not_count(table: Path) -> None:
    lines = played(table, "answer 845\n")
    assert "  final answer: right, but what it rests on is not solved" in lines
    assert lines[-1] == "  reward (f1, final answer: subtask): 0.000000"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("812", "812"),
        ("error: no", "error: no"),
        ("[]", "[]"),
        ('["Ada","Bay"]', "Ada\nBay"),
        ('{"price":5,"sold":true,"name":"Ada"}', "price: 5\nsold: true\nname: Ada"),
        ('[{"room":"Ada","beds":2},{"room":"Bay Two","beds":12}]',
         "room     beds\nAda      2\nBay Two  12"),
        ('{"rows":[{"room":"Ada"},{"room":"Bay"}],"next_page":null}',
         "rows:\n  room\n  Ada\n  Bay\nnext_page: null"),
        ('[{"a":1},{"b":2}]', '{"a": 1}\n{"b": 2}'),
        ('[{"a":1},3]', '{"a": 1}\n3'),
        ('{"rows":[],"next_page":2}', "rows: []\nnext_page: 2"),
        ('{"rows":[{"a\n[cut: 90 more]', '{"rows":[{"a\n[cut: 90 more]'),
    ],
)  # fmt: skip
def test_results_are_laid_out_for_people(content: str, expected: str) -> None:
    assert readable(content) == expected


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
        screen.until("reward")
    finally:
        process.wait(timeout=60)
        os.close(leader)
    assert process.returncode == 0
    assert "\x1b[32m812" in screen.text
    assert "right, but" in screen.text


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


def schema(name: str, *required: str, **properties: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": properties, "required": list(required)}}}  # fmt: skip


TOOLS = [
    schema("get_price", "listing", listing=TEXT),
    schema("count_rooms", "listing", listing=TEXT, floor={"type": "integer"}),
    schema("list_rooms", "page", page={"type": "integer"}),
    schema("reserve", "room", "guest", "nights", room=TEXT, guest=TEXT, nights={"type": "integer"},
           paid={"type": "boolean"}),
    schema("get_clock"),
    schema("查价", "房源", 房源=TEXT),
    schema("python", "code", code=TEXT),
]  # fmt: skip


def typed_call(line: str, *more: str) -> ToolCall:
    return read_call(line, iter(more), TOOLS)


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ('count_rooms(listing="Amber Cove", floor=2)', {"listing": "Amber Cove", "floor": 2}),
        ("count_rooms('Amber Cove', 2)", {"listing": "Amber Cove", "floor": 2}),
        ('count_rooms ("Amber Cove")', {"listing": "Amber Cove"}),
        ('count_rooms {"listing": "x"}', {"listing": "x"}),
        ('count_rooms{"listing": "x"}', {"listing": "x"}),
        ("get_price Amber Cove", {"listing": "Amber Cove"}),
        ('get_price "Amber Cove"', {"listing": "Amber Cove"}),
        ("get_price “Amber Cove”", {"listing": "Amber Cove"}),
        ("get_price O'Hara's", {"listing": "O'Hara's"}),
        ("get_price 12", {"listing": "12"}),
        ("get_price", {}),
        ("get_price()", {}),
        ("get_clock()", {}),
        ("list_rooms 2", {"page": 2}),
        ("list_rooms two", {"page": "two"}),
        ('reserve("Ada", guest="Bo", nights=2, paid=true)',
         {"room": "Ada", "guest": "Bo", "nights": 2, "paid": True}),
        ("查价 琥珀湾", {"房源": "琥珀湾"}),
        ('查价(房源="琥珀湾")', {"房源": "琥珀湾"}),
        ("python (1 + 2) * 3", {"code": "(1 + 2) * 3"}),
        ("python 'a' + 'b'", {"code": "'a' + 'b'"}),
    ],
)  # fmt: skip
def test_calls_can_be_typed_in_several_ways(line: str, arguments: dict[str, Any]) -> None:
    call = typed_call(line)
    assert json.loads(call.arguments) == arguments
    assert line.startswith(call.name)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("sell(x=1)", "'sell' is no tool and no command"),
        ("?", "'?' is no tool and no command"),
        ("get_price(listing=y)", 'text needs quotes: get_price(listing="y")'),
        ("get_price(Noble Square)", 'text needs quotes: get_price(listing="Noble Square")'),
        ("get_price(x", 'text needs quotes: get_price(listing="x")'),
        ("get_price(“Noble Square”)", 'text needs quotes: get_price(listing="Noble Square")'),
        ("get_price listing=Noble Square", 'text needs quotes: get_price(listing="Noble Square")'),
        ("get_price (listing = Noble, 2)", 'text needs quotes: get_price(listing="Noble, 2")'),
        ("查价(房源=琥珀湾)", '查价(房源="琥珀湾")'),
        ("count_rooms Amber", 'named: count_rooms(listing="Amber")'),
        ("count_rooms(listing=Noble Square, floor=2)",
         'text needs quotes: count_rooms(listing="Noble Square", floor=2)'),
        ("count_rooms(Noble Square, 2)",
         'text needs quotes: count_rooms(listing="Noble Square", floor=2)'),
        ("reserve Ada", 'reserve has 4 parameters, so each is named: '
         'reserve(room="Ada", guest=..., nights=...)'),
        ("reserve(room=Ada, nights=2)", 'reserve(room="Ada", nights=2, guest=...)'),
        ('reserve("a", "b", 3, true, 5)', "reserve takes 4 arguments at most"),
        ('get_price("Amber", "Cove")', "get_price takes 1 argument at most: get_price(listing="),
        ('get_price("Amber Cove)', 'text needs quotes: get_price(listing="Amber Cove")'),
        ("get_price(listing={1})", "text needs quotes: get_price(listing=\"{1}\")"),
        ("get_clock(1)", "get_clock takes no argument: get_clock()"),
        ("get_clock now", "get_clock takes no argument: get_clock()"),
        ("get_clock(now)", "get_clock takes no argument: get_clock()"),
        ('count_rooms {"listing": }', "that is no JSON"),
        ("count_rooms <<", "count_rooms has 2 parameters, so each is named"),
    ],
)  # fmt: skip
def test_what_is_no_call_is_told_and_how_it_is_typed(line: str, hint: str) -> None:
    with pytest.raises(UnreadableCommand, match=re.escape(hint)):
        typed_call(line, "Amber", ".")


def test_a_hint_can_be_typed_as_it_stands() -> None:
    for line in ("get_price(Noble Square)", "count_rooms(listing=Noble Square, floor=2)"):
        with pytest.raises(UnreadableCommand) as caught:
            typed_call(line)
        again = typed_call(str(caught.value).partition(": ")[2])
        assert json.loads(again.arguments)["listing"] == "Noble Square"


def test_several_lines_are_one_argument(sandbox: LocalSandbox) -> None:
    problem = Problem(question="q", answer=number(812), split=Split.TRAIN, domain="d", source="s",
                      composition="c")  # fmt: skip
    code = ArenaEpisode(export_row(assemble(problem), EpisodeOptions()), sandbox)
    typed = iter(["for n in (1, 2):", "    print(n)", ".", "rest"])
    call = read_call("python <<", typed, code.tools)
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
