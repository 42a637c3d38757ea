"""What stages ``graph`` and ``chains`` ask a teacher, and the replies they accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from astra.llm.protocol import Ask
from astra.records.base import Frozen
from astra.records.graph import ArgumentOrigin, ChainStep
from astra.records.tool import Tool, ToolServer
from astra.text.names import kinds_of_names, suggested_names
from astra.toolgraph.arguments import taken_from_results
from astra.toolgraph.linking import parameters

PROPOSE = "toolgraph/propose"
COHERENCE = "toolgraph/coherence"
BACK_QUERY = "toolgraph/back_query"
BACK_CHAIN = "toolgraph/back_chain"


PROPOSED_ORIGINS = (ArgumentOrigin.TASK, ArgumentOrigin.DEFAULT, ArgumentOrigin.OUTPUT)


class _Proposed:
    """Marks an origin that a proposal may state: only whoever writes a task leaves values open."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        handler.resolve_ref_schema(schema)["enum"] = [origin.value for origin in PROPOSED_ORIGINS]
        return schema


def _check_proposed(origin: ArgumentOrigin) -> ArgumentOrigin:
    if origin not in PROPOSED_ORIGINS:
        raise ValueError(f"an origin is one of {', '.join(PROPOSED_ORIGINS)}")
    return origin


class ProposedArgument(Frozen):
    """Where an argument comes from; ``step`` and ``path`` are of an output."""

    name: str
    origin: Annotated[ArgumentOrigin, _Proposed(), AfterValidator(_check_proposed)]
    step: int | None = None
    path: tuple[str | int, ...] = ()


class ProposedStep(Frozen):
    tool: str
    arguments: tuple[ProposedArgument, ...]


class ChainProposal(Frozen):
    """A chain of calls with the task it would serve; the reason comes before the verdict."""

    task: str
    steps: tuple[ProposedStep, ...]
    reason: str
    verdict: Literal["yes", "unsure"]


class ChainProposals(Frozen):
    proposals: tuple[ChainProposal, ...]


class JudgedDependency(Frozen):
    """Whether the user could as well have stated what an argument takes from a result."""

    step: int
    argument: str
    reason: str
    statable: bool


class CoherenceVerdict(Frozen):
    """Whether one user task needs exactly this chain; ``task`` is that task, if there is one."""

    dependencies: tuple[JudgedDependency, ...]
    reason: str
    valid: bool
    task: str


class BackQuery(Frozen):
    """The request that a chain serves; ``query`` says why not where there is none."""

    query: str
    valid: bool


class BackChain(Frozen):
    """The tools that a request needs, in the order of the calls, after a plan in words."""

    plan: str
    chain: tuple[str, ...]


def tool_view(tool: Tool) -> dict[str, Any]:
    """A tool as it is shown here: with the guess at its result, where nobody described it."""
    guess = tool.inferred.model_dump(mode="json") if tool.inferred else None
    return {**tool.view(), "inferred": guess}


def propose_ask(server: ToolServer, sample: int) -> Ask[ChainProposals]:
    variables = {"server": server.view(), "tools": [tool_view(tool) for tool in server.tools]}
    return Ask(PROPOSE, variables, ChainProposals, sample)


def coherence_ask(
    server: ToolServer, tools: Sequence[Tool], steps: Sequence[ChainStep], sample: int
) -> Ask[CoherenceVerdict]:
    variables = _chain_view(server, tools, steps)
    names = _names(server, tools, steps, sample)
    check = _every_dependency(steps)
    return Ask(COHERENCE, variables, CoherenceVerdict, sample, names=names, check=check)


def _every_dependency(steps: Sequence[ChainStep]) -> Callable[[CoherenceVerdict], None]:
    """The check that a yes judges every argument of origin output."""

    def check(reply: CoherenceVerdict) -> None:
        judged = {(one.step, one.argument) for one in reply.dependencies}
        missing = [one for one in taken_from_results(steps) if one not in judged]
        if reply.valid and missing:
            step, argument = missing[0]
            raise ValueError(f"dependencies: no entry for argument {argument!r} of step {step}")

    return check


def _chain_view(
    server: ToolServer, tools: Sequence[Tool], steps: Sequence[ChainStep]
) -> dict[str, Any]:
    return {
        "server": server.view(),
        "tools": [tool_view(tool) for tool in tools],
        "steps": [step.model_dump(mode="json") for step in steps],
    }


def _names(
    server: ToolServer, tools: Sequence[Tool], steps: Sequence[ChainStep], sample: int
) -> tuple[str, ...]:
    """Names for what the user has to make up; none where the chain asks for no name."""
    schemas = {tool.name: parameters(tool) for tool in tools}
    stated = [
        (name, schemas[step.tool].get(name, {}))
        for step in steps
        for name, source in step.arguments.items()
        if source.origin is ArgumentOrigin.TASK
    ]
    kinds = kinds_of_names(stated)
    dumped = [step.model_dump(mode="json") for step in steps]
    return suggested_names(server.id, dumped, sample, kinds=kinds, language=server.language)


def back_query_ask(
    server: ToolServer, tools: Sequence[Tool], steps: Sequence[ChainStep], sample: int
) -> Ask[BackQuery]:
    variables = _chain_view(server, tools, steps)
    names = _names(server, tools, steps, sample)
    return Ask(BACK_QUERY, variables, BackQuery, sample, names=names)


def back_chain_ask(server: ToolServer, query: str, sample: int) -> Ask[BackChain]:
    variables = {
        "server": server.view(),
        "tools": [tool_view(tool) for tool in server.tools],
        "query": query,
    }
    return Ask(BACK_CHAIN, variables, BackChain, sample)
