"""Sub-questions made executable (ASTRA section 4.2): document, scaling, call, code, proof.

Each sub-question goes its own way:

1. ``worlds`` says which sub-questions get a tool, and what world a tool that writes meets.
2. ``asks`` puts the document, its scaling, the gold call and the code to the teacher; ``static``
   checks each reply before the next is asked for.
3. ``candidates`` adds wrong calls (``perturb``). ``batching`` gathers candidates of several
   sub-questions; ``verify`` executes their ``schedule`` in the sandbox; ``proof`` judges.

A failed try is a fault of one part (``faults``): only that part is asked for again, and the teacher
sees what it wrote with the reason. A document has ``inner_attempts`` tries of call and code; a
fault of its own ends it at once. There are ``outer_attempts`` documents, and ``max_asks`` asks in
all. What still fails is a rejection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from astra.envsynth import asks
from astra.envsynth.asks import FIRST_TRY, LastTry
from astra.envsynth.batching import Batcher
from astra.envsynth.candidates import CandidateTool, candidate_of
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.faults import OUTAGES, FailedTry, ToolPart, failure, fault_of
from astra.envsynth.fit import operation_problem
from astra.envsynth.leaks import secrets_of
from astra.envsynth.proof import Proof
from astra.envsynth.reach import reach_problem, value_problem
from astra.envsynth.static import (
    Problem,
    call_problem,
    code_problem,
    document_problem,
    recorded,
)
from astra.envsynth.truth import filters_of
from astra.envsynth.verify import Verify, verify
from astra.envsynth.wishes import name_problem, wishes_of
from astra.envsynth.worlds import Nodes, has_writes, is_stateful, needing_tool, world_problem
from astra.llm.notes import AskBudget, AskBudgetSpent, PromptNotes
from astra.llm.pool import sharded
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.qa.knowledge.references import literals
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion
from astra.records.score import Rejection
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.text.mentions import misspells

Outcome = Environment | Rejection
SAID_CHARS = 300
"""How much is kept of the reason that a teacher gives for not answering."""


@dataclass(frozen=True)
class ToolQuestion:
    """A sub-question that needs a tool."""

    instance: QAInstance
    question: SubQuestion

    def rejected(self, problem: Problem, attempt: int = 0, final: bool = True) -> Rejection:
        """The rejection of one try; ``final`` where no other followed."""
        return Rejection(
            item=self.instance.id,
            part=str(self.question.id),
            reason=problem[0],
            detail=recorded(problem),
            attempt=attempt,
            final=final,
        )


def count_nodes(instances: Iterable[QAInstance], nodes: Nodes) -> int:
    """How many sub-questions of the instances need a tool."""
    return sum(len(needing_tool(instance, nodes)) for instance in instances)


async def environments(
    instances: Iterable[QAInstance],
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Outcome, None]:
    """The outcomes of each sub-question that needs a tool, in the input's order: its failed tries,
    then its environment or the reason why there is none. Counts ``needing_tool`` as each is
    done, and ``instances`` as the outcomes of their last sub-question are yielded.
    """
    unfinished: Counter[str] = Counter()

    def tool_questions() -> Iterator[ToolQuestion]:
        for instance in instances:
            questions = needing_tool(instance, config.nodes)
            metrics.count("sub_questions", len(instance.sub_questions))
            if questions:
                unfinished[instance.id] = len(questions)
            else:
                metrics.count("instances")
            for question in questions:
                yield ToolQuestion(instance, question)

    def done(instance_id: str) -> None:
        unfinished[instance_id] -= 1
        if not unfinished[instance_id]:
            del unfinished[instance_id]
            metrics.count("instances")

    async def work(asked: ToolQuestion) -> tuple[str, list[Outcome]]:
        problem = _hopeless(asked)
        if problem is not None:
            outcomes: list[Outcome] = [asked.rejected(problem)]
        else:
            outcomes = await _Synthesis(asked, teacher, verifier.do, config).outcomes()
        metrics.count("needing_tool")
        return asked.instance.id, outcomes

    def proofs(candidates: Sequence[CandidateTool]) -> list[Proof]:
        return verify(candidates, sandbox, config.sandbox)

    async with (
        Batcher(proofs, config.verify_batch) as verifier,
        aclosing(sharded(tool_questions(), work, open_items)) as results,
    ):
        async for instance_id, outcomes in results:
            done(instance_id)
            for outcome in outcomes:
                yield outcome


def measure(metrics: StageMetrics, environment: Environment) -> None:
    """Add one environment to the stage's counts and distributions."""
    metrics.count("environments")
    for check, times in environment.checks.items():
        metrics.count(f"checks_{check}", times)
    metrics.distribution("parameters", [len(environment.tool.parameters["properties"])])
    metrics.distribution("answer_type", [environment.answer.type.value])


