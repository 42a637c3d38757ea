"""Every ask of this domain through the openai backend, against the scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from astra.llm import endpoints, servers
from astra.llm.build import Teachers
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig
from astra.prompting import render
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa import QuestionWriter, instances
from astra.qa.qa_valid import judge_all
from astra.qa.selection import JudgedInstance
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.store.metrics import StageMetrics
from chat_server import KEY, Answer, ChatServer, runtime

OFFLINE = OfflineTeacher(ModelConfig(backend="offline", model="rules-1"), HANDLERS)
ONLINE = ModelConfig(backend="openai", model="m", max_tokens=2000)
EVERY = set(HANDLERS)


class Recorder:
    """The offline teacher, whose answers are kept by the prompt that an endpoint would get."""

    name = "recorder"

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.templates: set[str] = set()

    async def ask(self, ask: Ask[Any]) -> Any:
        reply = await OFFLINE.ask(ask)
        self.answers[render(ask.template, ask.shown)] = reply.model_dump_json()
        self.templates.add(ask.template)
        return reply


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_TEST_KEY", KEY)
    monkeypatch.setattr(endpoints, "BACKOFF_S", 0.01)
    monkeypatch.setattr(servers, "REST_S", 0.01)


async def everything(teacher: Any, config: Any, valid: Any, folder: Path) -> list[Any]:
    metrics = StageMetrics("qa")
    asked = instances(QuestionWriter(config, folder), teacher, 4, metrics)
    outcomes = [outcome async for outcome in asked]
    kept = [outcome for outcome in outcomes if isinstance(outcome, QAInstance)]
    judged = [outcome async for outcome in judge_all(kept, teacher, valid, 4, metrics)]
    return outcomes + [
        outcome.instance if isinstance(outcome, JudgedInstance) else outcome for outcome in judged
    ]


@pytest.fixture
def config(qa_config: Any, every_mode: dict[str, Any]) -> Any:
    return qa_config(
        languages={"en": 0.5, "zh": 0.5},
        kinds={"read_only": 0.5, "write": 0.25, "missing_tool": 0.25},
        extended=True,
        sources={"hotels": 1},
        instances={"train": 8},
        hops={1: 1, 2: 1, 3: 1},
        # One sample of each item: the server knows answers by their prompt alone.
        corpora={name: {**corpus, "samples": 1} for name, corpus in every_mode.items()},
    )


def scripted(recorder: Recorder, spoilt: bool) -> Callable[[dict[str, Any]], Answer]:
    """Answers as recorded; each ask first with prose that is no reply, if ``spoilt``."""
    seen: set[str] = set()

    def answer(body: dict[str, Any]) -> Answer:
        prompt = body["messages"][0]["content"].partition("\n\nWrite the JSON object and")[0]
        if spoilt and prompt not in seen:
            seen.add(prompt)
            return Answer("Certainly! Here is what you asked for.")
        return Answer(recorder.answers[prompt])

    return answer


@pytest.mark.parametrize("spoilt", [False, True])
def test_an_endpoint_that_answers_as_the_rules_do_gives_the_same_records(
    spoilt: bool, config: Any, qa_config: Any, valid_config: Any, knowledge: Path
) -> None:
    recorder = Recorder()
    expected = asyncio.run(everything(recorder, config, valid_config(), knowledge))
    classic = qa_config(sources={"real_estate": 1}, instances={"train": 2})
    expected += asyncio.run(everything(recorder, classic, valid_config(), knowledge))
    assert recorder.templates == EVERY
    assert sum(isinstance(outcome, QAInstance) for outcome in expected) > 20
    with (
        ChatServer(default=scripted(recorder, spoilt)) as server,
        Teachers(runtime(server.url), "qa") as teachers,
    ):
        teacher = teachers.teacher(ONLINE, HANDLERS)

        async def both() -> list[Any]:
            extended = await everything(teacher, config, valid_config(), knowledge)
            return extended + await everything(teacher, classic, valid_config(), knowledge)

        online = asyncio.run(both())
        assert len(server.requests) >= len(recorder.answers) * (2 if spoilt else 1)

    def said(outcomes: list[Any]) -> list[Any]:
        # A rule's refusal names another teacher, not another reason.
        return [o.reason if isinstance(o, Rejection) else o.model_dump() for o in outcomes]

    assert said(online) == said(expected)


def test_an_endpoint_that_is_no_use_makes_no_instance(
    config: Any, valid_config: Any, knowledge: Path
) -> None:
    with (
        ChatServer(default=lambda _: Answer("I would rather not.")) as server,
        Teachers(runtime(server.url, max_attempts=2), "qa") as teachers,
    ):
        teacher = teachers.teacher(ONLINE, HANDLERS)
        outcomes = asyncio.run(everything(teacher, config, valid_config(), knowledge))
    assert {o.reason for o in outcomes} <= {"teacher", "no_plan"}
    assert outcomes
