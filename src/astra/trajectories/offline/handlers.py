"""The offline emulator and the offline user: rules that answer for tools and for the user."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from astra.agent.prompt import MISSING_VALUE
from astra.llm.protocol import OfflineHandlers
from astra.trajectories import emulated, follow_up, user
from astra.trajectories.emulated import EmulatedReply
from astra.trajectories.follow_up import FollowUp
from astra.trajectories.offline.world import EmulatedWorld
from astra.trajectories.user import UserReply


def emulate(variables: Mapping[str, Any], rng: random.Random) -> EmulatedReply:
    """The emulator's reply to one call.

    It is seeded by server, attribute and arguments, not by ``rng``: the same call must get the
    same reply at any point of any episode, but for the episode's own writes. Nor by what the task
    is told to exist: an agent also has to learn what to do when the service does not know a name.
    """
    del rng
    world = EmulatedWorld(variables["server_id"], variables["state"])
    tool, arguments = variables["tool"], variables["arguments"]
    problem = world.missing(tool, arguments)
    if problem:
        return EmulatedReply(status="error", error=problem)
    result = world.read(tool, variables["result_schema"], arguments)
    return EmulatedReply(status="ok", result=result)


def speak(variables: Mapping[str, Any], rng: random.Random) -> UserReply:
    """The user's next move: tell what is asked for, then ask for the next goal, in their order."""
    goals: Sequence[Mapping[str, Any]] = variables["goals"]
    messages = [turn["text"] for turn in variables["conversation"] if turn["speaker"] == "user"]
    stated = sum(goal["request"] in messages for goal in goals)
    if variables["conversation"][-1]["text"].endswith(MISSING_VALUE):
        facts: Mapping[str, str] = goals[stated - 1]["facts"]
        sentences = [_sentence(name, value, variables["language"]) for name, value in facts.items()]
        unsaid = [line for line in sentences if not any(line in text for text in messages)]
        if not unsaid:
            return UserReply(status="gives_up", message="")
        return UserReply(status="continue", message=" ".join(unsaid))
    if stated < len(goals):
        return UserReply(status="continue", message=goals[stated]["request"])
    return UserReply(status="satisfied", message="")


def decline(variables: Mapping[str, Any], rng: random.Random) -> FollowUp:
    """No wish: the rules know no other than the tasks."""
    del variables, rng
    return FollowUp(reason="a rule writes no wishes", about="", request="", values=[])


def _sentence(name: str, value: str, language: str) -> str:
    """How the user states a parameter's value."""
    words = name.replace("_", " ")
    return f"{words} 是 {value}。" if language == "zh" else f"The {words} is {value}."


HANDLERS: OfflineHandlers = {
    emulated.TEMPLATE: emulate,
    user.TEMPLATE: speak,
    follow_up.TEMPLATE: decline,
}
