"""Every ask of environment synthesis against a scripted endpoint, faults and repairs included."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from env_runs import everything, final, merged
from merge_samples import free
from write_samples import NEW, RESERVE, house

from astra.envsynth.envs import Outcome
from astra.llm.build import Teachers
from astra.llm.protocol import ModelConfig
from astra.records.environment import Arena, Environment
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.sandbox.protocol import Sandbox
from chat_server import Answer, ChatServer, runtime

MODELS = count()
"""Every run asks a model of its own name: no answer comes from an earlier run's cache."""
STEPS = {
    "You design the interface": "document",
    "You review the interface": "complexity",
    "You call one tool": "call",
    "You implement one tool in Python, with its data": "code",
    "You implement one tool in Python that works on shared": "code_stateful",
    "You look for duplicate tools": "cluster",
    "You merge tools": "merge_code",
}
"""How each prompt begins."""
PRICE_TOOL = {
    "name": "get_asking_price", "description": "Get the asking price of a listing.",
    "parameters": {"type": "object", "required": ["listing"], "additionalProperties": False,
                   "properties": {"listing": {"type": "string"}}},
    "output_schema": {"type": "integer"},
}  # fmt: skip
RESERVE_TOOL = {
    "name": "reserve_room", "description": "Reserve a room for a guest.",
    "parameters": {"type": "object", "required": ["room", "guest", "nights"],
                   "properties": {"room": {"type": "string"}, "guest": {"type": "string"},
                                  "nights": {"type": "integer"}}},
    "output_schema": {"type": "boolean"},
}  # fmt: skip
RESERVE_CODE = """def reserve_room(world, room, guest, nights):
    if room not in [row["room"] for row in world.tables["rooms"]]:
        raise ValueError(f"no room named {room}")
    if guest not in [row["guest"] for row in world.tables["guests"]]:
        raise ValueError(f"no guest named {guest}")
    world.tables["bookings"].append({
        "booking": world.new_id("bookings"), "room": room, "guest": guest, "nights": nights,
        "status": "active", "made": world.clock,
    })
    return True
"""


def price_code(**rows: int) -> str:
    data = {name.replace("_", " "): value for name, value in rows.items()}
    return (
        f"ROWS = {data!r}\n\n\ndef get_asking_price(listing):\n"
        "    if listing not in ROWS:\n        raise ValueError(f'no listing named {listing}')\n"
        "    return ROWS[listing]\n"
    )


AMBER = price_code(Amber_Cove=812, Pine_Gate=633, Ruby_Lake=290)
JADE = price_code(Jade_Mill=455, Opal_Dale=501, Onyx_Pass=378)
BOTH = price_code(
    Amber_Cove=812, Jade_Mill=455, Pine_Gate=633, Ruby_Lake=290, Opal_Dale=501, Onyx_Pass=378
)


class Teacher:
    """A server that knows each ask by its prompt, and lets faults go first."""

    def __init__(self, **faults: list[str]) -> None:
        self.faults = {step: list(replies) for step, replies in faults.items()}
        self.seen: list[tuple[str, str]] = []

    def __call__(self, body: dict[str, Any]) -> Answer:
        prompt = body["messages"][0]["content"]
        step = next(name for start, name in STEPS.items() if prompt.startswith(start))
        self.seen.append((step, prompt))
        waiting = self.faults.get(step)
        return Answer(waiting.pop(0) if waiting else json.dumps(self.reply(step, prompt)))

    def reply(self, step: str, prompt: str) -> dict[str, Any]:
        stateful = "reserve_room" in prompt
        asked = prompt.split("# Question")[-1].split("#")[0]
        match step:
            case "document" | "complexity":
                return {"tool": RESERVE_TOOL if stateful else PRICE_TOOL}
            case "call" if stateful:
                return {"analysis": "all stated", "arguments": NEW}
            case "call":
                return {"arguments": {"listing": "Amber Cove" if "Amber" in asked else "Jade Mill"}}
            case "code_stateful":
                return {"code": RESERVE_CODE}
            case "code":
                return {"code": AMBER if "result: 812\n" in prompt else JADE}
            case "cluster":
                return {"groups": [[1, 2]]}
            case _:
                calls = [{"id": 1, "arguments": {"listing": "Amber Cove"}},
                         {"id": 2, "arguments": {"listing": "Jade Mill"}}]  # fmt: skip
                return {"code": BOTH, "calls": calls}

    def prompts(self, step: str) -> list[str]:
        return [prompt for name, prompt in self.seen if name == step]


@pytest.fixture(scope="module")
def sandbox(patient_sandbox: Sandbox) -> Sandbox:
    return patient_sandbox


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from astra.llm import endpoints, servers

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_TEST_KEY", "k")
    monkeypatch.setattr(endpoints, "BACKOFF_S", 0.01)
    monkeypatch.setattr(servers, "REST_S", 0.01)


