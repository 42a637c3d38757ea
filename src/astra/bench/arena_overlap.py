"""Arenas that share a text or a tool with the index of benchmark suites, told beside the scores.

(overlap.py compares training data with the prompts of suites that were played.)
Held-out arenas that share a text with a suite would be scored twice; training arenas that do
would lift the suite's score without skill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from astra.contamination.index import ContaminationConfig, load_index
from astra.records.environment import Arena


def shared_with_suites(
    arenas: Iterable[Arena], config: ContaminationConfig | None
) -> dict[str, Any]:
    """How many arenas each split has, and how many share a text, tools' names or schemas with which
    suite.

    An arena counts once, by the first of these. Empty where the check is off.
    """
    index = load_index(config)
    if index is None or config is None:
        return {}
    by_split: dict[str, Counter[str]] = {}
    for arena in arenas:
        counts = by_split.setdefault(arena.split.value, Counter())
        counts["arenas"] += 1
        texts = [arena.main_question, *(step.question for step in arena.steps)]
        tools = [(one.tool.name, one.tool.parameters) for one in arena.tools]
        shared = index.shared_text(texts) or index.shared_tools(tools, config)
        if shared is not None:
            counts[f"{shared.kind} of {shared.suite}"] += 1
    splits = {split: dict(sorted(counts.items())) for split, counts in sorted(by_split.items())}
    return {"suites": index.suites, **splits}
