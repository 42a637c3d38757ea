"""Base tasks: written for a chain or for a server, then checked by rule (ASTRA section 3.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.records.base import canonical_json, content_id
from astra.records.graph import ArgumentOrigin, ArgumentSource, Chain, ChainStep
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import (
    CHAIN_TASK,
    SERVER_TASK,
    WrittenCall,
    WrittenTask,
    as_plan,
    chain_task_ask,
    repeated,
    server_task_ask,
)
from astra.tasking.checks import TaskProblem, check_plan, check_question
from astra.tasking.clock import draw_now
from astra.tasking.config import TasksConfig
from astra.tasking.drafts import Draft, Origin
from astra.tasking.spread import ticket
from astra.tasking.stated import settled
from astra.text.language import UNKNOWN, detect_language

FOCUS_TOOLS = 2
"""How many tools, but at most half of them, a task without a chain may choose from to build on:
left to themselves, models come back to the same few."""
TRIES = 2
"""How often a task is asked for: a rule that it breaks is told to the writer once."""


@dataclass(frozen=True)
class WritingJob:
    """One base task to write: for ``chain``, or for the server alone."""

    ask: Ask[Any]
    """It is answered by a WrittenTask or, for one call, a WrittenCall."""
    chain: Chain | None
    language: str
    now: str
    origin: Origin
    failed: list[Rejection] = field(default_factory=list[Rejection])
    """The tries that were followed by another; ``write_task`` adds them."""


def base_jobs(
    server: ToolServer,
    chains: Sequence[Chain],
    config: TasksConfig,
    share: float = 1.0,
    live: int = 0,
) -> list[WritingJob]:
    """The writing jobs of one server, in a fixed order: samples per chain, then for the server.

    Of all of them a ``share``, drawn by hash: a smaller one is a part of a larger one. ``live``:
    how many live servers there are, which share ``min_live_tasks``.
    """
    jobs: list[WritingJob] = []
    words = config.max_words
    numbers = range(1, min(config.server_tasks.max_tools, len(server.tools)) + 1)
    samples, per_server = config.samples, config.server_tasks.per_server
    if server.execution is Execution.LIVE:
        base = len(chains) * samples + len(numbers) * per_server
        repeats = config.live_repeats(base, live)
        samples, per_server = repeats * samples, repeats * per_server
    for chain in chains:
        for sample in range(samples):
            language = _language(server, chain.id, sample, config.languages)
            now = draw_now(config.now, server.id, chain.id, sample)
            ask = chain_task_ask(server, chain, sample, language, words, now)
            origin = Origin(chain.id, f"{CHAIN_TASK} sample {sample}")
            jobs.append(WritingJob(ask, chain, language, now, origin))
    for (number, sample), focus in _focus(server, numbers, per_server).items():
        language = _language(server, str(number), sample, config.languages)
        now = draw_now(config.now, server.id, number, sample)
        ask = server_task_ask(server, number, sample, language, words, now, focus)
        origin = Origin(server.id, f"{SERVER_TASK} number {number} sample {sample}")
        jobs.append(WritingJob(ask, None, language, now, origin))
    return [job for job in jobs if ticket("written", job.origin.item, job.origin.part) < share]


def _focus(
    server: ToolServer, numbers: Sequence[int], samples: int
) -> dict[tuple[int, int], list[str]]:
    """The tools that each task without a chain builds on, by its number of calls and its sample.

    Those that fewest earlier tasks build on come first, equal ones in the order of a hash. Further
    samples do not change the tools of earlier ones.
    """
    size = min(FOCUS_TOOLS, len(server.tools) // 2)  # of a single tool there is nothing to choose
    used: Counter[str] = Counter()
    focus: dict[tuple[int, int], list[str]] = {}
    for sample in range(samples):
        for number in numbers:
            drawn = {tool.name: content_id([server.id, number, sample, tool.name])
                     for tool in server.tools}  # fmt: skip
            names = sorted(drawn, key=lambda name: (used[name], drawn[name]))[:size]
            used.update(names)
            focus[number, sample] = names
    return focus


def _language(server: ToolServer, item: str, sample: int, shares: Mapping[str, float]) -> str:
    """The language to write in: one of ``shares`` by a hash, or the server's own."""
    ticket = int(content_id(["language", server.id, item, sample]), 16) / 16**16
    for language, share in sorted(shares.items()):
        if ticket < share:
            return language
        ticket -= share
    return server.language


