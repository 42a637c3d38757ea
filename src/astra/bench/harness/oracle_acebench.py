"""The oracle of ACEBench, a scripted user, and why milestones alone do not reach end states.

A milestone list is a part of a solution that somebody wrote down, not a solution. Replayed as
they stand (best of the alternatives, 14 unescaped apostrophes put right), they reach the end
state in 12 of 20 multi-step and 29 of 30 multi-turn tasks. In the others they name a product that
is not on the menu, leave out a login, delete another message than the task says, or end a text
with a full stop that the end state has not. ``solution`` puts these right from the end state; its
calls reach all 50, so checker and tasks agree and it is the milestones that are short.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from astra.bench.harness.scripted import ScriptedTurn, Writer
from astra.text.source import parsed_expression

Call = tuple[str, dict[str, Any]]
FINISHED = "finish conversation"
_OPENS, _CLOSES = "=:,([{", ",)]}:"
INBOX = 6
"""Messages that every phone holds at first, numbered from 1."""


def samples(folder: Path, language: str = "en") -> dict[str, dict[str, Any]]:
    """Task with its answer by id, from data files named as here or in the official repository."""
    by_id: dict[str, dict[str, Any]] = {}
    for category in ("multi_step", "multi_turn"):
        name = f"{language}_agent_{category}.json"
        if not (folder / name).is_file():
            name = f"data_agent_{category}.json"
        answers = {one["id"]: one for one in _lines(folder / "possible_answer" / name)}
        for one in _lines(folder / name):
            by_id[one["id"]] = {**answers[one["id"]], **one}
    return by_id


def _lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def alternatives(sample: Mapping[str, Any]) -> list[list[Call]]:
    """The listed milestones as calls, one list per alternative."""
    stones: list[Any] = sample["mile_stone"]
    listed = stones if stones and isinstance(stones[0], list) else [stones]
    return [[call for stone in one for call in parse(stone)] for one in listed]


def parse(stone: str) -> list[Call]:
    """``[f(x='a'), g()]`` as calls, apostrophes inside texts put right."""
    body = parsed_expression(_escaped(stone.strip())).body
    elements = body.elts if isinstance(body, ast.List) else [body]
    calls: list[Call] = []
    for one in elements:
        if not isinstance(one, ast.Call) or not isinstance(one.func, ast.Name):
            raise ValueError(f"milestone {stone!r} holds something else than calls")
        arguments = {key.arg or "": ast.literal_eval(key.value) for key in one.keywords}
        calls.append((one.func.id, arguments))
    return calls


def _escaped(text: str) -> str:
    """A quote opens after one of ``_OPENS``, closes before one of ``_CLOSES``, else is text."""
    escaped: list[str] = []
    inside = False
    for at, character in enumerate(text):
        if character == "'":
            before, after = text[:at].rstrip()[-1:], text[at + 1 :].lstrip()[:1]
            if inside and after and after in _CLOSES:
                inside = False
            elif not inside and before and before in _OPENS:
                inside = True
            else:
                escaped.append("\\")
        escaped.append(character)
    return "".join(escaped)


def solution(sample: Mapping[str, Any]) -> list[Call]:
    """The first alternative, completed and corrected from the end state."""
    calls = alternatives(sample)[0]
    end: dict[str, Any] = {
        name: state for one in sample["ground_truth"] for name, state in one.items()
    }
    start: Mapping[str, Any] = sample["initial_config"].get("BaseApi", {})
    named = {name for name, _ in calls}
    corrected: list[Call] = []
    if "BaseApi" in sample["involved_classes"]:
        if not start.get("logged_in", True) and "login_device" not in named:
            corrected.append(("login_device", {}))
        if not start.get("wifi", False) and "turn_on_wifi" not in named and _online(named):
            corrected.append(("turn_on_wifi", {}))
    platform: Mapping[str, Any] = end.get("FoodPlatform", {})
    orders = list(platform.get("orders", []))
    for name, arguments in calls:
        if name == "add_food_delivery_order" and orders:
            user = arguments["username"]
            if "login_food_platform" not in {done for done, _ in corrected}:
                password = platform["users"][user]["password"]
                credentials = {"username": user, "password": password}
                corrected.append(("login_food_platform", credentials))
            arguments = {**arguments, "items": _items(orders.pop(0))}
        if "MessageApi" in end:
            arguments = _as_the_inbox(name, arguments, end["MessageApi"]["inbox"])
        corrected.append((name, arguments))
    return corrected


def _online(named: set[str]) -> bool:
    return bool(named & {"send_message", "add_food_delivery_order", "login_food_platform"})


def _items(order: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"product": one["product"], "quantity": one["quantity"]} for one in order["items"]]


def _as_the_inbox(name: str, arguments: dict[str, Any], inbox: Mapping[str, Any]) -> dict[str, Any]:
    """Which message went and which came, as the end state has it."""
    gone = [at for at in range(1, INBOX + 1) if str(at) not in inbox]
    came = [one["message"] for at, one in inbox.items() if int(at) > INBOX]
    if name == "delete_message" and gone:
        return {**arguments, "message_id": gone[0]}
    if name == "send_message" and came:
        return {**arguments, "message": came[0]}
    return arguments


def oracle(tasks: Mapping[str, Mapping[str, Any]], mode: str, drop_last: bool = False) -> Writer:
    """A model that makes the solution's calls one by one; ``drop_last`` leaves the last out.

    It counts its own replies, since an official prompt does not show them: one try per entry.
    """
    return _played(
        {
            name: [_turn(call, mode) for call in solution(sample)[: -1 if drop_last else None]]
            for name, sample in tasks.items()
        }
    )


def careless(tasks: Mapping[str, Mapping[str, Any]]) -> Writer:
    """A model of mode ``prompt`` that knows the solutions and plays them badly, in one of four ways
    by a task's place: it leaves the last call out; misspells an argument of the first; makes all
    calls in one message; talks, calls what is not there, and lists a number beside a call first."""
    scripts: dict[str, list[ScriptedTurn]] = {}
    for place, (name, sample) in enumerate(tasks.items()):
        calls = solution(sample)
        (first, arguments), rest = calls[0], calls[1:]
        scripts[name] = [
            [_turn(call, "prompt") for call in calls[:-1]],
            [_turn(one, "prompt") for one in ((first, {**arguments, "mispelt": 1}), *rest)],
            [ScriptedTurn(content=f"[{', '.join(_written(call) for call in calls)}]")],
            [
                ScriptedTurn(content="Let me see what I can do."),
                _turn(("no_such_function", {}), "prompt"),
                ScriptedTurn(content=f"[{_written(calls[0])}, 0]"),
                *(_turn(call, "prompt") for call in calls),
            ],
        ][place % 4]
    return _played(scripts)


def _played(scripts: Mapping[str, Sequence[ScriptedTurn]]) -> Writer:
    """Each entry's turns one by one, then the words that end a conversation."""
    replies: dict[str, int] = {}

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        at = replies[entry] = replies.get(entry, -1) + 1
        script = scripts[entry]
        return script[at] if at < len(script) else ScriptedTurn(content=FINISHED)

    return write


def _turn(call: Call, mode: str) -> ScriptedTurn:
    if mode == "fc":
        return ScriptedTurn(calls=(call,))
    return ScriptedTurn(content=f"[{_written(call)}]")


def _written(call: Call) -> str:
    name, arguments = call
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def offline_user(turns: int = 3) -> Writer:
    """A user simulator by rule, for runs without a second model: it tells its whole instruction
    at once, then says that all is said, and ends the conversation at message ``turns``."""

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        messages: Sequence[Mapping[str, Any]] = body["messages"]
        said = len(messages) // 2 - 1  # behind instruction and opening, in pairs with the agent's
        if said + 1 >= turns:
            return ScriptedTurn(content=FINISHED)
        if said:
            return ScriptedTurn(content="I have told you all I know. Yes, please go on.")
        instruction = str(messages[0]["content"]).partition("Instruction: ")[2]
        return ScriptedTurn(content=instruction.partition("\n")[0].strip() or "Please help me.")

    return write
