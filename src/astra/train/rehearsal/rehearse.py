"""The rehearsal itself: SFT and RL of two steps each, killed after the first and resumed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import yaml

from astra.records.environment import Arena
from astra.records.trajectory import SFTSample
from astra.rollout.chat import ChatCodec, PolicyConfig, load_policy
from astra.rollout.template_traits import Thoughts
from astra.sandbox.limits import SandboxLimits
from astra.settings import PARAMS, RuntimeConfig, validate
from astra.store.tables import write_records
from astra.train.checkpoints import STATE_FILE, save_policy
from astra.train.exporting import FSDP_SHARDS
from astra.train.launch import Sharding
from astra.train.rehearsal import world
from astra.train.rehearsal.architecture import (
    Architecture,
    architecture_of,
    make_model,
    model_config,
    read_config,
)
from astra.train.rehearsal.checks import CHECKED_VERSIONS, check_sandbox, check_servers
from astra.train.rehearsal.errors import mismatch
from astra.train.rehearsal.launches import (
    POLICY,
    STEPS,
    StageLaunch,
    check_batches,
    read_launch,
    scaled,
)
from astra.train.rehearsal.processes import (
    StageRun,
    Tell,
    free_port,
    rollout_servers,
    weights_taken,
)
from astra.train.rehearsal.standin import tokenizer_of

SERVERS = 2
HARDWARE = (
    "that the model fits the GPUs' memory and how fast it trains (astra train plan estimates it)",
    "NCCL between GPUs and nodes, and the GPUs' kernels in bfloat16",
    "a real vLLM: its kernels' agreement with the trainer, its memory, its speed",
    "several machines: their names, ports, shared file system, clocks",
    "long sequences: the preset's own limits, context parallelism, activation memory",
    "the policy's own weights, the real data and the teachers' conversations",
)


@dataclass
class Rehearsal:
    """One rehearsal: what is to be rehearsed, where, and what was proven so far."""

    root: Path
    """The repository: conf/, stages/ and dvc.yaml."""
    params: Mapping[str, Any]
    """All parameters, as they were composed."""
    sharding: Sharding | None
    """None: as the preset's own launch commands say."""
    workspace: Path
    tell: Tell
    proved: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    def run(self) -> None:
        """Rehearse SFT, then RL. Raises RehearsalError at the first thing that would go wrong."""
        launches = {
            stage: read_launch(
                stage, self.params["runtime"][f"{stage}_launch"], self.sharding, self.root
            )
            for stage in ("sft", "rl")
        }
        with self._step("batches divide over the preset's own processes"):
            self._check(launches)
        with self._step("the policy, shrunken"):
            self._make_policy()
        servers = self._servers()
        self._fill(scaled(self.params, launches, tuple(map(_url, servers))))
        with self._step("the sandbox"):
            tier = self._check_sandbox()
            self.proved.append(f"sandbox: tier {tier} opens, and holds what attacks it")
        with rollout_servers(self.workspace, servers, POLICY) if servers else nullcontext():
            if servers:
                with self._step(f"{len(servers)} rollout servers take weights"):
                    folder = self.workspace / "runs" / "rehearsal" / "weights"
                    check_servers(tuple(map(_url, servers)), folder, self._saved(POLICY))
            runs = StageRun(self.workspace, self.tell)
            for stage in ("sft", "rl"):
                self._train(runs, stage, launches[stage])
        if servers:
            self._check_servers(servers)

    def _saved(self, folder: str) -> PolicyConfig:
        """A policy folder of the workspace, in the type that the preset computes in."""
        dtype = self.params["sft"]["policy"]["dtype"]
        return PolicyConfig.saved(str(self.workspace / folder), dtype)

    def _check_sandbox(self) -> str:
        limits = validate("rl.sandbox", self.params["rl"]["sandbox"], SandboxLimits)
        return check_sandbox(limits, validate("runtime", self.params["runtime"], RuntimeConfig))

    def _check(self, launches: Mapping[str, StageLaunch]) -> None:
        check_batches(self.params, launches)
        for stage, launch in launches.items():
            if "zero" in launch.sharding and importlib.util.find_spec("deepspeed") is None:
                raise mismatch(
                    f"runtime.{stage}_launch ({launch.config or launch.sharding})",
                    "no deepspeed", "deepspeed installed", "pip install -e '.[gpu]'",
                )  # fmt: skip
        parallel, kind = self.params["sft"]["context_parallel"], launches["sft"].sharding
        if parallel > 1 and kind != Sharding.FSDP2 and self.sharding is None:
            raise mismatch(
                "sft.context_parallel", f"{parallel} under {kind}", "1, or FSDP2",
                "set runtime.sft_launch to accelerate with conf/accelerate/fsdp2_cp.yaml",
            )  # fmt: skip
        if parallel > 1:
            self.notes.append(f"sft.context_parallel {parallel} was rehearsed as 1")
        if self.params["rl"]["engine"].get("transfer") == "nccl":
            self.notes.append("rl.engine.transfer nccl was rehearsed as folder")

    def _make_policy(self) -> None:
        """Write the shrunken policy, with its own tokenizer or the stand-in for it."""
        config = validate("sft.policy", self.params["sft"]["policy"], PolicyConfig)
        block = self.params.get("architecture")
        stated = validate("architecture", block, Architecture) if block else None
        architecture = architecture_of(config, stated)
        readable = read_config(config) is not None
        tokenizer, called = tokenizer_of(config, architecture, world.texts(), readable)
        entries = len(tokenizer)
        if entries > architecture.vocab_size:
            raise mismatch(
                "architecture.vocab_size", architecture.vocab_size, f"{entries} or more",
                "the tokenizer has more entries than the model has embeddings",
            )  # fmt: skip
        shape = architecture.shrunken()
        ends = tokenizer.eos_token_id, tokenizer.pad_token_id
        made = model_config(shape, *ends, config.dtype)
        if config.rope_scaling is not None:
            config.rope_scaling.stretch(made)
        model = make_model(made)
        save_policy(model, tokenizer, self.workspace / POLICY)
        codec = ChatCodec(tokenizer)
        self.proved.append(
            f"tokenizer and template: {called}; template {codec.template} "
            f"{codec.template_hash}, thoughts: {_THOUGHTS[codec.thoughts]}"
        )
        self.tell(
            f"    {config.path}: {architecture.parameters / 1e9:.2f}e9 parameters, rehearsed with "
            f"{shape.parameters / 1e6:.1f}e6 ({shape.num_hidden_layers} layers, width "
            f"{shape.hidden_size}, {shape.num_attention_heads}:{shape.num_key_value_heads} heads)"
        )
        self._check_positions(made.max_position_embeddings)
        self.notes.append(
            f"a checkpoint of the whole policy takes {12 * architecture.parameters / 1e9:,.0f} GB; "
            f"{shutil.disk_usage(self.root).free / 1e9:,.0f} GB are free under {self.root}"
        )

    def _check_positions(self, positions: int) -> None:
        """vLLM refuses sequences that are longer than the model's positions."""
        limits = self.params["rl"]["limits"]
        longest = limits["max_prompt_tokens"] + limits["max_response_tokens"]
        if longest > positions and self.params["rl"]["engine"]["type"] == "vllm":
            raise mismatch(
                "rl.limits.max_prompt_tokens + max_response_tokens", f"{longest:,}",
                f"at most the model's {positions:,} positions",
                "lower them, or set policy.rope_scaling",
            )  # fmt: skip

    def _servers(self) -> list[int]:
        """Ports of the rollout servers, where the preset's engine needs any."""
        return [
            free_port() for _ in range(SERVERS * (self.params["rl"]["engine"]["type"] == "vllm"))
        ]

    def _fill(self, blocks: Mapping[str, Any]) -> None:
        """Everything else that the stages read."""
        for name in ("conf", "stages"):
            shutil.copytree(self.root / name, self.workspace / name)
        shutil.copy(self.root / "dvc.yaml", self.workspace)  # marks it as a repository's root
        (self.workspace / PARAMS).write_text(yaml.safe_dump(dict(blocks), sort_keys=False))
        data = self.workspace / "data"
        data.mkdir()
        write_records(data / "sft_set.parquet", world.samples(), SFTSample)
        write_records(data / "envs_merged.parquet", world.arenas(), Arena)

    def _train(self, runs: StageRun, stage: str, launch: StageLaunch) -> None:
        how = f"{launch.sharding}, {launch.ranks} process{'es' * (launch.ranks > 1)}"
        with self._step(f"stage {stage} ({how}), killed after its first step"):
            checkpoint = runs.until_checkpoint(stage)
            _check_sharded(stage, launch, checkpoint)
            written = (checkpoint / STATE_FILE).stat().st_mtime_ns
        with self._step(f"stage {stage}, resumed to its end"):
            runs.to_its_end(stage)
            self._check_outcome(stage, checkpoint, written)
        self.proved.append(
            f"{stage} under {how}: launcher, sharding, {STEPS} steps, evaluation, checkpoint, "
            "kill and resume, policy written"
        )

    def _check_outcome(self, stage: str, checkpoint: Path, written: int) -> None:
        metrics = json.loads((self.workspace / "metrics" / f"{stage}.json").read_text())
        wanted = max(STEPS, len(self.params["rl"]["schedule"]) if stage == "rl" else 0)
        if metrics.get("steps") != wanted:
            raise mismatch(f"{stage}: steps", metrics.get("steps"), wanted, "see its log")
        state = checkpoint / STATE_FILE
        if not state.exists() or state.stat().st_mtime_ns != written:
            raise mismatch(
                f"{stage}: resume", "a run from the start", f"one from {checkpoint.name}",
                "the run's folder must outlive a kill",
            )  # fmt: skip
        looked = metrics.get("eval_loss") if stage == "sft" else metrics["dev"].get("after")
        if looked is None:
            raise mismatch(f"{stage}: evaluation", None, "figures after training", "see its log")
        load_policy(self._saved(f"models/{stage}"))

    def _check_servers(self, ports: list[int]) -> None:
        for port in ports:
            taken = set(weights_taken(self.workspace, port)[CHECKED_VERSIONS:])
            if not {f"version-{step}" for step in range(STEPS + 1)} <= taken:
                raise mismatch(
                    f"{_url(port)}: weights taken", sorted(taken),
                    f"version-0 to version-{STEPS}", "see its log",
                )  # fmt: skip
        self.proved.append(
            f"{len(ports)} servers by conf/launch/vllm.sh: each took the weights of every step, "
            "forgot its cache and computed what the trainer computes"
        )

    @contextmanager
    def _step(self, what: str) -> Generator[None]:
        self.tell(f"{what} ...")
        begun = time.monotonic()
        yield
        self.tell(f"    ok, {time.monotonic() - begun:.0f} s")