async def write_task(
    server: ToolServer,
    job: WritingJob,
    teacher: Teacher,
    config: TasksConfig,
    metrics: StageMetrics,
) -> Draft | Rejection:
    """The written and checked task, or the rejection that says why there is none.

    A reply that breaks a rule goes back to its writer with the reason, once.
    """
    ask = job.ask
    for attempt in range(TRIES):
        try:
            reply: WrittenTask | WrittenCall = await teacher.ask(ask)
        except (ProviderError, ParseError) as error:
            return job.origin.failed(error, attempt=attempt)
        try:
            plan = checked_plan(reply, server, job.chain, job.language, config.max_words)
        except TaskProblem as problem:
            last = attempt + 1 == TRIES
            refused = job.origin.refused(problem, reply.question, attempt, final=last)
            if last:
                return refused
            job.failed.append(refused)
            ask = repeated(job.ask, reply, f"{problem.reason}: {problem.detail}")
        else:
            _count_sources(metrics, job.chain, plan)
            return Draft(job.origin, _task(server, job, reply.question, plan))
    raise AssertionError("the last try returns")


def checked_plan(
    reply: WrittenTask | WrittenCall,
    server: ToolServer,
    chain: Chain | None,
    language: str,
    max_words: int,
) -> tuple[ChainStep, ...]:
    """The plan of a written task, which follows ``chain`` if there is one.

    Raises TaskProblem if plan or question break a rule.
    """
    tools = {tool.name: tool for tool in server.tools}
    plan = as_plan(reply.steps)
    if chain is not None:
        plan = merge_plan(chain.steps, plan)
    check_plan(plan, tools)
    plan = settled(reply.question, plan, tools)
    check_question(reply.question, plan, server.tools, language, max_words)
    return plan


def _task(server: ToolServer, job: WritingJob, question: str, plan: tuple[ChainStep, ...]) -> Task:
    return Task(
        server_id=server.id,
        chain_id=job.chain.id if job.chain else None,
        kind=TaskKind.CHAIN if job.chain else TaskKind.SERVER,
        language=language_of(question, job.language),
        question=question,
        plan=plan,
        now=job.now,
        prompt_hash=template_hash(job.ask.template),
    )


def _count_sources(metrics: StageMetrics, chain: Chain | None, plan: Sequence[ChainStep]) -> None:
    """Count what the writer made of a chain's arguments."""
    for step, written in zip(chain.steps if chain else (), plan, strict=False):
        for name, source in written.arguments.items():
            before = step.arguments.get(name)
            if before is None:
                metrics.count("arguments_added")
            elif before.origin is not source.origin and source.origin is ArgumentOrigin.OUTPUT:
                metrics.count("arguments_from_results")


def merge_plan(chain: Sequence[ChainStep], written: Sequence[ChainStep]) -> tuple[ChainStep, ...]:
    """The chain with the written task's values; the order of tools must be the chain's.

    What the user was to give may come from an earlier result instead, or be left to the agent;
    optional arguments may be added, and a default may be said otherwise. What the chain takes from
    a result stays so, but for the positions in its lists: the request may be about the second of
    what was found.
    Raises TaskProblem if the written plan uses other tools or leaves a value out.
    """
    if [step.tool for step in chain] != [step.tool for step in written]:
        detail = f"{[s.tool for s in written]} instead of {[s.tool for s in chain]}"
        raise TaskProblem("plan_differs_from_chain", detail)
    merged: list[ChainStep] = []
    for index, (step, given) in enumerate(zip(chain, written, strict=True)):
        arguments: dict[str, ArgumentSource] = {**given.arguments}
        for name, source in step.arguments.items():
            if source.origin is ArgumentOrigin.OUTPUT:
                elsewhere = _other_position(source, arguments.get(name))
                arguments[name] = arguments[name] if elsewhere else source
            elif _says_nothing_else(source, arguments.get(name)):
                arguments[name] = source
            elif name not in given.arguments and source.origin is ArgumentOrigin.TASK:
                raise TaskProblem("plan_argument_missing", f"{index}.{name} of {step.tool}")
            else:
                arguments.setdefault(name, source)
        ordered = {name: arguments[name] for name in (*step.arguments, *given.arguments)}
        merged.append(ChainStep(tool=step.tool, arguments=ordered))
    return tuple(merged)


def _other_position(source: ArgumentSource, given: ArgumentSource | None) -> bool:
    """Whether the writer takes another element of the same list of the same result."""
    if given is None or given.step != source.step or len(given.path) != len(source.path):
        return False
    pairs = list(zip(source.path, given.path, strict=True))
    alike = all(a == b or (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    return alike and given.path != source.path


def _says_nothing_else(source: ArgumentSource, given: ArgumentSource | None) -> bool:
    """Whether a default stays: the writer repeats it, or leaves the choice to the agent."""
    if source.origin is not ArgumentOrigin.DEFAULT or given is None:
        return False
    if given.origin is ArgumentOrigin.CHOSEN:
        return True
    return canonical_json([source.value]) == canonical_json([given.value])


def language_of(question: str, expected: str) -> str:
    """The language of a question; ``expected`` where the text gives no evidence."""
    written = detect_language(question)
    return expected if written == UNKNOWN else written
