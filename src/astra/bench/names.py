"""Names of the checkpoints that every benchmark knows, as its records and metrics have them."""

from __future__ import annotations

BASE = "base"
"""The policy before any training."""
BASE_NATIVE = "base_native"
"""The same under its publisher's own chat template, where ``policy.template`` is another."""
FLOOR = "floor"
"""A model that does nothing."""
CEILING = "ceiling"
"""The gold calls, played by rule; arenas only."""
WORLD_FLOORS = ("decline", "hand_over", "first_candidate", "never_asks")
"""What is played by rule in worlds besides: see ``arena/world_scripts.py``."""
REFERENCES = (FLOOR, CEILING)
"""What is played by rule in every arena."""
