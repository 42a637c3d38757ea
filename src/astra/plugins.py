"""Plug-ins: the modules of a package are the values that a parameter can have.

The name of the file is the value, for those that come along as for a user's own. `dvc.yaml` lists
such packages whole (`make deps`), so a new file makes the stages that can choose it stale, as any
other change of their code does.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from astra.errors import AstraError
from astra.settings import StageConfig, faults


class PluginError(AstraError, ValueError):
    """A plug-in does not exist or refuses its options; a ValueError, so that a parameter's check
    can raise it."""


class NoOptions(StageConfig):
    """The options of a plug-in that leaves nothing to choose."""


def names(package: ModuleType) -> list[str]:
    """The modules of ``package``, sorted."""
    return list(_modules(tuple(package.__path__)))


@cache
def _modules(folders: tuple[str, ...]) -> tuple[str, ...]:
    # Read once: every document of a tool bank asks for its format.
    return tuple(sorted(info.name for info in pkgutil.iter_modules(folders) if not info.ispkg))


def find(package: ModuleType, name: str) -> ModuleType:
    """The module ``name`` of ``package``, imported. Raises PluginError listing what there is."""
    return importlib.import_module(f"{package.__name__}.{_checked(package, name)}")


def name_in(package: ModuleType) -> Callable[[str], str]:
    """A check of a parameter that names a module of ``package``; it imports none of them.

    The check raises PluginError listing what there is.
    """
    return lambda name: _checked(package, name)


def options(package: ModuleType, name: str, values: Any) -> StageConfig:
    """``values`` as the ``Options`` of the module ``name``; a module without them takes none.

    Parameters are checked by this, so ``Options`` has to be there without heavy imports: a module
    imports torch and the like inside its functions. Raises PluginError that names the plug-in,
    each bad key and the keys there are.
    """
    model: type[StageConfig] = getattr(find(package, name), "Options", NoOptions)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        keys = ", ".join(model.model_fields) or "none"
        problems = "; ".join(faults(name, error))
        raise PluginError(
            f"{package.__name__}.{name} refuses its options: {problems}. Its options: {keys}"
        ) from None


def _checked(package: ModuleType, name: str) -> str:
    present = names(package)
    if name not in present:
        raise PluginError(
            f"{package.__name__} has no module {name!r}; there are: {', '.join(present) or 'none'}"
        )
    return name
