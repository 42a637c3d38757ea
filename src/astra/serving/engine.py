"""The batched loop as a server needs it: rows join and leave at any step, each decoded its way.

Prompts of a benchmark repeat: every turn of a conversation starts with the turns before, every
task of a domain with the same tools. What a finished row left in the cache is therefore kept, and
a new row computes only what no kept row begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from astra.rollout.engine import Turn
from astra.rollout.row_batch import KeysValues, Row, RowBatch
from astra.serving.generation import GenerationSettings

SHORTEST = 16
"""The shortest shared prefix that is worth copying, in tokens."""


@dataclass
class _Request:
    """What a live row was asked for."""

    prompt: list[int]
    decoding: GenerationSettings
    generator: torch.Generator


class ServingEngine:
    """Generates with a transformers model in evaluation mode, without gradients.

    ``keep_bytes`` bounds what is kept of finished rows. Log-probabilities are not computed: those
    of its turns are 0.
    """

    def __init__(
        self, model: Any, eos_id: int, pad_id: int, max_rows: int, keep_bytes: int
    ) -> None:
        self.max_rows = max_rows
        self._batch = RowBatch(model, eos_id, pad_id)
        self._prefixes = PrefixCache(keep_bytes)
        self.clear()

    def clear(self) -> None:
        """Forget every row and everything kept."""
        self._batch.clear()
        self._prefixes.clear()
        self._requests: dict[int, _Request] = {}
        self._next = 0
        self.reused = 0
        """Prompt tokens that were not computed again."""

    @property
    def live(self) -> int:
        """How many rows were added and have not left."""
        return len(self._requests)

    def add(self, prompt: Sequence[int], decoding: GenerationSettings) -> int:
        """Begin a row; returns its number. Raises ValueError where no more may be live."""
        if self.live >= self.max_rows:
            raise ValueError(f"{self.live} rows are live, at most {self.max_rows}")
        ids, row = list(prompt), self._next
        # The last token of a prompt is fed by the first step.
        length, known = self._prefixes.longest(ids[:-1])
        self._batch.join(row, ids, decoding.max_tokens, known)
        self.reused += length
        self._next += 1
        generator = torch.Generator(self._batch.device).manual_seed(decoding.seed)
        self._requests[row] = _Request(ids, decoding, generator)
        return row

    def step(self) -> list[Turn]:
        """One token for every row; the turns that ended with it."""
        return self._batch.step(self._sample) if self._batch.rows else []

    def leave(self, row: int, turn: Turn | None) -> None:
        """The row is over: with ``turn`` its cache is kept, without one it was given up."""
        request = self._requests.pop(row)
        if turn is not None and self._prefixes.keep_bytes:
            # The last sampled token was never fed, so the cache does not hold it.
            self._prefixes.keep([*request.prompt, *turn.ids[:-1]], self._batch.states(row))
        self._batch.finish(row)

    def _sample(self, logits: torch.Tensor, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        tokens: list[int] = logits.argmax(-1).tolist()
        for slot, row in enumerate(rows):
            if row.samples:
                request = self._requests[row.id]
                if request.decoding.temperature > 0:
                    tokens[slot] = draw(logits[slot], request.decoding, request.generator)
        return tokens, [0.0] * len(tokens)


@dataclass
class _Kept:
    """The states of a finished row."""

    ids: np.ndarray
    states: KeysValues

    @property
    def size(self) -> int:
        return sum(tensor.nbytes for pair in self.states for tensor in pair)


class PrefixCache:
    """States of finished rows, at most ``keep_bytes``; the least recently used go first."""

    def __init__(self, keep_bytes: int) -> None:
        self.keep_bytes = keep_bytes
        self.clear()

    def clear(self) -> None:
        self._kept: list[_Kept] = []
        """The least recently used first."""

    def longest(self, ids: Sequence[int]) -> tuple[int, KeysValues]:
        """The longest prefix of ``ids`` that a kept row begins with: its length and its states.

        0 and no states where it is too short to be worth copying.
        """
        wanted = np.asarray(ids)
        shared = [_common(kept.ids, wanted) for kept in self._kept]
        best = max(range(len(shared)), key=shared.__getitem__, default=-1)
        if best < 0 or shared[best] < SHORTEST:
            return 0, []
        length = shared[best]
        kept = self._kept.pop(best)
        self._kept.append(kept)
        return length, [(keys[:, :length], values[:, :length]) for keys, values in kept.states]

    def keep(self, ids: Sequence[int], states: KeysValues) -> None:
        """``states`` are those of ``ids``, one column a token."""
        new = _Kept(np.asarray(ids), states)
        # A row that began as an older one continues it: the older is its prefix.
        self._kept = [kept for kept in self._kept if _common(kept.ids, new.ids) < len(kept.ids)]
        self._kept.append(new)
        while self._kept and sum(kept.size for kept in self._kept) > self.keep_bytes:
            self._kept.pop(0)


def draw(logits: torch.Tensor, decoding: GenerationSettings, generator: torch.Generator) -> int:
    """One token: temperature, the ``top_k`` likeliest, of these the fewest that hold ``top_p``."""
    probabilities = torch.softmax(logits.float() / decoding.temperature, -1)
    order = None
    if 0 < decoding.top_k < len(probabilities) or decoding.top_p < 1:
        probabilities, order = probabilities.sort(descending=True, stable=True)
        if decoding.top_k > 0:
            probabilities = probabilities[: decoding.top_k]
            probabilities = probabilities / probabilities.sum()
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities[before < decoding.top_p]
    total = probabilities.cumsum(-1)
    uniform = torch.rand(1, generator=generator, device=logits.device)
    place = int(torch.searchsorted(total, uniform * total[-1:], right=True))
    place = min(place, len(probabilities) - 1)
    return place if order is None else int(order[place])


def _common(left: np.ndarray, right: np.ndarray) -> int:
    """Length of the common prefix."""
    n = min(len(left), len(right))
    different = np.flatnonzero(left[:n] != right[:n])
    return int(different[0]) if len(different) else n
