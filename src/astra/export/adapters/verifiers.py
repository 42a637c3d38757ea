# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Arenas as a verifiers taskset, with the harness that plays them.

The harness runs the chat loop in this process: the model is asked through verifiers' endpoint,
calls run in the arenas' own sandbox, and the reward is computed from executed results.

    eval:   vf-eval PACKAGE --env.agent.runtime.type subprocess
    train:  taskset id PACKAGE
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from openai import AsyncOpenAI
from pydantic import PrivateAttr

from astra.export.episode import ArenaEpisode
from astra.export.rows import ROWS_FILE, ExportedArena, read_rows

ROWS = Path(__file__).with_name(ROWS_FILE)


class ArenaData(vf.TaskData):
    """``id`` is the arena's; the arena itself stays in the package, so traces hold no answers."""


class ArenaState(vf.State):
    """The episode that a trace plays."""

    _episode: ArenaEpisode | None = PrivateAttr(default=None)

    def start(self, row: ExportedArena) -> None:
        self._episode = ArenaEpisode(row)

    @property
    def episode(self) -> ArenaEpisode:
        if self._episode is None:
            raise RuntimeError("the arena was not set up")
        return self._episode


class ArenaTask(vf.Task[ArenaData, ArenaState]):
    """One arena, with its reward and metrics."""

    def __init__(self, data: ArenaData, config: Any, row: ExportedArena) -> None:
        super().__init__(data, config)
        self.row = row

    @property
    def key(self) -> str:
        return self.row.id

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        trace.state.start(self.row)

    @vf.reward
    async def arena_reward(self, trace: vf.Trace) -> float:
        return trace.state.episode.score().reward

    @vf.metric
    async def arena_metrics(self, trace: vf.Trace) -> dict[str, float]:
        score = trace.state.episode.score()
        return {
            "recall": score.recall,
            "precision": score.precision,
            "answer_correct": float(score.answer_correct),
            "success": float(score.success),
            "calls": float(len(trace.state.episode.calls)),
        }


class ArenaTasksetConfig(vf.TasksetConfig):
    split: str = "train"
    """train | dev | heldout"""


class ArenaTaskset(vf.Taskset[ArenaTask, ArenaTasksetConfig]):
    """The arenas of one split."""

    def load(self) -> Iterator[ArenaTask]:
        for row in read_rows(ROWS):
            if row.split.value == self.config.split:
                system, user = row.prompt
                data = ArenaData(id=row.id, prompt=user["content"], system_prompt=system["content"])
                yield ArenaTask(data, self.config.task, row)


class ArenaHarnessConfig(vf.HarnessConfig):
    pass


class ArenaHarness(vf.Harness[ArenaHarnessConfig]):
    """Asks the model turn by turn; the arena answers its calls, and its user what it says."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False  # nothing runs in the runtime: tools run in the arenas' own sandbox
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        episode: ArenaEpisode = trace.state.episode
        messages: list[Any] = episode.prompt
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            while not episode.done:
                tools: Any = episode.tools  # the user may have brought more
                reply = await client.chat.completions.create(
                    model=ctx.model, messages=messages, tools=tools
                )
                choice = reply.choices[0]
                written = choice.message.model_dump(exclude_none=True)
                messages.append(written)
                if choice.finish_reason == "length":
                    episode.cut()
                    break
                messages += await episode.offer_async(written)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def cleanup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        trace.state.episode.close()


__all__ = ["ArenaHarness", "ArenaTaskset"]
