"""How much of each suite's prompts the training data share: n-grams of words, counted.

Training data are kept from the suites' texts when they are made (``astra.contamination``); this
says afterwards what is left, for the prompts that the scores rest on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from astra.bench.harness.protocol import find_suite
from astra.bench.suite_tables import PlayedRun
from astra.contamination.grams import text_hashes
from astra.contamination.index import NGRAM
from astra.records.environment import Arena
from astra.records.message import MessageRole
from astra.records.qa import Split
from astra.records.trajectory import SFTSample
from astra.store.tables import read_records

SHOWN = 5
"""Overlapping items named per suite and table."""
Item = tuple[str, Sequence[str]]
"""A training item's id and its texts."""


def prompts_of(runs: Iterable[PlayedRun]) -> dict[str, list[str]]:
    """What users and system said in the episodes of each suite, each text once.

    A suite that keeps its problems out of episodes is asked for them (SuiteError where they are
    not to be had any more).
    """
    by_suite: dict[str, set[str]] = {}
    for run, episodes in runs:
        texts = by_suite.setdefault(run.harness, set())
        suite = find_suite(run.harness)
        if suite.prompts is not None:
            texts.update(suite.prompts(suite.options(run.options)))
        for episode in episodes:
            texts.update(
                message.content
                for message in episode.messages
                if message.role in (MessageRole.USER, MessageRole.SYSTEM)
            )
    return {suite: sorted(texts) for suite, texts in sorted(by_suite.items()) if texts}


def sft_items(path: Path) -> Iterator[Item]:
    """Each sample that SFT trains on, whole conversations but the shared system prompt."""
    for sample in read_records(path, SFTSample):
        if sample.split == "train":
            said = [m.content for m in sample.messages if m.role != MessageRole.SYSTEM]
            yield sample.id, said


def arena_items(path: Path) -> Iterator[Item]:
    """Each arena that RL trains on: its question and sub-questions."""
    for arena in read_records(path, Arena):
        if arena.split == Split.TRAIN:
            yield arena.id, [arena.main_question, *(step.question for step in arena.steps)]


@dataclass
class _Shared:
    items: int = 0
    overlapping: list[str] = field(default_factory=list[str])
    grams: set[int] = field(default_factory=set[int])


def overlap(
    prompts: Mapping[str, Sequence[str]], tables: Mapping[str, Iterable[Item]], ngram: int = NGRAM
) -> dict[str, Any]:
    """How many prompts each suite has, and how many of them share a gram with each training table.

    A text shorter than ``ngram`` words counts as one gram if it has at least six words.
    """
    grams = {
        suite: [text_hashes(text, ngram) for text in texts] for suite, texts in prompts.items()
    }
    wanted = {suite: set[int]().union(*hashes) for suite, hashes in grams.items()}
    counts = {suite: {table: _Shared() for table in tables} for suite in prompts}
    for table, items in tables.items():
        for name, texts in items:
            ours = set[int]().union(*(text_hashes(text, ngram) for text in texts))
            for suite, theirs in wanted.items():
                count = counts[suite][table]
                count.items += 1
                if shared := ours & theirs:
                    count.overlapping.append(name)
                    count.grams |= shared
    return {
        suite: {
            "prompts": len(texts),
            "ngram": ngram,
            "ngrams": len(wanted[suite]),
            "tables": {
                table: {
                    "items": count.items,
                    "items_overlapping": len(count.overlapping),
                    "ngrams_shared": len(count.grams),
                    "prompts_overlapping": sum(bool(text & count.grams) for text in grams[suite]),
                    "examples": sorted(count.overlapping)[:SHOWN],
                }
                for table, count in counts[suite].items()
            },
        }
        for suite, texts in prompts.items()
    }


def write_overlap(document: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
