"""A small data stage for tests, run in processes of its own: one ask per number, one record per
answer.

Given what to run as JSON it runs that. Started without, it runs what each line of its input asks
for in a process of its own (``forks``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, ClassVar

import yaml
from forks import serve
from pydantic import BaseModel, ConfigDict

from astra import prompting
from astra.data_stage import data_stage
from astra.llm import endpoints, openai_backend, servers
from astra.llm.pool import flow
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError, Teacher
from astra.records.base import Record
from astra.records.score import Rejection
from astra.settings import StageConfig
from astra.stage import run_stage

_ = openai_backend  # imported before the forks


class Word(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: str


class Said(Record):
    identity: ClassVar[tuple[str, ...]] = ("number",)
    number: int
    word: str


class WordsConfig(StageConfig):
    teacher: ModelConfig
    count: int


def words(
    config: WordsConfig, teacher: Teacher, open_items: int
) -> AsyncGenerator[Said | Rejection, None]:
    async def work(number: int) -> list[Said | Rejection]:
        try:
            reply = await teacher.ask(Ask("demo/say", {"word": number}, Word))
        except ProviderError as error:
            return [Rejection(item=str(number), reason="ask_failed", detail=str(error))]
        except ParseError as error:
            return [Rejection(item=str(number), reason="reply_unparsable", detail=str(error))]
        return [Said(number=number, word=reply.word)]

    return flow(range(config.count), work, open_items)


def main() -> None:
    with data_stage("words", WordsConfig) as stage:
        teacher = stage.teacher(stage.config.teacher, {})
        outcomes = words(stage.config, teacher, stage.open_items)
        stage.write(outcomes, Said, lambda metrics, _: metrics.count("words"))


def run(given: dict[str, Any]) -> None:
    """Run the stage in folder ``place``, where its outputs and its cache lie."""
    os.chdir(given["place"])
    os.environ["ASTRA_CACHE"] = f"{given['place']}/cache"
    params = {
        "words": {"teacher": {"backend": "openai", "model": "m"}, "count": given["count"]},
        "runtime": {
            "endpoints": [{"base_url": given["url"], "api_key_env": ""}],
            "concurrency": given["concurrency"],
            "request_timeout_s": given.get("timeout_s", 1.0),
        },
    }
    Path("params.yaml").write_text(yaml.safe_dump(params))
    prompting._source = lambda template: "Say {{ word }}."  # type: ignore[assignment]
    endpoints.BACKOFF_S = servers.REST_S = 0.02
    run_stage("words", main)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(json.loads(sys.argv[1]))
    else:
        serve(run)
