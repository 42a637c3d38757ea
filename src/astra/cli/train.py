"""``astra train``: what fits, the paper's ablations, and whether changed code trains the same."""

from __future__ import annotations

from typing import Annotated

import typer

from astra.cli.ablations import ablations_app
from astra.devtools import train_same
from astra.errors import AstraError
from astra.train.planner import GIB, SHAPES, MemoryPlan, Setup, Sharding, conversations, plan

train_app = typer.Typer(
    help="Plan training runs, queue ablations, account for code.", no_args_is_help=True
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
) -> None:
    """Estimate memory per GPU and time per step; exit 1 if it does not fit. Nothing is run."""
    shape = SHAPES.get(model)
    if shape is None:
        raise AstraError(f"no model {model!r}; known: {', '.join(SHAPES)}")
    mean = mean_tokens or tokens // 4
    setup = Setup(
        shape, tokens, mean, batch, gpus, gpu_gib, gpu_tflops, utilisation, sharding,
        context_parallel, micro_batch, checkpointing, lora_rank,
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
