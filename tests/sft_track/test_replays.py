"""Stages that are killed or run again, with replies whose keys are in no alphabetical order.

A model's reply is shown in later prompts. Had it other bytes from the cache than fresh, those
prompts would be new ones, be asked and be paid again, and the data would differ.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from exchanges import recorded
from forks import Runs, forked
from homes import PERSON, PRICE, THING, given, output, server, step, task, tool
from pydantic import BaseModel, ConfigDict
from track import Recorder, Script, configure, run

from astra.llm.build import teachers_from
from astra.llm.cache import AnswerCache, answer_key
from astra.llm.openai_backend import committed_reply, teacher_key
from astra.llm.protocol import Ask, ModelConfig, OfflineHandlers, Reply
from astra.llm.structured import parse_reply
from astra.prompting import render
from astra.records.message import CallStatus, ExecutedCall, MessageRole, ToolCall, ToolResult
from astra.records.task import Task
from astra.records.tool import Execution, ToolServer
from astra.records.trajectory import SFTSample, StopReason, Trajectory
from astra.store.journal import Journal
from astra.store.tables import read_records, write_records
from chat_server import Answer, ChatServer
from configs import block, changed

STAGES = ("trajectories", "sft_set")
ROLES = {"trajectories": {"agent": "m", "emulator": "m"}, "sft_set": {"judge": "m"}}
MODEL = ModelConfig(backend="openai", model="m", max_tokens=900)
"""What ``configure`` writes for every role."""
CONCURRENCY, KILLS = 8, 5
THOUGHT = "It has to be looked up"


def unsorted(value: Any) -> Any:
    """The value with the keys of every object from Z to A."""
    if isinstance(value, dict):
        return {key: unsorted(value[key]) for key in sorted(value, reverse=True)}
    return [unsorted(item) for item in value] if isinstance(value, list) else value


class Unsorted(Script):
    """Answers of the offline rules, unsorted; an agent that thinks; counts by the cache's key."""

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__()
        self.keys: dict[str, str] = {}
        self.given: Counter[str] = Counter()
        self.delay_s = delay_s

    def factory(self, config: ModelConfig, handlers: OfflineHandlers) -> Recorder:
        return UnsortedRecorder(config, handlers, self)

    def answer(self, body: dict[str, Any]) -> Answer:
        answer = replace(super().answer(body), delay_s=self.delay_s)
        if "tools" in body:
            thought = f"{THOUGHT}, message {len(body['messages'])}."
            answer = replace(answer, extra={"reasoning_content": thought})
            key = answer_key({"backend": "openai", "request": body, "sample": 0})
        else:
            asked = body["messages"][0]["content"]
            key = next(self.keys[prompt] for prompt in self.keys if asked.startswith(prompt))
        self.given[key] += 1
        return answer


class UnsortedRecorder(Recorder):
    async def ask(self, ask: Ask[Reply]) -> Reply:
        assert isinstance(self._script, Unsorted)
        document = unsorted((await self._offline.ask(ask)).model_dump(mode="json"))
        prompt = render(ask.template, ask.shown)
        self._script.replies[prompt] = [json.dumps(document, ensure_ascii=False)]
        self._script.keys[prompt] = teacher_key(MODEL, prompt, ask.response, ask.sample)
        return ask.response.model_validate(document)


def ferries() -> ToolServer:
    """Results are objects, also within objects."""
    crossing = {
        "type": "object",
        "title": "crossing",
        "properties": {
            "skipper": PERSON,
            "fares": {
                "type": "object",
                "properties": {"van": PRICE, "car": PRICE, "bike": PRICE},
                "required": ["van", "car", "bike"],
            },
            "berth": THING,
        },
        "required": ["skipper", "fares", "berth"],
    }
    return server(
        tool("get_crossing", crossing, route=THING),
        tool("get_boat", {"type": "object", "properties": {"length": PRICE, "boat": THING},
                          "required": ["length", "boat"]}, skipper=PERSON),
        name="ferries", title="Ferries", description="Ferry crossings.", domain="travel",
    )  # fmt: skip


def tasks(on: ToolServer, count: int) -> list[Task]:
    names = random.Random(0).sample([f"{a} {b}" for a in COLOURS for b in SHORES], count)
    return [
        task(
            on,
            f"Which boat crosses on the {name} route?",
            step("get_crossing", route=given(name)),
            step("get_boat", skipper=output(0, "skipper")),
        )
        for name in names
    ]


