"""Every default stands once: what conf/ states has no second default in a class.

Three are needed without parameters too; those are held to what conf/ states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from astra.devtools.params import BLOCKS
from astra.export.rows import EpisodeOptions
from astra.rollout.live import PAPER_LIMITS
from astra.settings import RuntimeConfig
from configs import block, rollout_limits


def doubles(model: BaseModel, stated: Mapping[str, Any], where: str) -> Iterator[str]:
    """The fields whose value ``stated`` has although their class has a default too."""
    for name, field in type(model).model_fields.items():
        if name in stated:
            if not field.is_required():
                yield f"{where}.{name}"
            yield from _inside(getattr(model, name), stated[name], f"{where}.{name}")


def _inside(value: Any, stated: Any, where: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from doubles(value, stated, where)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _inside(entry, stated[key], f"{where}.{key}")
    elif isinstance(value, tuple):
        for at, (entry, said) in enumerate(zip(value, stated, strict=True)):
            yield from _inside(entry, said, f"{where}.{at}")


@pytest.mark.parametrize("name", sorted(set(BLOCKS) - {"runtime"}))
def test_what_conf_states_has_no_default_in_the_class(name: str) -> None:
    values = block(name)
    assert list(doubles(BLOCKS[name].model_validate(values), values, name)) == []


def test_runtime_is_the_same_without_params_yaml() -> None:
    """`astra doctor` and others read it where no parameters are composed."""
    assert RuntimeConfig() == RuntimeConfig.model_validate(block("runtime"))


def test_episodes_without_parameters_have_the_limits_of_stage_rl() -> None:
    assert rollout_limits() == PAPER_LIMITS


def test_exported_episodes_have_the_limits_of_stage_rl() -> None:
    assert EpisodeOptions().limits == PAPER_LIMITS.episode()
