"""Augmentation of tasks: another situation, more demands, another person (ASTRA section 3.2).

What a variant must keep is its calls, not its words: a judge works the calls out of the new
question alone, and a rule compares them with the variant's plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.prompting import joined_hashes, template_hash
from astra.records.graph import ChainStep
from astra.records.score import Rejection
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.tasking.asks import WrittenTask, as_plan
from astra.tasking.checks import TaskProblem, check_plan, check_question, said_in
from astra.tasking.config import TasksConfig
from astra.tasking.drafts import Draft
from astra.tasking.families import TaskFamily
from astra.tasking.personas import Person, offered
from astra.tasking.replanning import check_same_calls, said_anew
from astra.tasking.stated import settled
from astra.tasking.variant_asks import (
    COMPLICATE,
    DIVERSE,
    PERSONA,
    REPLAN,
    Mode,
    PersonalRequest,
    Rewritten,
    complicate_ask,
    diverse_ask,
    persona_ask,
    replan_ask,
)
from astra.tasking.writing import merge_plan
from astra.text.words import plain

TEMPLATES: dict[Mode, str] = {"diverse": DIVERSE, "complicate": COMPLICATE, "persona": PERSONA}
Reply = WrittenTask | Rewritten | PersonalRequest


@dataclass(frozen=True)
class Augmenter:
    """Makes variants of the tasks of one server."""

    server: ToolServer
    people: Sequence[Person]
    teacher: Teacher
    judge: Teacher
    config: TasksConfig

    async def variant(self, draft: Draft, mode: Mode, number: int) -> Draft | Rejection:
        """The ``number``-th variant in a mode, or the rejection that says why there is none."""
        task, origin = draft.task, draft.origin.of(f"{mode} {number}")
        try:
            reply = await self._written(task, mode, number)
        except (ProviderError, ParseError) as error:
            return origin.failed(error, task.question)
        if isinstance(reply, PersonalRequest) and not reply.person:
            return origin.rejected("persona_declined", task.question, reply.reason)
        try:
            variant = self._checked(task, mode, reply)
        except TaskProblem as problem:
            return origin.refused(problem, reply.question)
        return await self._confirmed(task, Draft(origin, variant))

    async def _written(self, task: Task, mode: Mode, number: int) -> Reply:
        """What the teacher writes. Raises ProviderError or ParseError."""
        server, words = self.server, self.config.max_words
        if mode == "diverse":
            return await self.teacher.ask(diverse_ask(server, task, number, words))
        literals = said_in(task.question, task.plan)
        if mode == "complicate":
            return await self.teacher.ask(complicate_ask(server, task, literals, number, words))
        people = offered(self.people, task, number)
        return await self.teacher.ask(persona_ask(server, task, literals, people, number, words))

    def _checked(self, task: Task, mode: Mode, reply: Reply) -> Task:
        """The variant, if rules find no fault in it. Raises TaskProblem."""
        question = reply.question
        if plain(question) == plain(task.question):
            raise TaskProblem("augmentation_unchanged", question)
        plan = task.plan
        if isinstance(reply, WrittenTask):
            plan = self._own_plan(task, reply)
        else:
            # Its values are looked for once it is known in which words it gives them.
            self._check_question(task, question, ())
        variant = Task(
            server_id=task.server_id,
            chain_id=task.chain_id,
            kind=task.kind,
            language=task.language,
            question=question,
            plan=plan,
            augmentation=mode,
            parent_id=task.id,
            now=task.now,
            prompt_hash=joined_hashes(template_hash(TEMPLATES[mode]), template_hash(REPLAN)),
        )
        if not TaskFamily(task, self.config.augment.max_shared).add(variant):
            raise TaskProblem("family_copy", question)
        return variant

    def _own_plan(self, task: Task, reply: WrittenTask) -> tuple[ChainStep, ...]:
        """The plan of a variant with values of its own. Raises TaskProblem."""
        tools = {tool.name: tool for tool in self.server.tools}
        plan = merge_plan(task.plan, as_plan(reply.steps))
        check_plan(plan, tools)
        plan = settled(reply.question, plan, tools)
        self._check_question(task, reply.question, plan)
        return plan

    def _check_question(self, task: Task, question: str, plan: Sequence[ChainStep]) -> None:
        tools, words = self.server.tools, self.config.max_words
        check_question(question, plan, tools, task.language, words)

    async def _confirmed(self, task: Task, draft: Draft) -> Draft | Rejection:
        """The variant, if its question alone leads the judge to the calls of its plan."""
        variant, origin = draft.task, draft.origin
        question = variant.question
        try:
            reply = await self.judge.ask(replan_ask(self.server, task, variant))
        except (ProviderError, ParseError) as error:
            return origin.failed(error, question)
        tools = {tool.name: tool for tool in self.server.tools}
        found = as_plan(reply.steps)
        try:
            check_same_calls(question, variant.plan, found, tools)
            plan = said_anew(question, variant.plan, found)
            self._check_question(task, question, plan)
        except TaskProblem as problem:
            return origin.rejected(problem.reason, f"{problem.detail}: {question}", reply.reason)
        # Made anew, since the id of a task comes from its plan.
        return Draft(origin, Task.model_validate(variant.model_dump() | {"id": "", "plan": plan}))
