"""Conversations that a strong model had as the agent: how its messages are read, and what the
user answers. They were had with an earlier reading, which took reports for proposals."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from astra.arena.acts import read_message
from astra.arena.user import ScriptedUser
from astra.arena.world_runner import WorldRunner
from astra.records.trajectory import StopReason
from astra.records.world import EventKind, TraceEvent, UserAct, World, WorldGoal
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox

FOLDER = Path(__file__).parents[1] / "fixtures/users"
MISREAD = {(1, 2): "refuse"}
"""What is still read otherwise, by talk and message: "Then both changes stay as they are: ..."."""


class StrongTalk(NamedTuple):
    """A conversation, and the acts as which its messages to the user are to be read."""

    world: World
    goal: WorldGoal
    trace: tuple[TraceEvent, ...]
    acts: tuple[str, ...]
    success: bool

    @property
    def answered(self) -> list[int]:
        """The positions of the user's turns after the opening."""
        users = [at for at, one in enumerate(self.trace) if one.kind == EventKind.USER]
        return users[1:]


def lines(name: str) -> Iterator[Any]:
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


@cache
def talks() -> tuple[StrongTalk, ...]:
    worlds = {one.id: one for one in map(World.model_validate, lines("talk_worlds.jsonl.gz"))}
    return tuple(
        StrongTalk(
            worlds[one["world_id"]], WorldGoal.model_validate(one["goal"]),
            tuple(map(TraceEvent.model_validate, one["trace"])), tuple(one["acts"]), one["success"],
        )
        for one in lines("talks.jsonl.gz")
    )  # fmt: skip


def test_nearly_all_of_them_succeeded() -> None:
    assert [talk.success for talk in talks()].count(True) == 29
    assert len(talks()) == 30


@pytest.mark.parametrize("number", range(30))
def test_its_messages_are_read_as_they_were_meant(number: int) -> None:
    talk = talks()[number]
    read = [read_message(talk.world, talk.goal, talk.trace[:at]).act for at in talk.answered]
    meant = [MISREAD.get((number, at), act) for at, act in enumerate(talk.acts)]
    assert read == meant


def test_a_right_report_is_never_rejected() -> None:
    """Sixteen were, since an announcement before the call was heard once more after it."""
    rejected = [
        (talk, at)
        for talk in talks()
        for at in talk.answered
        if talk.trace[at].act == UserAct.REJECT
    ]
    assert len(rejected) == 16
    with LocalSandbox(SandboxLimits(cpu_s=120)) as sandbox:
        for talk, at in rejected:
            with WorldRunner(talk.world, sandbox) as runner:
                runner.replay(talk.trace[:at])
                answer = ScriptedUser(talk.world, talk.goal).reply(runner.trace, runner.tables)
            assert answer.turn.act in (UserAct.CLOSE, UserAct.REQUEST), talk.trace[at - 1].text
            assert (answer.ends == StopReason.ANSWERED) == (answer.turn.act == UserAct.CLOSE)
