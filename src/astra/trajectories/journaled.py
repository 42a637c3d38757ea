"""Resume of live episodes: executed results are journalled and replayed."""

from __future__ import annotations

import asyncio

from astra.agent.protocols import Env
from astra.records.base import content_id
from astra.records.message import CallStatus, ToolCall, ToolResult
from astra.records.tool import Tool
from astra.store.journal import Journal

_TRANSIENT = frozenset({CallStatus.TIMEOUT, CallStatus.UNREACHABLE, CallStatus.INFRA})


class JournaledEnv:
    """Wraps an environment; a call whose result is journalled is not executed again.

    The key of a result covers the episode and all its calls so far. When an episode goes on
    beyond its journal, the inner environment first executes the replayed calls again, because
    its state died with the process. Outcomes that may pass (timeouts) are never journalled.
    """

    def __init__(self, inner: Env, journal: Journal, episode: str) -> None:
        self._inner = inner
        self._journal = journal
        self._key = content_id(["episode", episode])
        self._unexecuted: list[ToolCall] = []
        """Calls answered from the journal that the inner environment has not executed yet."""
        self._turn = asyncio.Lock()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._inner.tools

    async def execute(self, call: ToolCall) -> ToolResult:
        async with self._turn:
            self._key = content_id([self._key, call.name, call.arguments])
            journalled = self._journal.get(self._key)
            if journalled is not None:
                self._unexecuted.append(call)
                return ToolResult.model_validate(journalled)
            while self._unexecuted:
                await self._inner.execute(self._unexecuted[0])
                # Only now: a call that was interrupted has to be executed again.
                self._unexecuted.pop(0)
            result = await self._inner.execute(call)
            if result.status not in _TRANSIENT:
                self._journal.put(self._key, result.model_dump(mode="json"))
            return result

    async def close(self) -> None:
        await self._inner.close()
