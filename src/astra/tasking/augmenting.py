"""Augmentation: new context, more demands, a persona; values, language and intent are kept."""

from __future__ import annotations

import random

from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.records.base import content_id
from astra.records.score import Rejection
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.tasking.asks import AUGMENT, Mode, augment_ask
from astra.tasking.checks import TaskProblem, check_preserved, check_question, task_literals
from astra.tasking.config import TasksConfig
from astra.tasking.writing import failed_ask, language_of

_OCCUPATIONS = (
    "nurse", "teacher", "clerk", "driver", "student", "farmer", "lawyer", "cook", "engineer",
    "retired builder", "shop owner", "translator", "police officer", "painter", "pilot",
)  # fmt: skip
_TRAITS = (
    "I like short answers.", "I am new here.", "I read a lot.", "I enjoy hiking.",
    "I work at night.", "I plan things well ahead.", "I play chess.", "I speak two languages.",
)  # fmt: skip


def persona(rng: random.Random) -> str:
    """Age, occupation and one trait, in two sentences."""
    occupation = rng.choice(_OCCUPATIONS)
    article = "an" if occupation[0] in "aeiou" else "a"
    return f"I am {article} {occupation} of {rng.randint(19, 78)} years. {rng.choice(_TRAITS)}"


async def augment_task(
    server: ToolServer, task: Task, mode: Mode, variant: int, teacher: Teacher, config: TasksConfig
) -> Task | Rejection:
    """A variant of ``task`` with the same plan, or the reason why there is none."""
    item = f"{task.id} {mode} {variant}"
    rng = random.Random(int(content_id([task.id, mode, variant]), 16))
    who = persona(rng) if mode == "persona" else ""
    try:
        literals = task_literals(task.plan)
        ask = augment_ask(server, task.question, literals, mode, who, variant)
        asked = (await teacher.ask(ask)).question
        check_preserved(task.question, asked, literals, task.language)
        check_question(asked, task.plan, server.tools, server.language, config.max_words)
    except (ProviderError, ParseError) as error:
        return failed_ask(item, error)
    except TaskProblem as problem:
        return Rejection(item=item, reason=problem.reason, detail=problem.detail)
    return Task(
        server_id=task.server_id,
        chain_id=task.chain_id,
        kind=task.kind,
        language=language_of(asked, server),
        question=asked,
        plan=task.plan,
        augmentation=mode,
        parent_id=task.id,
        withheld_tools=task.withheld_tools,
        prompt_hash=template_hash(AUGMENT),
    )
