"""A small stage for tests, run as its own process: one ask per number, one record per answer.

python word_stage.py URL COUNT CONCURRENCY
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from astra import prompting
from astra.llm import endpoints, servers
from astra.llm.build import build_teacher
from astra.llm.pool import map_bounded
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError
from astra.records.base import Record
from astra.records.score import Rejection
from astra.settings import Endpoint, RuntimeConfig
from astra.stage import run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import write_records


class Word(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: str


class Said(Record):
    identity: ClassVar[tuple[str, ...]] = ("number",)
    number: int
    word: str


async def build(url: str, count: int, concurrency: int, metrics: StageMetrics) -> None:
    runtime = RuntimeConfig(
        endpoints=(Endpoint(base_url=url, api_key_env=""),),
        concurrency=concurrency,
        request_timeout_s=1.0,
    )
    teacher = build_teacher(ModelConfig(backend="openai", model="m"), runtime, {}, "words")

    async def one(number: int) -> Said | Rejection:
        try:
            reply = await teacher.ask(Ask("demo/say", {"word": number}, Word))
        except ProviderError as error:
            return Rejection(item=str(number), reason="ask_failed", detail=str(error))
        except ParseError as error:
            return Rejection(item=str(number), reason="reply_unparsable", detail=str(error))
        return Said(number=number, word=reply.word)

    kept: list[Said] = []
    async for outcome in map_bounded(range(count), one, concurrency):
        if isinstance(outcome, Rejection):
            metrics.reject(outcome)
        else:
            kept.append(outcome)
    write_records(Path("data/words.parquet"), kept, Said)


def main() -> None:
    prompting._source = lambda template: "Say {{ word }}."  # type: ignore[assignment]
    endpoints.BACKOFF_S = servers.REST_S = 0.02
    metrics = StageMetrics("words")
    asyncio.run(build(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), metrics))
    metrics.write()


if __name__ == "__main__":
    run_stage("words", main)
