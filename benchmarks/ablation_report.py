"""What a set of ablation runs says: pure functions from scores and curves to a document.

Every claim is one difference of two arms with an expected direction; its verdict follows from
the interval and from the seeds, nobody writes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from scores import SCORES, Values, paired, pooled
from staged import ROOT

from astra.cli.ablations import GRID, experiments, heading, read_grid, row
from astra.report.charts import trailing_mean

PANELS = {
    "train_calls": "calls per episode",
    "train_f1": "F1 while training",
    "train_answer_correct": "final answers right",
    "filling_informative": "groups with signal",
    "train_tool_errors_in_positives": "failed calls in rewarded",
}
CURVES = (*PANELS, "filling_rolled")
SMOOTHED = 5
"""Steps that a point of a drawn curve averages over."""
DEFAULT, START = "default", "start"
MARGIN = 0.02
"""A score that is less by no more than this counts as kept."""
Played = dict[str, Values]
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
    steps. ``expected``: what the difference would be if the claim holds; ``not less`` is for
    scores in [0, 1] and allows for MARGIN.
    """

    says: str
    arm: str
    other: str
    name: str
    expected: Literal["more", "less", "not less"]
    source: str = "ASTRA"


CLAIMS = (
    Claim("training on F1 keeps the paper's F1", DEFAULT, START, "f1_plain", "not less"),
    Claim("training on F1 with the answer keeps that score", DEFAULT, START, "f1", "not less",
          "ours"),
    Claim("training on F1 with the answer keeps success", DEFAULT, START, "success", "not less",
          "ours"),
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
    Claim("counting the final answer makes more of them right than before RL", DEFAULT, START,
          "answer", "more", "ours"),
    Claim("RoC leaves fewer failed calls in rewarded rollouts", "roc-sample", DEFAULT,
          "train_tool_errors_in_positives", "less", "rStar2"),
)  # fmt: skip
TITLES = {
    "f1_plain": "F1 (paper)",
    "f1": "F1 with answer",
    "precision": "precision",
    "recall": "recall",
    "success": "success",
    "answer": "answer",
    "calls": "calls",
    "malformed": "malformed calls",
    "filling_informative": "groups with signal per step",
    "train_tool_errors_in_positives": "failed calls in rewarded rollouts",
}
COLUMNS = {name: title for name, title in TITLES.items() if name in SCORES}


