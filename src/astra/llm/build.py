"""The one place that turns a role's config into something that answers asks."""

from __future__ import annotations

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig, OfflineHandlers, Teacher
from astra.settings import RuntimeConfig


def build_teacher(
    config: ModelConfig, runtime: RuntimeConfig, handlers: OfflineHandlers, stage: str = "adhoc"
) -> Teacher:
    """The teacher that ``config`` names; ``stage`` labels its usage in the run log.

    Raises AstraError before any request when the openai backend has no endpoint or no key.
    """
    if config.backend == "offline":
        return OfflineTeacher(config, handlers)
    # Late: the offline backend starts without the client library.
    from astra.llm.openai_backend import OpenAITeacher

    return OpenAITeacher(config, runtime, stage)