def summarise(metrics: StageMetrics) -> None:
    """Add the yield: environments over the sub-questions that needed a tool."""
    metrics.count("environments", 0)
    needed = metrics.counts["needing_tool"]
    metrics.value("yield", round(metrics.counts["environments"] / needed, 4) if needed else 0.0)


def _hopeless(asked: ToolQuestion) -> Problem | None:
    """Why no teacher can help a sub-question."""
    if asked.question.tool_necessity is None:
        return "necessity_unknown", ""
    if not has_writes(asked.instance):
        return None
    return world_problem(asked.instance, asked.question)


@dataclass
class _Draft:
    """A tool as far as the teacher wrote it."""

    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    code: str = ""
    rejected: dict[ToolPart, LastTry] = field(default_factory=dict[ToolPart, LastTry])
    """What the next ask for a part is told; nothing of what rests on a part taken back."""

    def take_back(self, fault: FailedTry) -> None:
        """Drop the part that failed and remember why; an outage says nothing about any."""
        if fault.problem[0] in OUTAGES:
            return
        reply = self.code or None
        if fault.part == ToolPart.CALL:
            reply, self.arguments = self.arguments, None
            self.rejected.pop(ToolPart.CODE, None)
        self.rejected[fault.part] = LastTry(": ".join(fault.problem), reply)
        self.code = ""


