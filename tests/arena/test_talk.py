"""A user in an arena: asked, noted, with late tools; faults are raised; figures of the talk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from astra.agent.episode import Episode
from astra.agent.loop import Transcript, run_episode
from astra.agent.toolcalls import parse_assistant
from astra.arena.env import ArenaEnv, UserFault
from astra.arena.prompt import NEW_TOOLS, initial_messages
from astra.arena.talk import ArenaUser, hear_user, leaked, talk_figures
from astra.arena.user import UserAnswer
from astra.arena.verdict import GoalVerdict
from astra.records.message import Message, MessageRole
from astra.records.tool import Tool
from astra.records.trajectory import StopReason
from astra.records.world import TraceEvent, UserAct
from astra.sandbox.protocol import Sandbox
from configs import episode_limits
from talking import (
    ANSWER,
    CLOSE,
    DAY,
    GOAL,
    LEAVE,
    NUDGE,
    OPENING,
    SCRIPT,
    TOOL,
    TRACE,
    WORLD,
    ByTrace,
    Fails,
    Leaves,
    Silent,
    said,
    spoken,
    talking_arena,
    user,
    users_are,
)

REACHED = GoalVerdict(True, True, True, True, (), ())
MISSED = GoalVerdict(False, True, True, True, (), ("state_missing:boats",))


@pytest.fixture
def env(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> ArenaEnv:
    users_are(monkeypatch, ByTrace)
    return ArenaEnv(talking_arena(), sandbox)


def test_the_user_of_a_script_answers_and_is_noted(env: ArenaEnv) -> None:
    env.say("For which day?")
    assert env.reply() == UserAnswer(ANSWER)
    assert env.trace == (OPENING, said("For which day?"), ANSWER)


def test_an_agent_that_says_nothing_is_answered_for_that(env: ArenaEnv) -> None:
    """Not for what it said before its last turn."""
    env.say("  ")
    env.reply()
    assert env.trace == (OPENING, said(""), ANSWER)


def test_a_goal_without_a_script_has_no_user(sandbox: Sandbox) -> None:
    alone = ArenaEnv(talking_arena(GOAL.model_copy(update={"script": None})), sandbox)
    alone.say("For which day?")
    before = alone.trace
    assert alone.reply() is None
    assert alone.trace == before
    assert asyncio.run(ArenaUser(alone).respond()) == StopReason.ANSWERED


def test_anybody_may_take_the_users_place(env: ArenaEnv) -> None:
    env.user = Leaves(WORLD, GOAL)
    env.say("Hm.")
    assert env.reply() == UserAnswer(NUDGE)


def test_a_late_tool_is_on_offer_and_its_document_follows_the_words(env: ArenaEnv) -> None:
    episode = Episode(initial_messages(env.arena), env.tools, episode_limits())
    for words in ("For which day?", "I have no tool for that."):
        assert "book_boat" not in {tool.name for tool in env.tools}
        env.say(words)
        assert episode.offer(parse_assistant(words)) == ()
        heard = hear_user(env, episode)
        assert episode.stop_reason is None
    assert heard is not None
    assert heard.role == MessageRole.USER
    words, _, documents = heard.content.partition(f"\n\n{NEW_TOOLS}\n")
    assert words == TOOL.text
    (tool,) = (one for one in env.tools if one.name == "book_boat")
    assert json.loads(documents) == tool.openai()
    assert env.trace is not None
    assert env.trace[-1] == TOOL, "the trace keeps the words alone"
    (call,) = episode.offer(parse_assistant(spoken()[-2]))
    assert call.name == "book_boat"


def test_faults_of_users_are_raised_and_leave_no_turn(env: ArenaEnv) -> None:
    env.user = Silent(WORLD, GOAL)
    env.say("Hello?")
    with pytest.raises(UserFault, match="said nothing"):
        env.reply()

    class Strange(ByTrace):
        def reply(self, trace: object, rows: object) -> UserAnswer:
            return UserAnswer(user(UserAct.TOOL, "Here.", adds_tools=("fly",)))

    env.user = Strange(WORLD, GOAL)
    with pytest.raises(UserFault, match="fly"):
        env.reply()
    assert env.trace == (OPENING, said("Hello?"))


class Script:
    name = "script"

    def __init__(self, turns: list[str]) -> None:
        self._turns = iter(turns)
        self.offered: list[set[str]] = []

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        self.offered.append({tool.name for tool in tools})
        return parse_assistant(next(self._turns))


def test_the_loop_of_a_teacher_talks_with_the_user_of_an_arena(env: ArenaEnv) -> None:
    policy = Script(spoken())
    played = asyncio.run(
        run_episode(policy, env, initial_messages(env.arena), episode_limits(), user=ArenaUser(env))
    )
    assert played.stop_reason == StopReason.ANSWERED
    roles = "".join(message.role.value[0] for message in played.messages)
    assert roles == "suauatauata", "the closing words stand in the trace alone"
    assert env.trace is not None
    assert [one.act for one in env.trace if one.act] == [
        UserAct.OPENING, UserAct.ANSWER, UserAct.TOOL, UserAct.CLOSE,
    ]  # fmt: skip
    assert [one.text for one in env.trace if one.text == "For which day?"], "what it said is noted"
    assert ["book_boat" in names for names in policy.offered] == [False] * 3 + [True] * 2


def test_the_loop_ends_as_the_user_does_and_never_scores_their_faults(env: ArenaEnv) -> None:
    def play(kind: type[ByTrace]) -> Transcript:
        env.user = kind(WORLD, GOAL)
        policy = Script(["Hm."] * 9)
        return asyncio.run(
            run_episode(
                policy, env, initial_messages(env.arena), episode_limits(), user=ArenaUser(env)
            )
        )

    assert play(Leaves).stop_reason == StopReason.USER_LEFT
    failed = play(Fails)
    assert failed.stop_reason == StopReason.INFRA
    assert "the model of the user is gone" in failed.detail


# --- figures


def figures(*trace: TraceEvent, verdict: GoalVerdict = REACHED) -> dict[str, float]:
    return talk_figures(WORLD, GOAL, trace, verdict)


def test_figures_of_the_goals_own_trace() -> None:
    assert figures(*TRACE, CLOSE) == {
        "user_turns": 4.0, "questions_per_needed_fact": 1.0, "unneeded_questions": 0.0,
        "nudges": 0.0, "rejections": 0.0, "other_acts": 0.0, "user_left": 0.0,
        "early_end": 0.0, "leaks": 0.0,
    }  # fmt: skip


def test_figures_of_a_bad_agent_and_of_a_bad_user() -> None:
    unknown = user(UserAct.UNKNOWN, "I do not know.")
    asked = figures(OPENING, ANSWER, ANSWER, unknown, NUDGE, LEAVE, verdict=MISSED)
    assert asked["unneeded_questions"] == 2.0, "what was told before, and what nobody knows"
    assert asked["questions_per_needed_fact"] == 1.0, "asking twice is not asking for more"
    assert (asked["nudges"], asked["user_left"], asked["early_end"]) == (1.0, 1.0, 0.0)
    never = figures(OPENING, NUDGE, CLOSE, verdict=MISSED)
    assert (never["questions_per_needed_fact"], never["early_end"]) == (0.0, 1.0)
    refused = figures(OPENING, user(UserAct.REJECT, f"No, on {DAY}.", facts={"day": DAY}), CLOSE)
    assert refused["questions_per_needed_fact"] == 1.0, "a wrong value that is proposed asks"
    assert (refused["rejections"], refused["unneeded_questions"]) == (1.0, 0.0)


def test_what_a_user_gives_away_is_a_leak_in_whatever_form() -> None:
    assert leaked(SCRIPT, (OPENING, user(UserAct.NUDGE, f"It is about {DAY}."), ANSWER)) == ["day"]
    assert leaked(SCRIPT, (OPENING, NUDGE, ANSWER, user(UserAct.NUDGE, f"As I said, {DAY}."))) == []
    assert leaked(SCRIPT, (OPENING, user(UserAct.NUDGE, f"Ticket X{DAY}7."))) == []
    assert figures(OPENING, user(UserAct.NUDGE, f"{DAY}!"), CLOSE)["leaks"] == 1.0


def test_a_goal_whose_user_does_not_talk_has_no_figures() -> None:
    alone = GOAL.model_copy(update={"script": None})
    assert talk_figures(WORLD, alone, TRACE, REACHED) == {}
