"""``astra arena play``: a person types calls, sees their results and at the end the reward.

What a model is shown is shown: system prompt, question, tools with all that their schemas say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from astra.agent.prompt import extract_answer, final_message
from astra.arena.answers import render_answer
from astra.arena.reward import EpisodeScore, FinalAnswer
from astra.arena.scripted import reference_calls
from astra.cli.typed_calls import CLOSE, OPEN, UnreadableCommand, parameters, read_call
from astra.export.episode import ArenaEpisode
from astra.records.message import ToolCall
from astra.records.trajectory import StopReason

PROMPT = "> "
HELP = f"""\
NAME(key="text", ...)  call a tool; also NAME {{"key": "text"}}, and NAME TEXT for one parameter
NAME {OPEN}                the same with text of several lines, up to a line {CLOSE!r}
next                   make the next reference call
answer TEXT            give the final answer and end; also a message with <answer>TEXT</answer>
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


def play(episode: ArenaEpisode, screen: Screen) -> EpisodeScore:
    """Play until an answer, a limit, `quit` or the end of the input; shows and returns the score.

    Every call is an assistant turn of its own.
    """
    arena = episode.row.arena
    screen.panel("system", episode.prompt[0]["content"])
    screen.panel(f"arena {arena.id}", arena.main_question)
    _show_tools(episode, screen)
    screen.say("`help` says what can be typed.", "dim")
    reference = iter(reference_calls(arena))
    lines = screen.lines()
    for line in lines:
        word = line.strip().partition(" ")[0]
        if word == "quit":
            break
        final = _final_message(line, episode)
        if final is not None:
            episode.offer({"content": final})
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
                _run(episode, read_call(line, lines, episode.tools), screen)
            except UnreadableCommand as error:
                screen.say(f"{error}; `help` says what can be typed", "yellow")
        if episode.done:
            break
    return _show_score(episode, screen)


def _final_message(line: str, episode: ArenaEpisode) -> str | None:
    """The final message that a line states, in the agent's own form or bare; None if it is none."""
    word, _, words = line.strip().partition(" ")
    called = word.partition("(")[0] in {tool["function"]["name"] for tool in episode.tools}
    if extract_answer(line) is not None and not called:
        return line.strip()
    return final_message("", [words.strip()]).strip() if word == "answer" else None


def _run(episode: ArenaEpisode, call: ToolCall, screen: Screen) -> None:
    function = {"name": call.name, "arguments": call.arguments}
    for reply in episode.offer({"tool_calls": [{"function": function}]}):
        style = "red" if reply["content"].startswith("error:") else "green"
        screen.say(readable(reply["content"]), style)


def readable(content: str) -> str:
    """A result for people: a line per field of a record, a line per row of a list of records.

    Whatever else it is stays as the model reads it.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    return "\n".join(_lines(value)) if isinstance(value, dict | list) and value else content


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, field in cast("dict[str, Any]", value).items():
            if _is_table(field):
                yield f"{name}:"
                yield from (f"  {line}" for line in _lines(field))
            else:
                yield f"{name}: {_cell(field)}"
    elif _is_table(value):
        rows = cast("list[dict[str, Any]]", value)
        columns = list(rows[0])
        cells = [columns, *([_cell(row[name]) for name in columns] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    else:
        yield from (_cell(item) for item in value)


def _is_table(value: Any) -> bool:
    """Whether a value is a list of records with the same fields."""
    if not isinstance(value, list) or not value:
        return False
    rows = cast("list[Any]", value)
    return all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show_tools(episode: ArenaEpisode, screen: Screen) -> None:
    show_tools(episode.tools, screen)


def show_tools(tools: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    """Show what function schemas say: signatures, descriptions, parameters."""
    shown: dict[str, str] = {}
    for tool in tools:
        function = tool["function"]
        schema = function["parameters"]
        signature = [
            f"{name}{'' if name in schema.get('required', ()) else '?'}: "
            f"{schema['properties'][name].get('type', 'any')}"
            for name in parameters(schema)
        ]
        told = [function["description"], *_described(schema)]
        shown[f"{function['name']}({', '.join(signature)})"] = "\n".join(told)
    screen.table("tools", shown)


def _described(schema: Mapping[str, Any]) -> Iterator[str]:
    """A line for each parameter of which more is said than its type."""
    for name in parameters(schema):
        said: dict[str, Any] = {
            key: value
            for key, value in schema["properties"][name].items()
            if key not in ("type", "title")
        }
        words = [str(said.pop("description"))] if said.get("description") else []
        words += [f"{key} {_listed(value)}" for key, value in said.items() if key != "description"]
        if words:
            yield f"    {name}: {'; '.join(words)}"


def _listed(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_cell(item) for item in cast("Sequence[Any]", value))
    return _cell(value)


def _show_score(episode: ArenaEpisode, screen: Screen) -> EpisodeScore:
    score, arena = episode.score(), episode.row.arena
    options = episode.row.options
    rows = {
        "ended by": str(episode.stop_reason or "you"),
        "calls": _calls(episode, score),
        "sub-tasks solved": f"{score.solved} of {score.subtasks}",
        "recall, precision, F1": f"{score.recall:.4f}, {score.precision:.4f}, {score.f1:.4f}",
        "final answer": _answer(episode, score),
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


def _calls(episode: ArenaEpisode, score: EpisodeScore) -> str:
    made = len(episode.calls)
    as_subtask = episode.row.options.final_answer == FinalAnswer.SUBTASK
    paid = score.calls - 1 if as_subtask else score.calls
    return str(made) if paid == made else f"{made}, which cost {paid}"


def _answer(episode: ArenaEpisode, score: EpisodeScore) -> str:
    if episode.stop_reason != StopReason.ANSWERED:
        return "not given"
    if not score.answer_correct:
        return "wrong"
    return "right" if score.answer_counts else "right, but what it rests on is not solved"
