"""What several benchmark tests share: a taught policy, its sandbox, the harnesses' environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from astra.bench.harness.environment import bench_environment
from astra.bench.harness.protocol import SuiteError

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
from taught import policy as policy
from taught import sandbox as sandbox


@pytest.fixture(scope="session")
def bench_env() -> Path:
    """The harnesses' environment; a test that needs it is skipped loudly without."""
    try:
        return bench_environment()
    except SuiteError as error:
        pytest.skip(f"no bench environment: {error}")
