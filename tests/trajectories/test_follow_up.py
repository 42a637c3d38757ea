"""What users ask for second: other tasks about the same people and things, or a written wish."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from homes import given, output, server, step, task, tool
from pydantic import BaseModel
from test_synthesis import config

from astra.agent.server_environments import ServerEnvironments
from astra.llm.protocol import Ask, ParseError, ProviderError, Reply
from astra.prompting import render
from astra.records.message import Message, MessageRole
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Tool, ToolServer
from astra.records.trajectory import StopReason, Trajectory
from astra.settings import RuntimeConfig
from astra.store.journal import Journal
from astra.store.metrics import StageMetrics
from astra.trajectories.agenda import Agenda
from astra.trajectories.conversation import Scripts
from astra.trajectories.follow_up import FollowUp, check_follow_up, follow_up_ask, paired
from astra.trajectories.live import server_pool
from astra.trajectories.report import Report
from astra.trajectories.stated import comparable, stated_things
from astra.trajectories.trajectories import Cast, EpisodePlayer
from astra.trajectories.user import UserReply
from walls_here import walls

COVE = given("Amber Cove")


def plain(name: str, **schemas: Any) -> Tool:
    return tool(name, None, **schemas)


def library() -> ToolServer:
    return server(
        plain("find_book", title={"type": "string"}, shelf={"type": "string", "enum": ["A", "B"]}),
        plain("reserve", title={"type": "string"}, card={"type": "integer"},
              until={"type": "string", "format": "date"}, copies={"type": "integer"}),
        plain("near", place={"type": "array", "items": {"type": "number"}},
              quiet={"type": "boolean"}),
        name="library",
    )  # fmt: skip


def test_people_and_things_are_stated_and_how_it_is_done_is_not() -> None:
    on = library()
    reserved = step("reserve", title=given("The Quiet Orchard"), card=given(40718),
                    until=given("2026-03-10"), copies=given(2))  # fmt: skip
    found = step("find_book", title=given("the quiet orchard"), shelf=given("A"))
    near = step("near", place=given([48.21, 16.37]), quiet=given(True))
    asked = task(on, "q", reserved, found, near, step("gone", title=given("Nothing")))
    assert stated_things(asked, on) == (
        "The Quiet Orchard", 40718, "the quiet orchard", 48.21, 16.37
    )  # fmt: skip
    assert comparable("The  Quiet Orchard") == comparable("the quiet orchard")
    bound = task(on, "q", found, step("reserve", title=output(0), card=given(None)),
                 step("find_book", title=given("x" * 500)),
                 step("find_book", title=given("2026-03-10 14:05")))  # fmt: skip
    assert stated_things(bound, on) == ("the quiet orchard",)


def test_strangers_tasks_are_not_glued_together() -> None:
    """Two wishes of one service that share no more than a choice, a date or a count."""
    on = library()
    tasks = [
        task(on, f"Keep {title} until 10 March.",
             step("reserve", title=given(title), card=given(card), until=given("2026-03-10"),
                  copies=given(1)))
        for title, card in (("Salt Roads", 40718), ("The Quiet Orchard", 51200))
    ]  # fmt: skip
    assert paired(tasks, on, lambda _: True) == {}
    same_card = task(on, "Keep Far Hills too.", step("reserve", title=given("Far Hills"),
                     card=given(40718), until=given("2026-04-01"), copies=given(3)))  # fmt: skip
    pairs = paired([*tasks, same_card], on, lambda _: True)
    ((first, other),) = pairs.items()
    assert {first, other.id} == {tasks[0].id, same_card.id}


def test_no_task_is_asked_for_twice_and_openers_come_last(homes: ToolServer) -> None:
    tasks = [task(homes, f"q{n}", step(name, listing=COVE)) for n, name in
             enumerate(("get_price", "find_agent", "get_listing", "delete_listing"))]  # fmt: skip
    pairs = paired(tasks, homes, lambda one: one in tasks[:2])
    assert pairs.keys() == {one.id for one in tasks[:2]}
    assert {other.id for other in pairs.values()} == {one.id for one in tasks[2:]}
    everyone = paired(tasks, homes, lambda _: True)
    assert len(everyone) == 2
    assert not everyone.keys() & {other.id for other in everyone.values()}
    assert paired(tasks[::-1], homes, lambda _: True) == everyone


def test_a_second_copy_is_no_follow_up(homes: ToolServer) -> None:
    price = task(homes, "What is the price of Amber Cove?", step("get_price", listing=COVE))
    again = task(homes, "How much is Amber Cove?", step("get_price", listing=COVE), chain_id="c")
    assert paired([price, again], homes, lambda _: True) == {}


FIRST = "Do you have The Quiet Orchard on the shelf in Lindholm?"
WISH = FollowUp(
    reason="They want it kept.",
    about="The Quiet Orchard",
    request="Please put The Quiet Orchard aside for card 40718.",
    values=["The Quiet Orchard", "40718"],
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"about": "Salt Roads"}, "person or thing of the first request"),
        ({"about": ""}, "person or thing of the first request"),
        ({"values": ["51200"]}, "'51200' of `values` does not stand"),
        ({"request": "Do you have The Quiet Orchard on a shelf in Lindholm?", "values": []},
         "says the same"),
        ({"request": "Renew card 40718 for me, please.", "values": [], "about": "Lindholm"},
         "says the same as 'Please renew card 40718"),
    ],
)  # fmt: skip
def test_a_wish_that_fits_no_one_is_refused(changes: dict[str, Any], problem: str) -> None:
    asked = [FIRST, "Please renew card 40718 for me."]
    with pytest.raises(ValueError, match=problem):
        check_follow_up(WISH.model_copy(update=changes), asked, ["The Quiet Orchard"])


def test_a_wish_about_a_value_or_the_words_of_the_first_request_passes() -> None:
    for about in ("the quiet orchard", "Lindholm", "27.8,-97.4"):
        check_follow_up(WISH.model_copy(update={"about": about}), [FIRST], ["27.8,-97.4"])
    chinese = FollowUp(reason="", about="安宁书店", request="那安宁书店周末几点关门？", values=[])
    check_follow_up(chinese, ["安宁书店有《盐路》吗？"], ["盐路"])
    declined = FollowUp(reason="Nothing.", about="", request=" ", values=[])
    check_follow_up(declined, [FIRST], [])


def test_the_ask_shows_the_tools_the_first_request_and_what_others_ask() -> None:
    on = library()
    first = task(on, FIRST, now="2026-03-10 14:05")
    ask = follow_up_ask(first, ["Lindholm"], on, on.tools, ["Renew my card."], 1)
    prompt = render(ask.template, ask.shown)
    for part in (FIRST, "- Renew my card.", "Tuesday, 2026-03-10 14:05", '["Lindholm"]',
                 '"enum": ["A", "B"]', "language `en`"):  # fmt: skip
        assert part in prompt
    assert "Other users" not in render(ask.template, {**ask.variables, "others": []})
    with pytest.raises(ParseError, match="does not stand"):
        ask.accepted(WISH.model_copy(update={"values": ["51200"]}))


MODEL = {"backend": "openai", "model": "m"}
TALK = {"conversations": {"share": 1.0, "max_user_turns": 4}, "agent": MODEL, "user": MODEL,
        "emulator": MODEL}  # fmt: skip


class Company:
    """The models of an episode: an agent that answers at once, a user with a wish, a service."""

    name = "company"

    def __init__(self, wish: BaseModel | Exception) -> None:
        self.wish = wish
        self.templates: list[str] = []
        self.emulated: list[Ask[Any]] = []

    async def ask(self, ask: Ask[Reply]) -> Reply:
        self.templates.append(ask.template)
        reply: Any = self.wish
        if ask.template == "trajectories/user":
            goals, talk = ask.variables["goals"], ask.variables["conversation"]
            said = sum(turn["speaker"] == "user" for turn in talk)
            more = said < len(goals)
            reply = UserReply(status="continue" if more else "satisfied",
                              message=goals[said]["request"] if more else "")  # fmt: skip
        if isinstance(reply, Exception):
            raise reply
        return ask.accepted(reply)

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        return Message(role=MessageRole.ASSISTANT, content="Done.")


async def played(
    wish: BaseModel | Exception, of: Task, on: ToolServer, *others: Task
) -> tuple[Trajectory | Rejection, Company]:
    company = Company(wish)
    wanted = config(**TALK)
    with Agenda([of, *others], [on]) as agenda, Journal("wishes") as journal:
        scripts = Scripts(agenda, {on.id: on}.get, wanted)
        assert not any(scripts.asked_later(one) for one in (of, *others))
        cast = Cast(lambda script, sample: company, company, company)
        pool = server_pool(ServerEnvironments(pins={}), walls(), RuntimeConfig(), ())
        player = EpisodePlayer(wanted, {on.id: on}.get, scripts, cast, pool, journal)
        return await player.outcome(of, 0), company


@pytest.mark.parametrize(
    ("wish", "messages", "reason"),
    [
        (WISH, [FIRST, WISH.request], ""),
        (WISH.model_copy(update={"request": "", "values": []}), [FIRST], ""),
        (WISH.model_copy(update={"about": "Salt Roads"}), [], "user_unparsable"),
        (ProviderError("down"), [], "user_unavailable"),
    ],
)
def test_a_model_as_user_writes_the_second_wish_or_declines(
    wish: Any, messages: list[str], reason: str
) -> None:
    on = library()
    find = step("find_book", title=given("The Quiet Orchard"), shelf=given("A"))
    first, other = task(on, FIRST, find), task(on, "And Salt Roads?", find)
    outcome, company = asyncio.run(played(wish, first, on, other))
    if reason:
        assert isinstance(outcome, Rejection)
        assert outcome.reason == reason
        return
    assert isinstance(outcome, Trajectory)
    said = [m.content for m in outcome.messages if m.role == MessageRole.USER]
    assert said == messages
    assert outcome.follow_ups == ()
    expected = ["trajectories/follow_up", *["trajectories/user"] * (2 * len(messages) - 2)]
    assert company.templates == expected
    metrics = StageMetrics("trajectories")
    with Agenda([first, other], [on]) as agenda:
        Report(agenda).measure(metrics, outcome)
    assert metrics.counts["questions"] == len(messages)


def test_a_rule_in_either_part_takes_other_tasks(homes: ToolServer) -> None:
    tasks = [task(homes, f"q{n}", step(name, listing=COVE))
             for n, name in enumerate(("get_price", "find_agent"))]  # fmt: skip
    for changes in ({}, {"agent": MODEL}, {"user": MODEL}):
        settings = config(conversations=TALK["conversations"], **changes)
        scripts = Scripts(Agenda(tasks, [homes]), {homes.id: homes}.get, settings)
        assert [scripts.asked_later(one) for one in tasks].count(True) == 1
        assert not any(scripts.of(one).wishes for one in tasks)


def test_a_question_that_two_tasks_ask_is_counted_once_per_repetition(homes: ToolServer) -> None:
    """Other samples of a task and openings that repeat on purpose are not."""
    price = task(homes, "q", step("get_price", listing=COVE))
    agent = task(homes, "q", step("find_agent", listing=COVE))
    gone = task(homes, "q", kind=TaskKind.MISSING_FUNCTION, parent_id=price.id)
    metrics = StageMetrics("trajectories")
    with Agenda([price, agent, gone], [homes]) as agenda:
        report = Report(agenda)
        for of, sample in ((price, 0), (price, 1), (gone, 0), (agent, 0), (agent, 1)):
            report.measure(metrics, trajectory(of, homes, sample))
    assert (metrics.counts["questions"], metrics.counts["questions_repeated"]) == (2, 1)
    assert metrics.counts["dependencies_planned"] == 0


def trajectory(of: Task, on: ToolServer, sample: int) -> Trajectory:
    said = (Message(role=MessageRole.USER, content=of.question),
            Message(role=MessageRole.ASSISTANT, content="Done."))  # fmt: skip
    return Trajectory(
        task_id=of.id, server_id=on.id, sample=sample, policy="p", execution=on.execution,
        language="en", domain="d", tools=on.tools, messages=said, calls=(),
        stop_reason=StopReason.ANSWERED,
    )  # fmt: skip
