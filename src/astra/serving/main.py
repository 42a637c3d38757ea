"""The server process: loads a checkpoint's weights and serves them until it is told to stop.

``python -m astra.serving.main`` starts it. The configuration is the first line of standard input,
the address the first line of standard output. Where standard input ends, whoever started this
process is gone, and so does it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from astra.errors import AstraError
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.serving.generation import Generator
from astra.settings import RuntimeConfig, StageConfig


class ServingOptions(StageConfig):
    """How checkpoints are served, whichever they are."""

    engine: Literal["local", "vllm"]
    """``local``: transformers in this process, on CPU or GPU. ``vllm``: its own environment's."""
    vllm: str = "vllm"
    """Its executable."""
    vllm_args: tuple[str, ...] = ()
    rows: int = Field(ge=1)
    """``local``: requests generated side by side."""
    keep_mb: int = Field(ge=0)
    """``local``: memory for prefixes of earlier prompts."""
    context: int | None = Field(default=None, ge=2)
    """Longest sequence; None: the model's."""
    new_tokens: int | None = Field(default=None, ge=1)
    """Longest reply, whatever a request asks for; None: what the context leaves."""


class ServeConfig(ServingOptions):
    policy: PolicyConfig
    name: str
    """The model's name for clients."""
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    """0: a free one."""
    device: str = "auto"
    threads: int = Field(default=1, ge=1)


async def serve(config: ServeConfig, ready: Callable[[str], None], stop: asyncio.Event) -> None:
    """Load, call ``ready(url)`` once requests are taken, and return after ``stop``.

    Raises PolicyError, GenerationError, or OSError for a port that is taken.
    """
    from astra.serving.chat import ChatHistory
    from astra.serving.server import ChatServer, Limits, listening

    async with _generator(config) as (codec, generator):
        limits = Limits(new_tokens=config.new_tokens)
        server = ChatServer(config.name, ChatHistory(codec), generator, limits)
        async with listening(server, config.host, config.port) as url:
            ready(url)
            await stop.wait()


@asynccontextmanager
async def _generator(config: ServeConfig) -> AsyncGenerator[tuple[ChatCodec, Generator]]:
    async with AsyncExitStack() as stack:
        if config.engine == "vllm":
            codec = load_codec(config.policy)
            generator: Generator = await _vllm(config, codec, stack)
        else:
            codec, generator = _local(config)
        stack.push_async_callback(generator.close)
        yield codec, generator


async def _vllm(config: ServeConfig, codec: ChatCodec, stack: AsyncExitStack) -> Generator:
    from astra.serving import vllm

    port = vllm.free_port()
    command = vllm.command(config.vllm, config.policy, port, config.context, config.vllm_args)
    log = Path(f"runs/serve/vllm-{port}.log")
    url = await stack.enter_async_context(vllm.launched(command, port, log))
    return vllm.VLLMGenerator(url, codec.eos_id, await vllm.context_of(url))


def _local(config: ServeConfig) -> tuple[ChatCodec, Generator]:
    from astra.rollout.chat import load_policy
    from astra.rollout.device import prepare_torch
    from astra.serving.engine import ServingEngine
    from astra.serving.local import LocalGenerator

    runtime = RuntimeConfig(threads=config.threads, device=config.device)
    loaded = load_policy(config.policy, prepare_torch(runtime, 0))
    codec = loaded.codec
    engine = ServingEngine(
        loaded.model, codec.eos_id, codec.pad_id, config.rows, config.keep_mb << 20
    )
    most = int(loaded.model.config.max_position_embeddings)
    return codec, LocalGenerator(engine, min(most, config.context or most))


async def serve_until_signal(config: ServeConfig, ready: Callable[[str], None]) -> None:
    """``serve`` until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sent in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sent, stop.set)
    await serve(config, ready, stop)


async def _main() -> None:
    config = ServeConfig.model_validate_json(sys.stdin.readline())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> None:
        sys.stdin.read()  # returns when the writing end is closed
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, daemon=True).start()
    for sent in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sent, stop.set)
    await serve(config, lambda url: print(url, flush=True), stop)


if __name__ == "__main__":
    try:
        asyncio.run(_main())
    except (AstraError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
