"""``astra train``: what fits, the paper's ablations, and whether changed code trains the same."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer
import yaml

from astra.cli.ablations import ablations_app
from astra.devtools import train_same
from astra.errors import AstraError
from astra.settings import PARAMS
from astra.train.launch import Sharding
from astra.train.planner import GIB, SHAPES, MemoryPlan, Setup, conversations, plan

train_app = typer.Typer(
    help="Plan and rehearse training runs, queue ablations, account for code.", no_args_is_help=True
)
train_app.add_typer(ablations_app, name="ablations")
train_app.command("same")(train_same.same)
train_app.command("trained")(train_same.trained)


@train_app.command("plan")
def plan_command(
    model: Annotated[str, typer.Argument(help=f"One of: {', '.join(SHAPES)}.")],
    tokens: Annotated[int, typer.Option(help="Longest sequence, prompt included.")] = 20480,
    mean_tokens: Annotated[int, typer.Option(help="Of a sequence; 0: a quarter of tokens.")] = 0,
    batch: Annotated[int, typer.Option(help="Sequences per step, over all GPUs.")] = 32,
    gpus: Annotated[int, typer.Option(min=1)] = 8,
    gpu_gib: Annotated[float, typer.Option(help="Memory of one GPU.")] = 80.0,
    gpu_tflops: Annotated[float, typer.Option(help="Its peak in bfloat16.")] = 989.0,
    utilisation: Annotated[float, typer.Option(help="Share of the peak reached.")] = 0.35,
    sharding: Sharding = Sharding.ZERO3,
    context_parallel: Annotated[int, typer.Option(min=1)] = 1,
    micro_batch: Annotated[int, typer.Option(min=1)] = 1,
    checkpointing: Annotated[bool, typer.Option(help="Recompute activations.")] = True,
    lora_rank: Annotated[int, typer.Option(min=0, help="0: all weights.")] = 0,
    stage: Annotated[Literal["sft", "rl"], typer.Option(help="Whose step.")] = "sft",
) -> None:
    """Estimate memory per GPU and time per step; exit 1 if it does not fit. Nothing is run."""
    shape = SHAPES.get(model)
    if shape is None:
        raise AstraError(f"no model {model!r}; known: {', '.join(SHAPES)}")
    mean = mean_tokens or tokens // 4
    setup = Setup(
        shape, tokens, mean, batch, gpus, gpu_gib, gpu_tflops, utilisation, sharding,
        context_parallel, micro_batch, checkpointing, lora_rank, stage,
    )  # fmt: skip
    try:
        memory_plan = plan(setup)
    except ValueError as error:
        raise AstraError(str(error)) from None
    for line in _lines(memory_plan):
        typer.echo(line)
    held = conversations(shape, tokens, 1, gpu_gib)
    typer.echo(f"one GPU as rollout server: {held} conversations of {tokens} tokens at once")
    typer.echo("estimates: the formulas are in src/astra/train/planner.py")
    if not memory_plan.fits:
        raise typer.Exit(1)


@train_app.command("export")
def export_command(
    checkpoint: Annotated[Path, typer.Argument(help="runs/STAGE/KEY/checkpoint-STEP.")],
    folder: Annotated[Path, typer.Argument(help="Where to write the policy; replaced.")],
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Of its weights.")
    ] = "bfloat16",
) -> None:
    """Write a checkpoint, sharded or not, as a policy that transformers and vLLM load."""
    from astra.train.exporting import export_checkpoint

    export_checkpoint(checkpoint, folder, dtype)
    typer.echo(f"{folder}: the policy of {checkpoint} in {dtype}")


@train_app.command("rehearse")
def rehearse_command(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="As `dvc exp run -S` takes them: scale=paper policy=qwen3_14b ..."),
    ] = None,
    sharding: Annotated[
        Sharding | None,
        typer.Option(help="By its file of conf/accelerate, in place of the launch commands."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the rehearsal's own folder is made.", exists=True)
    ] = None,
) -> None:
    """Run a preset's SFT and RL in small on this machine's CPUs, before GPUs are paid for.

    The launch commands, sharding, template, engine and servers' start script are the preset's; the
    model is shrunken and the servers are scripted. Exit 1 at the first thing that would go wrong.
    """
    from astra.devtools.params import compose  # late: DVC and Hydra are slow to import
    from astra.train.rehearsal.rehearse import rehearse

    with TemporaryDirectory() as composed:
        params = Path(composed, PARAMS.name)
        compose(params, overrides or [])
        values = yaml.load(params.read_text(encoding="utf-8"), yaml.CSafeLoader)
    rehearse(Path.cwd(), values, sharding, folder, typer.echo)
    typer.echo("green")


def _lines(estimate: MemoryPlan) -> list[str]:
    lines = [f"{name:12}{size / GIB:9.2f} GiB" for name, size in estimate.memory.items()]
    verdict = (
        "fits" if estimate.fits else "does not fit: more GPUs, more sharding or shorter sequences"
    )
    lines.append(
        f"{'total':12}{estimate.total / GIB:9.2f} GiB of {estimate.room / GIB:.2f}: {verdict}"
    )
    lines.append(
        f"step        {estimate.step_s:9.1f} s, {estimate.tokens_per_s:,.0f} tokens/s, "
        f"{estimate.accumulation} forward passes per device "
        "(training alone, rollouts not included)"
    )
    return lines
