"""Rules that stand in for the teacher in stages ``graph`` and ``chains``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from astra.llm.protocol import OfflineHandlers
from astra.records.graph import ChainStep
from astra.records.tool import Tool
from astra.toolgraph.arguments import Binder
from astra.toolgraph.asks import (
    BACK_CHAIN,
    BACK_QUERY,
    COHERENCE,
    PROPOSE,
    BackChain,
    BackQuery,
    ChainProposal,
    ChainProposals,
    CoherenceVerdict,
    JudgedDependency,
    ProposedArgument,
    ProposedStep,
)
from astra.toolgraph.linking import linked, required_parameters, share_subject, tokens

PROPOSALS = 6
"""How many chains one reply proposes."""
MAX_CHAIN = 5
MAX_LOOSE_ENDS = 3
THEN = ", then "
FOLLOW_LINK = 0.75
"""How often a chain goes on along data rather than along a shared subject."""


def propose(variables: Mapping[str, Any], rng: random.Random) -> ChainProposals:
    """Chains that follow data from outputs to parameters, or ask several things of one subject.

    A step that follows neither makes the proposal's verdict ``unsure``.
    """
    tools = [Tool.model_validate(view) for view in variables["tools"]]
    binder = Binder(tools)
    proposals = [_proposal(tools, binder, rng) for _ in range(PROPOSALS if len(tools) > 1 else 0)]
    return ChainProposals(proposals=tuple(proposals))


def _proposal(tools: list[Tool], binder: Binder, rng: random.Random) -> ChainProposal:
    chain = [rng.choice(tools)]
    sure = True
    for _ in range(rng.randint(1, MAX_CHAIN - 1)):
        free = [tool for tool in tools if tool not in chain]
        following = [tool for tool in free if linked(chain[-1], tool)]
        beside = [tool for tool in free if share_subject(chain[-1], tool)]
        if following and (rng.random() < FOLLOW_LINK or not beside):
            chain.append(rng.choice(following))
        elif beside:
            chain.append(rng.choice(beside))
        else:
            if len(chain) == 1 and free:
                chain.append(rng.choice(free))
                sure = False
            break
    words = ", then ".join(_words(tool) for tool in chain)
    return ChainProposal(
        task=f"Use {words}.",
        steps=tuple(map(_proposed, binder.bind([tool.name for tool in chain]))),
        reason=words,
        verdict="yes" if sure else "unsure",
    )


def _proposed(step: ChainStep) -> ProposedStep:
    """A step as a reply puts it."""
    return ProposedStep(
        tool=step.tool,
        arguments=tuple(
            ProposedArgument(name=name, origin=source.origin, step=source.step, path=source.path)
            for name, source in step.arguments.items()
        ),
    )


def judge_coherence(variables: Mapping[str, Any], rng: random.Random) -> CoherenceVerdict:
    """Every step must use an earlier result or ask about a subject the chain already has.

    More than ``MAX_LOOSE_ENDS`` results that no later step uses are several requests, not one.
    """
    tools = {view["name"]: Tool.model_validate(view) for view in variables["tools"]}
    steps: list[dict[str, Any]] = variables["steps"]
    coherent = all(_connected(steps, index, tools) for index in range(1, len(steps)))
    used = {source["step"] for step in steps for source in step["arguments"].values()}
    coherent = coherent and len(set(range(len(steps))) - used) <= MAX_LOOSE_ENDS
    names = [_words(tools[step["tool"]]) for step in steps]
    task = f"Ask for the {' and the '.join(names)}."
    return CoherenceVerdict(
        dependencies=_dependencies(steps), reason=task, valid=coherent, task=task
    )


def _dependencies(steps: list[dict[str, Any]]) -> tuple[JudgedDependency, ...]:
    """Every value of an earlier result is one that the user could not have stated."""
    return tuple(
        JudgedDependency(step=index, argument=name, reason="It is a result.", statable=False)
        for index, step in enumerate(steps)
        for name, source in step["arguments"].items()
        if source["origin"] == "output"
    )


def _connected(steps: list[dict[str, Any]], index: int, tools: Mapping[str, Tool]) -> bool:
    step = steps[index]
    if any(source["origin"] == "output" for source in step["arguments"].values()):
        return True
    earlier = [tools[other["tool"]] for other in steps[:index]]
    tool = tools[step["tool"]]
    return any(share_subject(other, tool) or linked(other, tool) for other in earlier)


def _words(tool: Tool) -> str:
    words = tokens(tool.name)
    return " ".join(words[1:] or words)


def back_query(variables: Mapping[str, Any], rng: random.Random) -> BackQuery:
    """One clause a step, from the words of the tool's name and parameters."""
    del rng
    tools = {view["name"]: Tool.model_validate(view) for view in variables["tools"]}
    clauses = [" ".join(_clue(tools[step["tool"]])) for step in variables["steps"]]
    return BackQuery(valid=bool(clauses), query=f"Please {THEN.join(clauses)}.")


def back_chain(variables: Mapping[str, Any], rng: random.Random) -> BackChain:
    """The tool whose words are nearest to each clause; tools that read alike are not told apart."""
    del rng
    tools = [Tool.model_validate(view) for view in variables["tools"]]
    clauses = variables["query"].removeprefix("Please ").removesuffix(".").split(THEN)
    chain = [max(tools, key=lambda tool: _overlap(tool, clause)).name for clause in clauses]
    return BackChain(plan=variables["query"], chain=tuple(chain))


def _clue(tool: Tool) -> tuple[str, ...]:
    given = [word for name in required_parameters(tool) for word in tokens(name)]
    return (*tokens(tool.name), *(["by", *given] if given else []))


def _overlap(tool: Tool, clause: str) -> float:
    mine, said = set(_clue(tool)), set(clause.split())
    return len(mine & said) / len(mine | said)


HANDLERS: OfflineHandlers = {
    PROPOSE: propose,
    COHERENCE: judge_coherence,
    BACK_QUERY: back_query,
    BACK_CHAIN: back_chain,
}
