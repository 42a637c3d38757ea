"""Augmentation of tasks: new context, more demands, a persona; values and intent are kept."""

from __future__ import annotations

import random
from collections.abc import Sequence

from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.records.base import content_id
from astra.records.score import Rejection
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.tasking.asks import AUGMENT, Mode, augment_ask
from astra.tasking.checks import TaskProblem, check_preserved, check_question, task_literals
from astra.tasking.config import TasksConfig
from astra.tasking.drafts import Draft
from astra.tasking.personas import Person, introductions


async def augment_task(
    server: ToolServer,
    draft: Draft,
    mode: Mode,
    variant: int,
    people: Sequence[Person],
    teacher: Teacher,
    config: TasksConfig,
) -> Draft | Rejection:
    """A variant of a task with the same plan, or the rejection that says why there is none."""
    task, origin = draft.task, draft.origin.of(f"{mode} {variant}")
    persona = _persona(task, variant, people) if mode == "persona" else ""
    literals = task_literals(task.plan)
    ask = augment_ask(server, task, literals, mode, persona, variant, config.max_words)
    try:
        question = (await teacher.ask(ask)).question
    except (ProviderError, ParseError) as error:
        return origin.failed(error)
    try:
        check_preserved(task.question, question, literals, task.language)
        check_question(question, task.plan, server.tools, task.language, config.max_words)
    except TaskProblem as problem:
        return origin.refused(problem, question)
    variant_task = Task(
        server_id=task.server_id,
        chain_id=task.chain_id,
        kind=task.kind,
        language=task.language,
        question=question,
        plan=task.plan,
        augmentation=mode,
        parent_id=task.id,
        withheld_tools=task.withheld_tools,
        prompt_hash=template_hash(AUGMENT),
    )
    return Draft(origin, variant_task)


def _persona(task: Task, variant: int, people: Sequence[Person]) -> str:
    """How the person of this variant introduces themselves; each variant has another person."""
    if people:
        rng = random.Random(int(content_id([task.id, "persona"]), 16))
        return introductions(people, task.language, variant + 1, rng)[variant]
    rng = random.Random(int(content_id([task.id, "persona", variant]), 16))
    return introductions((), task.language, 1, rng)[0]
