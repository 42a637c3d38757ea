"""What a generation engine is chosen by, built from and does; a scripted one for tests.

An ``Engine`` holds rows (one conversation each). ``start`` gives every row its prompt; ``poll``
generates until some rows have ended a turn and returns those turns; the driver then either
resumes such a row with the ids of its tool results, or finishes it. The other kind of engine is
``streaming.TurnEngine``, which is asked for one turn at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from astra.rollout.chat import LoadedPolicy
from astra.settings import StageConfig


class EngineConfig(StageConfig):
    """The parameter ``rl.engine``; the ``Options`` of each engine add what only it can be told."""

    type: str
    """The engine's name: its file in ``rollout/engines``."""

    own_weights: ClassVar[bool] = False
    """Whether the engine generates with weights that are handed over to it whole. The others
    generate with the trainer's own model, which must then be whole in each process."""


Reference = Callable[[], tuple[list[int], list[float]]]
"""Computes the ids of a prompt and the trainer's log-probabilities of all but the first."""


@dataclass(frozen=True)
class EngineInputs:
    """What an engine is built from, besides its options."""

    policy: LoadedPolicy
    save: Callable[[Path], bool]
    """Writes the policy's current weights as a model folder. Every rank of a training calls it;
    True on the one rank that then hands the folder over."""
    served: Callable[[], Mapping[str, Any] | None]
    """Tensors of the policy's current weights by their names in a model folder, in the type that
    is served, tied ones once. Every rank calls it; None on those that do not hand them over."""
    reference: Reference
    """Shows whether an engine computes what the trainer does; every rank calls it."""
    servers: tuple[str, ...]
    """The URLs of ``runtime.rollout_servers``."""
    weights: Path
    """The folder in which weights are handed over to servers."""
    ranks: int
    """Processes that train together; each builds an engine of its own."""
    gather: Callable[[Any], list[Any]]
    """Returns the value of each rank, in their order; every rank calls it."""


@dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0
    """0 is greedy. Log-probabilities are those of the distribution that was sampled from."""
    seed: int = 0


@dataclass(frozen=True)
class Turn:
    """One assistant turn of row ``row``: sampled ids and their log-probabilities."""

    row: int
    ids: list[int]
    logprobs: list[float]
    finish: Literal["eos", "length"]
    """``eos``: the last id is EOS. ``length``: the budget ended the turn; no EOS was added."""


class Engine(Protocol):
    max_rows: int
    """Rows that may be started at once."""
    weight_version: int
    """Optimizer steps behind the weights that generate."""

    def start(
        self, prompts: Sequence[Sequence[int]], budgets: Sequence[int], sampling: Sampling
    ) -> None:
        """Begin rows 0..n-1. ``budgets``: tokens of each row's first turn. Drops older rows."""
        ...

    def poll(self) -> list[Turn]:
        """Turns that ended, at least one while any row generates; empty if none does."""
        ...

    def resume(self, row: int, suffix: Sequence[int], budget: int) -> None:
        """Continue a row after its tool results with a turn of at most ``budget`` tokens."""
        ...

    def finish(self, row: int) -> None:
        """The row will not be resumed; its memory may go."""
        ...


class FakeEngine:
    """Answers every turn from a script: ``reply(prompt ids, turn) -> ids`` without EOS."""

    def __init__(
        self, reply: Callable[[list[int], int], list[int]], eos_id: int, max_rows: int = 64
    ) -> None:
        self.max_rows = max_rows
        self.weight_version = 0
        self._reply = reply
        self._eos = eos_id
        self._prompts: list[list[int]] = []
        self._turns: list[int] = []
        self._waiting: list[tuple[int, int]] = []
        self.suffixes: list[tuple[int, list[int]]] = []
        """Every (row, suffix) that was fed back."""

    def start(
        self, prompts: Sequence[Sequence[int]], budgets: Sequence[int], sampling: Sampling
    ) -> None:
        self._prompts = [list(prompt) for prompt in prompts]
        self._turns = [0] * len(prompts)
        self._waiting = list(enumerate(budgets))

    def poll(self) -> list[Turn]:
        waiting, self._waiting = self._waiting, []
        turns: list[Turn] = []
        for row, budget in waiting:
            ids = [*self._reply(self._prompts[row], self._turns[row]), self._eos]
            self._turns[row] += 1
            finish = "eos" if len(ids) <= budget else "length"
            turns.append(Turn(row, ids[:budget], [-0.5] * min(len(ids), budget), finish))
        return turns

    def resume(self, row: int, suffix: Sequence[int], budget: int) -> None:
        self.suffixes.append((row, list(suffix)))
        self._waiting.append((row, budget))

    def finish(self, row: int) -> None:
        if any(waiting == row for waiting, _ in self._waiting):
            raise ValueError(f"row {row} is generating")
