"""A conversation with a driver: one fresh process, JSON in, JSON lines out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from astra.bench.suites.protocol import Driver, Endpoint, Listing, Played, Request

START_TIMEOUT_S = 300.0


def converse(
    driver: Driver,
    request: Request,
    endpoints: Mapping[str, Endpoint],
    silence_s: float = START_TIMEOUT_S,
) -> Iterator[Listing | Played]:
    """Start the driver, relay its completions to ``endpoints`` and give its replies as they come.

    Raises SuiteError when it ends early, says something else than replies, is silent for
    ``silence_s``, or an endpoint stops answering.
    """
    raise NotImplementedError
