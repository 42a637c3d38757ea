"""Nested parameters as one flat mapping, for tools that compare or list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def leaves(values: Any, above: str = "") -> dict[str, Any]:
    """Every value of nested mappings by its dotted key; a list or an empty mapping is one value.

    ``above`` is put before the keys, for example the name of a stage's block.
    """
    if not isinstance(values, Mapping) or not values:
        return {above: values} if above else {}
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= leaves(value, f"{above}.{key}" if above else str(key))
    return flat
