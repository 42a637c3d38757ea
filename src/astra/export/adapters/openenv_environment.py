# pyright: basic, reportMissingImports=false
"""Arenas as an OpenEnv environment: the server's side."""

import random
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment

from astra.export.adapters.openenv_models import ArenaAction, ArenaObservation, ArenaState
from astra.export.episode import ArenaEpisode
from astra.export.rows import ROWS_FILE, ExportedArena, read_rows

ROWS = Path(__file__).parent.parent / ROWS_FILE


@lru_cache(maxsize=1)
def all_rows() -> dict[str, list[ExportedArena]]:
    """The arenas by split."""
    grouped: dict[str, list[ExportedArena]] = {}
    for row in read_rows(ROWS):
        grouped.setdefault(row.split.value, []).append(row)
    return grouped


def rows(split: str) -> list[ExportedArena]:
    """The arenas of a split. Raises ValueError for a split that has none."""
    if split not in all_rows():
        raise ValueError(f"no arena in split {split!r}; splits: {', '.join(sorted(all_rows()))}")
    return all_rows()[split]


class ArenaEnvironment(Environment[ArenaAction, ArenaObservation, ArenaState]):
    """One arena per episode; its tools run in an isolated session of the sandbox."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._episode: ArenaEpisode | None = None
        self._state = ArenaState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "train",
        index: int | None = None,
        arena_id: str | None = None,
        **kwargs: Any,
    ) -> ArenaObservation:
        """Start an episode of ``arena_id``, else of the split's ``index``, else drawn by seed."""
        self.close()
        row = _choose(split, index, arena_id, seed)
        self._episode = ArenaEpisode(row)
        self._state = ArenaState(episode_id=episode_id or str(uuid4()), arena_id=row.id)
        return ArenaObservation(messages=self._episode.prompt, tools=self._episode.tools)

    def step(
        self, action: ArenaAction, timeout_s: float | None = None, **kwargs: Any
    ) -> ArenaObservation:
        """Take one assistant message; the reward comes with the step that ends the episode."""
        episode = self._episode
        if episode is None or episode.done:
            raise ValueError("no episode is under way: reset first")
        offered = episode.tools
        replies = episode.offer(
            {"role": "assistant", "content": action.content, "tool_calls": action.tool_calls}
        )
        self._state.step_count += 1
        self._state.calls = len(episode.calls)
        self._state.stop_reason = str(episode.stop_reason or "")
        reward = episode.score().reward if episode.done else 0.0
        tools = [] if episode.tools == offered else episode.tools
        return ArenaObservation(messages=replies, tools=tools, done=episode.done, reward=reward)

    @property
    def state(self) -> ArenaState:
        """Where the episode stands, without any answer."""
        return self._state

    def close(self) -> None:
        """End the episode's session."""
        if self._episode is not None:
            self._episode.close()
            self._episode = None

    # The task API: what there is to reset to.

    def list_splits(self) -> list[str]:
        """The splits that have arenas."""
        return sorted(all_rows())

    def num_tasks(self, split: str) -> int:
        """How many arenas a split has."""
        return len(rows(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """One arena of a split: its id, question and domain."""
        return _task(rows(split)[index])

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """The arenas of a split, in the order of ``index``."""
        return [_task(row) for row in rows(split)]


def _task(row: ExportedArena) -> dict[str, Any]:
    return {"id": row.id, "question": row.arena.main_question, "domain": row.arena.domain}


def _choose(split: str, index: int | None, arena_id: str | None, seed: int | None) -> ExportedArena:
    if arena_id is None:
        offered = rows(split)
        return random.Random(seed).choice(offered) if index is None else offered[index]
    for group in all_rows().values():
        for row in group:
            if row.id == arena_id:
                return row
    raise ValueError(f"no arena {arena_id!r} in this environment")
