"""A published folder comes whole or not at all, and replaces only one that was published here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from astra.publish.evidence import FILES
from astra.publish.record import PublishError


@contextmanager
def published(out: Path) -> Generator[Path]:
    """A folder to write to, which becomes ``out`` when the block ends without an error.

    Raises PublishError where something else lies at ``out``.
    """
    if out.exists() and not (out / FILES).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise PublishError(f"{out} exists, and nothing was published there; name another --out")
    fresh = out.absolute().with_name(f".{out.name}.{os.getpid()}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        if out.exists():
            shutil.rmtree(out)
        os.replace(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
