"""Arenas, scripted agents, and the reward that our own episode loop gives them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from astra.agent.loop import run_episode
from astra.agent.prompt import final_message
from astra.arena.answers import render_answer
from astra.arena.env import ArenaEnv
from astra.arena.prompt import initial_messages
from astra.arena.reward import score_episode
from astra.arena.talk import ArenaUser
from astra.export.episode import assistant_message
from astra.export.rows import EpisodeOptions, ExportedArena, export_row
from astra.records.base import compact_json
from astra.records.environment import Arena, ArenaStep, ArenaTool
from astra.records.message import Message
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.state import ArenaState, FieldClass, WorldState
from astra.records.tool import Tool
from astra.records.trajectory import StopReason
from astra.sandbox.protocol import Sandbox
from configs import episode_limits

Script = Sequence[Mapping[str, Any]]
"""Assistant messages as chat APIs give them."""

PRICE = """
PRICES = {"Amber Cove": 812, "Jade Mill": 455, "Iron Gate": 390}


def get_price(listing):
    if listing not in PRICES:
        raise ValueError(f"no listing named {listing}")
    return PRICES[listing]
"""
ROOMS = """
def count_rooms(listing, floor=None):
    rooms = {"Amber Cove": [2, 1], "Jade Mill": [3], "Iron Gate": [1, 1]}[listing]
    return sum(rooms) if floor is None else rooms[floor]
"""
RESERVE = """
def reserve_room(world, listing, guest):
    if all(row["listing"] != listing for row in world.tables["listings"]):
        raise ValueError(f"no listing named {listing}")
    row = {"booking": world.new_id("bookings"), "listing": listing, "guest": guest}
    world.tables["bookings"].append(row)
    return True
"""
BOOKING = """
def get_booking(world, guest):
    for row in world.tables["bookings"]:
        if row["guest"] == guest:
            return {"listing": row["listing"], "guest": guest}
    raise ValueError(f"no booking of {guest}")
