"""Free questions as a strong model answered them, and replies to them made by hand."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from pathlib import Path
from typing import Any

from astra.llm.protocol import Ask
from astra.llm.structured import parse_reply
from astra.qa.config import Corpus, Mode
from astra.qa.free import FreeRequest, synthesise
from astra.qa.knowledge.corpora import Item
from astra.qa.replies import Synthesis
from astra.records.qa import QAInstance, Split
from astra.records.score import Rejection

EXCHANGES = Path(__file__).parent / "fixtures/exchanges/environment_track.jsonl.gz"
ASKED = ("You write one question that a user could", "You break down the question of a user")
"""How the asks for a free question begin."""
_GIVEN = re.compile(r"unchanged as main_question: (.*)")
_DOMAIN = re.compile(r"Domain: (.*?)\. Language")


def request_of(mode: Mode, domain: str, question: str = "", text: str = "") -> FreeRequest:
    """A request of any shape."""
    block = {"mode": mode, "path": "x.jsonl", "hops": {"min": 1, "max": 4}, "samples": 1}
    item = Item(domain=domain, text=text, question=question, place="line 1")
    variables = {
        "mode": mode.value, "domain": domain, "language": "en", "scenario": "",
        "min_hops": 1, "max_hops": 4, "steps": None, "text": text, "question": question,
        "description": "", "may_act": True, "examples": [],
        "names": {"person": [], "thing": []}, "refused": "", "why": "",
    }  # fmt: skip
    spec = Corpus.model_validate({**block, "language": "en"})
    return FreeRequest("users", spec, item, 0, Split.TRAIN, variables)


def recorded() -> dict[str, tuple[FreeRequest, dict[str, Any]]]:
    """Every free question that was asked for, by domain, with the reply as it came."""
    found: dict[str, tuple[FreeRequest, dict[str, Any]]] = {}
    with gzip.open(EXCHANGES, "rt", encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            shown = exchange["ask"]["messages"][-1]["content"]
            domain = _DOMAIN.search(shown[:400])
            if domain is None or not shown.startswith(ASKED):
                continue
            given = _GIVEN.search(shown)
            text = shown.split("<text>\n")[1].split("</text>")[0] if "<text>\n" in shown else ""
            mode = Mode.QUESTION if given else Mode.CONTEXT if text else Mode.BASE
            request = request_of(mode, domain[1], given[1] if given else "", text)
            found[domain[1]] = (request, json.loads(exchange["answer"]["content"]))
    return found


RECORDED = recorded()


class Scripted:
    """Gives replies one after the other, and keeps what it was asked."""

    name = "scripted"

    def __init__(self, *replies: dict[str, Any] | Exception) -> None:
        self.replies = list(replies)
        self.asked: list[Ask[Any]] = []

    async def ask(self, ask: Ask[Any]) -> Any:
        self.asked.append(ask)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return parse_reply(json.dumps(reply), Synthesis)


def outcomes(request: FreeRequest, teacher: Scripted) -> list[QAInstance | Rejection]:
    return asyncio.run(synthesise(request, teacher))


def lookup(id: int, question: str, value: Any, table: str, select: str, **arguments: Any) -> Any:
    """A step that reads a cell."""
    kind = "number" if isinstance(value, int | float) else "string"
    return step(id, question, value, "lookup", table, select, kind=kind, **arguments)


def step(
    id: int, question: str, value: Any, op: str, table: str, select: str, **arguments: Any
) -> dict[str, Any]:
    """A step of any operation; its level is its id, as in a chain."""
    kind = arguments.pop("kind", "string")
    relation = arguments.pop("relation", f"thing.{select or op}")
    needs = sorted({v["from"] for v in arguments.values() if isinstance(v, dict)})
    return {
        "id": id, "hop_level": id, "question": question, "relation": relation,
        "answer": {"type": kind, "value": value}, "dependencies": needs,
        "operation": {
            "op": op, "relation": relation, "table": table, "arguments": arguments,
            "select": select,
        },
    }  # fmt: skip


def reply_of(question: str, final: Any, steps: list[Any], *tables: Any, **more: Any) -> Any:
    """A chain of steps as a reply."""
    value = {"type": "number" if isinstance(final, int | float) else "string", "value": final}
    return {
        "acts": False, "scenario": "multi_hop" if len(steps) > 1 else "single_hop",
        "main_question": question, "final_answer": value, "sub_questions": steps,
        "entities": [], "knowledge": list(tables), **more,
    }  # fmt: skip


SLOTS = {
    "name": "slots",
    "columns": ["slot", "restaurant", "date", "time", "status"],
    "rows": [
        ["S1", "The Mooring", "November 26", "11:15 AM", "open"],
        ["S2", "The Conservatory Restaurant", "November 26", "10:30 AM", "open"],
        ["S3", "The Conservatory Restaurant", "November 26", "11:15 AM", "open"],
        ["S4", "The Conservatory Restaurant", "November 27", "11:15 AM", "booked"],
        ["S5", "Castle Hill Inn", "November 26", "11:15 AM", "booked"],
    ],
}


def booking() -> dict[str, Any]:
    """The recorded restaurant question, as an action."""
    question = RECORDED["restaurants_tail"][0].item.question
    steps = [
        lookup(
            1, "Which slot does The Conservatory Restaurant have on November 26 at 11:15 AM?", "S3",
            "slots", "slot", restaurant="The Conservatory Restaurant", date="November 26",
            time="11:15 AM",
            relation="restaurant.slot",
        ),
        step(
            2, "Set the slot from step 1 to booked.", "booked", "update", "slots", "status",
            slot={"from": 1}, status="booked", relation="slot.book_slot",
        ),
    ]  # fmt: skip
    entities = ["The Conservatory Restaurant", "The Mooring", "Castle Hill Inn", "S3"]
    return reply_of(question, "done", steps, SLOTS, acts=True, entities=entities)


FARES = {
    "name": "fares",
    "columns": ["fare", "seat", "departing", "price"],
    "rows": [
        ["F1", "standard economy", "March 5", 136.96], ["F2", "Big Front Seat", "March 5", 293.98],
        ["F3", "Big Front Seat", "March 6", 310.5], ["F4", "standard economy", "March 6", 99],
        ["F5", "standard economy", "March 7", 120.1],
    ],
}  # fmt: skip


def dearer(minus: int, value: float) -> dict[str, Any]:
    """How much dearer one seat is than another, with the tables that show it."""
    question = RECORDED["flights"][0].item.question
    first = lookup(1, "What is the price of standard economy on March 5?", 136.96, "fares",
                   "price", seat="standard economy", departing="March 5")  # fmt: skip
    second = lookup(2, "What is the price of a Big Front Seat on March 5?", 293.98, "fares",
                    "price", seat="Big Front Seat", departing="March 5")  # fmt: skip
    last = step(
        3, "By how much is the price from step 2 above that from step 1?", value, "subtract", "",
        "", kind="number", amount={"from": 2}, minus={"from": minus},
        relation="amount.subtract_amount",
    )  # fmt: skip
    first["hop_level"] = second["hop_level"] = 1
    last["hop_level"] = 2
    last["dependencies"] = [1, 2]
    reply = reply_of(question, value, [first, second, last], FARES)
    return {**reply, "scenario": "parallel_multi_hop"}
