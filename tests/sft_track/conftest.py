import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for package in ("trajectories", "llm", "scoring"):
    sys.path.insert(0, str(Path(__file__).parents[1] / package))


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Changes of the environment for all tests of a module."""
    with pytest.MonkeyPatch.context() as context:
        yield context
