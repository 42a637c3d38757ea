"""The rules that stand in for the teacher in stage ``tools``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from astra.llm.protocol import OfflineHandlers
from astra.toolbank.clean import domain_of
from astra.toolbank.domains import DOMAIN, DomainLabel
from astra.toolbank.results import RESULT, ResultGuess

STATED = 10
"""How many words of the documents the publisher's own label is worth."""


def choose_domain(variables: Mapping[str, Any], rng: random.Random) -> DomainLabel:
    """The label whose words the documents use most; the last label where they use none."""
    del rng
    labels: list[str] = variables["labels"]
    said = [variables["title"], variables["description"], *[variables["stated"]] * STATED]
    said += [f"{tool['name']} {tool['description']}" for tool in variables["tools"]]
    text = " ".join(said).lower().replace("_", " ")
    field = domain_of("", text, {})
    scores = {
        label: sum(text.count(word) for word in label.lower().split() if len(word) > 3)
        + (field in label.lower())
        for label in labels
    }
    best = max(labels, key=lambda label: scores[label])
    return DomainLabel(domain=best if scores[best] else labels[-1])


def no_guess(variables: Mapping[str, Any], rng: random.Random) -> ResultGuess:
    """No word on a tool: a rule cannot know what a service sends."""
    del variables, rng
    return ResultGuess(reason="No guess.", effect="unknown", output_schema=None, example=None)


HANDLERS: OfflineHandlers = {DOMAIN: choose_domain, RESULT: no_guess}
