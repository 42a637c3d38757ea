from __future__ import annotations

from collections.abc import Iterator

import pytest
from env_samples import ENVS

from astra.envsynth.offline import HANDLERS
from astra.llm.offline import OfflineTeacher
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with LocalSandbox(ENVS.sandbox) as opened:
        yield opened


@pytest.fixture
def teacher() -> OfflineTeacher:
    return OfflineTeacher(ENVS.teacher, HANDLERS)
