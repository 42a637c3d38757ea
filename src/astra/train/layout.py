"""How a forward pass gets the rows of a batch: a choice of ``sft`` and ``rl``."""

from __future__ import annotations

from typing import Literal

Layout = Literal["tree"] | None
"""``tree``: one line without padding in which what rows begin with alike stands once
(token_tree.py). None: rows are padded to the longest."""


def refuse_tree(activation_checkpointing: bool) -> None:
    """Layers computed again in the backward pass would not see the tree. Raises ValueError."""
    if activation_checkpointing:
        raise ValueError("layout tree does not go with activation_checkpointing; choose one")
