"""Shared by every test: the repository root, and a cache root that outlives one test."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# One compute thread: tests run beside each other, and spinning barriers starve them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# How long an example takes says how busy the machine is.
settings.register_profile(
    "shared_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared_machine")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Optional real corpora; a test that needs them is skipped loudly without."""
    folder = os.environ.get("ASTRA_CORPORA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ASTRA_CORPORA is not set: the real tool corpora are not at hand")
    return Path(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The graph first: beside it on another worker, everything else ends in the meantime."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="module", autouse=True)
def _no_tracking_store_of_another_module() -> None:
    """mlflow exports the store it was last given; what a module sets up must not inherit it."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)


@pytest.fixture(autouse=True)
def _own_tracking_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next test must not inherit it either."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(autouse=True)
def _open_logs() -> None:
    """A stage logs to the stderr it started with; that of an earlier test is closed."""
    for handler in logging.getLogger().handlers[:]:
        if type(handler) is logging.StreamHandler and handler.stream.closed:
            logging.getLogger().removeHandler(handler)
