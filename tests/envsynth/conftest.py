from __future__ import annotations

from collections.abc import Iterator

import pytest
from env_samples import ENVS

from astra.envsynth.offline.handlers import HANDLERS
from astra.llm.offline import OfflineTeacher
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with LocalSandbox(ENVS.sandbox) as opened:
        yield opened


@pytest.fixture(scope="session")
def patient_sandbox() -> Iterator[Sandbox]:
    """For tests in which no call is meant to time out: a busy machine must not decide them."""
    with LocalSandbox(SandboxLimits(call_timeout_s=20.0)) as opened:
        yield opened


@pytest.fixture
def teacher() -> OfflineTeacher:
    return OfflineTeacher(ENVS.teacher, HANDLERS)
