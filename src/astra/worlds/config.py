"""Parameters of stage ``worlds``."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from astra.contamination.index import ContaminationConfig
from astra.llm.protocol import ModelConfig
from astra.records.qa import Split
from astra.records.world import WorldShape
from astra.sandbox.limits import SandboxLimits
from astra.settings import StageConfig
from astra.worlds.domain import load_domains
from astra.worlds.services.source import ServiceSource
from astra.worlds.subjects import WorldSubject


class ProofConfig(StageConfig):
    """How many calls the proofs of a world make."""

    fuzz_calls: int = Field(ge=1)
    """Calls of each tool, from the start of the world."""
    walk_calls: int = Field(ge=1)
    """Successful calls in a row."""


class WorldsConfig(StageConfig):
    """Block ``worlds``: which worlds are made, and how they are proved."""

    seed: int
    """Seeds rows, names, tools and rules."""
    shape: WorldShape
    domains: tuple[str, ...]
    """The domains that are used, by the names of their files; empty: all."""
    variants: dict[Split, Annotated[int, Field(ge=0)]]
    """Worlds of each domain, by the domain's split."""
    composed: int = Field(ge=0)
    """Worlds of domains put together from parts of the training domains, in split ``train``."""
    attempts: int = Field(ge=1)
    """How many draws a world has to pass its proofs."""
    teacher: ModelConfig
    """Who writes worlds of ``subjects``."""
    judge: ModelConfig
    """Who decides by the sentence of a rule alone whether it allows a call."""
    subjects: tuple[WorldSubject, ...]
    """What a teacher writes a world about, one each; rules write none."""
    services: tuple[ServiceSource, ...]
    """Services that become worlds by rule, a folder of ``sources/services`` each."""
    inner_attempts: int = Field(ge=1)
    """How often a part of a taught world (schema, rules, a tool, rows) is asked for."""
    max_asks: int = Field(ge=1)
    """Asks for one taught world, at most."""
    agreement_cases: int = Field(ge=2)
    """Calls that are decided by the sentence of each rule and have to agree with its expression."""
    proofs: ProofConfig
    contamination: ContaminationConfig | None
    """The benchmark suites whose texts, tool names and schemas are kept out; None: not checked."""
    sandbox: SandboxLimits
    """Limits of a session; one runs the calls of a tool, or those in a row."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if strange := sorted(set(self.domains) - set(load_domains())):
            raise ValueError(f"there are no domains {strange}, only {sorted(load_domains())}")
        if self.subjects and "offline" in (self.teacher.backend, self.judge.backend):
            raise ValueError("worlds of subjects are written by models: set backend openai")
        if self.shape is WorldShape.SERVICE:
            raise ValueError("shape is full or small: worlds of `services` are as they come")
        named = (*self.subjects, *self.services)
        names = [*load_domains(), *(one.name for one in named)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice}: there is a domain of that name, or two are called so")
        return self
