"""What judges a sampled chain: operators with their options, and the models that they ask.

An operator is a module of ``operators`` with ``judge(candidate, models, options)``. It returns its
verdicts and why they reject the chain; an empty reason accepts it. A model that gives no usable
answer abstains, and an operator never takes abstentions for a yes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from astra.llm.notes import PromptNotes
from astra.llm.protocol import ModelConfig, ModelsConfig, Teacher
from astra.plugins import find
from astra.records.graph import ChainStep
from astra.records.tool import Tool, ToolServer
from astra.records.verdict import Outcome, Verdict
from astra.settings import StageConfig
from astra.toolgraph import operators
from astra.toolgraph.walks import Walk

log = logging.getLogger("astra")
VOTE = "vote"
"""The operator whose verdicts a chain's record counts as votes."""


@dataclass(frozen=True)
class SampledChain:
    """A walk whose every argument has a source, to be judged."""

    graph_id: str
    server: ToolServer
    walk: Walk
    steps: tuple[ChainStep, ...]
    sketch: str = ""
    """The request that whoever proposed this very chain had in mind."""

    @property
    def tools(self) -> list[Tool]:
        """The chain's tools, each once."""
        named = {tool.name: tool for tool in self.server.tools}
        return [named[name] for name in dict.fromkeys(self.walk.tools)]


class PanelOptions(ModelsConfig):
    """The options of an operator that asks models, each of them more than once."""

    temperature: float | None = Field(ge=0)
    """The temperature in place of the models' own, since a judge at 0 repeats itself. None: their
    own."""

    @model_validator(mode="after")
    def _different(self) -> Self:
        """Refuse a panel whose models give one answer, paid once and counted twice.

        Rules cost nothing, and stand for as many models as there are to be.
        """
        asked = [model for model in self.sampled() if model.backend != "offline"]
        for model in asked:
            if asked.count(model) > 1:
                raise ValueError(
                    f"models: {model.model} is listed {asked.count(model)} times with the same "
                    "settings; its second answer would be its first. List different models, or "
                    "this one once"
                )
        return self

    def sampled(self) -> tuple[ModelConfig, ...]:
        """The models as they are asked."""
        if self.temperature is None:
            return self.models
        change = {"temperature": self.temperature}
        return tuple(model.model_copy(update=change) for model in self.models)


@dataclass(frozen=True)
class Operator:
    """A module of ``operators`` by its name, with its options and the models that it asks."""

    name: str
    options: StageConfig
    models: Sequence[Teacher] = ()

    async def judge(self, candidate: SampledChain, notes: PromptNotes) -> tuple[list[Verdict], str]:
        """Its verdicts, and why they reject the chain; ``notes`` take down what was asked."""
        models = [notes.of(model) for model in self.models]
        return await find(operators, self.name).judge(candidate, models, self.options)


def build_operators(
    chosen: Mapping[str, StageConfig], panel: Callable[[Sequence[ModelConfig]], Sequence[Teacher]]
) -> list[Operator]:
    """The operators by their names and options, in that order; ``panel`` makes the models."""
    return [
        Operator(name, options, panel(options.sampled()))
        if isinstance(options, PanelOptions)
        else Operator(name, options)
        for name, options in chosen.items()
    ]


def place(step: int, argument: str) -> str:
    """How verdicts name an argument of a chain."""
    return f"{step}.{argument}"


def abstained(operator: str, model: Teacher, sample: int, error: Exception) -> Verdict:
    """The verdict of a model whose ask failed; the log has the error's text."""
    log.info("[%s] %s, sample %d abstains: %s", operator, model.name, sample, error)
    return Verdict(
        operator=operator,
        model=model.name,
        sample=sample,
        outcome=Outcome.ABSTAINED,
        detail=type(error).__name__,
    )
