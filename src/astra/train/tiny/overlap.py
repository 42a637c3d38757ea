"""Is the tiny base's corpus free of arenas? ``python -m astra.train.tiny.overlap`` says so.

Compares every document of the pretraining with the questions, sub-questions and tools (irrelevant
ones included) of all built arenas: no run of four words may occur in both, nor the words of a
whole tool signature that is shorter. Exit status 1 names what does.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from astra.records.environment import Arena
from astra.store.tables import read_records
from astra.train.tiny.corpus import documents

ARENAS = Path("data/envs_merged.parquet")
DOCUMENTS = 80_000
"""More than the recipe's steps consume (about 68,000)."""
WORDS, SHORTEST = 4, 3
_WORD = re.compile(r"[a-z]+|[0-9]+")

Gram = tuple[str, ...]


def grams(text: str) -> set[Gram]:
    """Runs of WORDS words, case and marks aside; of a shorter text the whole, if SHORTEST long."""
    words = _WORD.findall(text.lower())
    if SHORTEST <= len(words) < WORDS:
        return {tuple(words)}
    return {tuple(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1)}


def texts(arenas: Iterable[Arena]) -> Iterator[str]:
    """What a policy reads of an arena: questions, and each tool's signature and description."""
    for arena in arenas:
        yield arena.main_question
        yield from (step.question for step in arena.steps)
        for offer in (*arena.tools, *(tool for band in arena.irrelevant.values() for tool in band)):
            tool = offer.tool
            yield " ".join([tool.name, *tool.parameters.get("properties", {})])
            yield tool.description


def overlap(arenas: Iterable[Arena], corpus: Iterable[str]) -> set[Gram]:
    """Runs of words that an arena and a document share."""
    known: set[Gram] = set()
    for text in texts(arenas):
        known |= grams(text)
    found: set[Gram] = set()
    for document in corpus:
        words = _WORD.findall(document.lower())
        for length in (SHORTEST, WORDS):
            runs = (tuple(words[i : i + length]) for i in range(len(words) - length + 1))
            found.update(run for run in runs if run in known)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the tiny base's corpus with the arenas.")
    parser.add_argument("--arenas", type=Path, default=ARENAS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.arenas.is_file():
        sys.exit(f"{arguments.arenas} is missing; build it with `dvc repro envs_merged`")
    corpus = ("".join(text for text, _ in spans) for spans in documents(arguments.seed))
    found = overlap(read_records(arguments.arenas, Arena), islice(corpus, DOCUMENTS))
    for gram in sorted(found)[:20]:
        print(f"in the corpus and in an arena: {' '.join(gram)}")
    if found:
        sys.exit(f"{len(found)} runs of words are in both; change src/astra/train/tiny/corpus.py")
    print(f"no overlap between {DOCUMENTS} documents and the arenas")


if __name__ == "__main__":
    main()
