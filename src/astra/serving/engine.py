"""The batched loop as a server needs it: rows join and leave at any step, each decoded its way.

Prompts of a benchmark repeat: every turn of a conversation starts with the turns before, every
task of a domain with the same tools. What a finished row left in the cache is therefore kept, and
a new row computes only what no kept row begins with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from astra.rollout.batched import BatchedEngine, _Layer, _Row
from astra.rollout.engine import Turn
from astra.serving.generation import GenerationSettings

PREFILL = 512
"""Prompt tokens computed at a time."""
SHORTEST = 16
"""A shorter shared prefix is not worth copying."""


@dataclass
class _Kept:
    """Keys and values of a finished row, (heads, tokens, dim) each, by layer."""

    ids: np.ndarray
    states: list[tuple[torch.Tensor, torch.Tensor]]

    @property
    def size(self) -> int:
        return sum(one.nbytes for pair in self.states for one in pair)


class ServingEngine(BatchedEngine):
    """``keep_bytes`` bounds what is kept of finished rows; the least recently used go first.

    Log-probabilities are not computed: those of its turns are 0.
    """

    def __init__(
        self, model: Any, eos_id: int, pad_id: int, max_rows: int, keep_bytes: int
    ) -> None:
        super().__init__(model, eos_id, pad_id, max_rows)
        self._keep_bytes = keep_bytes
        self.clear()

    def clear(self) -> None:
        """Forget every row and everything kept."""
        self._rows, self._slot, self._layers = [], {}, []
        self._cache = Cache(layers=[])
        self._kept: list[_Kept] = []
        self._prompts: dict[int, list[int]] = {}
        self._decodings: dict[int, tuple[GenerationSettings, torch.Generator]] = {}
        self._next = 0
        self.reused = 0
        """Prompt tokens that were not computed again."""

    @property
    def live(self) -> int:
        return len(self._prompts)

    @torch.inference_mode()
    def add(self, prompt: Sequence[int], decoding: GenerationSettings) -> int:
        """Begin a row; returns its number."""
        if self.live >= self.max_rows:
            raise ValueError(f"{self.live} rows are live, at most {self.max_rows}")
        head = list(prompt[:-1])
        layers = self._computed(head)
        row, self._next = self._next, self._next + 1
        if any(one.done for one in self._rows):
            self._compact()
        self._join(layers, len(head))
        self._slot[row] = len(self._rows)
        self._rows.append(_Row(row, deque(prompt[-1:]), decoding.max_tokens))
        self._prompts[row] = list(prompt)
        generator = torch.Generator(self._device).manual_seed(decoding.seed)
        self._decodings[row] = decoding, generator
        return row

    def step(self) -> list[Turn]:
        """One token for every row; the turns that ended with it."""
        return self._step() if self._rows else []

    def leave(self, row: int, turn: Turn | None) -> None:
        """The row is over: with ``turn`` its cache is kept, without one it was given up."""
        prompt = self._prompts.pop(row)
        del self._decodings[row]
        if turn is not None:
            self._keep(self._slot[row], [*prompt, *turn.ids[:-1]])
        self.finish(row)

    def _computed(self, head: list[int]) -> list[_Layer]:
        """The cache of one row after ``head``, computed from the longest kept prefix on."""
        layers = [_Layer() for _ in range(self._model.config.num_hidden_layers)]
        done = self._copy_prefix(np.asarray(head), layers)
        cache = Cache(layers=[*layers])
        for start in range(done, len(head), PREFILL):
            ids = torch.tensor([head[start : start + PREFILL]], device=self._device)
            end = start + ids.shape[1]
            columns = torch.arange(end, device=self._device)
            self._model(
                input_ids=ids,
                attention_mask=(columns[start:end, None] >= columns)[None, None],
                position_ids=columns[None, start:end],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return layers

    def _copy_prefix(self, head: np.ndarray, layers: list[_Layer]) -> int:
        shared = [_common(one.ids, head) for one in self._kept]
        best = max(range(len(shared)), key=shared.__getitem__, default=-1)
        if best < 0 or shared[best] < SHORTEST:
            return 0
        kept = self._kept.pop(best)
        self._kept.append(kept)
        for layer, pair in zip(layers, kept.states, strict=True):
            layer.is_initialized = True
            layer.buffers = [one[None, :, : shared[best]].clone() for one in pair]
            layer.length = shared[best]
        self.reused += shared[best]
        return shared[best]

    def _join(self, layers: list[_Layer], width: int) -> None:
        """Put a computed row beside those that are there; both end at the same column."""
        visible = torch.ones(1, width, dtype=torch.bool, device=self._device)
        positions = torch.tensor([width], device=self._device)
        if not self._rows:
            self._layers, self._cache = layers, Cache(layers=[*layers])
            self._visible, self._positions = visible, positions
            return
        columns = max(width, self._visible.shape[1])
        self._visible = torch.cat([_widened(self._visible, columns), _widened(visible, columns)])
        self._positions = torch.cat([self._positions, positions])
        for ours, new in zip(self._layers, layers, strict=True):
            if not new.buffers:  # a prompt of one token: nothing was computed
                new.buffers = [one[:1, :, :0] for one in ours.buffers]
            if not ours.buffers:
                ours.is_initialized = True
                rows = len(self._rows)
                ours.buffers = [one[:1, :, :0].expand(rows, -1, 0, -1) for one in new.buffers]
            ours.buffers = [
                torch.cat([_shifted(old, ours.length, columns), _shifted(one, width, columns)])
                for old, one in zip(ours.buffers, new.buffers, strict=True)
            ]
            ours.length = columns

    def _keep(self, slot: int, ids: list[int]) -> None:
        if not self._keep_bytes:
            return
        columns = self._visible[slot]
        states = [
            (keys[slot, :, : layer.length][:, columns], values[slot, :, : layer.length][:, columns])
            for layer in self._layers
            for keys, values in [layer.buffers]
        ]
        kept = _Kept(np.asarray(ids), states)
        # A row that began as an older one continues it: the older is its prefix.
        self._kept = [one for one in self._kept if _common(one.ids, kept.ids) < len(one.ids)]
        self._kept.append(kept)
        while self._kept and sum(one.size for one in self._kept) > self._keep_bytes:
            self._kept.pop(0)

    def _sample(self, logits: torch.Tensor) -> tuple[list[int], list[float]]:
        tokens: list[int] = logits.argmax(-1).tolist()
        for slot, row in enumerate(self._rows):
            if row.active and not row.pending:
                decoding, generator = self._decodings[row.id]
                if decoding.temperature > 0:
                    tokens[slot] = draw(logits[slot], decoding, generator)
        return tokens, [0.0] * len(tokens)


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


def _widened(mask: torch.Tensor, columns: int) -> torch.Tensor:
    return torch.nn.functional.pad(mask, (columns - mask.shape[1], 0))


def _shifted(states: torch.Tensor, length: int, columns: int) -> torch.Tensor:
    """The first ``length`` columns, moved right so that the last of ``columns`` is the last."""
    rows, heads, _, dim = states.shape
    moved = states.new_zeros(rows, heads, columns, dim)
    moved[:, :, columns - length :] = states[:, :, :length]
    return moved