def run(
    whole: QAInstance, script: Teacher, sandbox: Sandbox, **changes: int
) -> tuple[list[Outcome], list[Arena]]:
    """Both stages for one instance; the second only where the first dropped nothing."""
    with ChatServer(default=script) as server, Teachers(runtime(server.url, max_attempts=2)) as one:
        model = ModelConfig(backend="openai", model=f"m{next(MODELS)}")
        teacher = one.teacher(model, {})
        tries = {"inner_attempts": 3, "outer_attempts": 2, **changes}
        outcomes = final(everything([whole], teacher, sandbox, 1, **tries))
        made = [item for item in outcomes if isinstance(item, Environment)]
        arenas: list[Arena] = []
        if len(made) == len(outcomes):
            arenas = merged([whole], made, teacher, sandbox, 1, merge_attempts=2).arenas
        return outcomes, arenas


PAIR = free("Amber Cove", "Jade Mill")
ONE = free("Amber Cove")


def test_every_ask_of_a_read_only_instance(sandbox: Sandbox) -> None:
    script = Teacher()
    outcomes, arenas = run(PAIR, script, sandbox)
    assert [item for item in outcomes if isinstance(item, Rejection)] == []
    assert {step for step, _ in script.seen} == set(STEPS.values()) - {"code_stateful"}
    assert [tool.tool.name for tool in arenas[0].tools] == ["get_asking_price"]
    assert arenas[0].tools[0].code == BOTH


def test_sandbox_failures_reach_the_teacher_and_the_repair_is_kept(sandbox: Sandbox) -> None:
    constant = json.dumps({"code": "def get_asking_price(listing):\n    return 812\n"})
    wrong = json.dumps({"code": AMBER.replace("812", "811")})
    calls = [
        {"id": number, "arguments": {"listing": name}}
        for number, name in ((1, "Amber Cove"), (2, "Jade Mill"))
    ]
    lossy = {"code": AMBER, "calls": calls}
    script = Teacher(code=[constant, wrong])
    outcomes, _ = run(ONE, script, sandbox)
    assert isinstance(outcomes[0], Environment)
    assert outcomes[0].code == AMBER
    codes = script.prompts("code")
    assert "rejected" not in codes[0]
    assert "constant: no other arguments give another answer" in codes[1]
    assert "| def get_asking_price(listing):\n|     return 812" in codes[1]
    assert "wrong_answer: returned 811, expected 812" in codes[2]
    assert "return 812" not in codes[2]
    assert len(script.prompts("call")) == 1
    assert len(script.prompts("document")) == 1
    script = Teacher(merge_code=[json.dumps(lossy)])
    _, arenas = run(PAIR, script, sandbox)
    merges = script.prompts("merge_code")
    assert "gold_call_failed: ValueError: no listing named Jade Mill" in merges[1]
    assert "| ROWS = {'Amber Cove': 812, 'Pine Gate': 633, 'Ruby Lake': 290}" in merges[1]
    assert arenas[0].tools[0].code == BOTH


def test_after_the_inner_tries_a_new_document_is_asked_for(sandbox: Sandbox) -> None:
    bad = json.dumps({"code": "def get_asking_price(listing):\n    return 812\n"})
    script = Teacher(code=[bad, bad, bad])
    outcomes, _ = run(ONE, script, sandbox)
    assert isinstance(outcomes[0], Environment)
    documents = script.prompts("document")
    assert len(documents) == 2
    assert "constant: no other arguments" in documents[1]
    script = Teacher(code=[bad] * 99)
    outcomes, _ = run(ONE, script, sandbox)
    assert isinstance(outcomes[0], Rejection)
    assert outcomes[0].reason == "constant"
    assert (len(script.prompts("document")), len(script.prompts("code"))) == (2, 6)


def test_a_stateful_tool_is_asked_for_with_its_tables_and_repaired(sandbox: Sandbox) -> None:
    idle = "def reserve_room(world, room, guest, nights):\n    return True\n"
    greedy = RESERVE_CODE.replace(
        "    return True", '    world.tables["guests"].pop()\n    return True'
    )
    script = Teacher(code_stateful=[json.dumps({"code": idle}), json.dumps({"code": greedy})])
    outcomes, arenas = run(house(RESERVE), script, sandbox)
    assert isinstance(outcomes[0], Environment)
    codes = script.prompts("code_stateful")
    assert '"bookings-3"' in codes[0]
    assert 'may change ["bookings"] and no other' in codes[0]
    assert "wrong_effect: nothing was written" in codes[1]
    assert "undeclared_write: reserve_room must not change table guests" in codes[2]
    assert arenas[0].expected_state != ""


def test_replies_that_are_no_json_are_repaired_then_counted(sandbox: Sandbox) -> None:
    script = Teacher(call=["I would call it with Amber Cove."])
    assert isinstance(run(ONE, script, sandbox)[0][0], Environment)
    script = Teacher(call=["no"] * 99)
    dropped = run(ONE, script, sandbox, outer_attempts=1, inner_attempts=1)[0][0]
    assert isinstance(dropped, Rejection)
    assert dropped.reason == "parse_error"
