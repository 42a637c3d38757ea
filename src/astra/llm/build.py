"""The one place that turns a role's config into something that answers asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from astra.errors import AstraError
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig, ModelsConfig, OfflineHandlers, Teacher
from astra.settings import RuntimeConfig

if TYPE_CHECKING:
    from astra.llm.policy import EndpointPolicy


Factory = Callable[[ModelConfig, RuntimeConfig, OfflineHandlers, str], Teacher]
FACTORY: Factory | None = None
"""Makes every teacher instead, where set: prompts are shown without asking that way."""


def build_teacher(
    config: ModelConfig, runtime: RuntimeConfig, handlers: OfflineHandlers, stage: str = "adhoc"
) -> Teacher:
    """The teacher that ``config`` names; ``stage`` labels its usage in the run log.

    Raises AstraError before any request when the openai backend has no endpoint or no key.
    """
    if FACTORY is not None:
        return FACTORY(config, runtime, handlers, stage)
    if config.backend == "offline":
        return OfflineTeacher(config, handlers)
    # Late: the offline backend starts without the client library.
    from astra.llm.openai_backend import OpenAITeacher

    return OpenAITeacher(config, runtime, stage)


def build_teachers(
    config: ModelsConfig, runtime: RuntimeConfig, handlers: OfflineHandlers, stage: str = "adhoc"
) -> list[Teacher]:
    """One teacher per model of a role that wants several, in their order."""
    return [build_teacher(model, runtime, handlers, stage) for model in config.models]


def build_policy(
    config: ModelConfig, runtime: RuntimeConfig, stage: str = "adhoc"
) -> EndpointPolicy:
    """An endpoint that acts in episodes. Raises AstraError for any backend but openai."""
    if config.backend != "openai":
        raise AstraError(
            f"backend {config.backend!r} has no model that acts; this role needs backend openai"
        )
    from astra.llm.policy import EndpointPolicy

    return EndpointPolicy(config, runtime, stage)
