from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from astra import prompting
from astra.llm import endpoints, servers
from chat_server import KEY

TEMPLATES = {"demo/say": "Say {{ word }}.", "demo/other": "Repeat {{ word }}."}


@pytest.fixture(autouse=True)
def place(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace of its own, templates, a key, and backoff short enough for tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_TEST_KEY", KEY)
    monkeypatch.setenv("PYTHONPATH", str(root / "src"))
    monkeypatch.setattr(endpoints, "BACKOFF_S", 0.01)
    monkeypatch.setattr(servers, "REST_S", 0.01)
    monkeypatch.setattr(prompting, "_source", TEMPLATES.__getitem__)
    prompting._compiled.cache_clear()
    yield tmp_path
    prompting._compiled.cache_clear()
