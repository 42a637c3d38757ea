"""``astra arena play``: a person types calls, sees their results and at the end the reward."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from astra.agent.prompt import final_message
from astra.arena.answers import render_answer
from astra.arena.reward import EpisodeScore
from astra.arena.scripted import reference_calls
from astra.export.episode import ArenaEpisode
from astra.records.message import ToolCall
from astra.records.trajectory import StopReason

PROMPT = "> "
OPEN, CLOSE = "<<", "."
HELP = f"""\
NAME(key=value, ...)   call a tool; also NAME {{"key": value}}, and NAME TEXT for one parameter
NAME {OPEN}                the same with text of several lines, up to a line {CLOSE!r}
next                   make the next reference call
answer TEXT            give the final answer and end
tools, help, quit      list the tools, show this, end without an answer"""


class Screen:
    """Colours and frames on a terminal, plain lines off it, where input is echoed too."""

    def __init__(self) -> None:
        self.rich = sys.stdout.isatty()
        self._console = Console(highlight=False)
        if sys.stdin.isatty():
            # input() gets history and editing from it
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]

    def say(self, text: str, style: str = "") -> None:
        if self.rich:
            self._console.print(Text(text, style=style))
        else:
            print(text)

    def panel(self, title: str, text: str) -> None:
        if self.rich:
            self._console.print(Panel(Text(text), title=title, title_align="left"))
        else:
            print(f"{title}: {text}")

    def table(self, title: str, rows: Mapping[str, str]) -> None:
        if not self.rich:
            print(title)
            for name, value in rows.items():
                print(f"  {name}: {value}")
            return
        table = Table(title=title, title_justify="left", show_header=False)
        for name, value in rows.items():
            table.add_row(name, value)
        self._console.print(table)

    def lines(self) -> Iterator[str]:
        """What is typed, line by line, until the input ends."""
        while True:
            try:
                line = input(PROMPT)
            except EOFError:
                self.say("")
                return
            if not sys.stdin.isatty():
                print(line)
            yield line


class UnreadableCommand(ValueError):
    """What was typed is no call; the message says why."""


def play(episode: ArenaEpisode, screen: Screen) -> EpisodeScore:
    """Play until an answer, a limit, `quit` or the end of the input; shows and returns the score.

    Every call is an assistant turn of its own.
    """
    arena = episode.row.arena
    screen.panel(f"arena {arena.id}", arena.main_question)
    _show_tools(episode, screen)
    screen.say("`help` says what can be typed.", "dim")
    reference = iter(reference_calls(arena))
    lines = screen.lines()
    for line in lines:
        word, _, words = line.strip().partition(" ")
        if word == "quit":
            break
        if word == "answer":
            episode.offer({"content": final_message("", [words.strip()]).strip()})
            break
        if word == "next":
            call = next(reference, None)
            if call is None:
                screen.say("there is no further reference call", "yellow")
            else:
                screen.say(f"{call.name}({call.arguments})", "dim")
                _run(episode, call, screen)
        elif word in ("help", "tools"):
            screen.say(HELP) if word == "help" else _show_tools(episode, screen)
        elif word:
            try:
                _run(episode, read_call(line, lines, episode), screen)
            except UnreadableCommand as error:
                screen.say(f"{error}; `help` says what can be typed", "yellow")
        if episode.done:
            break
    return _show_score(episode, screen)


def _run(episode: ArenaEpisode, call: ToolCall, screen: Screen) -> None:
    function = {"name": call.name, "arguments": call.arguments}
    for reply in episode.offer({"tool_calls": [{"function": function}]}):
        style = "red" if reply["content"].startswith("error:") else "green"
        screen.say(reply["content"], style)


def read_call(line: str, more: Iterator[str], episode: ArenaEpisode) -> ToolCall:
    """The call that a line states. Raises UnreadableCommand."""
    text = line.strip()
    if text.endswith(OPEN):
        body = "\n".join(iter(lambda: next(more, CLOSE), CLOSE))
        text = f"{text.removesuffix(OPEN).rstrip()} {body}"
    end = next((at for at, sign in enumerate(text) if not (sign.isalnum() or sign == "_")), None)
    name, stated = (text, "") if end is None else (text[:end], text[end:].strip())
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in episode.tools}
    if name not in schemas:
        raise UnreadableCommand(f"{name or text!r} is no tool and no command")
    arguments = _arguments(name, stated, schemas[name])
    return ToolCall(id="", name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def _arguments(name: str, stated: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    names = _parameters(schema)
    if stated.startswith("{"):
        try:
            parsed = json.loads(stated)
        except ValueError as error:
            raise UnreadableCommand(f"that is no JSON: {error}") from None
        return parsed if isinstance(parsed, dict) else {}
    written = _call_arguments(f"{name}{stated}", names) if stated.startswith("(") else None
    if written is not None:
        return written
    if not stated:
        return {}
    if len(names) != 1:
        raise UnreadableCommand(f"{name} takes {', '.join(names) or 'no argument'}: name them")
    return {names[0]: stated}


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    """Parameter names, required ones first: a stored schema has lost its own order."""
    required = list(schema.get("required", ()))
    return [*required, *(name for name in schema.get("properties", {}) if name not in required)]


def _call_arguments(text: str, names: list[str]) -> dict[str, Any] | None:
    """Arguments of a call in Python's notation, by position or name; None if it is none."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(tree, ast.Call) or len(tree.args) > len(names):
        return None
    pairs = list(zip(names, tree.args, strict=False))
    pairs += [(keyword.arg or "", keyword.value) for keyword in tree.keywords]
    try:
        return {name: ast.literal_eval(value) for name, value in pairs}
    except ValueError:
        raise UnreadableCommand("arguments are numbers, text in quotes, lists or dicts") from None


def _show_tools(episode: ArenaEpisode, screen: Screen) -> None:
    shown: dict[str, str] = {}
    for tool in episode.tools:
        function = tool["function"]
        schema = function["parameters"]
        parameters = [
            f"{name}{'' if name in schema.get('required', ()) else '?'}: "
            f"{schema['properties'][name].get('type', 'any')}"
            for name in _parameters(schema)
        ]
        shown[f"{function['name']}({', '.join(parameters)})"] = function["description"]
    screen.table("tools", shown)


def _show_score(episode: ArenaEpisode, screen: Screen) -> EpisodeScore:
    score, arena = episode.score(), episode.row.arena
    options = episode.row.options
    rows = {
        "ended by": str(episode.stop_reason or "you"),
        "calls": str(len(episode.calls)),
        "sub-tasks solved": f"{score.solved} of {score.subtasks}",
        "recall, precision, F1": f"{score.recall:.4f}, {score.precision:.4f}, {score.f1:.4f}",
        "final answer": "right" if score.answer_correct else _wrong(episode),
        "true answer": render_answer(arena.final_answer),
    }
    if score.state_reached is not None:
        rows["end state"] = "as asked" if score.state_reached else "not as asked"
    rows["success"] = "yes" if score.success else "no"
    rows[f"reward ({options.reward.value}, final answer: {options.final_answer.value})"] = (
        f"{score.reward:.6f}"
    )
    screen.table("result", rows)
    return score


def _wrong(episode: ArenaEpisode) -> str:
    return "wrong" if episode.stop_reason == StopReason.ANSWERED else "not given"
