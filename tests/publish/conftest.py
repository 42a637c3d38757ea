"""The small build, once for all tests of publishing; each test that changes it has a copy."""

from __future__ import annotations

import os
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
from published_world import build_world


@pytest.fixture(scope="session")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build") / "repo"
    folder.mkdir()
    os.environ.setdefault("DVC_SITE_CACHE_DIR", str(folder.parent / "site"))
    with chdir(folder):
        build_world(root, folder)
    return folder


@pytest.fixture
def world(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the build, as the working directory."""
    folder = tmp_path / "repo"
    shutil.copytree(built, folder)
    monkeypatch.chdir(folder)
    return folder
