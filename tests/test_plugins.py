"""Modules found by name: what there is, what is refused, and their options."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
from pydantic import AfterValidator

from astra import plugins
from astra.errors import AstraError
from astra.settings import ParamsError, StageConfig, validate


@pytest.fixture
def package(tmp_path: Path) -> Iterator[ModuleType]:
    """A package with a plug-in that has options, one that has none, and a folder."""
    (tmp_path / "plain.py").touch()
    (tmp_path / "tuned.py").write_text(
        "from astra.settings import StageConfig\nclass Options(StageConfig):\n    depth: int\n"
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__init__.py").touch()
    module = ModuleType("made_up_plugins")
    module.__path__ = [str(tmp_path)]
    sys.modules[module.__name__] = module
    yield module
    for name in [name for name in sys.modules if name.startswith(module.__name__)]:
        del sys.modules[name]


def test_modules_are_choices_and_folders_are_not(package: ModuleType) -> None:
    assert plugins.names(package) == ["plain", "tuned"]
    assert plugins.find(package, "tuned").__name__ == "made_up_plugins.tuned"
    with pytest.raises(AstraError, match="no module 'folder'; there are: plain, tuned"):
        plugins.find(package, "folder")


def test_a_parameters_check_imports_nothing(package: ModuleType) -> None:
    check = plugins.name_in(package)
    assert check("tuned") == "tuned"
    assert "made_up_plugins.tuned" not in sys.modules
    with pytest.raises(ValueError, match="no module 'other'; there are: plain, tuned"):
        check("other")


def test_options_are_the_modules_own(package: ModuleType) -> None:
    assert plugins.options(package, "tuned", {"depth": 3}).model_dump() == {"depth": 3}
    assert plugins.options(package, "plain", {}) == plugins.NoOptions()
    bad = r"made_up_plugins\.tuned .*tuned\.depth: .* \(got 'x'\).*Its options: depth"
    with pytest.raises(plugins.PluginError, match=bad):
        plugins.options(package, "tuned", {"depth": "x"})
    with pytest.raises(plugins.PluginError, match=r"plain\.depth: Extra .*Its options: none"):
        plugins.options(package, "plain", {"depth": 3})


def test_a_refused_plug_in_is_a_fault_of_its_parameter(package: ModuleType) -> None:
    class Block(StageConfig):
        engine: Annotated[str, AfterValidator(plugins.name_in(package))]

    with pytest.raises(ParamsError, match=r"rl\.engine: .*no module 'fast'; there are: plain"):
        validate("rl", {"engine": "fast"}, Block)
