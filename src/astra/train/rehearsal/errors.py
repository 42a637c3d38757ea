"""Why a rehearsal is red."""

from __future__ import annotations

from astra.errors import AstraError


class RehearsalError(AstraError):
    """The preset would not run as it is; the message names setting, found and expected value."""


def mismatch(setting: str, found: object, expected: object, repair: str) -> RehearsalError:
    return RehearsalError(f"{setting}: found {found!r}, expected {expected!r}; {repair}")
