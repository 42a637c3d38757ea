"""Conversations with a simulated user: who goes on, what they may say, and when it is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from homes import given, output, step, task
from pydantic import ValidationError
from test_synthesis import config, one, run, turns

from astra.agent.prompt import MISSING_VALUE, NO_TOOL, extract_answer
from astra.agent.server_environments import ServerEnvironments
from astra.llm.protocol import Ask, ParseError, ProviderError, Reply
from astra.prompting import render
from astra.records.message import MessageRole
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import ToolServer
from astra.records.trajectory import StopReason, Trajectory
from astra.store.tables import read_records, write_records
from astra.trajectories.agenda import Agenda
from astra.trajectories.conversation import Scripts
from astra.trajectories.user import Goal, SimulatedUser, UserReply
from configs import episode_limits

ALL = {"share": 1.0, "max_user_turns": 4}
COVE = given("Amber Cove")


@pytest.fixture
def price(homes: ToolServer) -> Task:
    return task(homes, "What is the price of Amber Cove?", step("get_price", listing=COVE))


@pytest.fixture
def agent(homes: ToolServer) -> Task:
    plan = (step("find_agent", listing=COVE), step("get_office", agent=output(0)))
    return task(homes, "Which office has the agent of Amber Cove?", *plan)


def scripts_of(tasks: Sequence[Task], server: ToolServer, share: float = 1.0) -> Scripts:
    settings = config(conversations={"share": share, "max_user_turns": 4})
    return Scripts(Agenda(tasks, [server]), {server.id: server}.get, settings)


def said(trajectory: Trajectory) -> list[str]:
    return [m.content for m in trajectory.messages if m.role == MessageRole.USER]


def accepted(outcomes: Sequence[Trajectory | Rejection], of: Task) -> Trajectory:
    found = [o for o in outcomes if isinstance(o, Trajectory) and o.task_id == of.id]
    assert len(found) == 1, outcomes
    return found[0]


def test_the_user_asks_for_a_second_task_once_the_first_is_done(
    homes: ToolServer, environments: ServerEnvironments, price: Task, agent: Task
) -> None:
    outcomes = run([homes], [price, agent], environments, conversations=ALL)
    done = accepted(outcomes, price)
    assert said(done) == [price.question, agent.question]
    assert turns(done) == [["get_price"], [], ["find_agent"], ["get_office"], []]
    assert [call.turn for call in done.calls] == [0, 2, 3]
    assert len({call.call.id for call in done.calls}) == 3
    assert done.follow_ups == (agent.id,)
    assert done.stop_reason == StopReason.ANSWERED
    assert extract_answer(done.messages[-1].content) == done.calls[2].result.content
    assert outcomes == [done], "what is asked for later begins no conversation of its own"


def test_a_user_tells_what_was_left_out_when_asked(
    homes: ToolServer, environments: ServerEnvironments, price: Task
) -> None:
    vague = task(homes, "What is the price?", step("get_price", listing=given(None)),
                 kind=TaskKind.MISSING_PARAMETER, parent_id=price.id)  # fmt: skip
    done = accepted(run([homes], [price, vague], environments, conversations=ALL), vague)
    assert said(done) == ["What is the price?", "The listing is Amber Cove."]
    asked = next(m for m in done.messages if m.role == MessageRole.ASSISTANT)
    assert extract_answer(asked.content) == MISSING_VALUE
    assert json.loads(done.calls[0].call.arguments) == {"listing": "Amber Cove"}
    assert done.follow_ups == ()


def test_after_a_refusal_the_user_goes_on_without_the_missing_tool(
    homes: ToolServer, environments: ServerEnvironments, price: Task, agent: Task
) -> None:
    gone = task(homes, price.question, kind=TaskKind.MISSING_FUNCTION,
                withheld_tools=("get_price",), parent_id=price.id)  # fmt: skip
    both = task(homes, "Tell me all about Amber Cove.", step("get_listing", listing=COVE))
    tasks = [price, agent, both, gone]
    done = accepted(run([homes], tasks, environments, conversations=ALL), gone)
    assert said(done) in ([price.question, agent.question], [price.question, both.question])
    assert "get_price" not in [tool.name for tool in done.tools]
    answers = [m.content for m in done.messages if m.role == MessageRole.ASSISTANT]
    assert extract_answer(answers[0]) == NO_TOOL


def test_no_follow_up_from_the_own_family_another_language_or_a_withheld_tool(
    homes: ToolServer, price: Task, agent: Task
) -> None:
    child = task(homes, "I am new. What is the price of Amber Cove?", *price.plan,
                 augmentation="persona", parent_id=price.id)  # fmt: skip
    chinese = task(homes, "Amber Cove的价格是多少？", *price.plan, language="zh")
    gone = task(homes, "Office?", kind=TaskKind.MISSING_FUNCTION, withheld_tools=("get_office",))
    alone = scripts_of([price, child, chinese, gone], homes)
    assert alone.of(price).tasks == (price,)
    assert alone.of(chinese).goals == ()
    assert alone.of(gone).tasks == (gone,)
    both = scripts_of([child, agent], homes)
    assert both.of(child).tasks == (child, agent) or both.of(agent).tasks == (agent, child)


def test_which_tasks_are_conversations_follows_the_share(homes: ToolServer) -> None:
    vague = [
        task(homes, f"{name} {n}?", step(name, listing=given(f"Opal Peak {n}")))
        for n in range(200)
        for name in ("get_price", "find_agent")
    ]
    scripts = scripts_of(vague, homes, share=0.2)
    talks = [script for one in vague if len((script := scripts.of(one)).tasks) > 1]
    later = [one for one in vague if scripts.asked_later(one)]
    assert 50 <= len(talks) <= 90
    assert [script.tasks[1].id for script in sorted(talks, key=lambda s: s.tasks[1].id)] == [
        one.id for one in sorted(later, key=lambda one: one.id)
    ], "no task is asked for twice"
    assert not {one.id for one in later} & {script.tasks[0].id for script in talks}
    for script in talks:
        first, second = (t.plan[0].arguments["listing"].value for t in script.tasks)
        assert first == second


class User:
    """Says what it is told to, then fails with an exception if that is what comes next."""

    name = "user"

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asks: list[Ask[Any]] = []

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.asks.append(ask)
        reply: Any = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


def with_user(
    user: User, servers: Sequence[ToolServer], tasks: Sequence[Task],
    environments: ServerEnvironments, **changes: Any,
) -> Trajectory | Rejection:  # fmt: skip
    """The outcome of the first task's episode with this user."""
    settings: dict[str, Any] = {"conversations": ALL, **changes}
    return run(servers, tasks, environments, 1, user=user, **settings)[0]


