"""Rows of tokens that begin alike, laid out as one line in which what they share stands once.

The conversations of a batch begin with the same system prompt, the rollouts of a group with the
same prompt altogether. A forward pass over the line computes each shared beginning once and no
padding at all; gradients of a beginning add up over the rows that go on from it. Both are what a
pass over the padded rows computes, but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from astra.rollout.attention import attending

LEAST_SHARED = 32
"""Tokens that a beginning must have to be computed apart (ours): every part of the line is one more
call of attention."""
ATTENTION = "astra_token_tree"


@dataclass(frozen=True)
class TreePart:
    """Tokens ``start`` to ``end`` of the line, which follow those of the parts ``before`` it."""

    start: int
    end: int
    before: tuple[int, ...]


@dataclass
class TokenTree:
    """The line of some rows. ``places[r][t]`` is where token ``t`` of row ``r`` stands in it."""

    ids: list[int] = field(default_factory=list[int])
    positions: list[int] = field(default_factory=list[int])
    parts: list[TreePart] = field(default_factory=list[TreePart])
    places: list[list[int]] = field(default_factory=list[list[int]])

    @cached_property
    def sizes(self) -> list[int]:
        return [part.end - part.start for part in self.parts]

    def bias(self, part: int, copies: int, like: torch.Tensor) -> torch.Tensor:
        """What is added to the scores of a part's queries, ``copies`` times below each other:
        0 for the keys that a query sees, -inf for those after it."""
        key = (part, copies)
        if key not in self._biases:
            size = self.sizes[part]
            seen = size + sum(self.sizes[at] for at in self.parts[part].before)
            hidden = torch.ones(size, seen, dtype=torch.bool, device=like.device).triu(
                seen - size + 1
            )
            bias = like.new_zeros(size, seen).masked_fill_(hidden, -torch.inf)
            self._biases[key] = bias.repeat(copies, 1)
        return self._biases[key]

    @cached_property
    def _biases(self) -> dict[tuple[int, int], torch.Tensor]:
        return {}

    def forward(self, decoder: Any, device: torch.device) -> torch.Tensor:
        """The last hidden states of the line, (tokens, hidden)."""
        with attending(decoder, ATTENTION):
            output = decoder(
                input_ids=torch.tensor([self.ids], device=device),
                position_ids=torch.tensor([self.positions], device=device),
                use_cache=False,
                tree=self,
            )
        return output.last_hidden_state[0]


def token_tree(rows: Sequence[list[int]]) -> TokenTree:
    """Lay out ``rows``. A beginning of LEAST_SHARED tokens and more is shared."""
    tree = TokenTree(places=[[] for _ in rows])
    _grow(tree, rows, list(range(len(rows))), 0, ())
    return tree


def _grow(
    tree: TokenTree,
    rows: Sequence[list[int]],
    mine: list[int],
    at: int,
    before: tuple[int, ...],
) -> None:
    """Lay out what the rows ``mine``, alike before token ``at``, have from there on."""
    if len(mine) == 1:
        _lay(tree, rows[mine[0]][at:], mine, at, before)
        return
    end = _common_end([rows[row] for row in mine], at)
    if end - at >= LEAST_SHARED:
        before = (*before, _lay(tree, rows[mine[0]][at:end], mine, at, before))
        at = end
    followers: dict[int, list[int]] = {}
    for row in mine:
        if len(rows[row]) > end:
            followers.setdefault(rows[row][end], []).append(row)
        elif at < end:  # it ends here, and too early to share
            _lay(tree, rows[row][at:], [row], at, before)
    for followed in followers.values():
        _grow(tree, rows, followed, at, before)


def _common_end(rows: Sequence[list[int]], at: int) -> int:
    """The first token after ``at`` in which the rows differ, or where one of them ends."""
    first, last = min(rows), max(rows)  # what these two share, all do
    end, most = at, min(len(first), len(last))
    while end < most and first[end] == last[end]:
        end += 1
    return end


def _lay(
    tree: TokenTree, ids: Sequence[int], mine: list[int], at: int, before: tuple[int, ...]
) -> int:
    """Add a part at the end of the line; its number."""
    start = len(tree.ids)
    tree.ids += ids
    tree.positions += range(at, at + len(ids))
    tree.parts.append(TreePart(start, len(tree.ids), before))
    for row in mine:
        tree.places[row] += range(start, len(tree.ids))
    return len(tree.parts) - 1


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    tree: TokenTree,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one line, (1, heads, tokens, dim), to (1, tokens, heads, dim).

    Query heads that share a key head are queries below each other, so that no key is copied;
    plain products are twice as fast as the fused kernel in bfloat16 on a CPU.
    """
    with torch.autocast(query.device.type, enabled=False):
        # In the layer's own type: autocast would keep the weights in float32 besides.
        kind, heads = value.dtype, key.shape[1]
        queries = (query[0] * scaling).to(kind).split(tree.sizes, 1)
        keys, values = key[0].to(kind).split(tree.sizes, 1), value[0].split(tree.sizes, 1)
        found: list[torch.Tensor] = []
        for index, (part, mine) in enumerate(zip(tree.parts, queries, strict=True)):
            seen = (*part.before, index)
            copies, dim = mine.shape[0] // heads, mine.shape[2]
            bias = tree.bias(index, copies, mine).expand(heads, -1, -1)
            below = mine.reshape(heads, copies * mine.shape[1], dim)
            scores = torch.baddbmm(bias, below, torch.cat([keys[at] for at in seen], 1).mT)
            weights = torch.nn.functional.dropout(torch.softmax(scores, -1), dropout, dropout > 0)
            mixed = torch.bmm(weights, torch.cat([values[at] for at in seen], 1))
            found.append(mixed.reshape(heads * copies, mine.shape[1], dim))
        return torch.cat(found, 1).transpose(0, 1)[None], None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attend)
