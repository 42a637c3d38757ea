"""The interface between server and engine: ids in, ids out, each request decoded its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from astra.errors import AstraError


class GenerationError(AstraError):
    """The engine behind a server failed; the request may be sent again."""


@dataclass(frozen=True)
class GenerationSettings:
    """How one request is decoded. Temperature, then ``top_k`` (0: all), then ``top_p``."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Generated:
    ids: list[int]
    """Sampled ids; the last one is EOS where ``finish`` is ``eos``."""
    finish: Literal["eos", "length"]


class Generator(Protocol):
    context: int
    """Tokens of prompt and reply together."""

    async def generate(self, ids: Sequence[int], decoding: GenerationSettings) -> Generated:
        """Continue ``ids``; many requests at once are batched. Raises GenerationError.

        A cancelled call stops generating.
        """
        ...

    async def close(self) -> None: ...
