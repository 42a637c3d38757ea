"""The report of which sandbox this machine offers, for a person to read."""

from collections.abc import Mapping
from dataclasses import dataclass

from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import REMEDY, LocalSandbox
from astra.sandbox.protocol import SandboxUnavailable
from astra.sandbox.zygote_process import TIERS

NO_TIER = "none"


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """``tier`` is the best that works, or "none". ``findings``: attack or tier → outcome.

    ``remedy`` says what to change for a stronger tier; empty where there is none.
    """

    tier: str
    findings: Mapping[str, str]
    remedy: str = ""

    def meets(self, min_tier: str) -> bool:
        """Whether the machine offers at least this tier."""
        return self.tier in TIERS[: TIERS.index(min_tier) + 1]


def probe(limits: SandboxLimits | None = None) -> ProbeReport:
    """Try the tiers from the strongest down, really starting and attacking each; never raises
    for a machine that offers none: the findings then say what every tier lacks."""
    findings: dict[str, str] = {}
    for tier in TIERS:
        try:
            with LocalSandbox(limits, force_tier=tier) as sandbox:
                facts = {key: str(value) for key, value in sandbox.facts.items() if key != "ok"}
                return ProbeReport(
                    tier, {**findings, **sandbox.findings, **facts}, REMEDY if findings else ""
                )
        except SandboxUnavailable as error:
            findings[f"tier {tier}"] = str(error)
    return ProbeReport(NO_TIER, findings, REMEDY)
