"""Rows of tokens that a model generates side by side, with the mask and the cache they share.

Every step feeds one token to every row: a token it just sampled, or the next one of a tool
result ("forced"); a long result is computed apart instead. Rows share a time axis: the cache
column of a step belongs to all rows, and a mask says which of them really took part, so rows
pause for their tools and resume at any step without moving memory. All rows end at the newest
column. Rows that ended are cut out of the cache when they are a quarter of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

from astra.rollout.attention import ROWS, attending, rows_attention
from astra.rollout.engine import Turn

CHUNK = 128
"""Cache columns allocated at a time."""
PREFILL = 512
"""Tokens of a single row computed at a time."""
FED = 32
"""The longest suffix of a turn that is fed token by token beside the other rows. With a longer one,
such as a list that a tool returned, they would all wait for its end: it is computed in one go,
which is quicker from 48 tokens on (benchmarks/training.py --part results)."""

KeysValues = list[tuple[torch.Tensor, torch.Tensor]]
"""What the cache holds of one row: keys and values, (heads, tokens, dim) each, by layer."""


class GrowingLayer(DynamicLayer):
    """Keys and values in a buffer that grows by chunks: appending copies one column only."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.whole = False
        """Whether a step of one token is given the buffers with their unused columns, which are
        cheaper to multiply than a part of them (attention.ROWS)."""
        self.buffers: list[torch.Tensor] = []
        """Keys and values, (rows, heads, capacity, dim) each; empty before the first column."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.buffers:
            self.is_initialized = True
            rows, heads, _, dim = key_states.shape
            self.buffers = [key_states.new_empty(rows, heads, 0, dim) for _ in range(2)]
        end = self.length + key_states.shape[2]
        if end > self.buffers[0].shape[2]:
            capacity = -(-end // CHUNK) * CHUNK
            for index, old in enumerate(self.buffers):
                new = old.new_zeros(old.shape[0], old.shape[1], capacity, old.shape[3])
                new[:, :, : self.length] = old[:, :, : self.length]
                self.buffers[index] = new
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, self.length : end] = states
        self.length = end
        if self.whole and key_states.shape[2] == 1:
            return self.buffers[0], self.buffers[1]
        return self.buffers[0][:, :, :end], self.buffers[1][:, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def begin(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Start with the states of one row, (heads, tokens, dim) each, which are copied."""
        self.is_initialized = True
        self.buffers = [states[None].clone() for states in (keys, values)]
        self.length = keys.shape[1]

    def keep(self, rows: torch.Tensor, first_column: int) -> None:
        """Drop all other rows, and the columns before ``first_column``."""
        if self.buffers:
            self.buffers = [buffer[rows, :, first_column:].contiguous() for buffer in self.buffers]
            self.length -= first_column

    def append(self, row: GrowingLayer, rows: int, columns: int) -> None:
        """Put the single row of another layer below the ``rows`` here; all end at ``columns``."""
        if not row.buffers:  # a prompt of one token: nothing was computed
            row.buffers = [states[:1, :, :0] for states in self.buffers]
        if not self.buffers:
            self.is_initialized = True
            self.buffers = [states[:1, :, :0].expand(rows, -1, 0, -1) for states in row.buffers]
        self.buffers = [
            torch.cat([_shifted(above, self.length, columns), _shifted(below, row.length, columns)])
            for above, below in zip(self.buffers, row.buffers, strict=True)
        ]
        self.length = columns

    def replace(self, slot: int, row: GrowingLayer, columns: int) -> None:
        """Put the single row of another layer in the place of row ``slot``; all end at
        ``columns``, at least as many as there are."""
        if columns > self.length:
            self.buffers = [_shifted(buffer, self.length, columns) for buffer in self.buffers]
            self.length = columns
        for ours, new in zip(self.buffers, row.buffers, strict=True):
            ours[slot, :, columns - row.length : columns] = new[0, :, : row.length]


@dataclass
class Row:
    """One conversation while it is generated."""

    id: int
    pending: deque[int]
    """Tokens to feed before sampling; never empty while the row is active."""
    budget: int
    """The most tokens of the turn."""
    active: bool = True
    """Whether it generates now; a row that ended a turn waits for its tools, or is done."""
    done: bool = False
    ids: list[int] = field(default_factory=list[int])
    """The turn's sampled tokens so far."""
    logprobs: list[float] = field(default_factory=list[float])

    @property
    def samples(self) -> bool:
        """Whether its next token is sampled, not forced."""
        return self.active and not self.pending


Sampler = Callable[[torch.Tensor, Sequence[Row]], tuple[list[int], list[float]]]
"""Gives a token of each row and its log-probability, from logits of (rows, vocabulary)."""


