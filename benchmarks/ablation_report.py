"""What a set of ablation runs says: pure functions from scores and curves to a document.

Every claim is one difference of two arms with an expected direction; its verdict follows from
the interval and from the seeds, nobody writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from astra.bench.statistics import estimate

SCORES = ("f1_plain", "f1", "precision", "recall", "success", "answer", "calls", "malformed")
PANELS = {
    "train_calls": "calls per episode",
    "train_f1": "F1 while training",
    "train_answer_correct": "final answers right",
    "filling_informative": "groups with signal",
    "train_tool_errors_in_positives": "failed calls in rewarded",
}
CURVES = (*PANELS, "filling_rolled")
RESAMPLES, CONFIDENCE = 10_000, 0.95
DEFAULT, START = "default", "start"
Played = dict[str, dict[str, dict[str, float]]]
"""``present`` or ``absent`` (irrelevant tools) -> score -> arena -> value."""
Curve = Mapping[int, float]


@dataclass(frozen=True)
class Outcome:
    """One arm with one seed: what it scores, how it went, what it took."""

    played: Played
    curves: Mapping[str, Curve]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Claim:
    """``arm`` against ``other`` (``start``: the policy that training began with).

    ``name`` is a score on arenas with irrelevant tools, or a curve over the second half of the
    steps. ``expected``: what the difference would be if the claim holds.
    """

    says: str
    arm: str
    other: str
    name: str
    expected: Literal["more", "less", "not less"]
    source: str = "ASTRA"


CLAIMS = (
    Claim("F1 as the reward is stable: nothing is lost", DEFAULT, START, "f1_plain", "not less"),
    Claim("recall alone inflates calls", "reward-recall", DEFAULT, "calls", "more"),
    Claim("recall alone costs F1", "reward-recall", DEFAULT, "f1_plain", "less"),
    Claim("precision alone starves calls", "reward-precision", DEFAULT, "calls", "less"),
    Claim("precision alone costs F1", "reward-precision", DEFAULT, "f1_plain", "less"),
    Claim("banded distractors beat none where there are distractors", DEFAULT, "irrelevant-none",
          "f1_plain", "more"),
    Claim("banded distractors beat random ones", DEFAULT, "irrelevant-random", "f1_plain", "more"),
    Claim("random distractors beat none", "irrelevant-random", "irrelevant-none", "f1_plain",
          "more"),
    Claim("filling raises the groups with signal per step", DEFAULT, "filling-off",
          "filling_informative", "more"),
    Claim("filling raises F1 after as many steps", DEFAULT, "filling-off", "f1_plain", "more",
          "ours"),
    Claim("counting the final answer makes more of them right", DEFAULT, "final_answer-ignore",
          "answer", "more", "ours"),
    Claim("RoC leaves fewer failed calls in rewarded rollouts", "roc-sample", DEFAULT,
          "train_tool_errors_in_positives", "less", "rStar2"),
)  # fmt: skip
TITLES = {
    "f1_plain": "F1 (paper)",
    "f1": "F1 with answer",
    "precision": "precision",
    "recall": "recall",
    "answer": "answer",
    "calls": "calls",
    "malformed": "malformed calls",
    "filling_informative": "groups with signal per step",
    "train_tool_errors_in_positives": "failed calls in rewarded rollouts",
}


def document(
    found: Mapping[str, Mapping[int, Outcome]],
    start: Played,
    settings: Mapping[str, Any],
    overrides: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Everything in docs/ablations.json; ``found`` is by arm and seed."""
    judged = [judge(claim, found, start) for claim in CLAIMS]
    return {
        "settings": dict(settings),
        "start": _means(start),
        "arms": {arm: _arm(seeds, overrides[arm]) for arm, seeds in found.items()},
        "claims": [one for one in judged if one is not None],
    }


def _means(played: Played) -> dict[str, dict[str, float]]:
    return {
        presence: {name: round(mean(by.values()), 4) for name, by in scores.items() if by}
        for presence, scores in played.items()
    }


def _arm(seeds: Mapping[int, Outcome], overrides: Sequence[str]) -> dict[str, Any]:
    return {
        "overrides": list(overrides),
        "seeds": {
            str(seed): {"scores": _means(one.played), "seconds": dict(one.seconds)}
            for seed, one in sorted(seeds.items())
        },
        "curves": {
            name: _band([one.curves[name] for one in seeds.values() if name in one.curves])
            for name in CURVES
            if any(name in one.curves for one in seeds.values())
        },
    }


