"""The chat model's policies in BFCL, single-turn and multi-turn, judged by its official checkers.

    make bench-env
    python benchmarks/chat_model.py bfcl base sft rl control [--entries 150] [--multi-turn 40]

Each policy is served behind the project's endpoint and plays both suites greedily. Policies are
offered tools in template ``signatures``. The base plays a second time as ``base_native``, as its
publisher prompts it: their chat template knows no tools, so BFCL's own system prompt tells of them
and calls are text. ``base_hermes``, where it is named, is the base with tools as JSON documents.
``floor`` says "Done.", ``calls`` calls the first function with nothing. Attempts are journalled, so
the same command goes on after a kill, and what was played before stands in the table too.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from chat_calls import CALLS_FILE, NEAR_FILE, read_examples
from chat_model import (
    CONTROLS,
    KEPT,
    PARENTS,
    WORK,
    Settings,
    policy_folder,
    read_json,
    the_policy,
    write_json,
)
from scores import joined, paired, told
from staged import children_cpu_s, keyed
from suites import play

from astra.bench.harness import oracle_bfcl_single as scripted
from astra.bench.harness.protocol import Decoding, Sample, Subject, SuiteConfig
from astra.bench.harness.scripted import ScriptedServer
from astra.bench.harness.served import ServedCheckpoints, WithFloor
from astra.bench.names import BASE, BASE_NATIVE, FLOOR
from astra.bench.overlap import overlap, prompts_of
from astra.bench.statistics import mean_by_entry
from astra.bench.suite_tables import read_runs
from astra.bench.summary import BALANCED, values_of
from astra.records.bench import SuiteEpisode, SuiteOutcome
from astra.serving.main import ServeConfig

SCORES_FILE = KEPT / "bfcl.json"
CALLS = "calls"
OF_BASE = {BASE_NATIVE: "hermes", "base_hermes": "hermes"}
"""The templates of the base's other rows. Without tools ``hermes`` is its publisher's."""
CATEGORIES = ("simple_python", "multiple", "parallel", "irrelevance")
SIDE_BY_SIDE = {"bfcl_single": 32, "bfcl": 8}
NEW_TOKENS, KEEP_MB = 128, 1024
UNTRAINED = (FLOOR, BASE, BASE_NATIVE)
AGAINST = {
    BASE: (FLOOR,), BASE_NATIVE: (FLOOR,), "sft": UNTRAINED, "sft_few": UNTRAINED,
    **{rl: (*UNTRAINED, PARENTS[rl], control) for rl, control in CONTROLS.items()},
    **{control: (*UNTRAINED, PARENTS[control]) for control in CONTROLS.values()},
}  # fmt: skip
"""Which rows a row's entries are compared with."""
Values = dict[str, dict[str, float]]
"""What entries scored, by category."""


def play_bfcl(names: Sequence[str], settings: Settings, entries: int, multi_turn: int) -> None:
    """Play what was not played yet, print and write the scores of all that was. SystemExit where
    one is missing."""
    rows = [FLOOR, CALLS]
    for name in names:
        rows += [BASE, BASE_NATIVE] if name == BASE else [name]
    out = keyed(WORK, "bfcl", entries, multi_turn, NEW_TOKENS, settings.dtype)
    serving, whole = WithFloor(Policies(rows, settings)), True
    for name in rows:
        before = children_cpu_s()
        with serving(name) as served:
            for config in suites(name, entries, multi_turn):
                whole &= play(config, served, out)
        add_cpu(out / "cpu.json", name, children_cpu_s() - before)
    found = document(out)
    write_json(SCORES_FILE, with_kept(read_json(SCORES_FILE), found))
    show(found)
    if not whole:
        raise SystemExit("a score is missing; the same command goes on")


class Policies:
    """A ``Serving`` of the chat model's policies by name, and of ``CALLS``."""

    def __init__(self, names: Sequence[str], settings: Settings) -> None:
        self._served = ServedCheckpoints(
            {
                name: ServeConfig(
                    policy=the_policy(
                        policy_folder(BASE if name in OF_BASE else name), settings.dtype
                    ).model_copy(update={"template": OF_BASE.get(name, "signatures")}),
                    name=name, engine="local", rows=max(SIDE_BY_SIDE.values()), keep_mb=KEEP_MB,
                    new_tokens=NEW_TOKENS, threads=settings.runtime.threads,
                )
                for name in names
                if name not in (FLOOR, CALLS)
            }
        )  # fmt: skip

    @contextmanager
    def __call__(self, checkpoint: str) -> Generator[Subject]:
        if checkpoint != CALLS:
            with self._served(checkpoint) as subject:
                yield subject
            return
        with ScriptedServer(scripted.caller("fc", CATEGORIES), model=CALLS) as server:
            yield Subject(CALLS, server.endpoint, identity=CALLS)


