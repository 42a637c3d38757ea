"""The asks of stages ``graph`` and ``chains``, before they are made.

Lengths of replies and yields are those of a strong model (213 recorded asks of the SFT track: 8
chains judged, 7 kept), those of proposals and votes with what replies hold since then.
"""

from __future__ import annotations

import math

from astra.estimate.asks import Amount, AskForm, ExpectedAsks
from astra.estimate.plans import PlanFacts
from astra.estimate.servers import ServerFacts
from astra.llm.protocol import ModelConfig
from astra.settings import StageConfig
from astra.toolgraph.asks import (
    BACK_CHAIN,
    BACK_QUERY,
    COHERENCE,
    PROPOSE,
    BackChain,
    BackQuery,
    ChainProposals,
    CoherenceVerdict,
)
from astra.toolgraph.config import ChainsConfig, GraphConfig
from astra.toolgraph.judging import PanelOptions
from astra.toolgraph.operators import back_translation, vote

PROPOSALS = AskForm(PROPOSE, ChainProposals, 3600)
VERDICT = AskForm(COHERENCE, CoherenceVerdict, 500)
QUERY = AskForm(BACK_QUERY, BackQuery, 218)
CHAIN = AskForm(BACK_CHAIN, BackChain, 197)
SERVER_BYTES, STEP_BYTES, QUESTION_BYTES = 250, 170, 220
"""What prompts show of a server, of a step of a chain, and of a request."""
WALKS_PER_TOOL = 4
"""How many different chains a graph has for each tool at least, where models or rules drew it."""
STEPS = 2.2
"""Calls of a chain, at scale smoke."""
ACCEPTED = 0.85
"""The share of chains that one operator accepts."""
SPLIT = 1.15
"""How much more is asked than would decide if all agreed."""


def proposal_asks(config: GraphConfig, servers: ServerFacts) -> list[ExpectedAsks]:
    """The asks of stage ``graph``."""
    asks = servers.rows.times(config.samples)
    shown = SERVER_BYTES + servers.tools_bytes
    return [PROPOSALS.asked("teacher", config.teacher, asks, shown)]


def judging_asks(config: ChainsConfig, graphs: Amount, servers: ServerFacts) -> list[ExpectedAsks]:
    """The asks of stage ``chains``: every operator sees the chains that passed all before it."""
    chains = _candidates(config, graphs, servers)
    asked: list[ExpectedAsks] = []
    for name, options in config.operators.items():
        asked += _operator_asks(name, options, chains, servers)
        chains = chains.guessed(ACCEPTED)
    return asked


def _candidates(config: ChainsConfig, graphs: Amount, servers: ServerFacts) -> Amount:
    most = min(config.max_chains, config.walks)
    return graphs.times(min(most, WALKS_PER_TOOL * servers.tools), most)


def _operator_asks(
    name: str, options: StageConfig, chains: Amount, servers: ServerFacts
) -> list[ExpectedAsks]:
    steps = SERVER_BYTES + STEPS * (STEP_BYTES + servers.tool_bytes)
    if isinstance(options, vote.Options):
        turns = options.samples * len(options.models)
        shared = chains.times(
            _deciding(options.min_share, turns, 1) / len(options.models), options.samples
        )
        return [VERDICT.asked(name, model, shared, steps) for model in options.sampled()]
    if isinstance(options, back_translation.Options):
        models, server = options.sampled(), SERVER_BYTES + servers.tools_bytes + QUESTION_BYTES
        tries = _deciding(options.min_share, len(models), options.attempts) / len(models)
        shared = chains.times(tries, options.attempts)
        return [
            form.asked(name, model, shared, shown)
            for model in models
            for form, shown in ((QUERY, steps), (CHAIN, server))
        ]
    models = options.sampled() if isinstance(options, PanelOptions) else ()
    return [_unknown(name, model, chains, steps) for model in models]


def _deciding(min_share: float, votes: int, attempts: int) -> float:
    """How many asks decide about a chain: the fewest that can, and some where models differ."""
    fewest = math.floor(min_share * votes) + 1
    return min(fewest * SPLIT, votes * attempts)


def _unknown(name: str, model: ModelConfig, chains: Amount, shown: float) -> ExpectedAsks:
    """An operator of one's own is taken to ask each of its models once, as long as a vote."""
    like = VERDICT.asked(name, model, chains, shown)
    kind = f"chains.operators.{name}"
    return ExpectedAsks(name, model, kind, chains, like.prompt_tokens, like.completion_tokens)


def expected_chains(config: ChainsConfig, graphs: Amount, servers: ServerFacts) -> PlanFacts:
    """The facts of table ``chains`` before it is there."""
    kept = ACCEPTED ** len(config.operators)
    return PlanFacts(_candidates(config, graphs, servers).guessed(kept), STEPS)