def document(
    found: Mapping[str, Mapping[int, Outcome]],
    start: Played,
    settings: Mapping[str, Any],
    overrides: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """The whole of docs/ablations.json; ``found`` is by arm and seed."""
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
    differences = [
        paired(_items(arms[seed], claim.name), _items(others[seed], claim.name))
        for seed in sorted(arms.keys() & others.keys())
    ]
    differences = [one for one in differences if one]
    if not differences:
        return None
    interval = pooled(differences)
    per_seed = [round(mean(one.values()), 4) for one in differences]
    return {
        "says": claim.says,
        "source": claim.source,
        "arm": claim.arm,
        "other": claim.other,
        "name": claim.name,
        "measured": f"{TITLES[claim.name]}, {claim.arm} − {claim.other}",
        "expected": claim.expected,
        "mean": round(interval.mean, 4),
        "low": round(interval.low, 4),
        "high": round(interval.high, 4),
        "items": interval.n,
        "per_seed": per_seed,
        "verdict": verdict(claim.expected, interval.low, interval.high, per_seed),
    }


def _items(one: Outcome, name: str) -> Mapping[Any, float]:
    """A score by arena, or the later half of a curve by step."""
    return one.played["present"][name] if name in SCORES else _late(one.curves.get(name, {}))


def _late(curve: Curve) -> dict[int, float]:
    """The second half of the steps, when the arms have had time to part."""
    middle = (min(curve) + max(curve)) / 2 if curve else 0
    return {step: value for step, value in curve.items() if step >= middle}


def verdict(expected: str, low: float, high: float, per_seed: Sequence[float]) -> str:
    """``agrees``, ``disagrees`` or ``not clear`` by the interval, and what the seeds say of it.

    ``more`` and ``less`` agree where the whole interval is on their side of zero, ``not less``
    where it is above -MARGIN; else they disagree where it is on the other side of zero.
    """
    sign = -1 if expected == "less" else 1
    nearer, farther = sorted((sign * low, sign * high))
    least = -MARGIN if expected == "not less" else 0.0
    if nearer > least:
        word, same = "agrees", all(sign * one > least for one in per_seed)
    elif farther < 0:
        word, same = "disagrees", all(sign * one < 0 for one in per_seed)
    else:
        return "not clear"
    if len(per_seed) == 1:
        return f"{word}, one seed"
    return word if same else f"{word}, not with every seed"


def render(made: Mapping[str, Any], figures: Sequence[str]) -> str:
    """docs/ablations.md. All of it follows from docs/ablations.json."""
    told, lines = made["settings"], ["# Ablations", ""]
    lines += _introduction(told, made["arms"], made["start"]["present"])
    lines += ["## What agrees with the paper, and what does not", ""]
    for claims, title in (
        ([one for one in made["claims"] if one["source"] == "ASTRA"], "The paper's claims"),
        ([one for one in made["claims"] if one["source"] != "ASTRA"], "Others'"),
    ):
        if claims:
            lines += [f"{title}:", "", *_claims(claims, made), ""]
    lines += [*_summary(made), ""]
    for presence, words in (("present", "with"), ("absent", "without")):
        lines += [f"## Scores on arenas {words} irrelevant tools", ""]
        lines += [*_scores(made, presence), ""]
    smoothed = f"Means over seeds and {SMOOTHED} steps; the band is the seeds' range."
    lines += ["## Curves", "", smoothed, ""]
    for name in figures:
        lines += [f"![{Path(name).stem}](ablations/{name})", ""]
    lines += ["## What it took", "", *_costs(made), ""]
    return "\n".join(lines)


def _introduction(
    told: Mapping[str, Any], arms: Mapping[str, Any], start: Mapping[str, float]
) -> list[str]:
    split = {"heldout": "held-out", "dev": "development"}[told["split"]]
    changed = ""
    if told["overrides"]:
        changed = f" Changed for all arms: `{' '.join(told['overrides'])}`."
    return [
        "Nothing on this page is written by hand. This writes it, and runs what is missing:",
        "",
        "```sh",
        command(told, arms),
        "```",
        "",
        f"One factor at a time around the default, scale `{told['scale']}`: {told['steps']} steps "
        f"of {told['groups']} groups of {told['group_size']} rollouts, every arm from the same "
        f"fine-tuned policy, then {told['played']} {split} arenas, greedily.{changed}",
        "",
        f"That policy had an F1 with the answer of {start['f1']:.3f} and a success of "
        f"{start['success']:.3f} before RL: a build whose SFT scores otherwise, as the README's "
        "may, is another one, and was not ablated.",
        "",
        "An interval resamples arenas (for curves, the later half of the steps) after averaging "
        "over seeds. It says nothing about seeds that were not run, so a verdict also says where "
        "not every seed went the same way, or where there is only one. That a score is kept "
        f"agrees where the whole interval lies above −{MARGIN}. This is a policy of a million "
        "parameters after few steps; the paper trains 14 billion for more.",
        "",
    ]


def command(told: Mapping[str, Any], arms: Mapping[str, Any]) -> str:
    """What runs and reports these arms, where all were run with all seeds."""
    seeds = sorted({seed for arm in arms.values() for seed in arm["seeds"]}, key=int)
    words = ["python", "benchmarks/ablations.py", "--steps", str(told["steps"]), "--seeds", *seeds]
    words += ["--arenas", str(told["arenas"]), "--split", told["split"]]
    if arms.keys() != {one.variant for one in experiments(read_grid(ROOT / GRID))}:
        words += ["--arms", *arms]
    if told["overrides"]:
        words += ["--set", *told["overrides"]]
    return shlex.join(words)


def _claims(claims: Sequence[Mapping[str, Any]], made: Mapping[str, Any]) -> list[str]:
    lines = ["| claim | measured | difference | 95 % interval | each seed | verdict |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for one in claims:
        seeds = ", ".join(f"{value:+.3f}" for value in one["per_seed"])
        lines.append(
            f"| {_said(one, made)} | {one['measured']} | {one['mean']:+.3f} "
            f"| {one['low']:+.3f} to {one['high']:+.3f} | {seeds} | **{one['verdict']}** |"
        )
    return lines


def _said(claim: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """The claim in words, whose it is, and whether what is more is still less than before RL."""
    whose = "" if claim["source"] in ("ASTRA", "ours") else f" ({claim['source']})"
    before = made["start"]["present"].get(claim["name"])
    if claim["expected"] != "more" or claim["other"] == START or before is None:
        return f"{claim['says']}{whose}"
    after = [_level(made["arms"][claim[side]], claim["name"]) for side in ("arm", "other")]
    if max(after) >= before:
        return f"{claim['says']}{whose}"
    levels = " and ".join(f"{level:.3f}" for level in after)
    return f"{claim['says']}{whose} (both are below before RL: {levels}, before {before:.3f})"


def _level(arm: Mapping[str, Any], name: str) -> float:
    scores = [one["scores"]["present"] for one in arm["seeds"].values()]
    return mean(one[name] for one in scores if name in one)


def _summary(made: Mapping[str, Any]) -> list[str]:
    """One sentence per verdict, the paper's claims first, and what RL changed at all."""
    lines: list[str] = []
    for ours, whose in ((False, "the paper's claims"), (True, "the other claims")):
        claims = [one for one in made["claims"] if (one["source"] != "ASTRA") == ours]
        for found in dict.fromkeys(one["verdict"] for one in claims):
            same = [_said(one, made) for one in claims if one["verdict"] == found]
            count = f"{len(same)} of {len(claims)} of {whose}"
            lines.append(f"- **{found}** ({count}): {'; '.join(same)}.")
    return lines + _since_start(made)


def _since_start(made: Mapping[str, Any]) -> list[str]:
    """What the default arm gains and loses, whatever was claimed of it."""
    before, default = made["start"]["present"], made["arms"].get(DEFAULT)
    if default is None:
        return []
    changes = "; ".join(
        f"{COLUMNS[name]} {_level(default, name) - before[name]:+.3f}"
        for name in ("f1_plain", "f1", "success", "answer")
    )
    return [f"- The default arm against before RL, mean over seeds: {changes}."]


def _scores(made: Mapping[str, Any], presence: str) -> list[str]:
    lines = heading("arm", COLUMNS.values())
    lines.append(row("before RL", "", [made["start"][presence]], COLUMNS))
    for arm, found in made["arms"].items():
        scores = [one["scores"][presence] for one in found["seeds"].values()]
        lines.append(row(arm, str(len(scores)), scores, COLUMNS))
    return lines


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
    smooth = {name: _smoothed(curve["step"], curve[name]) for name in ("mean", "low", "high")}
    (line,) = axes.plot(curve["step"], smooth["mean"], label=label)
    axes.fill_between(
        curve["step"], smooth["low"], smooth["high"], color=line.get_color(), alpha=0.15, lw=0
    )


def _smoothed(steps: Sequence[float], values: Sequence[float]) -> list[float]:
    points = list(zip(steps, values, strict=True))
    return [value for _, value in trailing_mean(points, SMOOTHED)]
