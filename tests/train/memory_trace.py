"""Bytes that tensors hold while code runs, counted by storage at every operation.

What an operation allocates and frees within itself is not seen, and nothing that is no tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryTrace(TorchDispatchMode):
    """``held`` bytes now and ``peak`` bytes at most, those of ``already`` there included."""

    def __init__(self, already: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.held = self.peak = 0
        self._known: dict[int, Any] = {}
        for tensor in already:
            self._see(tensor)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf)
        return made

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self.held += size
        self.peak = max(self.peak, self.held)

        def freed(_: Any) -> None:
            self._known.pop(key, None)
            self.held -= size

        self._known[key] = weakref.ref(storage, freed)
