"""What ranks tell each other of rollouts, apart from the trainer's own collectives.

Rolling takes as long as its slowest episode, and goes on in a thread while the trainer's
collectives run on the GPUs. So it has a process group of its own: gloo, which carries objects
between CPUs, ends at once where a rank dies, and waits as long as rollouts may take.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar, cast

import torch.distributed as dist

from astra.rollout.driver import INFRA_ATTEMPTS
from astra.rollout.vllm import SYNC_TIMEOUT_S
from astra.train.errors import TrainingError
from astra.train.rl_config import RLConfig

LIFETIMES = 4
"""Episodes that one place of a server may see end while a rank waits: the one that it waits for,
and three that were admitted before it (ours)."""
UNBOUNDED_S = 86_400
"""What is waited where ``rl.engine`` bounds no episode: a day (ours)."""

Told = TypeVar("Told")


def patience_s(config: RLConfig) -> int:
    """Seconds that a rank waits for the others before it takes them for hung (ours).

    ``INFRA_ATTEMPTS x LIFETIMES x rl.engine.timeout_s``, since each attempt of an episode waits to
    be admitted and then plays, and SYNC_TIMEOUT_S for the weights that are handed over before.
    """
    # Only engines whose episodes a clock bounds have the option.
    timeout_s: float | None = getattr(config.engine, "timeout_s", None)
    if timeout_s is None:
        return UNBOUNDED_S
    return int(INFRA_ATTEMPTS * LIFETIMES * timeout_s + SYNC_TIMEOUT_S)


class Exchange:
    """Gathers what each rank has to say. Every rank makes one, once the process group exists.

    ``patience``: seconds that a rank waits for the others. Raises TrainingError where the ranks
    cannot reach each other.
    """

    def __init__(self, patience: int) -> None:
        self.world, self.rank = 1, 0
        self._group: dist.ProcessGroup | None = None
        if dist.is_available() and dist.is_initialized():
            self.world, self.rank = dist.get_world_size(), dist.get_rank()
        if self.world == 1:
            return
        try:
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=patience))
        except RuntimeError as error:
            raise TrainingError(
                f"rank {self.rank} of {self.world} cannot reach the others over gloo "
                f"({str(error)[:200]}); set GLOO_SOCKET_IFNAME to the network interface by which "
                "the nodes reach each other"
            ) from error
        self._group = cast(dist.ProcessGroup, group)

    def gather(self, told: Told) -> list[Told]:
        """What every rank tells, in their order. All ranks call it; objects travel pickled."""
        if self._group is None:
            return [told]
        heard: list[Told | None] = [None] * self.world
        dist.all_gather_object(heard, told, group=self._group)
        return cast(list[Told], heard)
