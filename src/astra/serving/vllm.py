"""vLLM as the engine behind our server, started on a checkpoint's folder: token ids in and out.

vLLM lives in an environment of its own (its transformers pin conflicts with ours); this module
starts its ``vllm serve`` and ends it, whole process group, with the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from astra.rollout.chat import PolicyConfig
from astra.serving.generation import Generated, GenerationError, GenerationSettings

MODEL = "policy"
START_TIMEOUT_S = 900.0
"""Weights of a large model load for minutes."""
END_TIMEOUT_S = 30.0
POLL_S = 0.2
TAIL_CHARS = 2000
ATTEMPTS = 3
BACKOFF_S = 0.5


def command(
    executable: str, policy: PolicyConfig, port: int, context: int | None, extra: Sequence[str]
) -> list[str]:
    """``vllm serve`` for a checkpoint. ``extra`` comes last, so it wins."""
    command = [
        executable, "serve", policy.path, "--served-model-name", MODEL, "--host", "127.0.0.1",
        "--port", str(port), "--dtype", policy.dtype,
        # Not the model's own defaults: what a request does not ask for is not done.
        "--generation-config", "vllm",
    ]  # fmt: skip
    if policy.revision is not None:
        command += ["--revision", policy.revision]
    if context is not None:
        command += ["--max-model-len", str(context)]
    return [*command, *_stretched(policy), *extra]


def _stretched(policy: PolicyConfig) -> list[str]:
    """What says ``policy.rope_scaling`` to vLLM, whole: an override replaces the model's block. A
    trained checkpoint says it in its own configuration."""
    if policy.rope_scaling is None:
        return []
    from transformers import AutoConfig

    found: Any = AutoConfig.from_pretrained(policy.path, revision=policy.revision or "main")
    policy.rope_scaling.stretch(found)
    names = ("rope_parameters", "max_position_embeddings")
    return ["--hf-overrides", json.dumps({name: getattr(found, name) for name in names})]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@asynccontextmanager
async def launched(
    command: Sequence[str], port: int, log: Path, timeout_s: float = START_TIMEOUT_S
) -> AsyncGenerator[str]:
    """Run ``command`` until the block ends; gives its address once it is healthy.

    Raises GenerationError with the end of its log where it does not come up.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as handle:
        try:
            process = subprocess.Popen(
                command, stdout=handle, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise GenerationError(
                f"{command[0]} does not start: {error}; install vLLM in an environment of its own "
                "and name its executable (bench.serving.vllm, astra serve --vllm)"
            ) from error
    url = f"http://127.0.0.1:{port}"
    try:
        await _healthy(process, url, log, timeout_s)
        yield url
    finally:
        await asyncio.to_thread(_end, process)


async def _healthy(process: subprocess.Popen[bytes], url: str, log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    async with aiohttp.ClientSession() as http:
        while True:
            if process.poll() is not None:
                raise GenerationError(
                    f"vLLM ended with status {process.returncode} before it served; the end of "
                    f"{log}:\n{_tail(log)}"
                )
            try:
                async with http.get(f"{url}/health", timeout=aiohttp.ClientTimeout(5)) as reply:
                    if reply.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass  # not there yet
            if time.monotonic() > deadline:
                raise GenerationError(
                    f"vLLM is not healthy after {timeout_s:g} s; the end of {log}:\n{_tail(log)}"
                )
            await asyncio.sleep(POLL_S)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-TAIL_CHARS:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """The whole group: vLLM's engine is a child of its server."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
        except ProcessLookupError:
            break
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


class VLLMGenerator:
    """Generates at ``url``, whose requests vLLM batches itself."""

    def __init__(self, url: str, eos_id: int, context: int) -> None:
        self.context = context
        self._url = url
        self._eos = eos_id
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0)
        )

    async def generate(self, ids: Sequence[int], decoding: GenerationSettings) -> Generated:
        body: dict[str, Any] = {
            "model": MODEL,
            "prompt": list(ids),
            "max_tokens": decoding.max_tokens,
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "top_k": decoding.top_k or -1,
            "seed": decoding.seed,
            "return_token_ids": True,
            "stop_token_ids": [self._eos],
            "ignore_eos": True,  # of the model's own list; ours is the one above
        }
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(BACKOFF_S * 2**attempt)
            try:
                async with self._http.post(f"{self._url}/v1/completions", json=body) as reply:
                    if reply.status == 200:
                        return self._read(await reply.json())
                    problem = f"HTTP {reply.status}: {(await reply.text())[:300]}"
                    if reply.status < 500 and reply.status != 429:
                        break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                problem = str(error) or type(error).__name__
        raise GenerationError(f"vLLM does not generate: {problem}")

    def _read(self, answer: Any) -> Generated:
        try:
            ids = [int(one) for one in answer["choices"][0]["token_ids"]]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise GenerationError(
                f"vLLM does not answer with token ids ({error!r}); 0.22 or newer does"
            ) from None
        if not ids:
            raise GenerationError("vLLM answered with no token")
        return Generated(ids, "eos" if ids[-1] == self._eos else "length")

    async def close(self) -> None:
        await self._http.close()


async def context_of(url: str) -> int:
    """The longest sequence that a running vLLM takes."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/models") as reply:
        document = await reply.json()
    try:
        return int(document["data"][0]["max_model_len"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise GenerationError(f"{url}/v1/models does not say max_model_len") from error
