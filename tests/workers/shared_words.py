"""Stage ``words`` of a test's workspace: one ask per number, one record per answer.

A word for the number ``poison`` ends the process that works on it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from typing import ClassVar

from pydantic import BaseModel

from astra import prompting
from astra.data_stage import data_stage
from astra.llm import endpoints, servers
from astra.llm.pool import sharded_flow
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError, Teacher
from astra.records.base import Record
from astra.records.score import Rejection
from astra.settings import StageConfig
from astra.store.metrics import StageMetrics

prompting._source = lambda template: "Say {{ word }}."  # type: ignore[assignment]
endpoints.BACKOFF_S = servers.REST_S = 0.02


class Word(BaseModel):
    word: str


class Said(Record):
    identity: ClassVar[tuple[str, ...]] = ("number",)
    number: int
    word: str


class WordsConfig(StageConfig):
    teacher: ModelConfig
    count: int
    poison: int


def words(
    config: WordsConfig, teacher: Teacher, open_items: int, metrics: StageMetrics
) -> AsyncGenerator[Said | Rejection, None]:
    async def work(number: int) -> list[Said | Rejection]:
        if number == config.poison:
            os._exit(7)
        metrics.count("asked")
        metrics.distribution("digits", [len(str(number))])
        try:
            # Every tenth number shares its ask with the one before it.
            reply = await teacher.ask(Ask("demo/say", {"word": number - (number % 10 == 9)}, Word))
        except (ProviderError, ParseError) as error:
            return [Rejection(item=str(number), reason="ask_failed", detail=str(error))]
        return [Said(number=number, word=reply.word)]

    return sharded_flow(range(config.count), work, open_items)


def main() -> None:
    with data_stage("words", WordsConfig) as stage:
        stage.follow("asked", stage.config.count)
        teacher = stage.teacher(stage.config.teacher, {})
        outcomes = words(stage.config, teacher, stage.open_items, stage.metrics)
        stage.write(outcomes, Said, lambda metrics, _: metrics.count("words"))
