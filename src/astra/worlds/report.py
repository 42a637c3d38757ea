"""What stage ``worlds`` says of its worlds: counts, sizes, and how often each proof was made."""

from __future__ import annotations

from astra.records.world import World
from astra.store.metrics import StageMetrics


def measure(metrics: StageMetrics, world: World) -> None:
    """Add one world that leaves the stage."""
    metrics.count("out")
    metrics.count(f"out_{world.split}")
    for name, number in world.checks.items():
        metrics.count(f"checked_{name}", number)
    policy = sum(rule.enforced == "policy" for rule in world.rules)
    for name, value in (
        ("domain", world.domain),
        ("split", world.split),
        ("tables", len(world.tables)),
        ("tools", len(world.tools)),
        ("rules", len(world.rules)),
        ("policy_rules", policy),
        ("rows", _rounded(sum(map(len, world.rows.values())), 20)),
        ("words", _rounded(len(world.policy.split()), 50)),
    ):
        metrics.distribution(name, [value])
    metrics.distribution("rule", (rule.id for rule in world.rules))
    metrics.distribution("role", (tool.role for tool in world.tools))


def _rounded(number: int, step: int) -> int:
    """The lower end of the bin that a number falls into."""
    return number // step * step
