"""Sandboxes for these tests: one per tier, started once, with short limits."""

import subprocess
from collections.abc import Iterator

import pytest

from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import SandboxUnavailable

LIMITS = SandboxLimits(call_timeout_s=1.0, cpu_s=5, memory_mb=64, max_output_bytes=2_000)


def _namespaces_allowed() -> bool:
    return subprocess.run(["unshare", "--user", "true"], check=False).returncode == 0


@pytest.fixture(scope="session")
def limits() -> SandboxLimits:
    return LIMITS


@pytest.fixture(scope="session", params=["A", "B"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    try:
        made = LocalSandbox(LIMITS, force_tier=request.param)
    except SandboxUnavailable as error:
        # Only a machine that forbids namespaces may lack tier A; tier B is the default minimum.
        if request.param == "A" and not _namespaces_allowed():
            pytest.skip(f"user namespaces are forbidden here: {error}")
        raise
    with made:
        yield made
