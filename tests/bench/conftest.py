"""What several benchmark tests share: a sandbox, and a policy that was taught a few episodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from astra.bench.harness.environment import bench_environment
from astra.bench.harness.protocol import SuiteError
from astra.rollout.chat import LoadedPolicy
from astra.sandbox.build import build_sandbox
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.protocol import Sandbox
from astra.settings import RuntimeConfig


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    runtime = RuntimeConfig(threads=1, device="cpu", sandbox_workers=1)
    with build_sandbox(SandboxLimits(), runtime) as made:
        yield made


@pytest.fixture(scope="session")
def policy(root: Path, sandbox: Sandbox) -> LoadedPolicy:
    from serving import taught
    from test_bench_arenas import ARENAS

    return taught(root / "policies/tiny", ARENAS[:4], sandbox)


@pytest.fixture(scope="session")
def bench_env() -> Path:
    """The harnesses' environment; a test that needs it is skipped loudly without."""
    try:
        return bench_environment()
    except SuiteError as error:
        pytest.skip(f"no bench environment: {error}")