"""


def _tool(name: str, code: str, properties: dict[str, Any], required: list[str]) -> ArenaTool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return ArenaTool(tool=Tool(name=name, description=f"Say {name}.", parameters=schema), code=code)


PRICE_TOOL = _tool("get_price", PRICE, {"listing": {"type": "string"}}, ["listing"])
ROOMS_TOOL = _tool(
    "count_rooms",
    ROOMS,
    {"listing": {"type": "string"}, "floor": {"type": "integer", "description": "From 0."}},
    ["listing"],
)
BARE_TOOL = _tool("find_news", "", {"topic": {"type": "string"}}, ["topic"])


def sample_arena(listing: str, price: int, rooms: int, split: Split = Split.TRAIN) -> Arena:
    """A price (any number), a count (few possible values) and both as a list."""
    answers = [
        Answer(type=AnswerType.NUMBER, value=price),
        Answer(type=AnswerType.NUMBER, value=rooms, domain_size=6),
        Answer(type=AnswerType.LIST, value=[price, rooms]),
    ]
    steps = (
        ArenaStep(id=1, hop_level=1, question="price", answer=answers[0],
                  tool_name="get_price", arguments={"listing": listing}),
        ArenaStep(id=2, hop_level=1, question="rooms", answer=answers[1],
                  tool_name="count_rooms", arguments={"listing": listing}),
        ArenaStep(id=3, hop_level=2, question="both", answer=answers[2], dependencies=(1, 2)),
    )  # fmt: skip
    return Arena(
        qa_id=listing, split=split, domain="real_estate", language="en", source="test",
        kind=QuestionKind.READ_ONLY, scenario=Scenario.PARALLEL_SINGLE_HOP, hops=2,
        main_question=f"What are the price and the rooms of {listing}?",
        final_answer=answers[2], tools=(PRICE_TOOL, ROOMS_TOOL), steps=steps,
        entities=(listing,), composition="c",
    )  # fmt: skip


RESERVE_TOOL = _tool(
    "reserve_room",
    RESERVE,
    {"listing": {"type": "string"}, "guest": {"type": "string"}},
    ["listing", "guest"],
)
BOOKING_TOOL = _tool("get_booking", BOOKING, {"guest": {"type": "string"}}, ["guest"])
LISTINGS = [{"listing": "Amber Cove"}, {"listing": "Jade Mill"}]


def write_arena() -> Arena:
    """A reservation, judged by what becomes of the tables."""
    done = Answer(type=AnswerType.BOOLEAN, value=True)
    gold = {"listing": "Jade Mill", "guest": "Nora Holt"}
    state = ArenaState(
        world=WorldState(
            tables={"listings": LISTINGS, "bookings": []}, clock="2024-01-01T00:00:00"
        ),
        columns={"listings": ("listing",), "bookings": ("booking", "listing", "guest")},
        fields={"bookings": {"booking": FieldClass.IGNORE}},
        writes={"reserve_room": ("bookings",), "get_booking": ()},
    )
    step = ArenaStep(id=1, hop_level=1, question="reserve", answer=done, tool_name="reserve_room",
                     arguments=gold)  # fmt: skip
    return Arena(
        qa_id="write", split=Split.TRAIN, domain="hospitality", language="en", source="test",
        kind=QuestionKind.WRITE, scenario=Scenario.SINGLE_HOP, hops=1,
        main_question="Reserve a room at Jade Mill for Nora Holt.", final_answer=done,
        tools=(RESERVE_TOOL, BOOKING_TOOL, PRICE_TOOL), steps=(step,),
        entities=("Jade Mill", "Nora Holt"), composition="w",
        state=compact_json(state.model_dump(mode="json")),
        expected_state=compact_json(
            {"listings": LISTINGS, "bookings": [{"booking": None, **gold}]}
        ),
    )  # fmt: skip


def sample_rows() -> list[ExportedArena]:
    options = EpisodeOptions(limits=episode_limits(max_turns=5, max_calls=9, max_parallel_calls=4))
    return [
        export_row(sample_arena("Amber Cove", 812, 3), options, (BARE_TOOL,)),
        export_row(sample_arena("Jade Mill", 455, 3), options),
        export_row(write_arena(), options),
    ]


def turn(content: str = "", *calls: tuple[str, Any]) -> dict[str, Any]:
    """An assistant message; arguments that are text are sent as they are."""
    written = [
        {
            "id": f"call_{name}_{at}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
            },
        }
        for at, (name, arguments) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    return {**message, "tool_calls": written} if written else message


def scripts(row: ExportedArena) -> dict[str, Script]:
    """Scripted agents by name; every way in which a reward can go up or down."""
    answer = turn(final_message("done.", [render_answer(row.arena.final_answer)]))
    if row.arena.state:
        return _write_scripts(answer)
    listing = row.arena.entities[0]
    price, rooms = ("get_price", {"listing": listing}), ("count_rooms", {"listing": listing})
    other = {"listing": "Iron Gate"}
    return {
        "gold": [turn("", price, rooms), answer],
        "one by one": [turn("look", price), turn("", rooms), answer],
        "idle": [turn("done.")],
        "answer only": [answer],
        "calls only": [turn("", price, rooms), turn("I do not know.")],
        "wrong answer": [turn("", price, rooms), turn("<answer>1; 2</answer>")],
        "detour": [
            turn("", ("get_price", {"listing": "Nobody"}), ("find_news", {"topic": "x"})),
            turn("", ("get_price", other), ("get_price", other), price),
            turn("", rooms),
            answer,
        ],
        "by chance": [turn("", price, ("count_rooms", {"listing": listing, "floor": 0})), answer],
        "unknown tool": [turn("", ("get_prices", {"listing": listing})), turn("", price), answer],
        "bad arguments": [turn("", ("get_price", {"name": listing}), rooms), answer],
        "too many at once": [turn("", *[price] * 6), turn("", rooms), answer],
        "never ends": [turn("", price)] * 9,
        "three times": [turn("", price, price, price), turn("", rooms, rooms, rooms), answer],
        "checked": [turn("", price), turn("", rooms), turn("", price), answer],
    }


def _write_scripts(answer: Mapping[str, Any]) -> dict[str, Script]:
    """The same names for an arena that is judged by its end state."""
    gold = ("reserve_room", {"listing": "Jade Mill", "guest": "Nora Holt"})
    other = ("reserve_room", {"listing": "Amber Cove", "guest": "Nora Holt"})
    lost = ("reserve_room", {"listing": "Nowhere", "guest": "Nora Holt"})
    price = ("get_price", {"listing": "Jade Mill"})
    return {
        "gold": [turn("", gold), answer],
        "one by one": [turn("look", price), turn("", gold), answer],
        "idle": [turn("done.")],
        "answer only": [answer],
        "calls only": [turn("", gold), turn("I do not know.")],
        "wrong answer": [turn("", gold), turn("<answer>no</answer>")],
        "detour": [turn("", lost), turn("", price), turn("", gold), answer],
        "by chance": [turn("", other), answer],
        "unknown tool": [turn("", ("book_room", gold[1])), turn("", gold), answer],
        "bad arguments": [turn("", ("reserve_room", {"listing": "Jade Mill"})), answer],
        "too many at once": [turn("", gold, other), answer],
        "never ends": [turn("", gold)] * 9,
        "three times": [turn("", gold, gold, gold), answer],
        "checked": [turn("", gold), turn("", ("get_booking", {"guest": "Nora Holt"})), answer],
    }


BROKEN_JSON = {"broken JSON": [turn("", ("get_price", '{"listing": ')), turn("<answer>x</answer>")]}
"""Not every framework lets such arguments through to an environment."""


class ScriptedPolicy:
    name = "scripted"

    def __init__(self, script: Script) -> None:
        self._messages = [assistant_message(message) for message in script]
        self._turn = 0

    async def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        self._turn += 1
        return self._messages[self._turn - 1]


def our_reward(row: ExportedArena, script: Script, sandbox: Sandbox) -> float:
    """What the project's own loop and scorer give."""
    env = ArenaEnv(row.arena, sandbox, row.extra_tools)
    try:
        transcript = asyncio.run(
            run_episode(
                ScriptedPolicy(script),
                env,
                initial_messages(row.arena),
                row.options.limits,
                user=ArenaUser(env),
            )
        )
    finally:
        env.close_now()
    answered = transcript.stop_reason == StopReason.ANSWERED
    final = transcript.messages[-1].content if answered else None
    options = row.options
    return score_episode(
        row.arena, transcript.calls, final, options.reward, options.final_answer,
        end_state=env.tables, trace=env.trace,
    ).reward  # fmt: skip
