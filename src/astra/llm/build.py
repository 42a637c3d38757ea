"""The factory of teachers: turns a role's configuration into what answers its asks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

from astra.errors import AstraError
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig, OfflineHandlers, Teacher
from astra.settings import RuntimeConfig
from astra.stage import Reporter

if TYPE_CHECKING:
    from astra.llm.gateway import Gateway
    from astra.llm.policy import EndpointPolicy
    from astra.llm.usage import Usage

Factory = Callable[[ModelConfig, OfflineHandlers], Teacher]
_instead: ContextVar[Factory | None] = ContextVar("teachers_instead", default=None)


@contextmanager
def teachers_from(factory: Factory) -> Generator[None]:
    """Let ``factory`` make what answers every role within the block; no endpoint acts there.

    Prompts are shown that way without asking, and answers overheard.
    """
    token = _instead.set(factory)
    try:
        yield
    finally:
        _instead.reset(token)


def teachers_replaced() -> bool:
    """Whether a factory answers every role here (``teachers_from``)."""
    return _instead.get() is not None


class Teachers:
    """Builds what answers the roles of one stage, and owns what they share.

    Close it when the stage ends, or use it in ``with``: until then answers are committed to its
    cache and its spending counted.
    """

    def __init__(
        self, runtime: RuntimeConfig, stage: str = "adhoc", reporter: Reporter | None = None
    ) -> None:
        """``stage`` labels the usage in the run log; see ``Gateway`` for ``reporter``."""
        self._runtime = runtime
        self._stage = stage
        self._reporter = reporter
        self._gateway: Gateway | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def teacher(self, config: ModelConfig, handlers: OfflineHandlers) -> Teacher:
        """What answers a role. ``handlers`` are the rules of backend offline.

        Raises AstraError before any request when the openai backend has no endpoint or no key.
        """
        factory = _instead.get()
        if factory is not None:
            return factory(config, handlers)
        if config.backend == "offline":
            return OfflineTeacher(config, handlers)
        # Late: the offline backend starts without the client library.
        from astra.llm.openai_backend import OpenAITeacher

        return OpenAITeacher(config, self.gateway())

    def panel(self, models: Iterable[ModelConfig], handlers: OfflineHandlers) -> list[Teacher]:
        """One teacher per model of a role that wants several, in their order."""
        return [self.teacher(model, handlers) for model in models]

    def policy(self, config: ModelConfig) -> EndpointPolicy:
        """An endpoint that acts in episodes. Raises AstraError for any backend but openai."""
        if config.backend != "openai":
            raise AstraError(
                f"backend {config.backend!r} has no model that acts; this role needs backend openai"
            )
        from astra.llm.policy import EndpointPolicy, SilentPolicy

        if _instead.get() is not None:
            return SilentPolicy(config)
        return EndpointPolicy(config, self.gateway())

    def gateway(self) -> Gateway:
        """What the roles with backend openai share; made when the first of them needs it."""
        if self._gateway is None:
            from astra.llm.gateway import Gateway

            self._gateway = Gateway(self._runtime, self._stage, self._reporter)
        return self._gateway

    @property
    def usages(self) -> list[Usage]:
        """The counters of every role that endpoints answer, in the order of their making."""
        return [] if self._gateway is None else self._gateway.usages

    def close(self) -> None:
        """Write the run log and close the desk; idempotent."""
        if self._gateway is not None:
            self._gateway.close()

    def track(self) -> None:
        """Log what was asked as MLflow runs; after ``close``."""
        if self._gateway is not None:
            self._gateway.track()
