"""The driver's end of hosted worlds: one JSON request a line in, one JSON line out; no astra."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from hashlib import blake2b
from typing import Any


def as_line(row: dict[str, Any]) -> str:
    """A row as the text that its share of a digest is made of."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def line_hash(line: str) -> int:
    """A row's share of its table's digest, by the protocol's definition: 8 bytes of BLAKE2b."""
    return int.from_bytes(blake2b(line.encode(), digest_size=8).digest(), "big")


def serve(desk: Callable[[], Any]) -> None:
    """Answer requests until the input ends: ``do`` names a method of what ``desk`` makes, the rest
    are its arguments. What a method raises is told as a ``fault``."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a package prints is no reply
    made = desk()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = {"reply": getattr(made, request.pop("do"))(**request)}
        except Exception as error:
            reply = {"fault": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply) + "\n")
        out.flush()
