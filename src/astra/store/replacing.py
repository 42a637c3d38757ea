"""A file that is replaced in one step: readers see the one before or the whole new one."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A path beside ``path``, whose folder is made, to write to.

    It takes the place of ``path`` once all is written. Where that fails nothing of it is left, and
    ``path`` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
