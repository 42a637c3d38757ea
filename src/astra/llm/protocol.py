"""Asks and teachers: an ask names a template, its variables and the reply it expects."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, Field

from astra.errors import AstraError
from astra.settings import StageConfig

Reply = TypeVar("Reply", bound=BaseModel)


class ModelConfig(StageConfig):
    """Which model answers a role, and how it samples. Endpoints live in block ``runtime``."""

    backend: Literal["offline", "openai"]
    model: str
    """Offline: the version of the rules. openai: the model's name at the endpoint."""
    temperature: float = 0.6
    top_p: float = 1.0
    max_tokens: int = 4096
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Further request fields, for example a reasoning effort; null removes a field."""


class ModelsConfig(StageConfig):
    """Several models for one role, for example the votes of back-translation."""

    models: tuple[ModelConfig, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Ask(Generic[Reply]):
    """One question to a teacher."""

    template: str
    """``<domain>/<name>`` of the prompt."""
    variables: Mapping[str, Any]
    """What the template shows; JSON-able."""
    response: type[Reply]
    """The model of the reply."""
    sample: int = 0
    """Tells repeats of the same ask apart."""
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Further variables of the template: the bounds that the asker's checks hold the reply to.
    Offline rules do not see them."""
    names: tuple[str, ...] = ()
    """The template's variable ``names``, for replies that make up names. Offline rules do not see
    them."""
    check: Callable[[Reply], None] | None = None
    """What the reply has to satisfy beyond its model; raises ValueError with the reason. A reply
    that fails is asked for again with that reason and never cached. It is no part of the answer's
    identity, so a stricter check also meets the answers that are cached already."""

    @property
    def shown(self) -> Mapping[str, Any]:
        """What the template is rendered with."""
        names = {"names": self.names} if self.names else {}
        return {**self.variables, **self.limits, **names}

    def accepted(self, reply: Reply) -> Reply:
        """``reply``, if the check lets it pass. Raises UnfitReply with the check's reason."""
        if self.check is not None:
            try:
                self.check(reply)
            except ValueError as error:
                raise UnfitReply(str(error)) from error
        return reply


class ProviderError(AstraError):
    """No answer: outage, refusal, or retries exhausted. Never a score."""


class ParseError(AstraError):
    """An answer came, but it is not the reply asked for, also after bounded repair."""

    kind: ClassVar[str] = "unparsable"
    """What the run log counts such a reply as."""


class UnfitReply(ParseError):
    """A reply of the right form that fails its ask's check."""

    kind = "unfit"


class TruncatedReply(ParseError):
    """A reply that the token limit cut off."""

    kind = "truncated"


class Teacher(Protocol):
    """Answers asks. ``name`` (backend and model) is stored with what came of the answer."""

    name: str

    async def ask(self, ask: Ask[Reply]) -> Reply:
        """The parsed reply. Raises ProviderError or ParseError; never a made-up reply."""
        ...


Handler = Callable[[Mapping[str, Any], random.Random], BaseModel]
OfflineHandlers = Mapping[str, Handler]
"""Template name -> rule. A rule is pure: the same variables and generator give the same reply."""
