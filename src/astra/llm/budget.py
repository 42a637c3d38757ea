"""Caps on requests, tokens and money, for one stage and for all stages of a run.

A request is admitted only if the caps hold even when it uses all it may. Near a cap requests
therefore wait for those in flight to settle; when none is in flight and the next one still
does not fit, the stage stops. By then every answer paid for is committed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from astra.errors import AstraError, StageStop
from astra.llm.cache import AnswerCache, Spent
from astra.settings import BudgetConfig, Caps, Price

BYTES_PER_TOKEN = 3
"""How many bytes of a prompt make a token; low on purpose: an estimate should not be too low."""
COMPLETION_TOKENS = 4096
"""The completion that a request is taken to need if it sets no limit."""


class BudgetReached(StageStop):
    """A cap of ``runtime.budget`` leaves no room for another request."""


@dataclass(frozen=True)
class Tokens:
    """The tokens of one request, estimated or as the server reports them."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """How many of ``prompt`` the provider had cached."""

    @property
    def total(self) -> int:
        return self.prompt + self.completion


def estimate(body: Mapping[str, Any]) -> Tokens:
    """The most tokens that a request is likely to use."""
    texts = sum(len(str(message.get("content") or "").encode()) for message in body["messages"])
    texts += len(str(body.get("tools") or "")) + len(str(body.get("response_format") or ""))
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or COMPLETION_TOKENS
    return Tokens(prompt=texts // BYTES_PER_TOKEN + 1, completion=int(limit))


def cost(tokens: Tokens, price: Price | None) -> float:
    """What the tokens cost, in the money of ``runtime.prices`` (per million tokens)."""
    if price is None:
        return 0.0
    cached = price.prompt if price.cached_prompt is None else price.cached_prompt
    fresh = tokens.prompt - tokens.cached
    total = fresh * price.prompt + tokens.cached * cached + tokens.completion * price.completion
    return total / 1e6


def is_limited(config: BudgetConfig) -> bool:
    """Whether anything is capped."""
    return config.stage.any or config.run.any


def check_price(config: BudgetConfig, prices: Mapping[str, Price], model: str) -> None:
    """Raises AstraError where money is capped and ``model`` has no price."""
    capped = any(caps.money is not None for caps in (config.stage, config.run))
    if capped and model not in prices:
        raise AstraError(
            f"runtime.budget caps money, but runtime.prices has no price for {model!r}; add "
            "one to conf/runtime (per million tokens), or cap tokens instead"
        )


class Budget:
    """What a stage may still spend, for all who ask at one desk. Used within one event loop."""

    def __init__(
        self, config: BudgetConfig, prices: Mapping[str, Price], stage: str, cache: AnswerCache
    ) -> None:
        self.limited = is_limited(config)
        self._prices = prices
        self._cache = cache
        self._stage = stage
        self._name = os.environ.get("DVC_EXP_NAME") or config.name
        self._caps: tuple[tuple[str, Caps, Spent], ...] = (
            ("stage", config.stage, cache.spent(self._name, stage)),
            ("run", config.run, cache.spent(self._name)),
        )
        self._now = Spent()
        """What this process has spent."""
        self._reserved = Spent()
        """What the requests in flight may still take."""
        self._open = 0
        """How many asks are between their first admitted request and the commit of the answer."""
        self._changed = asyncio.Event()

    def price(self, model: str) -> Price | None:
        return self._prices.get(model)

    def hold(self) -> Hold:
        """The account of one ask; close it once the answer is committed or given up."""
        return Hold(self)

    def _reached(self, amount: Spent) -> str:
        """The message for the cap that ``amount`` more would break; empty if none would."""
        for scope, caps, before in self._caps:
            for unit in ("requests", "tokens", "money"):
                cap = getattr(caps, unit)
                spent = getattr(before, unit) + getattr(self._now, unit)
                wanted = getattr(self._reserved, unit) + getattr(amount, unit)
                if cap is not None and spent + wanted > cap:
                    owner = f"stage {self._stage}" if scope == "stage" else "the run"
                    return (
                        f"budget {self._name!r} of {owner} is spent: {spent:g} of {cap:g} {unit}, "
                        f"and the next request may take {getattr(amount, unit):g}. Every answer "
                        f"so far is kept in {self._cache.path}. To go on, raise runtime.budget."
                        f"{scope}.{unit} in conf/runtime (or change runtime.budget.name), `make "
                        "params`, and run the same command again: it resumes where it stopped"
                    )
        return ""

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Hold:
    """One ask's account: ``admit`` before each request, ``charge`` after it, ``close`` at last."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._open = False
        self._reserved = Spent()
        self._model = ""
        """The model of the last admitted request."""

    async def admit(self, model: str, tokens: Tokens) -> None:
        """Wait until the request fits. Raises BudgetReached if it cannot any more."""
        budget = self._budget
        if not budget.limited:
            return
        amount = Spent(1, tokens.total, cost(tokens, budget.price(model)))
        while problem := budget._reached(amount):
            # Its own reservation is given up first, so that waiting asks do not block each other.
            self.close()
            if budget._open == 0:
                raise BudgetReached(problem)
            await budget._changed.wait()
        if not self._open:
            self._open = True
            budget._open += 1
        self._model = model
        self._reserve(amount)

    async def charge(self, model: str, tokens: Tokens) -> float:
        """Book what a request used (also one without answer); returns its money."""
        budget = self._budget
        money = cost(tokens, budget.price(model))
        self._book(model, Spent(1, tokens.total, money))
        return money

    def forfeit(self) -> None:
        """Book all that is reserved, and close: who asked is lost, and may have been answered."""
        if self._reserved != Spent():
            self._book(self._model, self._reserved)
        self.close()

    def close(self) -> None:
        """Give back what is reserved, and let waiting asks look again; idempotent."""
        self._reserve(Spent())
        if self._open:
            self._open = False
            self._budget._open -= 1
            self._budget._notify()

    def _book(self, model: str, spent: Spent) -> None:
        budget = self._budget
        budget._now = _sum(budget._now, spent)
        budget._cache.spend(budget._name, budget._stage, model, spent)
        self._reserve(Spent())

    def _reserve(self, amount: Spent) -> None:
        others = _sum(self._budget._reserved, self._reserved, -1)
        self._budget._reserved = _sum(others, amount)
        self._reserved = amount


def _sum(a: Spent, b: Spent, sign: int = 1) -> Spent:
    return Spent(
        a.requests + sign * b.requests, a.tokens + sign * b.tokens, a.money + sign * b.money
    )