class RowBatch:
    """The rows of one transformers model, in evaluation mode and without gradients."""

    def __init__(self, model: Any, eos_id: int, pad_id: int) -> None:
        self.device: torch.device = next(model.parameters()).device
        self.rows: list[Row] = []
        """All rows, in the order of the cache."""
        self._model, self._attention = model, rows_attention(model)
        self._eos, self._pad = eos_id, pad_id
        self.clear()

    def clear(self) -> None:
        """Forget every row."""
        self.rows = []
        self._slot: dict[int, int] = {}
        self._layers: list[GrowingLayer] = []
        self._cache = Cache(layers=[])
        self._visible = torch.zeros(0, 0, dtype=torch.bool, device=self.device)
        """Which columns each row took part in, (rows, columns)."""
        self._positions = torch.zeros(0, dtype=torch.long, device=self.device)
        """The position of each row's next token."""

    @torch.inference_mode()
    def start(self, prompts: Sequence[Sequence[int]], budgets: Sequence[int]) -> None:
        """Begin rows 0..n-1 in place of all others. Equal prompts are computed once."""
        self.rows = [
            Row(row, deque(prompt[-1:]), budget)
            for row, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))
        ]
        self._slot = {row: row for row in range(len(prompts))}
        self._prefill([tuple(prompt[:-1]) for prompt in prompts])

    @torch.inference_mode()
    def join(
        self, row: int, prompt: Sequence[int], budget: int, known: KeysValues | None = None
    ) -> None:
        """Begin one more row beside those that are there.

        ``known`` holds the states of the prompt's first tokens, taken from a row that began with
        the same tokens; what follows them is computed.
        """
        head = prompt[:-1]
        known = known or []
        layers = self._computed(head[known[0][0].shape[1] if known else 0 :], known)
        if any(other.done for other in self.rows):
            self._compact()
        self._append(layers, len(head))
        self._slot[row] = len(self.rows)
        self.rows.append(Row(row, deque(prompt[-1:]), budget))

    def states(self, row: int) -> KeysValues:
        """A copy of what the cache holds of a row: the states of every token that it was fed."""
        slot = self._slot[row]
        columns = self._visible[slot]
        return [
            (keys[slot, :, : layer.length][:, columns], values[slot, :, : layer.length][:, columns])
            for layer in self._layers
            for keys, values in [layer.buffers]
        ]

    @torch.inference_mode()
    def step(self, sample: Sampler) -> list[Turn]:
        """Feed one token to every row, and sample the next one of those that wait for it.

        Gives the turns that ended.
        """
        fed = [row.pending.popleft() if row.active else self._pad for row in self.rows]
        active = torch.tensor([row.active for row in self.rows], device=self.device)
        # A paused row attends to its past only; its column of this step stays invisible.
        self._visible = torch.cat([self._visible, active[:, None]], 1)
        with attending(self._model, self._attention):
            output = self._model(
                input_ids=torch.tensor(fed, device=self.device)[:, None],
                attention_mask=self._visible[:, None, None, :],
                position_ids=self._positions[:, None],
                past_key_values=self._cache,
                use_cache=True,
            )
        self._positions = self._positions + active
        if not any(row.samples for row in self.rows):
            return []
        tokens, logprobs = sample(output.logits[:, -1].float(), self.rows)
        return self._record(tokens, logprobs)

    @torch.inference_mode()
    def resume(self, row: int, suffix: Sequence[int], budget: int) -> None:
        """Begin the next turn of a row, after the tokens of ``suffix``."""
        state = self.rows[self._slot[row]]
        if state.active or state.done:
            raise ValueError(f"row {row} cannot be resumed: it has not ended a turn")
        # The last sampled id, EOS, still waits to be fed; the suffix follows it.
        state.pending.extend(suffix)
        if len(suffix) > FED:
            self._feed(state)
        state.budget, state.ids, state.logprobs, state.active = budget, [], [], True

    def finish(self, row: int) -> None:
        """The row is over; its memory goes with that of others, a quarter of the batch at once."""
        state = self.rows[self._slot[row]]
        state.active, state.done = False, True
        if 4 * sum(other.done for other in self.rows) >= len(self.rows):
            self._compact()

    def _prefill(self, heads: Sequence[tuple[int, ...]]) -> None:
        """Fill the cache with all but the last token of each prompt, equal ones once."""
        unique = sorted(set(heads), key=lambda head: (len(head), head))
        place = {head: index for index, head in enumerate(unique)}
        width = max(len(head) for head in unique)
        ids = torch.full((len(unique), width), self._pad)
        real = torch.zeros(len(unique), width, dtype=torch.bool)
        for index, head in enumerate(unique):
            if head:
                ids[index, width - len(head) :] = torch.tensor(head)
                real[index, width - len(head) :] = True
        ids, real = ids.to(self.device), real.to(self.device)
        layers = self._new_layers()
        if width:
            steps = torch.arange(width, device=self.device)
            # A padded query sees itself alone: a row that sees nothing would turn to NaN.
            mask = (real[:, None, :] & (steps[:, None] >= steps)) | torch.eye(
                width, dtype=torch.bool, device=self.device
            )
            self._model(
                input_ids=ids,
                attention_mask=mask[:, None],
                position_ids=(real.cumsum(1) - 1).clamp(min=0),
                past_key_values=Cache(layers=[*layers]),
                use_cache=True,
                logits_to_keep=1,
            )
        self._take(layers)
        rows = torch.tensor([place[head] for head in heads], device=self.device)
        for layer in self._layers:
            layer.keep(rows, 0)
        self._visible = real[rows]
        self._positions = self._visible.sum(1)

    def _feed(self, state: Row) -> None:
        """Compute all tokens that wait to be fed to a row but the last, its gaps closed by it."""
        slot = self._slot[state.id]
        *fed, last = state.pending
        layers = self._computed(fed, self.states(state.id))
        state.pending = deque([last])
        length = layers[0].length
        columns = max(length, self._visible.shape[1])
        self._visible = _widened(self._visible, columns)
        self._visible[slot] = torch.arange(columns, device=self.device) >= columns - length
        self._positions[slot] = length
        for ours, new in zip(self._layers, layers, strict=True):
            ours.replace(slot, new, columns)

    def _computed(self, tokens: Sequence[int], known: KeysValues) -> list[GrowingLayer]:
        """The cache of a single row after what ``known`` holds and then ``tokens``."""
        layers = self._new_layers()
        if known:
            for layer, (keys, values) in zip(layers, known, strict=True):
                layer.begin(keys, values)
        cache = Cache(layers=[*layers])
        for first in range(0, len(tokens), PREFILL):
            ids = torch.tensor([tokens[first : first + PREFILL]], device=self.device)
            start = layers[0].length
            end = start + ids.shape[1]
            columns = torch.arange(end, device=self.device)
            self._model(
                input_ids=ids,
                attention_mask=(columns[start:end, None] >= columns)[None, None],
                position_ids=columns[None, start:end],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return layers

    def _append(self, layers: list[GrowingLayer], width: int) -> None:
        """Put a computed row of ``width`` tokens below the others; all end at the same column."""
        visible = torch.ones(1, width, dtype=torch.bool, device=self.device)
        positions = torch.tensor([width], device=self.device)
        if not self.rows:
            self._take(layers)
            self._visible, self._positions = visible, positions
            return
        columns = max(width, self._visible.shape[1])
        self._visible = torch.cat([_widened(self._visible, columns), _widened(visible, columns)])
        self._positions = torch.cat([self._positions, positions])
        for ours, new in zip(self._layers, layers, strict=True):
            ours.append(new, len(self.rows), columns)

    @torch.inference_mode()
    def _compact(self) -> None:
        """Cut the rows that are done out of the cache, and the columns that no other row uses."""
        kept = [slot for slot, row in enumerate(self.rows) if not row.done]
        if not kept:
            self.clear()
            return
        self.rows = [self.rows[slot] for slot in kept]
        self._slot = {row.id: slot for slot, row in enumerate(self.rows)}
        rows = torch.tensor(kept, device=self.device)
        visible = self._visible[rows]
        used = visible.any(0).nonzero()
        first = int(used[0]) if len(used) else 0
        self._visible = visible[:, first:]
        self._positions = self._positions[rows]
        for layer in self._layers:
            layer.keep(rows, first)

    def _record(self, tokens: list[int], logprobs: list[float]) -> list[Turn]:
        """Add what was sampled to the rows that sample; the turns that end with it."""
        turns: list[Turn] = []
        for row, token, logprob in zip(self.rows, tokens, logprobs, strict=True):
            if not row.samples:
                continue
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.pending.append(token)
            if token == self._eos or len(row.ids) >= row.budget:
                row.active = False
                finish = "eos" if token == self._eos else "length"
                turns.append(Turn(row.id, row.ids, row.logprobs, finish))
        return turns

    def _new_layers(self) -> list[GrowingLayer]:
        return [GrowingLayer() for _ in range(self._model.config.num_hidden_layers)]

    def _take(self, layers: list[GrowingLayer]) -> None:
        """Make these the cache of the batch. Until then attention is not that of rows."""
        for layer in layers:
            layer.whole = self._attention == ROWS
        self._layers, self._cache = layers, Cache(layers=[*layers])


def _widened(mask: torch.Tensor, columns: int) -> torch.Tensor:
    """``mask`` with columns of False on its left."""
    return torch.nn.functional.pad(mask, (columns - mask.shape[1], 0))


def _shifted(states: torch.Tensor, length: int, columns: int) -> torch.Tensor:
    """The first ``length`` columns, moved right so that the last of them is the last of
    ``columns``."""
    rows, heads, _, dim = states.shape
    moved = states.new_zeros(rows, heads, columns, dim)
    moved[:, :, columns - length :] = states[:, :, :length]
    return moved