_THOUGHTS = {
    Thoughts.NEVER: "none",
    Thoughts.CURRENT: "those since the last user message",
    Thoughts.ALL: "all",
}


_SHARDS = {
    Sharding.ZERO2: "global_step*",
    Sharding.ZERO3: "global_step*",
    Sharding.FSDP2: FSDP_SHARDS,
}
"""What only a trainer that shards so writes into its checkpoints."""


def _check_sharded(stage: str, launch: StageLaunch, checkpoint: Path) -> None:
    """Whether the trainer sharded as it was told: accelerate leaves out, without a word, what it
    finds no devices for."""
    wanted = _SHARDS.get(launch.sharding)
    if wanted is not None and not list(checkpoint.glob(wanted)):
        found = ", ".join(sorted(path.name for path in checkpoint.iterdir()))
        raise mismatch(
            f"runtime.{stage}_launch ({launch.config})", f"a checkpoint of {found}",
            f"one with {wanted}, as {launch.sharding} writes it",
            "the launch command does not shard",
        )  # fmt: skip


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def rehearse(
    root: Path, params: Mapping[str, Any], sharding: Sharding | None, place: Path | None, tell: Tell
) -> None:
    """Rehearse ``params`` in a folder of its own, in ``place`` or where temporary files go.

    The folder is removed at the end, and kept where the rehearsal is red. Raises RehearsalError.
    """
    workspace = Path(mkdtemp(prefix="astra-rehearsal-", dir=place)).resolve()
    one = Rehearsal(root.resolve(), params, sharding, workspace, tell)
    with ExitStack() as kept:
        kept.callback(tell, f"kept: {workspace}")
        one.run()
        kept.pop_all()  # green: there is nothing to be looked at
    shutil.rmtree(workspace)
    for line in one.proved:
        tell(f"proved: {line}")
    for line in one.notes:
        tell(f"note: {line}")
    for line in HARDWARE:
        tell(f"only hardware can show: {line}")
