"""Oracles of BFCL and tau2: scripted models that know the ground truth, to prove the harness.

An oracle must score 1, a mute model 0; a harness is trusted only where its oracle does. They read
the harness's own data files from the bench environment, as plain JSON, and know an entry by the
header that drivers send.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from astra.bench.harness.environment import bench_environment
from astra.bench.harness.protocol import SuiteError
from astra.bench.harness.scripted import ScriptedTurn, Writer
from astra.text.source import parsed_expression

DONE = ScriptedTurn(content="Done.")
Call = tuple[str, dict[str, Any]]


def package(name: str) -> Path:
    """A package's folder in the bench environment."""
    folders = sorted(bench_environment().glob(f"lib/python3*/site-packages/{name}"))
    if not folders:
        raise SuiteError(f"the bench environment has no package {name}; run `make bench-env`")
    return folders[0]


def _linear(scripts: dict[str, list[ScriptedTurn]], first: int = 0) -> Writer:
    """Assistant message i of an entry is turn i of its script, the last one repeated."""

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        said = sum(message["role"] == "assistant" for message in body["messages"]) - first
        script = scripts[entry]
        return script[min(said, len(script) - 1)]

    return write


# BFCL


def bfcl_truths() -> dict[str, list[list[str]]]:
    """Ground-truth calls by entry and turn."""
    folder = package("bfcl_eval") / "data" / "possible_answer"
    truths: dict[str, list[list[str]]] = {}
    for path in sorted(folder.glob("BFCL_v*_multi_turn_*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                row = json.loads(line)
                truths[row["id"]] = row["ground_truth"]
    return truths


def bfcl(mode: str, drop_last: bool = False) -> Writer:
    """The oracle in a mode; ``drop_last`` leaves the last call of the last turn out."""
    scripts: dict[str, list[ScriptedTurn]] = {}
    places = bfcl_parameters()
    for entry, truth in bfcl_truths().items():
        turns = [list(calls) for calls in truth]
        if drop_last and turns[-1]:
            turns[-1].pop()
        scripts[entry] = [turn for calls in turns for turn in _bfcl_turn(calls, mode, places)]
    return _linear(scripts)


def bfcl_parameters() -> dict[str, list[str]]:
    """Parameter names of every simulated function, in order."""
    parameters: dict[str, list[str]] = {}
    for path in sorted((package("bfcl_eval") / "data" / "multi_turn_func_doc").glob("*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                tool = json.loads(line)
                parameters[tool["name"]] = list(tool["parameters"]["properties"])
    return parameters


def _bfcl_turn(
    calls: Sequence[str], mode: str, places: Mapping[str, Sequence[str]]
) -> Iterator[ScriptedTurn]:
    parsed = [parse_call(call, places) for call in calls]
    if parsed:
        yield bfcl_said(parsed, mode)
    yield DONE


def bfcl_said(calls: Sequence[Call], mode: str) -> ScriptedTurn:
    """Calls as a model says them in a mode of BFCL."""
    if mode != "prompt":
        return ScriptedTurn(calls=tuple(calls))
    # By name: the official parser of texts loses values given by place.
    texts = (
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        for name, arguments in calls
    )
    return ScriptedTurn(content=f"[{', '.join(texts)}]")


def parse_call(text: str, places: Mapping[str, Sequence[str]]) -> Call:
    """``f('a', x=1)`` as name and arguments; ``places``: parameter names by function."""
    node = parsed_expression(text.strip()).body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise SuiteError(f"ground truth {text!r} is no call")
    name = node.func.id
    positional = zip(places.get(name, ())[: len(node.args)], node.args, strict=True)
    arguments = {key: ast.literal_eval(value) for key, value in positional}
    arguments.update((str(one.arg), ast.literal_eval(one.value)) for one in node.keywords)
    return name, arguments


# tau2

TAU2_DOMAINS = ("retail", "telecom", "airline")
STOP = "###STOP###"
LOOKUPS = ("get_", "find_", "search_", "list_", "calculate")
"""How names of agents' tools that change nothing begin."""


def tau2_tasks() -> dict[str, dict[str, Any]]:
    """Tasks of the base splits by entry id, ``<domain>/<task id>``."""
    tasks: dict[str, dict[str, Any]] = {}
    for domain in TAU2_DOMAINS:
        folder = package("tau2") / "data" / "tau2" / "domains" / domain
        base = set(json.loads((folder / "split_tasks.json").read_text(encoding="utf-8"))["base"])
        for task in json.loads((folder / "tasks.json").read_text(encoding="utf-8")):
            if task["id"] in base:
                tasks[f"{domain}/{task['id']}"] = task
    return tasks


def tau2_agent(drop_last: bool = False) -> Writer:
    """Plays the agent's actions, hands over where the user's follow, says what must be said.

    ``drop_last`` leaves out the last call that does more than look something up.
    """
    scripts = {entry: _sides(task)[0] for entry, task in tau2_tasks().items()}
    if drop_last:
        scripts = {entry: _without_last_deed(script) for entry, script in scripts.items()}
    return _linear(scripts, first=1)


def _without_last_deed(script: list[ScriptedTurn]) -> list[ScriptedTurn]:
    deeds = [
        at
        for at, turn in enumerate(script)
        if any(not name.startswith(LOOKUPS) for name, _ in turn.calls)
    ]
    return [turn for at, turn in enumerate(script) if not deeds or at != deeds[-1]]


def tau2_user() -> Writer:
    """A user simulator that plays the user's actions when told to, then ends."""
    return _linear({entry: _sides(task)[1] for entry, task in tau2_tasks().items()})


def tau2_patient_user() -> Writer:
    """A user who plays all own actions at once, whatever the agent says, and ends."""
    scripts: dict[str, list[ScriptedTurn]] = {}
    for entry, task in tau2_tasks().items():
        own = [turn for turn in _sides(task)[1] if turn.calls]
        scripts[entry] = [
            ScriptedTurn(content="Please solve my problem."),
            *own,
            ScriptedTurn(content=STOP),
        ]
    return _linear(scripts)


def _sides(task: dict[str, Any]) -> tuple[list[ScriptedTurn], list[ScriptedTurn]]:
    """Scripts of agent and user, which alternate segment by segment of the actions."""
    criteria: dict[str, Any] = task["evaluation_criteria"] or {}
    agent: list[ScriptedTurn] = []
    user = [ScriptedTurn(content="Please solve my problem.")]
    for action in criteria.get("actions") or []:
        call = ScriptedTurn(calls=((action["name"], action["arguments"]),))
        if action.get("requestor", "assistant") == "assistant":
            if user[-1].calls:
                user.append(ScriptedTurn(content="I did that."))
            agent.append(call)
        else:
            if not user[-1].calls:
                agent.append(ScriptedTurn(content="Please do the next step yourself."))
            user.append(call)
    said = " ".join(map(str, criteria.get("communicate_info") or []))
    if user[-1].calls:
        user.append(ScriptedTurn(content="I did that."))
    agent.append(ScriptedTurn(content=f"All is done. {said}".strip()))
    user.append(ScriptedTurn(content=STOP))
    return agent, user
