"""What can go wrong in training that a user can repair."""

from astra.errors import AstraError


class TrainingError(AstraError):
    """Training cannot start, resume or go on."""