DONE = UserReply(status="satisfied", message="")


@pytest.mark.parametrize(
    ("reply", "reason", "detail"),
    [
        (UserReply(status="gives_up", message=""), "user_gives_up", "The price is <answer>"),
        (ProviderError("down"), "user_unavailable", "down"),
        (ParseError("prose"), "user_unparsable", "prose"),
    ],
)
def test_a_conversation_without_a_good_end_is_dropped_with_its_reason(
    homes: ToolServer, environments: ServerEnvironments, price: Task, agent: Task,
    reply: Any, reason: str, detail: str,
) -> None:  # fmt: skip
    outcome = with_user(User(reply), [homes], [price, agent], environments)
    assert isinstance(outcome, Rejection)
    assert outcome.reason == reason
    assert (outcome.item, outcome.part) == (price.id, "sample 0")
    assert outcome.detail.startswith(detail)


def test_the_turn_limit_is_the_users_own(
    homes: ToolServer, environments: ServerEnvironments, price: Task, agent: Task
) -> None:
    asks = User(UserReply(status="continue", message=agent.question))
    tight = {"share": 1.0, "max_user_turns": 2}
    outcome = with_user(asks, [homes], [price, agent], environments, conversations=tight)
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "user_turn_limit"
    assert outcome.detail == agent.question
    left = [ask.variables["messages_left"] for ask in asks.asks[:2]]
    assert left == [1, 0]


