"""Sub-questions made executable (ASTRA section 4.2): document, scaling, call, code, proof.

Each sub-question goes its own way. Failures of one try go back to the teacher as feedback:
``inner_attempts`` tries of call and code per document, ``outer_attempts`` documents, and
``max_asks`` asks in all. What still fails is a rejection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from astra.envsynth import asks
from astra.envsynth.batching import Batcher
from astra.envsynth.candidates import CandidateTool, Proof, candidate_of
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.static import (
    Problem,
    call_problem,
    code_problem,
    document_problem,
    reach_problem,
    recorded,
)
from astra.envsynth.verify import verify
from astra.envsynth.worlds import has_writes, is_stateful, nodes_of, world_problem
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
Verify = Callable[[CandidateTool], Awaitable[Proof]]


@dataclass(frozen=True)
class ToolQuestion:
    """A sub-question that needs a tool."""

    instance: QAInstance
    question: SubQuestion

    def rejected(self, problem: Problem, attempt: int = 0, final: bool = True) -> Rejection:
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
    """Per sub-question that needs a tool, in the input's order: its failed tries, and then its
    environment or why there is none. Counts ``instances`` as their last sub-question is done.
    """
    unfinished: Counter[str] = Counter()

    def nodes() -> Iterator[ToolQuestion]:
        for instance in instances:
            questions = nodes_of(instance, config.nodes)
            unfinished[instance.id] = len(questions)
            metrics.count("sub_questions", len(instance.sub_questions))
            metrics.count("instances", int(not questions))
            for question in questions:
                yield ToolQuestion(instance, question)

    async def work(node: ToolQuestion) -> list[Outcome]:
        hopeless = _hopeless(node)
        if hopeless is not None:
            outcomes: list[Outcome] = [node.rejected(hopeless)]
        else:
            outcomes = await _Synthesis(node, teacher, verifier.do, config).outcomes()
        unfinished[node.instance.id] -= 1
        metrics.count("needing_tool")
        if not unfinished[node.instance.id]:
            del unfinished[node.instance.id]
            metrics.count("instances")
        return outcomes

    def verified(candidates: Sequence[CandidateTool]) -> list[Proof]:
        return verify(candidates, sandbox, config.sandbox)

    async with (
        Batcher(verified, config.verify_batch) as verifier,
        aclosing(flow(nodes(), work, open_items)) as outcomes,
    ):
        async for outcome in outcomes:
            yield outcome


def measure(metrics: StageMetrics, made: Environment) -> None:
    """Add one environment to the stage's counts and distributions."""
    metrics.count("environments")
    for check, times in made.checks.items():
        metrics.count(f"checks_{check}", times)
    metrics.distribution("parameters", [len(made.tool.parameters["properties"])])
    metrics.distribution("answer_type", [made.answer.type.value])


def summarise(metrics: StageMetrics) -> None:
    """Add what is known at the end."""
    metrics.count("environments", 0)
    whole = metrics.counts["needing_tool"]
    metrics.value("yield", round(metrics.counts["environments"] / whole, 4) if whole else 0.0)


def _hopeless(node: ToolQuestion) -> Problem | None:
    """Why no teacher can help a sub-question."""
    if node.question.tool_necessity is None:
        return "necessity_unknown", ""
    if not has_writes(node.instance):
        return None
    return world_problem(node.instance, node.question)


@dataclass(frozen=True)
class _Draft:
    tool: Tool
    arguments: dict[str, object]
    code: str


class _Synthesis:
    """One sub-question on its way: what stands so far, and why each try before failed."""

    def __init__(
        self, node: ToolQuestion, teacher: Teacher, verify: Verify, config: EnvsConfig
    ) -> None:
        self._node = node
        self._notes = PromptNotes()
        self._teacher = self._notes.of(AskBudget(config.max_asks).of(teacher))
        self._verify = verify
        self._config = config
        self._tool: Tool | None = None
        self._problems: list[Problem] = []

    async def outcomes(self) -> list[Outcome]:
        """The failed tries that were followed by another, and what came of the last one."""
        try:
            made = await self._made()
        except AskBudgetSpent as error:
            detail = f"{error}; the last problem was {self._feedback or 'none'}"
            self._problems.append(("ask_budget_spent", detail))
            made = None
        last = made or self._node.rejected(self._problems.pop(), len(self._problems))
        tries = (
            self._node.rejected(problem, attempt, final=False)
            for attempt, problem in enumerate(self._problems)
        )
        return [*tries, last]

    @property
    def _feedback(self) -> str:
        return ": ".join(self._problems[-1]) if self._problems else ""

    async def _made(self) -> Environment | None:
        """The environment; None after the last try, with a problem for every one of them."""
        for outer in range(self._config.outer_attempts):
            self._tool = None
            for inner in range(self._config.inner_attempts):
                made = await self._try(outer, inner)
                if isinstance(made, Environment):
                    return made
                self._problems.append(made)
                if self._tool is None:  # without a document there is nothing to try again
                    break
        return None

    async def _try(self, outer: int, inner: int) -> Environment | Problem:
        try:
            made = await self._draft(outer, outer * self._config.inner_attempts + inner)
        except ProviderError as error:
            return "provider_error", str(error)[:200]
        except ParseError as error:
            return "parse_error", str(error)[:200]
        if not isinstance(made, _Draft):
            return made
        instance, question = self._node.instance, self._node.question
        calls = {question.id: dict(made.arguments)}
        verdict = await self._verify(candidate_of(instance, made.tool, made.code, calls))
        if verdict.problem is not None:
            return verdict.problem
        return Environment(
            qa_id=instance.id,
            sub_question_id=question.id,
            tool=made.tool,
            code=made.code,
            arguments=dict(made.arguments),
            answer=question.answer,
            checks=verdict.checks,
            prompt_hash=self._notes.prompt_hash,
        )

    async def _draft(self, outer: int, sample: int) -> _Draft | Problem:
        """Ask for the document (unless one stands), the call and the code; cheap checks at once."""
        instance, question = self._node.instance, self._node.question
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
    answers = {one.id: one.answer.value for one in instance.sub_questions}
    earlier = [answers[number] for number in question.dependencies]
    return [instance.main_question, question.question, *earlier]
