"""Base tasks: written for a chain or for a server, then checked by rule (ASTRA section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.records.base import content_id
from astra.records.graph import ArgumentOrigin, Chain, ChainStep
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import ToolServer
from astra.tasking.asks import (
    CHAIN_TASK,
    SERVER_TASK,
    WrittenTask,
    as_plan,
    chain_task_ask,
    server_task_ask,
)
from astra.tasking.checks import TaskProblem, check_plan, check_question
from astra.tasking.config import TasksConfig
from astra.tasking.drafts import Draft, Origin
from astra.text.language import UNKNOWN, detect_language


@dataclass(frozen=True)
class WritingJob:
    """One base task to write: for ``chain``, or for the server alone."""

    ask: Ask[WrittenTask]
    chain: Chain | None
    language: str
    origin: Origin


def base_jobs(server: ToolServer, chains: Sequence[Chain], config: TasksConfig) -> list[WritingJob]:
    """The writing jobs of one server, in a fixed order: samples per chain, then for the server."""
    jobs: list[WritingJob] = []
    for chain in chains:
        for sample in range(config.samples):
            language = _language(server, chain.id, sample, config.languages)
            ask = chain_task_ask(server, chain, sample, language, config.max_words)
            origin = Origin(chain.id, f"{CHAIN_TASK} sample {sample}")
            jobs.append(WritingJob(ask, chain, language, origin))
    for number in range(1, min(config.server_tasks.max_tools, len(server.tools)) + 1):
        for sample in range(config.server_tasks.per_server):
            language = _language(server, str(number), sample, config.languages)
            ask = server_task_ask(server, number, sample, language, config.max_words)
            origin = Origin(server.id, f"{SERVER_TASK} number {number} sample {sample}")
            jobs.append(WritingJob(ask, None, language, origin))
    return jobs


def _language(server: ToolServer, item: str, sample: int, shares: Mapping[str, float]) -> str:
    """The language to write in: one of ``shares`` by a hash, or the server's own."""
    ticket = int(content_id(["language", server.id, item, sample]), 16) / 16**16
    for language, share in sorted(shares.items()):
        if ticket < share:
            return language
        ticket -= share
    return server.language


async def write_task(
    server: ToolServer, job: WritingJob, teacher: Teacher, config: TasksConfig
) -> Draft | Rejection:
    """The written and checked task, or the rejection that says why there is none."""
    try:
        reply = await teacher.ask(job.ask)
    except (ProviderError, ParseError) as error:
        return job.origin.failed(error)
    try:
        plan = as_plan(reply.steps)
        if job.chain is not None:
            plan = merge_plan(job.chain.steps, plan)
        check_plan(plan, {tool.name: tool for tool in server.tools})
        check_question(reply.question, plan, server.tools, job.language, config.max_words)
    except TaskProblem as problem:
        return job.origin.refused(problem, reply.question)
    task = Task(
        server_id=server.id,
        chain_id=job.chain.id if job.chain else None,
        kind=TaskKind.CHAIN if job.chain else TaskKind.SERVER,
        language=language_of(reply.question, job.language),
        question=reply.question,
        plan=plan,
        prompt_hash=template_hash(job.ask.template),
    )
    return Draft(job.origin, task)


def merge_plan(chain: Sequence[ChainStep], written: Sequence[ChainStep]) -> tuple[ChainStep, ...]:
    """The chain with the written task's values; the order of tools must be the chain's.

    Raises TaskProblem if the written plan uses other tools or leaves a value out.
    """
    if [step.tool for step in chain] != [step.tool for step in written]:
        detail = f"{[s.tool for s in written]} instead of {[s.tool for s in chain]}"
        raise TaskProblem("plan_differs_from_chain", detail)
    merged: list[ChainStep] = []
    for step, given in zip(chain, written, strict=True):
        arguments = dict(step.arguments)
        for name, source in step.arguments.items():
            if source.origin is not ArgumentOrigin.TASK:
                continue
            if name not in given.arguments or given.arguments[name].value is None:
                raise TaskProblem("plan_argument_missing", f"{step.tool}.{name}")
            arguments[name] = source.model_copy(update={"value": given.arguments[name].value})
        merged.append(ChainStep(tool=step.tool, arguments=arguments))
    return tuple(merged)


def language_of(question: str, expected: str) -> str:
    """The language of a question; ``expected`` where the text gives no evidence."""
    written = detect_language(question)
    return expected if written == UNKNOWN else written
