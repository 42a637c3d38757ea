"""The sandbox that the parameters ask for: ``sandbox=local`` or ``sandbox=ray``."""

from astra.sandbox.capacity import PoolConfig
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox
from astra.settings import RuntimeConfig


def build_sandbox(limits: SandboxLimits, runtime: RuntimeConfig) -> Sandbox:
    """Start it. Raises SandboxUnavailable with the reason and the remedy."""
    pool = PoolConfig(
        warm=runtime.sandbox_warm,
        max_sessions=runtime.sandbox_max_sessions,
        memory_mb=runtime.sandbox_memory_mb,
    )
    tier, zygotes = runtime.sandbox_min_tier, runtime.sandbox_workers
    if runtime.sandbox == "ray":
        from astra.sandbox.ray_sandbox import RaySandbox  # late: only who asks for ray needs it

        return RaySandbox(limits, tier, zygotes, pool)
    return LocalSandbox(limits, tier, zygotes, pool=pool)
