"""A small stage for tests, run in processes of its own: one ask per number, one record per answer.

Started once, it forks a process for each run that a line of its input asks for: runs that are
killed and started again then share one import of the client. It prints each run's process number
and, when that has ended, its wait status.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from astra import prompting
from astra.llm import endpoints, openai_backend, servers
from astra.llm.build import build_teacher
from astra.llm.pool import map_bounded
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError
from astra.records.base import Record
from astra.records.score import Rejection
from astra.settings import Endpoint, RuntimeConfig
from astra.stage import run_stage
from astra.store.metrics import StageMetrics
from astra.store.tables import write_records

_ = openai_backend  # imported before the forks


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


def run(given: dict[str, Any]) -> None:
    os.chdir(given["place"])
    os.environ["ASTRA_CACHE"] = f"{given['place']}/cache"
    prompting._source = lambda template: "Say {{ word }}."  # type: ignore[assignment]
    endpoints.BACKOFF_S = servers.REST_S = 0.02
    metrics = StageMetrics("words")

    def main() -> None:
        asyncio.run(build(given["url"], given["count"], given["concurrency"], metrics))
        metrics.write()

    if given["tracked"]:
        run_stage("words", main)
    else:
        main()


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            try:
                run(json.loads(line))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    serve()
