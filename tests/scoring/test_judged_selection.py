"""A strong model judged the hand-made set: good work is kept, each fault falls for its reason."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter

import pytest
import selection

from astra.llm.protocol import Ask, Reply
from astra.records.score import Rejection
from astra.scoring.config import SFTSetConfig
from astra.scoring.judge import score
from astra.scoring.select import shortlisted
from configs import block

REASONS = {
    "contradicted_fact": {"not_faithful"},
    "fabricated_argument": {"fabricated_argument"},
    "failure_as_success": {"not_faithful"},
    "invented_url": {"not_faithful"},
    "needless_write": {"needless_write"},
    "wrong_entity": {"misunderstood"},
}


class RecordedJudge:
    """The judge's replies about one trajectory, by template and turn.

    The wording of prompts may change; a reply that the rules of the ask do not accept any more, or
    an ask about something else, fails.
    """

    name = "recorded"

    def __init__(self, replies: dict[tuple[str, int], str]) -> None:
        self._replies = replies

    async def ask(self, ask: Ask[Reply]) -> Reply:
        turn = len(ask.variables.get("history", ()))
        return ask.accepted(ask.response.model_validate_json(self._replies[ask.template, turn]))


@pytest.fixture(scope="module")
def judged() -> dict[str, dict[tuple[str, int], str]]:
    with gzip.open(selection.FOLDER / "judged.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    replies: dict[str, dict[tuple[str, int], str]] = {}
    for row in rows:
        place = row["template"], row["turn"]
        replies.setdefault(row["name"], {})[place] = json.dumps(row["reply"])
    return replies


def reason(case: selection.Case, replies: dict[tuple[str, int], str]) -> str:
    """Why the trajectory is dropped; empty if it is kept."""
    config = SFTSetConfig.model_validate(block("sft_set"))
    graded = asyncio.run(score(case.trajectory, RecordedJudge(replies), config))
    outcome = shortlisted(case.trajectory, graded, config)
    return outcome.reason if isinstance(outcome, Rejection) else ""


def test_good_work_is_kept(judged: dict[str, dict[tuple[str, int], str]]) -> None:
    good = [case for name, case in selection.good().items() if name in judged]
    assert len(good) >= 30
    assert {case.name: why for case in good if (why := reason(case, judged[case.name]))} == {}


def test_each_fault_falls_for_its_reason(judged: dict[str, dict[tuple[str, int], str]]) -> None:
    unasked: dict[tuple[str, int], str] = {}
    faulty = [
        case
        for name, case in selection.faulty().items()
        if name in judged or (case.fault and case.fault.kind == "invented_url")
    ]
    kinds = Counter(case.fault.kind for case in faulty if case.fault)
    assert set(kinds) == set(selection.KINDS)
    assert min(kinds.values()) >= 4
    for case in faulty:
        assert case.fault is not None
        assert reason(case, judged.get(case.name, unasked)) in REASONS[case.fault.kind], case.name
