"""``astra world play``: a person is the agent of a world, sees its rows change and the verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from astra.arena.changes import RowDiff, table_diffs
from astra.arena.results import result_text
from astra.arena.user import ScriptedUser, UserAnswer
from astra.arena.user_expert import ScriptedAgent
from astra.arena.verdict import GoalVerdict, judge
from astra.arena.world_runner import WorldRunner
from astra.arena.world_scripts import SpokenTurn
from astra.cli.play import Screen, readable, show_tools
from astra.cli.typed_calls import UnreadableCommand, read_call
from astra.records.world import EventKind, TraceEvent, World, WorldGoal

HELP = """\
NAME(key="text", ...)  call a tool; also NAME {"key": "text"}
say TEXT               say something to the user, who answers
tell TEXT              say something beside a call, which the user does not answer
next                   take the next step of the goal's own trace: a call, a message or a turn
user                   hear the next turn of the goal's own trace, whatever you said
diff                   what has become of the rows so far
state TABLE            the rows of a table as they are; without a name, the tables
verdict                judge what happened so far
goal                   what a solution must reach: effect, outcome, words, reads
tools, policy, help    list the tools, show the policy, show this
reset                  back to the start
quit                   end; with a goal, the verdict is shown"""


class WorldPlay:
    """One person in one world, with a goal or without."""

    def __init__(self, runner: WorldRunner, goal: WorldGoal | None, screen: Screen) -> None:
        self._runner, self._goal, self._screen = runner, goal, screen
        self._world: World = runner.base.world
        self._commands: Mapping[str, Callable[[str], object]] = {
            "say": self._say, "tell": self._tell, "user": self._user, "next": self._next,
            "diff": self._diff, "state": self._state, "verdict": self._verdict,
            "goal": self._show_goal, "tools": self._tools, "policy": self._policy,
            "reset": self._reset,
            "help": lambda _: screen.say(HELP),
        }  # fmt: skip
        self._heard = 0
        """Events of the goal's trace up to the user's latest turn or the latest step."""
        self._brought: set[str] = set()
        """Tools that a turn of the user has brought."""
        self._agent = "you"

    def play(self) -> GoalVerdict | None:
        """Play until ``quit`` or the end of the input; the verdict, where there is a goal."""
        self._policy("")
        self._tools("")
        self._begin()
        self._screen.say("`help` says what can be typed.", "dim")
        lines = self._screen.lines()
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "quit":
                break
            if word in self._commands:
                self._commands[word](rest.strip())
            elif word:
                self._call(line, lines)
        return self._verdict("") if self._goal else None

    def watch(self) -> GoalVerdict | None:
        """Let the goal's scripted agent talk with the goal's user; the verdict.

        Raises ValueError where the goal has no user.
        """
        if self._goal is None or self._goal.script is None:
            raise ValueError("only a goal with a user can be watched")
        self._agent = "agent"
        self._policy("")
        self._begin()
        agent = ScriptedAgent(self._goal.trace)
        turns, answer = agent.opened(), None
        while answer is None or answer.ends is None:
            for turn in turns:
                answer = self._take(turn)
            assert answer is not None  # the last of the turns has no call
            turns = agent.heard(answer.turn)
        self._diff("")
        return self._verdict("")

    def _take(self, turn: SpokenTurn) -> UserAnswer | None:
        """Show a turn of a scripted agent; what the user says to one without a call."""
        if not turn.calls:
            return self._say(turn.text)
        self._tell(turn.text)
        for tool, arguments in turn.calls:
            self._screen.say(f"{tool}({json.dumps(arguments, ensure_ascii=False)})", "dim")
            self._execute(tool, arguments)
        return None

    @property
    def _offered(self) -> list[dict[str, Any]]:
        gone = set(self._goal.withheld if self._goal else ()) - self._brought
        tools = (tool.tool for tool in self._world.tools if tool.tool.name not in gone)
        return [tool.openai() for tool in sorted(tools, key=lambda tool: tool.name)]

    def _begin(self) -> None:
        if self._goal is not None:
            self._event(self._goal.trace[0])
            self._heard = 1

    # What can be typed ------------------------------------------------------------------------

    def _call(self, line: str, lines: Iterator[str]) -> None:
        try:
            call = read_call(line, lines, self._offered)
        except UnreadableCommand as error:
            self._screen.say(f"{error}; `help` says what can be typed", "yellow")
            return
        self._execute(call.name, json.loads(call.arguments))

    def _execute(self, tool: str, arguments: Mapping[str, Any]) -> None:
        event = self._runner.call(tool, arguments).event
        if event.failed:
            self._screen.say(f"error: {event.failed}", "red")
        else:
            self._screen.say(readable(result_text(event.result)), "green")
        for change in event.changes:
            row = None if change.row is None else f" {json.dumps(change.row, ensure_ascii=False)}"
            told = "is gone" if row is None else "is now"
            self._screen.say(f"[{change.table} {change.key} {told}{row or ''}]", "cyan")

    def _tell(self, text: str) -> None:
        if text:
            self._event(TraceEvent(kind=EventKind.ASSISTANT, text=text))

    def _say(self, text: str) -> UserAnswer | None:
        """A message, and what the user says to it where the goal has one."""
        self._tell(text)
        if not text or self._goal is None or self._goal.script is None:
            return None
        user = ScriptedUser(self._world, self._goal)
        reply = user.reply(self._runner.trace, self._runner.tables)
        self._event(reply.turn)
        if reply.ends is not None:
            self._screen.say(f"[the conversation is over: {reply.ends}]", "cyan")
        return reply

    def _user(self, _: str) -> None:
        trace = self._goal.trace if self._goal else ()
        for at in range(self._heard, len(trace)):
            if trace[at].kind == EventKind.USER:
                self._heard = at + 1
                self._event(trace[at])
                return
        self._screen.say("the user has nothing more to say", "yellow")

    def _next(self, _: str) -> None:
        trace = self._goal.trace if self._goal else ()
        if self._heard >= len(trace):
            self._screen.say("there is no further step", "yellow")
            return
        event = trace[self._heard]
        self._heard += 1
        if event.kind == EventKind.CALL:
            self._screen.say(
                f"{event.tool}({json.dumps(event.arguments, ensure_ascii=False)})", "dim"
            )
            self._execute(event.tool, event.arguments)
        else:
            self._event(event)

    def _event(self, event: TraceEvent) -> None:
        """A turn of the user or a message of the agent, shown and noted."""
        self._runner.add(event)
        who = "user" if event.kind == EventKind.USER else self._agent
        act = f" ({event.act})" if event.act else ""
        self._screen.panel(f"{who}{act}", event.text)
        if event.adds_tools:
            self._brought |= {*event.adds_tools}
            self._screen.say(f"[now on offer: {', '.join(event.adds_tools)}]", "cyan")

    def _diff(self, _: str) -> None:
        found = table_diffs(self._world, self._world.rows, self._runner.tables)
        self._screen.say("\n".join(map(diff_line, found)) or "nothing has changed")

    def _state(self, name: str) -> None:
        tables = self._runner.tables
        if name in tables:
            self._screen.say(readable(json.dumps(tables[name], ensure_ascii=False)))
            return
        self._screen.table("tables", {one: f"{len(rows)} rows" for one, rows in tables.items()})

    def _tools(self, _: str) -> None:
        show_tools(self._offered, self._screen)

    def _policy(self, _: str) -> None:
        self._screen.panel(f"{self._world.title}, {self._world.clock}", self._world.policy)

    def _show_goal(self, _: str) -> None:
        if self._goal is None:
            self._screen.say("no goal: the world alone was opened", "yellow")
            return
        goal = self._goal
        outcome = f"{goal.outcome.kind} {goal.outcome.reason}".strip()
        rows = {
            "kind": ", ".join([goal.kind, *goal.traits]), "outcome": outcome,
            "effect": "\n".join(_json(write) for write in goal.effect) or "nothing changes",
            "to say": "\n".join(_json(say.answer) for say in goal.say) or "nothing",
            "to read": "\n".join(f"{p.table} {p.key} {p.column}" for p in goal.must_read),
        }  # fmt: skip
        self._screen.table("goal", {name: value for name, value in rows.items() if value})

    def _reset(self, _: str) -> None:
        self._runner.reset()
        self._brought = set()
        self._begin()

    def _verdict(self, _: str) -> GoalVerdict | None:
        if self._goal is None:
            self._screen.say("no goal: there is nothing to judge by", "yellow")
            return None
        verdict = judge(self._world, self._goal, self._runner.trace, self._runner.tables)
        rows = {
            "end state": "as asked" if verdict.state else "not as asked",
            "outcome": "right" if verdict.outcome else "wrong",
            "said": "all" if verdict.said else "not all, or not as asked",
            "read": "all" if verdict.read else "not all",
            "rules broken": ", ".join(verdict.rules_broken) or "none",
            "reasons": ", ".join(verdict.reasons) or "none",
            "success": "yes" if verdict.success else "no",
        }
        self._screen.table("verdict", rows)
        return verdict


def diff_line(diff: RowDiff) -> str:
    """One row that differs: its sign, table and key, and its cells as they were and are."""
    if diff.sign == "~":
        cells = ", ".join(f"{name} {_json(old)} -> {_json(new)}" for name, old, new in diff.cells)
    else:
        cells = _json(diff.after if diff.before is None else diff.before)
    return f"{diff.sign} {diff.table} {diff.key}: {cells}"


def _json(value: Any) -> str:
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    return json.dumps(value, ensure_ascii=False)
