"""The offline teacher's replies to outlines: a planned question worded by rule."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from astra.qa.offline import phrases, phrases_zh
from astra.qa.replies import StepWording, Wording

WORDING = {
    "en": (phrases.main_question, phrases.sub_question),
    "zh": (phrases_zh.main_question, phrases_zh.sub_question),
}
"""Language -> functions that word a main question and a sub-question."""


def decompose(variables: Mapping[str, Any], rng: random.Random) -> Wording:
    """Word the outline's main question and each of its steps."""
    main_question, sub_question = WORDING[variables["language"]]
    steps: Sequence[Mapping[str, Any]] = variables["steps"]
    names: Sequence[str] = variables["names"]
    question = main_question(variables["form"], steps, names, rng, variables["paraphrased"])
    if closing := variables.get("closing"):
        question += closing if variables["language"] == "zh" else f" {closing}"
    return Wording(
        main_question=question,
        sub_questions=tuple(
            StepWording(id=step["id"], question=sub_question(step, steps, names)) for step in steps
        ),
    )