def _band(curves: Sequence[Curve]) -> dict[str, list[float]]:
    """Mean, lowest and highest over seeds at the steps that any seed has."""
    steps = sorted({step for curve in curves for step in curve})
    there = [[curve[step] for curve in curves if step in curve] for step in steps]
    return {
        "step": [float(step) for step in steps],
        "mean": [round(mean(values), 4) for values in there],
        "low": [round(min(values), 4) for values in there],
        "high": [round(max(values), 4) for values in there],
    }


def judge(
    claim: Claim, found: Mapping[str, Mapping[int, Outcome]], start: Played
) -> dict[str, Any] | None:
    """The claim with its difference, interval and verdict; None where an arm is missing."""
    arms = found.get(claim.arm, {})
    before = dict.fromkeys(arms, Outcome(start, {}, {}))
    others = before if claim.other == START else found.get(claim.other, {})
    differences: list[dict[Any, float]] = []
    for seed in sorted(arms.keys() & others.keys()):
        both = arms[seed], others[seed]
        if claim.name in SCORES:
            pair = tuple(one.played["present"][claim.name] for one in both)
        else:
            pair = tuple(_late(one.curves.get(claim.name, {})) for one in both)
        shared = pair[0].keys() & pair[1].keys()
        if shared:
            differences.append({key: pair[0][key] - pair[1][key] for key in shared})
    if not differences:
        return None
    items = sorted({key for one in differences for key in one})
    values = [mean(one[key] for one in differences if key in one) for key in items]
    interval = estimate(values, RESAMPLES, CONFIDENCE, seed=0)
    per_seed = [round(mean(one.values()), 4) for one in differences]
    return {
        "says": claim.says,
        "source": claim.source,
        "measured": f"{TITLES[claim.name]}, {claim.arm} − {claim.other}",
        "expected": claim.expected,
        "mean": round(interval.mean, 4),
        "low": round(interval.low, 4),
        "high": round(interval.high, 4),
        "items": interval.n,
        "per_seed": per_seed,
        "verdict": verdict(claim.expected, interval.low, interval.high, per_seed),
    }


def _late(curve: Curve) -> dict[int, float]:
    """The second half of the steps, when the arms have had time to part."""
    middle = (min(curve) + max(curve)) / 2 if curve else 0
    return {step: value for step, value in curve.items() if step >= middle}


def verdict(expected: str, low: float, high: float, per_seed: Sequence[float]) -> str:
    if expected == "not less":
        kept = "agrees" if all(one >= 0 for one in per_seed) else "not clear"
        return "disagrees" if high < 0 else kept
    sign = 1 if expected == "more" else -1
    nearer, farther = sorted((sign * low, sign * high))
    if farther < 0:
        return "disagrees"
    if nearer <= 0:
        return "not clear"
    whole = all(sign * one > 0 for one in per_seed)
    return "agrees" if whole else "agrees, not with every seed"


def render(made: Mapping[str, Any], figures: Sequence[str]) -> str:
    """docs/ablations.md. All of it follows from docs/ablations.json."""
    told, lines = made["settings"], ["# Ablations", ""]
    lines += _introduction(told, made["arms"])
    lines += ["## What agrees with the paper, and what does not", ""]
    for claims, title in (
        ([one for one in made["claims"] if one["source"] == "ASTRA"], "The paper's claims"),
        ([one for one in made["claims"] if one["source"] != "ASTRA"], "Others'"),
    ):
        if claims:
            lines += [f"{title}:", "", *_claims(claims), ""]
    lines += [*_summary(made["claims"]), ""]
    for presence, words in (("present", "with"), ("absent", "without")):
        lines += [f"## Scores on arenas {words} irrelevant tools", ""]
        lines += [*_scores(made, presence), ""]
    lines += ["## Curves", "", "Mean over seeds, five steps smoothed; the band is their range.", ""]
    for name in figures:
        lines += [f"![{Path(name).stem}](ablations/{name})", ""]
    lines += ["## What it took", "", *_costs(made), ""]
    return "\n".join(lines)


def _introduction(told: Mapping[str, Any], arms: Mapping[str, Any]) -> list[str]:
    seeds = " ".join(sorted({seed for arm in arms.values() for seed in arm["seeds"]}, key=int))
    split = {"heldout": "held-out", "dev": "development"}[told["split"]]
    changed = ""
    if told["overrides"]:
        changed = f" Changed for all arms: `{' '.join(told['overrides'])}`."
    return [
        f"Written by `python benchmarks/ablations.py --steps {told['steps']} --seeds {seeds}`; "
        "nothing on this page is written by hand.",
        "",
        f"One factor at a time around the default, scale `{told['scale']}`: {told['steps']} steps "
        f"of {told['groups']} groups of {told['group_size']} rollouts, every arm from the same "
        f"fine-tuned policy, then {told['arenas']} {split} arenas, greedily.{changed}",
        "",
        "An interval resamples arenas (for curves, the later half of the steps) after averaging "
        "over seeds. It says nothing about seeds that were not run, so a verdict also asks whether "
        "every seed went the same way. This is a policy of a million parameters after few steps; "
        "the paper trains 14 billion for more.",
        "",
    ]


