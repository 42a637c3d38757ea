"""Real scores of small models on a seeded sample of every suite that runs offline.

    make bench-env
    python benchmarks/suites.py tiny=policies/tiny sft=models/sft rl=models/rl [--entries 10]
    python benchmarks/chat_model.py score base     # makes runs/chat_model/policy, SmolLM2-135M
    python benchmarks/suites.py small=runs/chat_model/policy:hermes --suites arenas,acebench

Each model is served behind our endpoint, one after the other, and each suite played in its own
process. Offline means: no hub (AIME and GPQA need problems) and no second model, so users are
simulated by rule and scores are not comparable with published ones. ``floor`` is a server that
answers "Done." to everything. Writes --out as stage bench writes data/suites (which `astra report`
reads), prints a table, and exits 1 if a run has no score: the same command resumes it. Attempts
are journalled under --out by all that they depend on, so that none is played twice and a change
of model or setting plays anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from astra.bench.harness.oracle_acebench import offline_user
from astra.bench.harness.play import run_suite
from astra.bench.harness.protocol import (
    Decoding,
    ModelEndpoint,
    Sample,
    Serving,
    Subject,
    SuiteConfig,
    SuiteError,
)
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn
from astra.bench.harness.served import ServedCheckpoints, WithFloor
from astra.bench.names import FLOOR
from astra.bench.suite_tables import read_runs, write_run
from astra.bench.summary import suites_document
from astra.serving.main import ServeConfig

OFFLINE = ("arenas", "arenas_plain", "bfcl", "bfcl_single", "acebench", "tau2")
ARENAS = {
    "limits": {
        "max_turns": 6, "max_calls": 12, "max_parallel_calls": 8, "max_result_chars": 400,
        "max_turn_tokens": 112, "max_prompt_tokens": 4096, "max_response_tokens": 2048,
    }
}  # fmt: skip


def tau2_user(entry: str, body: dict[str, Any]) -> ScriptedTurn:
    """The user of a tau2 task by rule: its whole scenario, then the end of the conversation."""
    messages = body["messages"]
    if sum(one["role"] == "assistant" for one in messages) >= 2:
        return ScriptedTurn(content="###STOP###")
    scenario = str(messages[0]["content"]).partition("<scenario>")[2].partition("</scenario>")[0]
    return ScriptedTurn(content=scenario.strip() or "Please help me.")


def configs(args: argparse.Namespace, users: dict[str, ModelEndpoint]) -> list[SuiteConfig]:
    decoding = Decoding(temperature=0.0, max_tokens=args.new_tokens)
    common: dict[str, Any] = {
        "sample": Sample(count=args.entries, seed=0), "decoding": decoding,
        "concurrency": args.rows, "entry_timeout_s": args.timeout,
    }  # fmt: skip
    table = {"table": str(args.arenas), **ARENAS}
    known = {
        "arenas": {"name": "arenas", "options": table},
        "arenas_plain": {
            "name": "arenas", "label": "arenas_plain",
            "options": {**table, "irrelevant_tools": "none"},
        },
        "bfcl": {"name": "bfcl"},
        "bfcl_single": {"name": "bfcl_single"},
        "acebench": {
            "name": "acebench", "options": {"mode": args.acebench_mode},
            "endpoints": {"user": users["acebench"]},
        },
        "tau2": {"name": "tau2", "endpoints": {"user": users["tau2"]}},
    }  # fmt: skip
    return [SuiteConfig.model_validate(common | known[name]) for name in args.suites.split(",")]


def model(name: str, given: str, args: argparse.Namespace) -> ServeConfig:
    place, _, template = given.partition(":")
    return ServeConfig.model_validate(
        {
            "policy": {
                "path": place, "revision": None, "template": template or "own", "dtype": "float32",
            },
            "name": name, "engine": "local", "rows": args.rows, "keep_mb": 1024,
            "context": args.context,
            "new_tokens": args.new_tokens, "threads": args.threads,
        }
    )  # fmt: skip


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    with (
        ScriptedServer(offline_user(), model="rule") as ace,
        ScriptedServer(tau2_user, model="rule") as tau2,
    ):
        users = {"acebench": ace.endpoint, "tau2": tau2.endpoint}
        given = dict(one.split("=", 1) for one in args.models)
        models = {name: model(name, place, args) for name, place in given.items()}
        serving = WithFloor(ServedCheckpoints(models))
        whole = play_all([*models, FLOOR], configs(args, users), serving, args.out)
    show(args.out)
    sys.exit(not whole)


def play_all(
    names: Iterable[str], wanted: Sequence[SuiteConfig], serving: Serving, out: Path
) -> bool:
    """Whether every suite has a score of every model."""
    whole = True
    for name in names:
        with serving(name) as served:
            for config in wanted:
                whole &= play(config, served, out)
    return whole


def play(config: SuiteConfig, served: Subject, out: Path) -> bool:
    """Whether it has a score now; what is finished is in the journal either way."""
    began = time.monotonic()
    try:
        run, episodes = run_suite(config, served, out / "journal")
    except SuiteError as error:
        print(f"{config.suite} {served.checkpoint}: NO SCORE: {error}", flush=True)
        # An earlier score may be of another model or setting; if not, the journal has it still.
        for suffix in (".json", ".parquet"):
            (out / config.suite / f"{served.checkpoint}{suffix}").unlink(missing_ok=True)
        return False
    write_run(out, run, episodes)
    print(f"{config.suite} {served.checkpoint}: {time.monotonic() - began:.0f} s", flush=True)
    return True


def show(out: Path) -> None:
    document = suites_document(read_runs(out), 2000, 0.95, 0)
    (out / "summary.json").write_text(json.dumps(document, indent=1) + "\n")
    print("| suite | model | score | 95 % | entries | overflows | lost | steps | tokens/step |")
    print("|---|---|---|---|---|---|---|---|---|")
    for suite, scores in document.items():
        for name, one in scores["checkpoints"].items():
            head = one["scores"].get(one["score"], {})
            span = f"[{head['low']:.3f}, {head['high']:.3f}]" if head else "-"
            mean = f"{head['mean']:.3f}" if head else "-"
            print(
                f"| {suite} | {name} | {mean} ({one['score']}) | {span} "
                f"| {one['sample']['entries']} of {one['sample']['of']} | {one['overflows']} "
                f"| {one['lost']} | {one.get('steps')} | {one.get('tokens_per_step')} |"
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", help="NAME=FOLDER[:TEMPLATE]")
    parser.add_argument("--suites", default=",".join(OFFLINE))
    parser.add_argument("--entries", type=int, default=10)
    parser.add_argument("--rows", type=int, default=4, help="entries side by side")
    parser.add_argument("--new-tokens", type=int, default=128, help="of one reply")
    parser.add_argument("--context", type=int, default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=1800.0)
    parser.add_argument("--acebench-mode", default="fc", choices=("fc", "prompt"))
    parser.add_argument("--arenas", type=Path, default=Path("data/envs_merged.parquet"))
    parser.add_argument("--out", type=Path, default=Path("runs/suites"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
