"""What fails fast: the sandbox and the rollout servers, before any stage is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.errors import EngineError
from astra.rollout.transfer import FolderTransfer
from astra.rollout.vllm import VLLMConfig, VLLMEngine
from astra.sandbox.build import build_sandbox
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import SandboxUnavailable
from astra.settings import RuntimeConfig
from astra.train.live_policy import LivePolicy
from astra.train.rehearsal.errors import RehearsalError

CHECKED_VERSIONS = 2
"""Versions of the weights that ``check_servers`` hands over."""
FACTOR = 1.5
"""What matrices are multiplied by between two versions: servers must be seen to follow."""


def check_sandbox(limits: SandboxLimits, runtime: RuntimeConfig) -> str:
    """Open the preset's sandbox, which attacks it from inside. Returns its tier."""
    wanted = f"runtime.sandbox {runtime.sandbox} of tier {runtime.sandbox_min_tier} or better"
    try:
        with build_sandbox(limits, runtime) as sandbox:
            return sandbox.tier
    except (SandboxUnavailable, ImportError, ValueError) as error:
        raise RehearsalError(
            f"runtime.sandbox, runtime.sandbox_min_tier: found none that works ({error}), expected "
            f"{wanted}; docs/sandbox.md says what each needs"
        ) from error


def check_servers(urls: Sequence[str], folder: Path, saved: PolicyConfig) -> None:
    """Hand two versions of the policy to the servers, as training does between two steps.

    ``folder`` is where weights are written. Raises RehearsalError where any server keeps what it
    had, or does not take what it is given.
    """
    policy = load_policy(saved)
    live = LivePolicy(policy, saved.dtype)
    ids = list(range(1, 65))
    transfer = FolderTransfer(folder, live.save)
    try:
        engine = VLLMEngine(
            VLLMConfig(urls), policy.codec.eos_id, transfer, lambda: (ids, live.logprobs(ids))
        )
        engine.sync(0)
        _change(policy)
        engine.sync(1)
    except EngineError as error:
        raise RehearsalError(
            f"conf/launch/vllm.sh: found servers that do not serve the policy's weights, expected "
            f"{len(urls)} that do: {error}"
        ) from error
    if engine.faults:
        raise RehearsalError(
            f"conf/launch/vllm.sh: found faults of servers {dict(engine.faults)}, expected none"
        )


@torch.no_grad()
def _change(policy: LoadedPolicy) -> None:
    for weights in policy.model.parameters():
        if weights.dim() > 1:
            weights.mul_(FACTOR)
