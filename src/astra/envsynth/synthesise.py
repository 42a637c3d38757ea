"""Sub-questions made executable (ASTRA section 4.2): document, scaling, call, code, proof.

Failures of one try go back to the teacher as feedback: ``inner_attempts`` tries of call and
code per document, ``outer_attempts`` documents. What still fails is a counted rejection.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from astra.envsynth import asks
from astra.envsynth.candidates import Candidate, candidate_of
from astra.envsynth.config import EnvsConfig
from astra.envsynth.static import (
    Problem,
    call_problem,
    code_problem,
    document_problem,
    reach_problem,
)
from astra.envsynth.verify import verify
from astra.envsynth.worlds import has_writes, is_stateful, nodes_of, world_problem
from astra.llm.notes import PromptNotes
from astra.llm.pool import map_bounded
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion
from astra.records.score import Rejection
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

Outcome = Environment | Rejection


@dataclass
class _Node:
    """A sub-question on its way: where its retries stand and why the last one failed."""

    instance: QAInstance
    question: SubQuestion
    outer: int = 0
    inner: int = 0
    tool: Tool | None = None
    problem: Problem | None = None
    outcome: Outcome | None = None
    notes: PromptNotes = field(default_factory=PromptNotes)

    @property
    def feedback(self) -> str:
        return f"{self.problem[0]}: {self.problem[1]}" if self.problem else ""

    def fail(self, problem: Problem, config: EnvsConfig) -> None:
        """Move to the next try, or end with a rejection."""
        self.problem = problem
        self.inner += 1
        if self.tool is None or self.inner >= config.inner_attempts:
            self.outer, self.inner, self.tool = self.outer + 1, 0, None
        if self.outer >= config.outer_attempts:
            item = f"{self.instance.id}/{self.question.id}"
            self.outcome = Rejection(item=item, reason=problem[0], detail=problem[1])


@dataclass(frozen=True)
class _Draft:
    tool: Tool
    arguments: dict[str, object]
    code: str


async def synthesise(
    instances: Iterable[QAInstance],
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsConfig,
    concurrency: int,
) -> AsyncIterator[Outcome]:
    """One environment or rejection per sub-question that needs a tool, in the input's order."""
    for batch in _batches(instances, config.batch_instances):
        nodes = [
            _Node(instance, question)
            for instance in batch
            for question in nodes_of(instance, config.nodes)
        ]
        for node in nodes:
            node.outcome = _hopeless(node)
        while active := [node for node in nodes if node.outcome is None]:
            await _attempt(active, teacher, sandbox, config, concurrency)
        for node in nodes:
            assert node.outcome is not None
            yield node.outcome


def _hopeless(node: _Node) -> Rejection | None:
    """Why no teacher can help a sub-question."""
    item = f"{node.instance.id}/{node.question.id}"
    if node.question.tool_necessity is None:
        return Rejection(item=item, reason="necessity_unknown")
    if not has_writes(node.instance):
        return None
    problem = world_problem(node.instance, node.question)
    return problem and Rejection(item=item, reason=problem[0], detail=problem[1])


async def _attempt(
    nodes: Sequence[_Node],
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsConfig,
    concurrency: int,
) -> None:
    """One try of every node: ask what is missing, then verify all drafts together."""

    async def draft(node: _Node) -> _Draft | Problem:
        try:
            return await _draft(node, node.notes.of(teacher), config)
        except ProviderError as error:
            return "provider_error", str(error)[:200]
        except ParseError as error:
            return "parse_error", str(error)[:200]

    drafted: list[tuple[_Node, _Draft, Candidate]] = []
    replies = map_bounded(nodes, draft, concurrency)
    for node in nodes:
        result = await anext(replies)
        if isinstance(result, _Draft):
            drafted.append((node, result, _candidate(node, result)))
        else:
            node.fail(result, config)
    verdicts = verify([candidate for _, _, candidate in drafted], sandbox, config.sandbox)
    for (node, made, _), verdict in zip(drafted, verdicts, strict=True):
        if verdict.problem is not None:
            node.fail(verdict.problem, config)
            continue
        node.outcome = Environment(
            qa_id=node.instance.id,
            sub_question_id=node.question.id,
            tool=made.tool,
            code=made.code,
            arguments=dict(made.arguments),
            answer=node.question.answer,
            checks=verdict.checks,
            prompt_hash=node.notes.prompt_hash,
        )


async def _draft(node: _Node, teacher: Teacher, config: EnvsConfig) -> _Draft | Problem:
    """Ask for the document (unless one stands), the call and the code; cheap checks at once."""
    instance, question = node.instance, node.question
    sample = node.outer * config.inner_attempts + node.inner
    if node.tool is None:
        reply = await teacher.ask(asks.document_ask(instance, question, node.feedback, node.outer))
        scaled = await teacher.ask(
            asks.complexity_ask(instance, question, reply.tool.tool(), node.outer)
        )
        tool = scaled.tool.tool()
        problem = document_problem(tool, [question.answer])
        if problem is not None:
            return problem
        node.tool = tool
    tool = node.tool
    call = await teacher.ask(asks.call_ask(instance, question, tool, node.feedback, sample))
    problem = call_problem(tool, call.arguments)
    if problem is None and question.bar is None:
        problem = reach_problem(tool, call.arguments, _told(instance, question))
    if problem is not None:
        return problem
    code = await teacher.ask(
        asks.code_ask(
            instance, question, tool, call.arguments, config.other_keys, node.feedback, sample
        )
    )
    stateful = is_stateful(instance, question)
    problem = code_problem(tool, code.code, config.sandbox.allowed_imports, stateful)
    return problem or _Draft(tool=tool, arguments=call.arguments, code=code.code)


def _told(instance: QAInstance, question: SubQuestion) -> list[Any]:
    """What an agent can know before the call: the questions, and earlier answers."""
    answers = {one.id: one.answer.value for one in instance.sub_questions}
    earlier = [answers[number] for number in question.dependencies]
    return [instance.main_question, question.question, *earlier]


def _candidate(node: _Node, draft: _Draft) -> Candidate:
    calls = {node.question.id: dict(draft.arguments)}
    return candidate_of(node.instance, draft.tool, draft.code, calls)


def _batches(items: Iterable[QAInstance], size: int) -> Iterator[list[QAInstance]]:
    source = iter(items)
    while batch := list(itertools.islice(source, size)):
        yield batch