def suites(name: str, entries: int, multi_turn: int) -> Iterator[SuiteConfig]:
    """What a row plays; ``CALLS`` knows single turns alone."""
    mode = "prompt" if name == BASE_NATIVE else "fc"
    samples = {"bfcl_single": Sample(per_category=entries)}
    options: dict[str, dict[str, Any]] = {"bfcl_single": {"categories": CATEGORIES}}
    if name != CALLS and multi_turn:
        samples["bfcl"] = Sample(count=multi_turn)
    for suite, sample in samples.items():
        yield SuiteConfig(
            name=suite,
            sample=sample,
            decoding=Decoding(temperature=0.0, max_tokens=NEW_TOKENS),
            concurrency=SIDE_BY_SIDE[suite],
            entry_timeout_s=3600.0,
            options={"mode": mode, **options.get(suite, {})},
        )


def add_cpu(path: Path, name: str, seconds: float) -> None:
    """Count the CPU seconds of a row's server, over all runs of the command."""
    spent = read_json(path)
    spent[name] = round(spent.get(name, 0) + seconds)
    write_json(path, spent)


def document(out: Path) -> dict[str, Any]:
    """Scores with intervals, differences over the entries that two rows both played, and how many
    n-grams of the suites' prompts stand in the function calls that SFT is shown."""
    runs = read_runs(out)
    played: dict[str, dict[str, Values]] = {}
    found: dict[str, dict[str, Any]] = {}
    for run, episodes in runs:
        played.setdefault(run.suite, {})[run.checkpoint] = by_category(run.harness, episodes)
        found.setdefault(run.suite, {})[run.checkpoint] = {
            "entries": run.sample_count,
            "mode": run.options["mode"],
            "template": run.template,
            "overflows": sum(one.outcome == SuiteOutcome.OVERFLOW for one in episodes),
            "steps": sum(one.steps for one in episodes),
            "prompt_tokens": sum(one.prompt_tokens for one in episodes),
            "written_tokens": sum(one.completion_tokens for one in episodes),
        }
    for suite, rows in played.items():
        for name, values in rows.items():
            told_of = found[suite][name]
            told_of |= {part: told(list(one.values())) for part, one in values.items()}
            for other in AGAINST.get(name, ()):
                if other in rows:
                    told_of[f"over {other}"] = {
                        part: told(list(paired(one, rows[other][part]).values()))
                        for part, one in values.items()
                    }
    shown = [one for file in (CALLS_FILE, NEAR_FILE) for one in read_examples(file)]
    calls = [(one.id, [one.user]) for one in shown]
    return {
        "cpu_s": json.loads((out / "cpu.json").read_text()),
        "overlap": overlap(prompts_of(runs), {"calls": calls}),
        **found,
    }


def with_kept(kept: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """``found`` with what it lacks of ``kept``, of suites with as many entries."""
    suites = {
        suite: joined(kept.get(suite, {}), found[suite], entries_of)
        for suite in SIDE_BY_SIDE.keys() & found.keys()
    }
    return kept | found | {"cpu_s": kept.get("cpu_s", {}) | found["cpu_s"]} | suites


def entries_of(rows: dict[str, Any]) -> int | None:
    return rows.get(FLOOR, {}).get("entries")


def by_category(harness: str, episodes: Sequence[SuiteEpisode]) -> Values:
    """Entries' values by category, of ``all`` and of ``balance``, the suite's two balanced ones."""
    values = mean_by_entry(values_of(episodes, "accuracy"))
    parts: Values = {}
    for episode in sorted(episodes, key=lambda one: one.entry_id):
        parts.setdefault(episode.category, {})[episode.entry_id] = values[episode.entry_id]
    found = {**parts, "all": bundled(list(parts.values()))}
    if pair := BALANCED.get(harness):
        found["balance"] = bundled([parts[category] for category in pair])
    return found


def bundled(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means over one entry of each category. Entries were drawn category by category, so bundles
    are what is resampled; where a category has fewer, so many of each are taken."""
    bundles = zip(*parts, strict=False)
    return {
        " ".join(names): fmean(one[name] for one, name in zip(parts, names, strict=True))
        for names in bundles
    }


def show(found: dict[str, Any]) -> None:
    for suite in SIDE_BY_SIDE.keys() & found.keys():
        rows = found[suite]
        parts = [part for part, one in rows[FLOOR].items() if isinstance(one, list)]
        print(f"\n| {suite} | {' | '.join(rows)} |\n|{'---|' * (len(rows) + 1)}")
        for part in parts:
            cells = [cell(one[part]) for one in rows.values()]
            print(f"| {part} | {' | '.join(cells)} |")
        for name, one in rows.items():
            for other in (key for key in one if key.startswith("over ")):
                differences = ", ".join(f"{part} {cell(one[other][part])}" for part in parts)
                print(f"{name} {other}: {differences}")
    print(f"\nCPU seconds: {found['cpu_s']}")


def cell(value: Sequence[float]) -> str:
    mean, low, high, _ = value
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
