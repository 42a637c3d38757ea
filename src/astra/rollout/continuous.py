"""The engine over transformers' continuous batching, in the training process.

Without a server, and for models that fill a device: rows join and leave the batch at any step.
For models of a few million parameters the batched loop (batched.py) is several times faster.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from astra.rollout.engine import Sampling, Turn
from astra.rollout.errors import EngineError, TurnLost
from astra.rollout.streaming import Admission, Talk

ALIVE_S = 5.0
PAGE = 64
"""Tokens per page of the cache."""
BATCH_TOKENS = 8192
"""Most tokens of one forward pass, as transformers has it."""


class ContinuousEngine:
    """Generates with ``model`` itself, so weights are always the trainer's current ones.

    ``kv_tokens`` is the cache to allocate; the manager lives for one batch of rollouts and is
    gone before the optimizer moves the weights.
    """

    def __init__(self, model: Any, eos_id: int, pad_id: int, kv_tokens: int) -> None:
        self.weight_version = 0
        self.faults: Counter[str] = Counter()
        self._model = model
        self._eos, self._pad = eos_id, pad_id
        self._pages = kv_tokens // PAGE
        # A conversation wastes up to one page, which whole pages account for.
        self.admission = Admission(self._pages * PAGE)
        self._manager: Any = None
        self._names = itertools.count()

    def sync(self, version: int) -> None:
        self.weight_version = version

    @asynccontextmanager
    async def running(self, sampling: Sampling) -> AsyncGenerator[None]:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        self._manager = self._model.init_continuous_batching(
            generation_config=GenerationConfig(
                do_sample=sampling.temperature > 0,
                temperature=sampling.temperature or None,
                top_k=0,
                top_p=1.0,
                eos_token_id=self._eos,
                pad_token_id=self._pad,
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=PAGE,
                num_blocks=self._pages,
                # Masks are allocated for that many rows of the whole cache and themselves; no
                # pass has more tokens than the cache holds.
                max_batch_tokens=min(BATCH_TOKENS, self._pages * PAGE),
                return_logprobs=True,
                seed=sampling.seed % 2**31,
            ),
        )
        self._manager.start()
        try:
            yield
        finally:
            self._manager.stop(block=True, hard_stop=True)
            self._manager = None

    @asynccontextmanager
    async def admitted(self, tokens: int) -> AsyncGenerator[Talk]:
        pages = -(-tokens // PAGE)
        async with self.admission.hold(pages * PAGE):
            yield self._turn

    async def _turn(self, ids: Sequence[int], budget: int, sampling: Sampling) -> Turn:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        name = f"turn-{next(self._names)}"
        self._manager.register_result_handler(
            name, lambda result: None if done.done() else done.set_result(result)
        )
        taken = self._manager.add_request(
            list(ids), request_id=name, max_new_tokens=budget, eos_token_id=self._eos
        )
        if taken is None:
            raise EngineError("continuous batching takes no more requests: its loop has ended")
        try:
            while not (await asyncio.wait({done}, timeout=ALIVE_S))[0]:
                if not self._manager.is_running():
                    raise EngineError("continuous batching: its loop has died; see its log above")
        except asyncio.CancelledError:
            self._manager.cancel_request(name)
            raise
        result = done.result()
        if result.error:
            raise TurnLost(result.error)
        tokens, logprobs = list(result.generated_tokens), list(result.logprobs)
        if not tokens or len(tokens) != len(logprobs):
            raise EngineError(f"{len(tokens)} tokens came with {len(logprobs)} log-probabilities")
        finish = "eos" if tokens[-1] == self._eos else "length"
        return Turn(0, tokens, logprobs, finish)
