"""Parameters of stage ``tasks``."""

from __future__ import annotations

from datetime import date
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from astra.llm.protocol import ModelConfig
from astra.records.task import TaskKind
from astra.settings import StageConfig


class ServerTasksConfig(StageConfig):
    """Tasks written for a server alone, without a chain."""

    per_server: int = Field(ge=0)
    """How many tasks are asked for per server and number of calls."""
    max_tools: int = Field(ge=1)
    """The largest number of calls of one task; every number from 1 on is asked for."""


class AugmentConfig(StageConfig):
    """How many variants of written tasks are asked for, by mode."""

    share: float = Field(ge=0, le=1)
    """The share of the accepted tasks that is augmented in each mode."""
    diverse: int = Field(ge=0)
    """How many variants with new context are asked for per augmented task."""
    complicate: int = Field(ge=0)
    """How many variants with more demands are asked for per augmented task."""
    persona: int = Field(ge=0)
    """How many variants asked by a person are asked for per augmented task."""
    max_shared: float | None = Field(gt=0, le=1)
    """The share of word pairs (of the shorter question, without its values) in common from which
    on a variant is a copy of its original or of an earlier variant; null: none is."""


class UnsolvableConfig(StageConfig):
    """Shares of tasks without a full solution in the final set, variants included."""

    missing_function: float = Field(ge=0, le=1)
    missing_parameter: float = Field(ge=0, le=1)
    irrelevant: float = Field(ge=0, le=1)
    donors: Literal["recent", "stable"]
    """Which other servers' questions become irrelevant ones. ``recent``: those of the last servers.
    ``stable``: those with the least hash, so that a change of one server moves few of them
    (tasking.unsolvable.Donors)."""

    @model_validator(mode="after")
    def _some_can_be_solved(self) -> Self:
        if self.total >= 1:
            raise ValueError(f"unsolvable: the shares add up to {self.total:g}; nothing is left")
        return self

    @property
    def total(self) -> float:
        """The share of all kinds together."""
        return self.missing_function + self.missing_parameter + self.irrelevant

    def rate(self, kind: TaskKind) -> float:
        """How many tasks of a kind are wanted for each task that can be solved."""
        share: float = getattr(self, kind.value)
        return share / (1 - self.total)


class ThresholdsConfig(StageConfig):
    """The least label, 1 to 5, that a task needs from the judge in each dimension."""

    quality: int = Field(ge=1, le=5)
    realism: int = Field(ge=1, le=5)
    necessity: int = Field(ge=1, le=5)
    difficulty: int = Field(ge=1, le=5)
    """How hard it is to choose the right tools; 1 lets all pass."""
    uniqueness: int = Field(ge=1, le=5)
    """Whether only the planned tools solve it; 1 lets all pass."""


class TasksConfig(StageConfig):
    """Block ``tasks``; conf/tasks/base.yaml names each default's source."""

    teacher: ModelConfig
    """Who writes tasks and their variants."""
    judge: ModelConfig
    """Who labels them."""
    samples: int = Field(ge=1)
    """How many tasks are asked for per chain."""
    server_tasks: ServerTasksConfig
    languages: dict[str, Annotated[float, Field(ge=0, le=1)]]
    """The shares of tasks written in another language than the server's; the rest is in its own."""
    now: tuple[date, date] | None
    """The first and the last day on which users ask: each base task draws one, and a time of day.
    null: nobody is told a date."""
    augment: AugmentConfig
    personas: str | None
    """The file of the people who ask in mode ``persona``; null: people made up by rule."""
    unsolvable: UnsolvableConfig
    thresholds: ThresholdsConfig
    max_words: int = Field(ge=1)
    """The most words of a question; longer ones are dropped."""
    near_duplicate: float = Field(ge=0.5, le=1)
    """The similarity from which on the later of two questions is dropped."""
    near_duplicate_scope: Literal["server", "set"]
    """Whether questions are compared within each server, or with those of all servers."""
    min_live_tasks: int = Field(ge=0)
    """Live servers are asked for more samples, until there would be so many tasks on them in all,
    were none dropped: their results are real. 0: as many samples as of others."""
    max_live_tasks: int = Field(ge=0)
    """The most tasks on live servers in all: each costs server processes to execute."""
    max_tasks: int | None = Field(ge=1)
    """The most tasks in all: each is executed and judged. Every kind, number of calls and way of
    augmentation keeps its share, and every server its share of that; null: all stay."""
    write_margin: float = Field(ge=1)
    """How many tasks there would be for each of ``max_tasks``, if none of what is written were
    dropped. Base tasks beyond that, drawn by hash, are not written at all."""

    def share_written(self, servers: float, chains: float) -> float:
        """The share of the base tasks of so many servers and chains that is written."""
        if self.max_tasks is None:
            return 1.0
        base = chains * self.samples
        base += servers * self.server_tasks.per_server * self.server_tasks.max_tools
        return min(1.0, self.write_margin * self.max_tasks / max(1.0, base * self._most_per_base))

    def live_repeats(self, base: float, live: float) -> int:
        """How many times as many samples one of ``live`` live servers is asked for as others.

        ``base``: the tasks that one sample of each of its chains and of the server itself makes.
        """
        return max(1, ceil(self.min_live_tasks / max(1, live * base)))

    @property
    def _most_per_base(self) -> float:
        """The tasks that one base task leads to on average, itself included, if none is dropped."""
        augment = self.augment
        variants = augment.share * (augment.diverse + augment.complicate + augment.persona)
        return (1 + variants) / (1 - self.unsolvable.total)

    @model_validator(mode="after")
    def _now_is_a_span(self) -> Self:
        if self.now is not None and self.now[0] > self.now[1]:
            raise ValueError(f"now: {self.now[0]} is after {self.now[1]}")
        return self

    @model_validator(mode="after")
    def _live_tasks_span(self) -> Self:
        if self.min_live_tasks > self.max_live_tasks:
            raise ValueError(
                f"min_live_tasks {self.min_live_tasks} exceeds max_live_tasks {self.max_live_tasks}"
            )
        return self

    @model_validator(mode="after")
    def _languages_share_one_whole(self) -> Self:
        if sum(self.languages.values()) > 1:
            raise ValueError(f"languages: the shares {self.languages} add up to more than 1")
        return self