COLOURS = ("Amber", "Jade", "Opal", "Ruby", "Onyx", "Pearl")
SHORES = ("Cove", "Mill", "Gate", "Lake", "Dale", "Pass", "Point")


CHANGES: dict[str, dict[str, Any]] = {
    "trajectories": {"conversations": {"share": 0.0}, "reset_in_place": []},
    "sft_set": {"contamination": None, "near_duplicate": 1.0, "min_score": 0.5, "eval_share": 0.2},
    "runtime": {"concurrency": CONCURRENCY},
}


def workspace(folder: Path) -> None:
    """The two stages' inputs and parameters."""
    (folder / "data").mkdir()
    write_records(folder / "data/tools.parquet", [ferries()], ToolServer)
    write_records(folder / "data/tasks.parquet", tasks(ferries(), 36), Task)
    document = {name: changed(block(name), changes) for name, changes in CHANGES.items()}
    (folder / "params.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))


@pytest.fixture(scope="module")
def script(
    root: Path, tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch
) -> Unsorted:
    """What the rules answer, overheard in a run without models."""
    folder = tmp_path_factory.mktemp("overheard")
    patch.setenv("ASTRA_CACHE", str(folder / "cache"))
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    workspace(folder)
    patch.chdir(folder)
    made = Unsorted()
    with teachers_from(made.factory):
        for stage in STAGES:
            run(stage)
    made.learn_turns(folder / "data/trajectories.parquet")
    patch.chdir(root)
    return made


@pytest.fixture(scope="module")
def runs(root: Path) -> Iterator[Runs]:
    tests = root / "tests"
    paths = [root / "src", tests, *(tests / name for name in ("sft_track", "trajectories", "llm"))]
    with forked(Path(__file__).with_name("killable.py"), paths) as forks:
        yield forks


def outputs(place: Path) -> dict[str, bytes]:
    found = [path for part in ("data", "metrics", "plots") for path in (place / part).rglob("*")]
    return {str(path.relative_to(place)): path.read_bytes() for path in found if path.is_file()}


def committed(place: Path) -> set[str]:
    if not (place / "cache/answers.sqlite").is_file():
        return set()
    with sqlite3.connect(place / "cache/answers.sqlite") as cache:
        return {row[0] for row in cache.execute("SELECT key FROM answers")}


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, script: Unsorted, runs: Runs
) -> tuple[Path, Counter[str]]:
    """The stages by models, run once each, and how often each answer was given."""
    place = tmp_path_factory.mktemp("undisturbed")
    workspace(place)
    script.given.clear()
    with ChatServer(default=script.answer) as server:
        configure(place, server.url, **ROLES)
        for stage in STAGES:
            runs.start({"place": str(place), "stage": stage})
            assert runs.status() == 0
    return place, Counter(script.given)


class AnyResult(BaseModel):
    """The emulator's reply as far as it is free."""

    model_config = ConfigDict(extra="ignore")
    result: Any


def test_what_a_strong_model_made_up_comes_back_in_its_order(tmp_path: Path) -> None:
    """The recorded results of tools, from the cache, the journal and a table."""
    texts = dict.fromkeys(str(one["answer"].get("content")) for one in recorded())
    texts = [text for text in texts if '"result":' in text]
    replies = [parse_reply(text, AnyResult) for text in texts]
    given_ = [json.dumps(reply.result) for reply in replies]
    ordered = [json.dumps(json.loads(one), sort_keys=True) for one in given_]
    assert sum(one != other for one, other in zip(given_, ordered, strict=True)) > 10
    calls: list[ExecutedCall] = []
    with closing(AnswerCache(tmp_path)) as cache, Journal("results", tmp_path) as journal:
        for number, reply in enumerate(replies):
            cache.put(str(number), "m", {"reply": reply.model_dump(mode="json")})
            ask = Ask("t/t", {}, AnyResult)
            again = committed_reply(cache.get(str(number)), ask)
            assert again is not None
            journal.put(str(number), again.result)
            result = ToolResult(status=CallStatus.OK, content="", value=journal.get(str(number)))
            call = ToolCall(id="c", name="t", arguments="{}")
            calls.append(ExecutedCall(turn=0, call=call, result=result))
    made = Trajectory(
        task_id="t", server_id="s", sample=0, policy="p", execution=Execution.EMULATED,
        language="en", domain="d", tools=(), messages=(), calls=tuple(calls),
        stop_reason=StopReason.ANSWERED,
    )  # fmt: skip
    write_records(tmp_path / "trajectories.parquet", [made], Trajectory)
    (back,) = read_records(tmp_path / "trajectories.parquet", Trajectory)
    assert [json.dumps(one.result.value) for one in back.calls] == given_


