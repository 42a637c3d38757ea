"""The local teacher of the benchmarks: what it says, what it counts, and what is made of that."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import asking
import local_teacher
import occupancy
import resume
from local_teacher import Latency, Request

from astra import prompting
from astra.llm.build import Teachers
from astra.llm.protocol import Ask, ModelConfig, ProviderError
from astra.settings import Endpoint, RuntimeConfig

CONFIG = ModelConfig(backend="openai", model="local")


class Word(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: str


def ask(seed: str, sample: int = 0) -> Ask[Word]:
    return Ask("test/word", {"seed": seed}, Word, sample)


def rule(variables: Mapping[str, Any], rng: random.Random) -> Word:
    if variables["seed"] == "none":
        raise ProviderError("no word begins like that")
    return Word(word=f"{variables['seed']}{rng.random()}")


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A file of replies, and what was replied: two samples of one prompt, and another prompt."""
    monkeypatch.setattr(prompting, "_source", lambda template: "A word with {{ seed }}.")
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "replies.jsonl"
    with local_teacher.recording(place), Teachers(RuntimeConfig()) as teachers:
        teacher = teachers.teacher(CONFIG, {"test/word": rule})
        assert teacher.name == "openai:local", "what tables will hold"

        async def said() -> list[str]:
            asks = [ask("a"), ask("a", 1), ask("b")]
            words = [(await teacher.ask(one)).word for one in asks]
            with pytest.raises(ProviderError):
                await teacher.ask(ask("none"))
            return words

        return place, asyncio.run(said())


def test_the_server_says_what_was_recorded_and_counts(recorded: tuple[Path, list[str]]) -> None:
    place, words = recorded
    assert words[0] == words[1] != words[2], "all samples of a prompt have its first reply"
    latency = Latency(0.1, 0.1)
    with local_teacher.local_teacher(place, latency) as peer:
        runtime = RuntimeConfig(endpoints=(Endpoint(base_url=peer.url, api_key_env=""),))

        async def asked(teachers: Teachers) -> list[str]:
            teacher = teachers.teacher(CONFIG, {})
            with pytest.raises(ProviderError, match="no word begins like that"):
                await teacher.ask(ask("none"))
            asks = [ask("a"), ask("a", 1), ask("b")]
            return [one.word for one in await asyncio.gather(*map(teacher.ask, asks))]

        with Teachers(runtime) as teachers:
            assert asyncio.run(asked(teachers)) == words
        log, counts = peer.log(), peer.counts()
    assert (counts["asked"], counts["answered"], counts["unknown"]) == (4, 4, 0)
    assert log[1].name == log[2].name != log[3].name, "told apart by prompt alone"
    assert all(one.answered is not None and one.answered - one.came >= 0.1 for one in log)

    keys = local_teacher.asked_keys(place)
    committed = resume.committed_keys(place.parent / "cache")
    sent = [one.name for one in log]
    assert resume.again(sent, keys, set()) == 0
    assert resume.again(sent, keys, committed) == 3, "all but the ask that was refused"
    (second,) = keys[log[1].name] - {min(keys[log[1].name])}
    assert resume.again(sent[1:2], keys, {second}) == 0, "one sample was missing and one is sent"
    assert resume.again(sent[1:3], keys, {second}) == 1


def test_an_agents_turn_is_known_by_the_conversation_before_it(tmp_path: Path) -> None:
    before = [{"role": "system", "content": "Act."}, {"role": "user", "content": "Go."}]
    turn = {"role": "assistant", "content": "Gone."}
    line = {"began": local_teacher.beginning(before, ["run", "walk"]), "turn": turn}
    (tmp_path / "replies").write_text(json.dumps(line) + "\n")
    replies = local_teacher.Replies(tmp_path / "replies")
    tools = [{"type": "function", "function": {"name": name}} for name in ("walk", "run")]
    body = {"model": "local", "messages": before, "tools": tools}
    assert replies.find(body) == (local_teacher.turn_key(body), turn)
    assert replies.find({**body, "messages": before[:1]})[1] is None
    assert resume.again(["k", "l"], {}, {"k"}) == 1, "a turn's name is its key"


def test_latencies_are_those_asked_for_and_the_same_in_every_run() -> None:
    latency = Latency(1.0, 10.0)
    drawn = [latency.draw(f"{number}", 0) for number in range(4000)]
    assert statistics.median(drawn) == pytest.approx(1.0, rel=0.1)
    assert sorted(drawn)[3960] == pytest.approx(10.0, rel=0.25)
    assert statistics.mean(drawn) == pytest.approx(latency.mean_s, rel=0.1)
    assert latency.mean_s == pytest.approx(1.63, abs=0.01)
    assert drawn[:9] == [latency.draw(f"{number}", 0) for number in range(9)]
    assert latency.draw("0", 1) != drawn[0], "the next of the same prompt takes another time"
    assert Latency(4.0, 4.0).draw("x", 0) == 4.0


def test_occupancy_is_the_integral_between_the_first_and_last_answers() -> None:
    steady = [Request("", at, at + 4.0, 4.0) for at in range(100)]
    assert occupancy.in_use(steady, 4) == pytest.approx(1.0), "one comes and one goes each second"
    assert occupancy.in_use(steady, 8) == pytest.approx(0.5)
    halves = [Request("", 2.0 * at, 2.0 * at + 1.0, 1.0) for at in range(100)]
    assert occupancy.in_use(halves, 1, edge=0.0) == pytest.approx(0.5, abs=0.01)
    lost = [*steady, Request("", 50.0, None, 4.0)]
    assert occupancy.in_use(lost, 4) > 1.1, "in flight to the end"


def test_panels_of_equal_models_are_asked_one_by_one() -> None:
    rules = {"backend": "offline", "model": "v1"}
    block = {"teacher": rules, "vote": {"models": [rules, rules], "samples": 3}, "walks": 40}
    made = asking._with_models(block)
    assert made["walks"] == 40
    assert made["teacher"]["backend"] == "openai"
    first, second = made["vote"]["models"]
    assert first != second
    assert first["model"] == second["model"] == asking.MODEL, "one model's places for all"
    assert block["teacher"] is rules
    assert rules["backend"] == "offline"


def test_moments_are_seeded_and_leave_work_to_do() -> None:
    first = resume.Moments("0 graph killed", 5).draw(3000)
    assert first == resume.Moments("0 graph killed", 5).draw(3000) == sorted(first)
    assert first != resume.Moments("1 graph killed", 5).draw(3000)
    assert 1 <= first[0] < first[-1] < 3000 - resume.PLACES
