"""What can go wrong with a policy or a generation engine."""

from astra.errors import AstraError


class PolicyError(AstraError):
    """A policy cannot be loaded, or its chat template cannot be used."""


class EngineError(AstraError):
    """No engine can generate: every server is gone, or one answers what cannot be trained on."""


class TurnLost(Exception):
    """One turn was lost for reasons of our own; its episode is rolled again, never scored."""
