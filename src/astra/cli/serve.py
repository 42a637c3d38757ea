"""``astra serve``: a checkpoint behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from astra.errors import AstraError
from astra.serving.main import ServeConfig, serve_until_signal


def serve_command(
    checkpoint: Annotated[str, typer.Argument(help="A model folder (models/rl) or a hub id.")],
    name: Annotated[str, typer.Option(help="Model name for clients; empty: the folder's.")] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: a free one.")] = 8000,
    engine: Annotated[str, typer.Option(help="local (transformers here) or vllm.")] = "local",
    vllm: Annotated[str, typer.Option(help="vLLM's executable, in its own environment.")] = "vllm",
    template: Annotated[
        str, typer.Option(help="own: the one saved with the model; else hermes, qwen3, llama3.")
    ] = "own",
    revision: Annotated[str | None, typer.Option(help="Of a hub model.")] = None,
    pad_token: Annotated[str | None, typer.Option(help="Where the tokenizer has none.")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    rows: Annotated[int, typer.Option(help="Requests generated side by side (local).")] = 16,
    keep_mb: Annotated[int, typer.Option(help="Memory for prefixes of prompts (local).")] = 1024,
    context: Annotated[int | None, typer.Option(help="Longest sequence; else the model's.")] = None,
    new_tokens: Annotated[int | None, typer.Option(help="Longest reply.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option(help="Compute threads of torch on a CPU.")] = 1,
) -> None:
    """Serve CHECKPOINT until interrupted: /v1/chat/completions with the template it was trained
    with, tool calls parsed as in training. Requests in flight together are generated together."""
    try:
        config = ServeConfig.model_validate(
            {
                "policy": {
                    "path": checkpoint, "revision": revision, "template": template,
                    "pad_token": pad_token, "dtype": dtype,
                },
                "name": name or Path(checkpoint).name, "host": host, "port": port,
                "engine": engine, "vllm": vllm, "rows": rows, "keep_mb": keep_mb,
                "context": context, "new_tokens": new_tokens, "device": device, "threads": threads,
            }
        )  # fmt: skip
    except ValueError as error:
        raise AstraError(str(error)) from None
    try:
        asyncio.run(serve_until_signal(config, lambda url: typer.echo(f"{config.name} at {url}")))
    except OSError as error:
        raise AstraError(f"{host}:{port}: {error}") from error