def test_the_replies_say_something_by_their_order(undisturbed: tuple[Path, Counter[str]]) -> None:
    """Else this file would show nothing."""
    place, given_ = undisturbed
    made = list(read_records(place / "data/trajectories.parquet", Trajectory))
    assert len(made) == 36
    results = [json.loads(m.content) for t in made for m in t.messages if m.role == MessageRole.TOOL
               and m.content.startswith("{")]  # fmt: skip
    assert any(list(one) == ["skipper", "fares", "berth"] for one in results)
    assert {tuple(one["fares"]) for one in results if "fares" in one} == {("van", "car", "bike")}
    kept = list(read_records(place / "data/sft_set.parquet", SFTSample))
    assert len(kept) >= 10
    assert set(given_.values()) == {1}, "no answer was asked for twice"


def test_thoughts_are_kept_and_nobody_else_sees_them(
    undisturbed: tuple[Path, Counter[str]], script: Unsorted, runs: Runs
) -> None:
    """The judges' prompts are those of a run without thoughts; dropping them asks nothing new."""
    place, _ = undisturbed
    for table, model in (("trajectories", Trajectory), ("sft_set", SFTSample)):
        for record in read_records(place / f"data/{table}.parquet", model):
            assert all(
                one.reasoning.startswith(THOUGHT) == (one.role == MessageRole.ASSISTANT)
                for one in record.messages
            )
    script.given.clear()
    params = (place / "params.yaml").read_text()
    before = outputs(place)
    with ChatServer(default=script.answer) as server:
        configure(place, server.url, **ROLES)
        document = yaml.safe_load((place / "params.yaml").read_text())
        document["trajectories"]["reasoning"] = "drop"
        (place / "params.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))
        for stage in STAGES:
            runs.start({"place": str(place), "stage": stage})
            assert runs.status() == 0
        for record in read_records(place / "data/sft_set.parquet", SFTSample):
            assert not any(one.reasoning for one in record.messages)
        assert server.requests == []
        (place / "params.yaml").write_text(params)
        configure(place, server.url, **ROLES)
        for stage in STAGES:
            runs.start({"place": str(place), "stage": stage})
            assert runs.status() == 0
        assert server.requests == [], "run again, nothing is asked"
    assert outputs(place) == before


def test_five_kills_of_each_stage_repeat_no_committed_answer(
    tmp_path: Path, script: Unsorted, undisturbed: tuple[Path, Counter[str]], runs: Runs
) -> None:
    workspace(tmp_path)
    draw = random.Random(0)
    script.given.clear()
    script.delay_s = 0.01
    with ChatServer(default=script.answer) as server:
        configure(tmp_path, server.url, **ROLES)
        for stage in STAGES:
            given_at: list[tuple[set[str], Counter[str]]] = []
            for _ in range(KILLS):
                goal = len(server.requests) + draw.randint(10, 30)
                runs.start({"place": str(tmp_path), "stage": stage})
                deadline = time.monotonic() + 60
                while len(server.requests) < goal and time.monotonic() < deadline:
                    time.sleep(0.002)
                runs.kill()
                given_at.append((committed(tmp_path), Counter(script.given)))
            runs.start({"place": str(tmp_path), "stage": stage})
            assert runs.status() == 0
            for kept, counted in given_at:
                assert kept
                again = {key for key in kept if script.given[key] != counted[key]}
                assert not again, f"{stage}: {len(again)} committed answers were asked for again"
            repeats = sum(script.given.values()) - len(script.given)
            assert repeats <= KILLS * CONCURRENCY * (1 + STAGES.index(stage))
            assert len(given_at[-1][0]) < len(script.given), "the kills came while it was at work"
    assert script.given.keys() == undisturbed[1].keys()
    assert outputs(tmp_path) == outputs(undisturbed[0])
