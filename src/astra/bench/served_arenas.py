"""Held-out arenas over an endpoint, for checkpoints of any size and for closed models.

Requests go through a relay as those of suites do: it waits out short outages and gives up a server
that stays away. Episodes that are lost with it are infra, never a score.
"""

from __future__ import annotations

import socket
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from typing import Any

from astra.bench.arenas import concluded
from astra.bench.config import BenchConfig
from astra.bench.endpoint_episode import EndpointEpisode
from astra.bench.harness.client import ChatClient, CompletionError
from astra.bench.harness.protocol import ModelEndpoint
from astra.bench.harness.relay import Relay
from astra.bench.progress import BenchProgress
from astra.records.bench import BenchEpisode
from astra.records.trajectory import StopReason
from astra.rollout.driver import NOT_OPENED, again_where_infra
from astra.rollout.live import EpisodeJob, Rollout
from astra.sandbox.protocol import Sandbox


def play_served(
    name: str,
    jobs: Sequence[EpisodeJob],
    endpoint: ModelEndpoint,
    sandbox: Sandbox,
    config: BenchConfig,
    progress: BenchProgress,
) -> list[BenchEpisode]:
    """A served checkpoint's episodes, greedy, in the order of the jobs.

    Episodes that our own machinery failed are played again, up to three times in all, while the
    server answers. Raises BenchError where too many stay lost.
    """
    fields: dict[str, Any] = {"temperature": 0.0, "seed": config.seed}
    with _relayed(endpoint) as (relay, through), closing(ChatClient(through)) as client:

        def attempt(job: EpisodeJob) -> Rollout:
            try:
                return EndpointEpisode(job, client, config.limits, fields).play(sandbox)
            except (CompletionError, *NOT_OPENED) as error:
                return Rollout(job.arena, [], 0, stop_reason=StopReason.INFRA, problem=str(error))

        latest: dict[int, Rollout] = {}

        def roll(positions: list[int], again: int) -> list[Rollout]:
            if not (again and relay.lost):
                with ThreadPoolExecutor(config.engine_rows) as pool:
                    running = {pool.submit(attempt, jobs[at]): at for at in positions}
                    try:
                        for done in as_completed(running):
                            latest[running[done]] = done.result()
                            progress.ended(name)
                    finally:  # what has not begun when one fails is not worth its time
                        pool.shutdown(cancel_futures=True)
            return [latest[at] for at in positions]

        rollouts, _ = again_where_infra(jobs, roll)
    return concluded(name, jobs, rollouts, config, progress)


@contextmanager
def _relayed(endpoint: ModelEndpoint) -> Generator[tuple[Relay, ModelEndpoint]]:
    """A relay to the endpoint, and the address under which it is reached without a key."""
    listener = socket.create_server(("127.0.0.1", 0))
    with closing(Relay(listener, {"model": endpoint})) as relay:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/model/v1"
        yield relay, ModelEndpoint(base_url=url, model=endpoint.model)
