"""Where things lie that are not stage outputs: caches, journals, server environments, runs.

DVC runs experiments in temporary copies of the workspace. Whatever must survive them lies
under ``ASTRA_CACHE`` or, if that is unset, below the original repository root (``DVC_ROOT``).
"""

from __future__ import annotations

import os
from pathlib import Path


def repository_root() -> Path:
    """The original repository, also from inside a temporary experiment workspace."""
    start = Path(os.environ.get("DVC_ROOT") or Path.cwd()).resolve()
    lineage = [start, *start.parents]
    for folder in lineage:
        # DVC_ROOT is the workspace that DVC runs; a temporary one lies in <root>/.dvc/tmp.
        if folder.name == "tmp" and folder.parent.name == ".dvc":
            return folder.parent.parent
    return next((folder for folder in lineage if (folder / "dvc.yaml").is_file()), start)


def cache_root() -> Path:
    """``ASTRA_CACHE``, or ``.astra/`` at the original repository root; created on demand."""
    configured = os.environ.get("ASTRA_CACHE")
    root = Path(configured).expanduser() if configured else repository_root() / ".astra"
    root.mkdir(parents=True, exist_ok=True)
    return root
