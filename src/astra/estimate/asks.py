"""Expected asks: how many, of which kind, and the tokens that each of them takes.

Only asks count that are answered once. Requests for a repair and retries come on top, answers
that the cache holds come off, and what a model thinks before it replies is not in its reply's
length: all three are unknown before.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import BaseModel

from astra.llm.budget import BYTES_PER_TOKEN, Tokens, cost
from astra.llm.protocol import ModelConfig
from astra.llm.structured import response_format
from astra.prompting import example
from astra.settings import Price


@dataclass(frozen=True)
class Amount:
    """How many of something: the expected number, and the most that there can be."""

    about: float
    most: float
    counted: bool = False
    """Whether what it follows from was counted; else it was guessed."""

    def times(self, about: float, most: float | None = None) -> Amount:
        """So many for each one; ``most`` of them at most, where that is another number."""
        top = about if most is None else max(about, most)
        return Amount(self.about * about, self.most * top, self.counted)

    def guessed(self, share: float = 1.0) -> Amount:
        """The rows that pass, if ``share`` of them is expected to; at most all."""
        return Amount(self.about * share, self.most, counted=False)

    def thinned(self, about: float, most: float) -> Amount:
        """A share of it: another one of the most there can be than of the expected number."""
        expected = self.about * about
        return replace(self, about=expected, most=max(expected, self.most * most))

    def capped(self, limit: float) -> Amount:
        """What a limit leaves of it."""
        return replace(self, about=min(self.about, limit), most=min(self.most, limit))

    def __add__(self, other: Amount) -> Amount:
        both = self.counted and other.counted
        return Amount(self.about + other.about, self.most + other.most, both)


NONE = Amount(0, 0, counted=True)


def counted(number: float) -> Amount:
    """A number that is known."""
    return Amount(number, number, counted=True)


@dataclass(frozen=True)
class ExpectedAsks:
    """Asks of one kind to one role's model, and the tokens of one of them."""

    role: str
    model: ModelConfig
    kind: str
    """The template, or what else is sent."""
    asks: Amount
    prompt_tokens: float
    completion_tokens: float

    def cost(self, price: Price, asks: float) -> float:
        """What so many of them cost."""
        prompt, completion = self.prompt_tokens * asks, self.completion_tokens * asks
        return cost(Tokens(round(prompt), round(completion)), price)


@dataclass(frozen=True)
class AskForm:
    """A kind of ask, for estimates: its template, its reply, and how long a reply is."""

    template: str
    response: type[BaseModel]
    reply_bytes: float

    def asked(
        self, role: str, model: ModelConfig, asks: Amount, shown_bytes: float
    ) -> ExpectedAsks:
        """``asks`` of this kind, in each of which the variables take so many bytes."""
        prompt = fixed_bytes(self.template, self.response) + shown_bytes
        return expected(role, model, self.template, asks, prompt, self.reply_bytes)


def expected(
    role: str,
    model: ModelConfig,
    kind: str,
    asks: Amount,
    prompt_bytes: float,
    reply_bytes: float,
) -> ExpectedAsks:
    """Asks of known length, in bytes."""
    reply = min(reply_bytes / BYTES_PER_TOKEN, model.max_tokens)
    return ExpectedAsks(role, model, kind, asks, prompt_bytes / BYTES_PER_TOKEN, reply)


@cache
def fixed_bytes(template: str, response: type[BaseModel]) -> int:
    """What every prompt of a template has in common, with the schema of the reply."""
    schema, _, _ = response_format(response)
    return len(example(template).encode()) + len(json.dumps(schema, ensure_ascii=False).encode())


@dataclass(frozen=True)
class RoleCost:
    """What one stage asks of one role's model."""

    role: str
    model: str
    asks: Amount
    prompt_tokens: Amount
    completion_tokens: Amount
    money: Amount | None
    """None for a model without a price."""


def costs(expected: Iterable[ExpectedAsks], prices: Mapping[str, Price]) -> list[RoleCost]:
    """Sums by role and model, of backend openai alone: rules cost nothing."""
    grouped: defaultdict[tuple[str, str], list[ExpectedAsks]] = defaultdict(list)
    for one in expected:
        if one.model.backend == "openai" and one.asks.most > 0:
            grouped[one.role, one.model.model].append(one)
    return [
        _role_cost(role, model, asks, prices.get(model)) for (role, model), asks in grouped.items()
    ]


def _role_cost(
    role: str, model: str, expected: list[ExpectedAsks], price: Price | None
) -> RoleCost:
    return RoleCost(
        role=role,
        model=model,
        asks=total(one.asks for one in expected),
        prompt_tokens=total(one.asks.times(one.prompt_tokens) for one in expected),
        completion_tokens=total(one.asks.times(one.completion_tokens) for one in expected),
        money=price and total(_money(one, price) for one in expected),
    )


def _money(one: ExpectedAsks, price: Price) -> Amount:
    about, most = (one.cost(price, asks) for asks in (one.asks.about, one.asks.most))
    return Amount(about, most, one.asks.counted)


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum; counted if all parts are."""
    return sum(amounts, start=NONE)


def online_models(document: Any) -> list[ModelConfig]:
    """Every distinct model of backend openai in a block of parameters, or in all of them."""
    found: dict[str, ModelConfig] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Mapping):
            if node.get("backend") == "openai" and "temperature" in node:
                config = ModelConfig.model_validate(node)
                found.setdefault(config.model, config)
            for value in node.values():
                visit(value)
        elif isinstance(node, list | tuple):
            for value in node:
                visit(value)

    visit(document)
    return list(found.values())
