"""Where things live that are not stage outputs: caches, journals, server environments, runs.

DVC runs experiments in temporary copies of the workspace. Whatever must survive them lies
under ``ASTRA_CACHE`` or, if that is unset, below the original repository root (``DVC_ROOT``).
"""

from __future__ import annotations

import os
from pathlib import Path


def repository_root() -> Path:
    """The original repository, also from inside a temporary experiment workspace."""
    root = os.environ.get("DVC_ROOT")  # dvc sets it; for temporary workspaces to the original
    if root:
        return Path(root).resolve()
    here = Path.cwd().resolve()
    for parent in [here, *here.parents]:
        if (parent / "dvc.yaml").is_file():
            return parent
    return here


def cache_root() -> Path:
    """``ASTRA_CACHE``, or ``.astra/`` at the original repository root; created on demand."""
    configured = os.environ.get("ASTRA_CACHE")
    root = Path(configured).expanduser() if configured else repository_root() / ".astra"
    root.mkdir(parents=True, exist_ok=True)
    return root
