"""Which worlds a stage is to make: domains and variants, in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass

from astra.worlds.composition import compose
from astra.worlds.config import WorldsConfig
from astra.worlds.domain import WorldDomain, load_domains


@dataclass(frozen=True)
class Plan:
    """One world to make."""

    domain: WorldDomain
    variant: int

    @property
    def name(self) -> str:
        """What rejections call it."""
        return f"{self.domain.name}/{self.variant}"


def plans(config: WorldsConfig) -> list[Plan]:
    """The worlds that the parameters ask for."""
    domains = load_domains()
    chosen = [domains[name] for name in sorted(config.domains or domains)]
    planned = [
        Plan(domain, variant)
        for domain in chosen
        for variant in range(config.variants.get(domain.split, 0))
    ]
    return planned + [Plan(compose(at, config.seed), at) for at in range(config.composed)]
