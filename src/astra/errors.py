"""The base of every error that is the user's to read: bad input, missing parts, outages.

A stage ends with such an error's message alone; any other exception is a bug and keeps its
traceback.
"""


class AstraError(Exception):
    """Says what was tried, which item, and how to repair it."""


class OutOfTokens(AstraError):
    """A policy's own budget of generated or context tokens is spent: ends its episode only."""


class StageStop(AstraError):
    """A fault of the whole stage, such as an outage or a spent budget: it ends the stage, and is
    never put down to one item or episode.
    """
