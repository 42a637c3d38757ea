"""What proves worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from goal_samples import Shelf, library, shelf_of
from small_worlds import FEW

from astra.records.world import World
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.worlds.proofs import WorldProof
from astra.worlds.soundness import WorldFault


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    with LocalSandbox(SandboxLimits(cpu_s=60)) as opened:
        yield opened


@pytest.fixture(scope="session")
def prove(sandbox: LocalSandbox) -> Callable[[World], WorldFault | None]:
    return lambda world: WorldProof(world, sandbox, FEW).fault()


@pytest.fixture(scope="module")
def shelf(sandbox: LocalSandbox) -> Iterator[Shelf]:
    """Sound goals of a library, to spoil."""
    with shelf_of(library(), sandbox) as made:
        yield made
