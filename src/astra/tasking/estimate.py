"""The asks of stage ``tasks``, before they are made.

Lengths of replies and yields are those of a strong model (213 recorded asks of the SFT track: 21
tasks scored, 17 kept) where that model was asked the same; others are taken from like replies.
"""

from __future__ import annotations

from dataclasses import dataclass

from astra.estimate.asks import Amount, AskForm, ExpectedAsks, total
from astra.estimate.plans import PlanFacts
from astra.estimate.servers import ServerFacts
from astra.records.task import TaskKind
from astra.tasking.asks import (
    CHAIN_TASK,
    SCORE,
    SERVER_TASK,
    TaskScores,
    WrittenTask,
)
from astra.tasking.config import TasksConfig
from astra.tasking.pipeline import MOST_TRIES
from astra.tasking.variant_asks import (
    COMPLICATE,
    DIVERSE,
    DROP_PARAMETER,
    MODES,
    PERSONA,
    REPLAN,
    SOLVABLE_ASK,
    Mode,
    PersonalRequest,
    Replanned,
    Rewritten,
    Solvability,
)
from astra.tasking.writing import TRIES

FROM_CHAIN = AskForm(CHAIN_TASK, WrittenTask, 430)
FROM_SERVER = AskForm(SERVER_TASK, WrittenTask, 430)
SCORES = AskForm(SCORE, TaskScores, 280)
VARIANTS: dict[Mode, AskForm] = {
    "diverse": AskForm(DIVERSE, WrittenTask, 430),
    "complicate": AskForm(COMPLICATE, Rewritten, 260),
    "persona": AskForm(PERSONA, PersonalRequest, 380),
}
PLANNED = AskForm(REPLAN, Replanned, 450)
DROPPED = AskForm(DROP_PARAMETER, Rewritten, 220)
UNSOLVED = AskForm(SOLVABLE_ASK, Solvability, 200)
SERVER_BYTES, STEP_BYTES, QUESTION_BYTES = 200, 150, 250
"""What prompts show of a server, of a planned step, and of a request with its names or people."""
WRITTEN = 1.15
"""Asks for a task: one that breaks a rule is asked for again."""
FITTING, ACCEPTED = 0.95, 0.8
"""The share of tasks that rules let pass, and of those that the judge accepts."""
REPLANNED = 0.85
"""The share of variants whose calls the judge finds again."""
MADE = 1.3
"""Tries for one task without a solution."""


@dataclass(frozen=True)
class _Tasks:
    """How many tasks are tried on each way, and how many there are in the end."""

    of_chains: Amount
    of_servers: Amount
    variants: dict[Mode, Amount]
    unsolvable: dict[TaskKind, Amount]
    kept: Amount

    @property
    def scored(self) -> Amount:
        base = (self.of_chains + self.of_servers).guessed(FITTING)
        variants = total(self.variants.values()).guessed(FITTING * REPLANNED)
        return base + variants + total(self.unsolvable.values())


UNSOLVABLE = (TaskKind.MISSING_FUNCTION, TaskKind.MISSING_PARAMETER, TaskKind.IRRELEVANT)


def _base(config: TasksConfig, chains: PlanFacts, servers: ServerFacts) -> tuple[Amount, Amount]:
    """The base tasks that are written, of chains and of servers alone."""
    of_chains = chains.rows.times(config.samples)
    per_server, most_tools = config.server_tasks.per_server, config.server_tasks.max_tools
    numbers = min(most_tools, servers.tools)
    of_servers = servers.rows.times(per_server * numbers, per_server * most_tools)
    written = (
        config.share_written(servers.rows.about, chains.rows.about),
        config.share_written(servers.rows.most, chains.rows.most),
    )
    live = servers.rows.about * (1 - servers.emulated)
    base = (of_chains.about + of_servers.about) / max(1.0, servers.rows.about)
    # So many times as many of the live servers, as many of the others.
    grown = servers.emulated + (1 - servers.emulated) * config.live_repeats(base, live)
    return of_chains.thinned(*written).times(grown), of_servers.thinned(*written).times(grown)


def _tasks(config: TasksConfig, chains: PlanFacts, servers: ServerFacts) -> _Tasks:
    of_chains, of_servers = _base(config, chains, servers)
    base = (of_chains + of_servers).guessed(FITTING * ACCEPTED)
    share = config.augment.share
    variants: dict[Mode, Amount] = {}
    for mode in MODES:
        number: int = getattr(config.augment, mode)
        variants[mode] = base.times(share * number, number if share else 0)
    varied = total(variants.values()).guessed(FITTING * REPLANNED * ACCEPTED)
    solvable = base + varied
    rates = {kind: config.unsolvable.rate(kind) for kind in UNSOLVABLE}
    tried = {k: solvable.times(rate * MADE, rate * MOST_TRIES) for k, rate in rates.items()}
    kept = solvable.times(1 + sum(rates.values()))
    if config.max_tasks is not None:
        kept = kept.capped(config.max_tasks)
    return _Tasks(of_chains, of_servers, variants, tried, kept)


def task_asks(config: TasksConfig, chains: PlanFacts, servers: ServerFacts) -> list[ExpectedAsks]:
    """The asks of stage ``tasks``: writing, variants, tasks without a solution, scores."""
    tasks = _tasks(config, chains, servers)
    stated = SERVER_BYTES + QUESTION_BYTES
    every = stated + servers.tools_bytes
    plan = chains.steps * STEP_BYTES
    used = stated + plan + chains.steps * servers.tool_bytes
    unsolvable = tasks.unsolvable
    solvable_on = unsolvable[TaskKind.MISSING_FUNCTION] + unsolvable[TaskKind.IRRELEVANT]
    written = [
        (FROM_CHAIN, tasks.of_chains.times(WRITTEN, TRIES), used),
        (FROM_SERVER, tasks.of_servers.times(WRITTEN, TRIES), every),
        (VARIANTS["diverse"], tasks.variants["diverse"], used),
        (VARIANTS["complicate"], tasks.variants["complicate"], stated),
        (VARIANTS["persona"], tasks.variants["persona"], stated + QUESTION_BYTES),
        (DROPPED, unsolvable[TaskKind.MISSING_PARAMETER], stated + plan),
    ]
    judged = [
        (PLANNED, total(tasks.variants.values()).guessed(FITTING), every),
        (UNSOLVED, solvable_on, every),
        (SCORES, tasks.scored, every + plan),
    ]
    return [
        *(form.asked("teacher", config.teacher, asks, shown) for form, asks, shown in written),
        *(form.asked("judge", config.judge, asks, shown) for form, asks, shown in judged),
    ]


def expected_tasks(config: TasksConfig, chains: PlanFacts, servers: ServerFacts) -> PlanFacts:
    """The facts of table ``tasks`` before it is there."""
    return PlanFacts(_tasks(config, chains, servers).kept, chains.steps)
