"""Examples of every command, shown at the end of its ``--help``, and what exit codes mean."""

from __future__ import annotations

from typing import Any

import typer

EXIT_CODES = (
    "Exit codes: 0 done; 1 the error or finding that was printed; 2 a command line that cannot be "
    "understood; 130 interrupted."
)
EXAMPLES: dict[str, tuple[str, ...]] = {
    "show": (
        "astra show data/tasks.parquet",
        "astra show tasks --where kind=chain --where 'question~price' --limit 3",
        "astra show tasks --server aquarium --where kind=chain --fields question",
        "astra show bench --where checkpoint=rl --where outcome!=success --fields id,messages",
        "astra show envs_merged --where 'hops>=3' --json --limit 0",
        "astra show worlds --where domain=library_loans --limit 1",
    ),
    "experiments": ("astra experiments", "astra experiments --sort-by rl.seed --md"),
    "report": ("astra report", "astra report --out report.html --examples 5"),
    "scores": ("astra scores", "astra scores --figure scores.svg"),
    "doctor": ("astra doctor",),
    "serve": ("astra serve models/rl --port 8000",),
    "sandbox probe": ("astra sandbox probe",),
    "arena export": ("astra arena export --format verifiers --out exports/arenas --split train",),
    "arena play": ("astra arena play data/envs_merged.parquet 0023",),
    "sources check": ("astra sources check sources/public.yaml",),
    "sources fetch": ("astra sources fetch sources/corpora.yaml",),
    "cache stats": ("astra cache stats",),
    "cache export": ("astra cache export answers.jsonl.gz --model openai:gpt-4.1",),
    "cache import": ("astra cache import answers.jsonl.gz",),
    "cache prune": ("astra cache prune --older-than-days 90 --yes",),
    "contamination build": ("astra contamination build suites/ --out contamination/index.parquet",),
    "contamination show": ("astra contamination show",),
    "contamination overlap": ("astra contamination overlap data/suites",),
    "prompts list": ("astra prompts list", "astra prompts list --stage qa"),
    "prompts render": (
        "astra prompts render qa/decompose --example",
        "astra prompts render tasking/chain_task --match weather --nth 2",
        "astra prompts render qa/decompose --json",
    ),
    "publish policy": (
        "astra publish policy --out published/rl",
        "astra publish policy models/sft --out published/sft --push --register",
    ),
    "publish conversations": ("astra publish conversations --out published/conversations",),
    "publish sft-set": ("astra publish sft-set --out published/sft-set",),
    "publish arenas": ("astra publish arenas --out published/arenas --push",),
    "remote set": ("astra remote set s3://bucket/path",),
    "remote check": ("astra remote check",),
    "sft export": ("astra sft export --out exports/sft",),
    "sft card": ("astra sft card --check",),
    "teacher check": ("astra teacher check",),
    "teacher estimate": (
        "astra teacher estimate",
        "astra teacher estimate tools graph chains",
        "astra teacher estimate -S scale=pilot -S teacher=openai -S judge=openai sft_set",
    ),
    "train plan": ("astra train plan qwen3-14b --gpus 8 --tokens 20480 --context-parallel 2",),
    "train export": ("astra train export runs/sft/KEY/checkpoint-100 exports/policy",),
    "train rehearse": (
        "astra train rehearse scale=paper policy=qwen3_14b",
        "astra train rehearse --sharding fsdp2 scale=paper policy=qwen3_32b sft=paper_32b",
    ),
    "train same": (
        "astra train same --commit",
        "astra train same --since v0.1.0",
        "astra train same --check",
    ),
    "train trained": ("astra train trained",),
    "train ablations queue": ("astra train ablations queue --dry",),
    "train ablations table": ("astra train ablations table",),
    "world watch": ("astra world watch", "astra world watch data/goals.parquet 0a1b"),
    "world play": (
        "astra world play data/goals.parquet 0a1b",
        "astra world play data/worlds.parquet 3c",
    ),
}


def attach(app: typer.Typer, above: tuple[str, ...] = ()) -> None:
    """Put the examples of every command of an application below the command's help."""
    for command in app.registered_commands:
        command.epilog = epilog(" ".join([*above, command_name(command)]))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            attach(group.typer_instance, (*above, str(group.name)))


def command_name(command: Any) -> str:
    """The name under which typer offers a command."""
    return command.name or command.callback.__name__.replace("_", "-")


def epilog(command: str) -> str:
    """Paragraphs, which help pages keep apart; empty for a command without examples."""
    examples = EXAMPLES.get(command, ())
    return "\n\n".join(["Examples:", *examples]) if examples else ""