class _Synthesis:
    """One sub-question on its way: the parts that stand, and why each try so far failed."""

    def __init__(
        self, asked: ToolQuestion, teacher: Teacher, verify: Verify, config: EnvsConfig
    ) -> None:
        self._asked = asked
        self._notes = PromptNotes()
        self._teacher = self._notes.of(AskBudget(config.max_asks).of(teacher))
        self._verify = verify
        self._config = config
        self._problems: list[Problem] = []
        self._failed: FailedTry | None = None
        """The last try that failed as a whole."""

    async def outcomes(self) -> list[Outcome]:
        """The failed tries that were followed by another, and what came of the last one."""
        try:
            environment = await self._environment()
        except AskBudgetSpent as error:
            detail = f"{error}; the last problem was {self._last_problem or 'none'}"
            self._problems.append(("ask_budget_spent", detail))
            environment = None
        last = environment or self._asked.rejected(self._problems.pop(), len(self._problems))
        tries = (
            self._asked.rejected(problem, attempt, final=False)
            for attempt, problem in enumerate(self._problems)
        )
        return [*tries, last]

    @property
    def _last_problem(self) -> str:
        return ": ".join(self._problems[-1]) if self._problems else ""

    async def _environment(self) -> Environment | None:
        """The environment; None after the last try, with a problem for every one of them."""
        for outer in range(self._config.outer_attempts):
            draft = _Draft()
            for inner in range(self._config.inner_attempts):
                sample = outer * self._config.inner_attempts + inner
                result = await self._try(draft, outer, sample)
                if isinstance(result, Environment):
                    return result
                self._problems.append(result.problem)
                self._failed = result
                if result.part == ToolPart.DOCUMENT:  # nothing that rests on it can be tried again
                    break
                draft.take_back(result)
        return None

    async def _try(self, draft: _Draft, outer: int, sample: int) -> Environment | FailedTry:
        """Ask for the parts that are missing; cheap checks at once, then the proof.

        ``outer`` numbers the samples of documents, ``sample`` those of calls and codes.
        """
        instance, question = self._asked.instance, self._asked.question
        tool = draft.tool or await self._document(outer)
        if isinstance(tool, FailedTry):
            return tool
        draft.tool = tool
        arguments = draft.arguments or await self._call(draft, tool, sample)
        if isinstance(arguments, FailedTry):
            return arguments
        draft.arguments = arguments
        fault = None if draft.code else await self._code(draft, tool, arguments, sample)
        if fault is not None:
            return fault
        calls = {question.id: arguments}
        proof = await self._verify(candidate_of(instance, tool, draft.code, calls))
        if proof.problem is not None:
            return fault_of(proof.problem)
        return Environment(
            qa_id=instance.id,
            sub_question_id=question.id,
            tool=tool,
            code=draft.code,
            arguments=arguments,
            answer=question.answer,
            checks=proof.checks,
            prompt_hash=self._notes.prompt_hash,
        )

    async def _document(self, outer: int) -> Tool | FailedTry:
        """A document with its scaling."""
        instance, question = self._asked.instance, self._asked.question
        wishes = wishes_of(instance, question, self._config)
        ask = asks.document_ask(instance, question, wishes, self._failed, outer)
        try:
            tool = (await self._teacher.ask(ask)).tool.tool()
        except (ProviderError, ParseError) as error:
            return FailedTry(ToolPart.DOCUMENT, failure(error))
        problem = self._document_problem(tool)
        if asks.gains_filter(question):
            return await self._scaled(tool, problem, outer)
        return FailedTry(ToolPart.DOCUMENT, problem) if problem else tool

    async def _scaled(self, tool: Tool, problem: Problem | None, outer: int) -> Tool | FailedTry:
        """The document with a richer signature, as the teacher reviews it; ``problem``: its own.

        Where only the review fails, the document stays as it was: a filter is a wish.
        """
        instance, question = self._asked.instance, self._asked.question
        ask = asks.complexity_ask(instance, question, tool, self._failed, outer)
        try:
            scaled = (await self._teacher.ask(ask)).tool.tool()
        except ProviderError as error:
            return FailedTry(ToolPart.DOCUMENT, failure(error))
        except ParseError as error:
            fault = failure(error)
        else:
            found = self._document_problem(scaled)
            if found is None:
                return scaled
            fault = found
        if problem is not None:
            return FailedTry(ToolPart.DOCUMENT, fault)
        self._problems.append(fault)
        return tool

    def _document_problem(self, tool: Tool) -> Problem | None:
        instance, question = self._asked.instance, self._asked.question
        wishes = wishes_of(instance, question, self._config)
        return (
            document_problem(tool, secrets_of(instance), filters_of(instance, question))
            or operation_problem(tool, instance, question)
            or name_problem(wishes, tool, question.question)
        )

    async def _call(self, draft: _Draft, tool: Tool, sample: int) -> dict[str, Any] | FailedTry:
        """The gold call's arguments; those that fail stay in ``draft``."""
        instance, question = self._asked.instance, self._asked.question
        rejected = draft.rejected.get(ToolPart.CALL, FIRST_TRY)
        ask = asks.call_ask(instance, question, tool, sample, rejected)
        try:
            reply = await self._teacher.ask(ask)
        except (ProviderError, ParseError) as error:
            return FailedTry(ToolPart.CALL, failure(error))
        if reply.unreachable:
            return FailedTry(ToolPart.DOCUMENT, ("unreachable", reply.unreachable[:SAID_CHARS]))
        draft.arguments = reply.arguments
        problem = call_problem(tool, reply.arguments) or value_problem(
            instance, question, tool, reply.arguments
        )
        # The call of a barred step need not be one that an agent can make.
        if problem is None and question.bar is None:
            stated = question.operation.arguments if question.operation else ()
            problem = reach_problem(tool, reply.arguments, _told(instance, question), stated)
        return fault_of(problem) if problem else reply.arguments

    async def _code(
        self, draft: _Draft, tool: Tool, arguments: dict[str, Any], sample: int
    ) -> FailedTry | None:
        """Write the code into ``draft``; the fault of what came, if it has one."""
        instance, question = self._asked.instance, self._asked.question
        rejected = draft.rejected.get(ToolPart.CODE, FIRST_TRY)
        others = self._config.other_keys
        ask = asks.code_ask(instance, question, tool, arguments, others, sample, rejected)
        try:
            reply = await self._teacher.ask(ask)
        except (ProviderError, ParseError) as error:
            return FailedTry(ToolPart.CODE, failure(error))
        if reply.impossible:
            part = ToolPart.CALL if reply.call_at_fault else ToolPart.DOCUMENT
            return FailedTry(part, ("impossible", reply.impossible[:SAID_CHARS]))
        draft.code = reply.code
        stateful = is_stateful(instance, question)
        allowed = self._config.sandbox.allowed_imports
        problem = code_problem(tool, reply.code, allowed, stateful)
        return FailedTry(ToolPart.CODE, problem) if problem else None


def _told(instance: QAInstance, question: SubQuestion) -> list[Any]:
    """What an agent can know before the call: the main question, what that misspells, and earlier
    answers."""
    answers = {other.id: other.answer.value for other in instance.sub_questions}
    earlier = [answers[number] for number in question.dependencies]
    stated = literals(question.operation) if question.operation else []
    meant = [value for value in stated if misspells(instance.main_question, value)]
    return [instance.main_question, *meant, *earlier]
