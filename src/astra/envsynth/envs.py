"""Sub-questions made executable (ASTRA section 4.2): document, scaling, call, code, proof.

Each sub-question goes its own way:

1. ``worlds`` says which sub-questions get a tool, and what world a tool that writes meets.
2. ``asks`` puts the document, its scaling, the gold call and the code to the teacher; ``static``
   checks each reply before the next is asked for.
3. ``candidates`` adds wrong calls (``perturb``). ``batching`` gathers candidates of several
   sub-questions; ``verify`` executes their ``schedule`` in the sandbox; ``proof`` judges.

The problem of a failed try goes back to the teacher as feedback: ``inner_attempts`` tries of call
and code per document, ``outer_attempts`` documents, and ``max_asks`` asks in all. What still fails
is a rejection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from astra.envsynth import asks
from astra.envsynth.batching import Batcher
from astra.envsynth.candidates import CandidateTool, candidate_of
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.proof import Proof
from astra.envsynth.static import (
    Problem,
    call_problem,
    code_problem,
    document_problem,
    reach_problem,
    recorded,
)
from astra.envsynth.verify import Verify, verify
from astra.envsynth.worlds import has_writes, is_stateful, needing_tool, world_problem
from astra.llm.notes import AskBudget, AskBudgetSpent, PromptNotes
from astra.llm.pool import flow
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion
from astra.records.score import Rejection
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics

Outcome = Environment | Rejection


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


async def environments(
    instances: Iterable[QAInstance],
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsConfig,
    open_items: int,
    metrics: StageMetrics,
) -> AsyncGenerator[Outcome, None]:
    """The outcomes of each sub-question that needs a tool, in the input's order: its failed tries,
    then its environment or the reason why there is none. Counts ``instances`` as their last
    sub-question is done.
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

    async def work(asked: ToolQuestion) -> list[Outcome]:
        problem = _hopeless(asked)
        if problem is not None:
            outcomes: list[Outcome] = [asked.rejected(problem)]
        else:
            outcomes = await _Synthesis(asked, teacher, verifier.do, config).outcomes()
        unfinished[asked.instance.id] -= 1
        metrics.count("needing_tool")
        if not unfinished[asked.instance.id]:
            del unfinished[asked.instance.id]
            metrics.count("instances")
        return outcomes

    def proofs(candidates: Sequence[CandidateTool]) -> list[Proof]:
        return verify(candidates, sandbox, config.sandbox)

    async with (
        Batcher(proofs, config.verify_batch) as verifier,
        aclosing(flow(tool_questions(), work, open_items)) as outcomes,
    ):
        async for outcome in outcomes:
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


@dataclass(frozen=True)
class _Draft:
    """A tool as the teacher wrote it, with its gold call."""

    tool: Tool
    arguments: dict[str, object]
    code: str


class _Synthesis:
    """One sub-question on its way: the document that stands, and why each try so far failed."""

    def __init__(
        self, asked: ToolQuestion, teacher: Teacher, verify: Verify, config: EnvsConfig
    ) -> None:
        self._asked = asked
        self._notes = PromptNotes()
        self._teacher = self._notes.of(AskBudget(config.max_asks).of(teacher))
        self._verify = verify
        self._config = config
        self._tool: Tool | None = None
        self._problems: list[Problem] = []

    async def outcomes(self) -> list[Outcome]:
        """The failed tries that were followed by another, and what came of the last one."""
        try:
            environment = await self._environment()
        except AskBudgetSpent as error:
            detail = f"{error}; the last problem was {self._feedback or 'none'}"
            self._problems.append(("ask_budget_spent", detail))
            environment = None
        last = environment or self._asked.rejected(self._problems.pop(), len(self._problems))
        tries = (
            self._asked.rejected(problem, attempt, final=False)
            for attempt, problem in enumerate(self._problems)
        )
        return [*tries, last]

    @property
    def _feedback(self) -> str:
        return ": ".join(self._problems[-1]) if self._problems else ""

    async def _environment(self) -> Environment | None:
        """The environment; None after the last try, with a problem for every one of them."""
        for outer in range(self._config.outer_attempts):
            self._tool = None
            for inner in range(self._config.inner_attempts):
                result = await self._try(outer, inner)
                if isinstance(result, Environment):
                    return result
                self._problems.append(result)
                if self._tool is None:  # without a document there is nothing to try again
                    break
        return None

    async def _try(self, outer: int, inner: int) -> Environment | Problem:
        try:
            draft = await self._draft(outer, outer * self._config.inner_attempts + inner)
        except (ProviderError, ParseError) as error:
            return asks.failure(error)
        if not isinstance(draft, _Draft):
            return draft
        instance, question = self._asked.instance, self._asked.question
        calls = {question.id: dict(draft.arguments)}
        proof = await self._verify(candidate_of(instance, draft.tool, draft.code, calls))
        if proof.problem is not None:
            return proof.problem
        return Environment(
            qa_id=instance.id,
            sub_question_id=question.id,
            tool=draft.tool,
            code=draft.code,
            arguments=dict(draft.arguments),
            answer=question.answer,
            checks=proof.checks,
            prompt_hash=self._notes.prompt_hash,
        )

    async def _draft(self, outer: int, sample: int) -> _Draft | Problem:
        """Ask for the document (unless one stands), the call and the code; cheap checks at once.

        ``outer`` numbers the samples of documents, ``sample`` those of calls and codes.
        """
        instance, question = self._asked.instance, self._asked.question
        ask, feedback = self._teacher.ask, self._feedback
        if self._tool is None:
            reply = await ask(asks.document_ask(instance, question, feedback, outer))
            scaled = await ask(asks.complexity_ask(instance, question, reply.tool.tool(), outer))
            tool = scaled.tool.tool()
            problem = document_problem(tool, [question.answer])
            if problem is not None:
                return problem
            self._tool = tool
        tool = self._tool
        call = await ask(asks.call_ask(instance, question, tool, feedback, sample))
        problem = call_problem(tool, call.arguments)
        # The call of a barred step need not be one that an agent can make.
        if problem is None and question.bar is None:
            problem = reach_problem(tool, call.arguments, _told(instance, question))
        if problem is not None:
            return problem
        others = self._config.other_keys
        code = await ask(
            asks.code_ask(instance, question, tool, call.arguments, others, feedback, sample)
        )
        stateful = is_stateful(instance, question)
        allowed = self._config.sandbox.allowed_imports
        problem = code_problem(tool, code.code, allowed, stateful)
        return problem or _Draft(tool=tool, arguments=call.arguments, code=code.code)


def _told(instance: QAInstance, question: SubQuestion) -> list[Any]:
    """What an agent can know before the call: the questions, and earlier answers."""
    answers = {other.id: other.answer.value for other in instance.sub_questions}
    earlier = [answers[number] for number in question.dependencies]
    return [instance.main_question, question.question, *earlier]
