"""``astra teacher``: what a run would ask (``estimate``), and whether an endpoint is fit for it.

``check`` tries every endpoint and model: key, model name, a plain reply, JSON schemas, tool calls,
then latency and throughput at the configured concurrency. The few requests it sends are booked in
the ledger under stage ``check``; nothing is read from or written to the answer cache.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

import httpx2
import typer
from pydantic import BaseModel, ConfigDict

from astra.cli.doctor import Finding
from astra.cli.estimate import estimate_command, parameters
from astra.errors import AstraError
from astra.estimate.asks import online_models
from astra.llm.endpoints import ChatBodies, ChatTransport
from astra.llm.gateway import Gateway
from astra.llm.openai_backend import sampling_fields
from astra.llm.protocol import ModelConfig, ParseError
from astra.llm.servers import EndpointError
from astra.llm.structured import instructions, is_object, parse_reply, response_format
from astra.llm.usage import Usage
from astra.llm.wire import ChatReply
from astra.settings import Endpoint, RuntimeConfig, load

teacher_app = typer.Typer(help="The models that teach, judge and emulate.", no_args_is_help=True)
teacher_app.command("estimate")(estimate_command)
ASKS_PER_PLACE = 3
SLOW_S = 60.0
TOOL = {
    "type": "function",
    "function": {
        "name": "get_price",
        "description": "The price of a house.",
        "parameters": {
            "type": "object",
            "properties": {"house": {"type": "string"}},
            "required": ["house"],
        },
    },
}


class Probe(BaseModel):
    """What the check asks for."""

    model_config = ConfigDict(extra="forbid")
    colour: str


@dataclass(frozen=True)
class Target:
    """One model at one endpoint."""

    endpoint: Endpoint
    config: ModelConfig

    @property
    def label(self) -> str:
        return f"{self.endpoint.base_url} {self.config.model}"


@teacher_app.command("check")
def check(
    model: Annotated[
        str, typer.Option(help="Check this model instead of those that params.yaml names.")
    ] = "",
    asks: Annotated[
        int, typer.Option(min=0, help="Requests that measure throughput; 0: by concurrency.")
    ] = 0,
) -> None:
    """Verify every endpoint that a run would use; exit 1 if one is not fit."""
    runtime = load("runtime", RuntimeConfig)
    named = [ModelConfig(backend="openai", model=model)]
    configs = named if model else online_models(parameters([]))
    if not configs:
        typer.echo("every role is answered offline; name a model with --model to check one")
        return
    targets = list(_targets(runtime, configs))
    if not targets:
        raise AstraError(
            "no endpoint serves these models; add one under endpoints in conf/runtime/default.yaml"
        )
    failed = False
    for target in targets:
        typer.echo(target.label)
        for finding in examine(target, runtime, asks):
            typer.echo(f"  {finding.line()}")
            failed |= finding.level == "error"
    if failed:
        raise typer.Exit(1)


def _targets(runtime: RuntimeConfig, configs: Iterable[ModelConfig]) -> Iterator[Target]:
    for config in configs:
        for endpoint in runtime.endpoints:
            if not endpoint.models or config.model in endpoint.models:
                yield Target(endpoint, config)


def examine(target: Target, runtime: RuntimeConfig, asks: int) -> list[Finding]:
    """All findings of one target; after a plain reply failed, nothing more is tried."""
    alone = runtime.model_copy(update={"endpoints": (target.endpoint,)})
    try:
        gateway = Gateway(alone, "check")
    except AstraError as error:
        return [Finding("error", str(error))]
    with closing(gateway):
        try:
            usage = gateway.usage(f"openai:{target.config.model}")
            transport = ChatTransport(gateway, target.config.model, usage)
        except AstraError as error:
            return [Finding("error", str(error))]
        return asyncio.run(_examine(target, transport, asks))


async def _examine(target: Target, transport: ChatTransport, asks: int) -> list[Finding]:
    await transport.gateway.enter()
    findings = await _listed(target, transport)
    plain = await _finding(_plain, target, transport)
    findings.append(plain)
    if plain.level != "error":
        findings.append(await _finding(_structured, target, transport))
        findings.append(await _finding(_tools, target, transport))
        findings.append(await _load(target, transport, asks))
    return findings


Step = Callable[[Target, ChatTransport], Awaitable[Finding]]


async def _finding(step: Step, target: Target, transport: ChatTransport) -> Finding:
    try:
        return await step(target, transport)
    except EndpointError as error:
        return Finding("error", str(error), "check base_url, the key and the role's model")
    except AstraError as error:
        return Finding("error", f"{(step.__doc__ or '').strip()} {error}")


async def _chat(target: Target, transport: ChatTransport, text: str, **fields: Any) -> ChatReply:
    body = {
        "model": target.config.model,
        **sampling_fields(target.config),
        "messages": [{"role": "user", "content": text}],
        **fields,
    }
    attempts = transport.attempts()
    try:
        return await transport.chat(ChatBodies(plain=body), attempts)
    finally:
        attempts.hold.close()


async def _listed(target: Target, transport: ChatTransport) -> list[Finding]:
    """Does the endpoint list the model? Some list none; a chat then decides."""
    client = transport.servers[0].client
    assert client is not None
    try:
        response = await client.get(f"{target.endpoint.base_url.rstrip('/')}/models")
        if response.status_code in (401, 403):
            remedy = f"put a valid key into {target.endpoint.api_key_env}"
            return [Finding("error", f"the key is refused (HTTP {response.status_code})", remedy)]
        names = [model["id"] for model in response.json()["data"]]
    except httpx2.HTTPError as error:
        problem = f"no connection: {error or type(error).__name__}"
        return [Finding("error", problem, "start the server, or correct base_url in conf/runtime")]
    except (ValueError, KeyError, TypeError):
        return [Finding("warning", "the endpoint lists no models")]
    if target.config.model in names:
        return [Finding("ok", "key accepted, model listed")]
    shown = ", ".join(names[:8])
    return [Finding("warning", f"the model is not listed; listed: {shown}", "check its name")]


async def _plain(target: Target, transport: ChatTransport) -> Finding:
    """A JSON reply to a plain question:"""
    reply = await _chat(target, transport, f"Name a colour in JSON.\n\n{instructions(Probe)}")
    if reply.truncated:
        return Finding(
            "warning", "the reply to one short question was cut off", "raise max_tokens of the role"
        )
    try:
        parse_reply(reply.content, Probe)
    except ParseError as error:
        return Finding(
            "warning",
            f"a JSON reply was not usable at the first try: {error}",
            "repairs will be asked for; a larger model needs fewer",
        )
    return Finding("ok", "follows a schema that is only shown")


async def _structured(target: Target, transport: ChatTransport) -> Finding:
    """A JSON schema:"""
    form, _, _ = response_format(Probe)
    try:
        # The text asks for prose, so that only enforcement makes an object of the reply.
        reply = await _chat(
            target, transport, "Describe the sea in one short sentence.", response_format=form
        )
    except EndpointError:
        raise
    except AstraError as error:
        return Finding("ok", f"JSON schemas are refused; prompts will show them ({error})"[:200])
    if is_object(reply.content):
        return Finding("ok", "JSON schemas are enforced")
    return Finding("ok", "JSON schemas are ignored; prompts will show them")


async def _tools(target: Target, transport: ChatTransport) -> Finding:
    """A tool call:"""
    question = "What is the price of the house Amber Cove? Use the tool."
    try:
        reply = await _chat(target, transport, question, tools=[TOOL])
    except EndpointError:
        raise
    except AstraError as error:
        problem = f"tools are refused: {error}"[:200]
        return Finding("warning", problem, "as an agent, serve it with tool calls enabled")
    if reply.tool_calls and reply.tool_calls[0][0] == "get_price":
        return Finding("ok", f"calls tools: get_price({reply.tool_calls[0][1]})")
    return Finding(
        "warning",
        "answered in text where a tool call was due",
        "roles that reply in JSON need no tools; as an agent, choose a model that calls them",
    )


async def _load(target: Target, transport: ChatTransport, asks: int) -> Finding:
    """Latency and throughput with as many requests in flight as a run would have."""
    runtime = transport.gateway.runtime
    count = asks or ASKS_PER_PLACE * runtime.concurrency
    fresh = Usage("check", transport.usage.model)
    measured = ChatTransport(transport.gateway, target.config.model, fresh)
    started = time.monotonic()
    outcomes = await asyncio.gather(
        *(_chat(target, measured, f"Name colour number {n}.", max_tokens=64) for n in range(count)),
        return_exceptions=True,
    )
    elapsed = time.monotonic() - started
    problems = [str(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
    p50, p95 = fresh.latency.quantile(0.5), fresh.latency.quantile(0.95)
    tokens = fresh.completion_tokens / elapsed
    text = (
        f"{count} asks, {runtime.concurrency} in flight: {(count - len(problems)) / elapsed:.1f} "
        f"asks/s, {tokens:.0f} tokens/s, latency p50 {p50} s, p95 {p95} s, "
        f"{fresh.retries} retries"
    )
    if problems:
        remedy = "lower runtime.concurrency, or set requests_per_minute of the endpoint"
        return Finding("error", f"{text}; {len(problems)} failed: {problems[0]}"[:400], remedy)
    if p95 and p95 > min(SLOW_S, runtime.request_timeout_s / 2):
        remedy = "lower runtime.concurrency or raise runtime.request_timeout_s"
        return Finding("warning", text, remedy)
    return Finding("ok", text)
