"""Choices that are modules: each file in a package ``known`` is one more value of a parameter.

The name of the file is the value. `dvc.yaml` lists such packages whole (`make deps`), so a new
file makes the stages that can choose it stale, as any other change of their code does.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from types import ModuleType

from astra.errors import AstraError


def names(package: ModuleType) -> list[str]:
    """The modules of ``package``, sorted."""
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.ispkg)


def choice(what: str, built_in: Sequence[str], package: ModuleType) -> Callable[[str], str]:
    """A check of a parameter that names a ``what``: one that comes along, or a file of ``package``.

    It raises ValueError listing both.
    """

    def check(name: str) -> str:
        allowed = [*built_in, *names(package)]
        if name not in allowed:
            raise ValueError(f"{name!r} is no {what}; allowed: {', '.join(allowed)}")
        return name

    return check


def find(package: ModuleType, name: str) -> ModuleType:
    """Raises AstraError listing the modules there are."""
    if name not in names(package):
        known = ", ".join(names(package)) or "none"
        raise AstraError(f"{package.__name__} has no module {name!r}; there are: {known}")
    return importlib.import_module(f"{package.__name__}.{name}")