def test_agent_limits_hold_for_the_whole_conversation(
    homes: ToolServer, environments: ServerEnvironments, price: Task, agent: Task
) -> None:
    for limits, stop in (
        ({"max_turns": 2}, StopReason.MAX_TURNS),
        ({"max_turns": 3}, StopReason.MAX_TURNS),
        ({"max_calls": 2}, StopReason.MAX_CALLS),
    ):
        allowed = episode_limits(**limits)
        outcomes = run([homes], [price, agent], environments, conversations=ALL, limits=allowed)
        done = accepted(outcomes, price)
        assert done.stop_reason == stop, limits


def test_a_satisfied_user_says_nothing_more(
    homes: ToolServer, environments: ServerEnvironments, price: Task, agent: Task
) -> None:
    outcome = with_user(User(DONE), [homes], [price, agent], environments)
    assert isinstance(outcome, Trajectory)
    assert said(outcome) == [price.question]
    assert outcome.messages[-1].role == MessageRole.ASSISTANT
    with pytest.raises(ValidationError):
        UserReply(status="continue", message=" ")
    with pytest.raises(ValidationError):
        UserReply(status="satisfied", message="Thanks!")


def test_the_user_sees_words_only_and_the_prompt_says_what_they_know(
    homes: ToolServer, environments: ServerEnvironments, price: Task
) -> None:
    done = one(run([homes], [price], environments))
    asked = User(DONE)
    goals = [Goal(request=price.question, facts={"listing": "Amber Cove"}), Goal(request="Next?")]
    now = "Tuesday, 2026-03-10 14:05"
    user = SimulatedUser(goals, homes, "en", now, 4, asked, 0)
    assert asyncio.run(user.reply(done.messages)) == DONE
    prompt = render(asked.asks[0].template, asked.asks[0].variables)
    assert "get_price" not in prompt
    for expected in ("1. What is the price of Amber Cove?", "- listing: Amber Cove", "2. Next?",
                     "user: What is the price", "at most 3 more messages", now,
                     f"assistant: The price is {done.calls[0].result.content}\n"):  # fmt: skip
        assert expected in prompt


def test_follow_ups_take_a_column_only_where_there_are_some(
    homes: ToolServer, environments: ServerEnvironments, price: Task, agent: Task, tmp_path: Any
) -> None:
    single = [one(run([homes], [price], environments))]
    both = [
        o
        for o in run([homes], [price, agent], environments, conversations=ALL)
        if isinstance(o, Trajectory)
    ]
    for name, kept in (("single", single), ("both", both)):
        write_records(tmp_path / f"{name}.parquet", kept, Trajectory)
        read = {one.id: one for one in read_records(tmp_path / f"{name}.parquet", Trajectory)}
        assert read == {one.id: one for one in kept}
    assert b"follow_ups" not in (tmp_path / "single.parquet").read_bytes()
    assert b"follow_ups" in (tmp_path / "both.parquet").read_bytes()


def test_a_chinese_task_is_carried_out_in_chinese(
    homes: ToolServer, environments: ServerEnvironments
) -> None:
    plan = step("get_price", listing=COVE)
    asked = task(homes, "请告诉我Amber Cove的价格。", plan, language="zh")
    done = one(run([homes], [asked], environments))
    assert done.messages[-1].content.startswith("查询的结果是 <answer>")
    gone = task(homes, "请告诉我Amber Cove的价格。", language="zh",
                kind=TaskKind.MISSING_FUNCTION, withheld_tools=("get_price",))  # fmt: skip
    assert "无法完成" in one(run([homes], [gone], environments)).messages[-1].content
