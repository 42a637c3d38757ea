"""Limits of a session of tool code: time, memory, output, and the allow-list of imports."""

from pydantic import BaseModel, ConfigDict, Field

DEFAULT_IMPORTS: tuple[str, ...] = (
    "abc", "array", "base64", "binascii", "bisect", "calendar", "cmath", "collections",
    "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum",
    "fractions", "functools", "graphlib", "hashlib", "heapq", "hmac", "html", "io",
    "ipaddress", "itertools", "json", "keyword", "math", "numbers", "operator", "pprint",
    "random", "re", "statistics", "string", "struct", "textwrap", "time", "types", "typing",
    "unicodedata", "urllib.parse", "uuid", "zlib", "__future__",
)  # fmt: skip
"""The allow-list of imports: pure computation from the standard library. Nothing in it opens a
socket or starts a process."""


class SandboxLimits(BaseModel):
    """Hard limits of a session, frozen: a sandbox is built for one set of them.

    Soft and hard rlimits are equal, so code cannot raise them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    call_timeout_s: float = Field(default=2.0, gt=0)
    """Host wall clock for one call, and for loading the sources. The session is killed after."""
    cpu_s: int = Field(default=10, ge=1)
    """CPU seconds of the whole session (RLIMIT_CPU)."""
    memory_mb: int = Field(default=256, ge=16)
    """Address space tool code may add to the interpreter's own (RLIMIT_AS)."""
    tmp_mb: int = Field(default=8, ge=1)
    """Size of the private /tmp in tier A. In tier B no path is writable or readable at all."""
    max_output_bytes: int = Field(default=64_000, ge=0, le=200_000)
    """Captured stdout and, separately, stderr of one call, in bytes of UTF-8; the rest is cut."""
    allowed_imports: tuple[str, ...] = DEFAULT_IMPORTS
    """Standard-library modules tool code may import; ``a`` allows ``a.b``, not the reverse."""