def _claims(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| claim | measured | difference | 95 % interval | each seed | verdict |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for one in claims:
        says = one["says"] if one["source"] in ("ASTRA", "ours") else f"{one['says']} (rStar2)"
        seeds = ", ".join(f"{value:+.3f}" for value in one["per_seed"])
        lines.append(
            f"| {says} | {one['measured']} | {one['mean']:+.3f} "
            f"| {one['low']:+.3f} to {one['high']:+.3f} | {seeds} | **{one['verdict']}** |"
        )
    return lines


def _summary(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for source, whose in (("ASTRA", "Of the paper's claims"), ("", "Of the others")):
        mine = [one for one in claims if (one["source"] == "ASTRA") == (source == "ASTRA")]
        told = [
            f"{title}: {'; '.join(said)}"
            for title, start in (
                ("agree", "agrees"), ("are not clear", "not clear"), ("disagree", "disagrees"),
            )
            if (said := [one["says"] for one in mine if one["verdict"].startswith(start)])
        ]  # fmt: skip
        if told:
            lines.append(f"- {whose}, {'. '.join(told)}.")
    return lines


def _scores(made: Mapping[str, Any], presence: str) -> list[str]:
    names = [name for name in SCORES if name in TITLES]
    lines = ["| arm | seeds | " + " | ".join(TITLES[name] for name in names) + " |",
             "|---" * (len(names) + 2) + "|"]  # fmt: skip
    start = made["start"][presence]
    cells = [f"{start[name]:.3f}" if name in start else "–" for name in names]
    lines.append("| before RL | | " + " | ".join(cells) + " |")
    for arm, found in made["arms"].items():
        scores = [one["scores"][presence] for one in found["seeds"].values()]
        cells = [_spread([one[name] for one in scores if name in one]) for name in names]
        lines.append(f"| {arm} | {len(scores)} | " + " | ".join(cells) + " |")
    return lines


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def _costs(made: Mapping[str, Any]) -> list[str]:
    lines = ["| arm | CPU-seconds of training, a seed | groups rolled per step | failed calls in "
             "rewarded rollouts |", "|---|---|---|---|"]  # fmt: skip
    for arm, found in made["arms"].items():
        seconds = mean(one["seconds"]["cpu_s"] for one in found["seeds"].values())
        cells = [
            f"{mean(found['curves'][name]['mean']):.{digits}f}" if name in found["curves"] else "–"
            for name, digits in (("filling_rolled", 1), ("train_tool_errors_in_positives", 3))
        ]
        lines.append(f"| {arm} | {seconds:.0f} | {cells[0]} | {cells[1]} |")
    return lines


SMOOTHED = 5


def draw_curves(made: Mapping[str, Any], folder: Path) -> list[Path]:
    """One SVG per factor: the default and the factor's arms. Same document, same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    factors: dict[str, list[str]] = {}
    for arm in made["arms"]:
        if arm != DEFAULT:
            factors.setdefault(arm.rsplit("-", 1)[0], []).append(arm)
    drawn: list[Path] = []
    for factor, arms in factors.items():
        with mpl.rc_context({"svg.hashsalt": "astra", "font.size": 8}):
            figure = Figure(figsize=(14, 2.6), layout="constrained")
            shown = [arm for arm in (DEFAULT, *arms) if arm in made["arms"]]
            for axes, (name, title) in zip(
                figure.subplots(1, len(PANELS)), PANELS.items(), strict=True
            ):
                for arm in shown:
                    _line(axes, made["arms"][arm]["curves"].get(name), arm)
                axes.set_title(title)
                axes.set_xlabel("step")
                axes.spines[["top", "right"]].set_visible(False)
            figure.axes[0].legend(frameon=False)
            path = folder / f"{factor}.svg"
            figure.savefig(path, metadata={"Date": None})
            drawn.append(path)
    return drawn


def _line(axes: Any, curve: Mapping[str, list[float]] | None, label: str) -> None:
    if curve is None:
        return
    smooth = {name: smoothed(curve[name]) for name in ("mean", "low", "high")}
    (line,) = axes.plot(curve["step"], smooth["mean"], label=label)
    axes.fill_between(
        curve["step"], smooth["low"], smooth["high"], color=line.get_color(), alpha=0.15, lw=0
    )


def smoothed(values: Sequence[float]) -> list[float]:
    """Means of each value and up to four before it."""
    return [mean(values[max(0, at - SMOOTHED + 1) : at + 1]) for at in range(len(values))]
