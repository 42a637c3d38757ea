"""Written tasks: checks, grammar, augmentations, unsolvable kinds, determinism."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig, OfflineHandlers, ProviderError, Teacher
from astra.records.graph import ArgumentOrigin, ArgumentSource, Chain, ChainStep
from astra.records.score import Rejection, Unscored
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, Tool, ToolServer
from astra.store.metrics import StageMetrics
from astra.tasking.asks import SCORE, Rewritten, TaskScores
from astra.tasking.checks import TaskProblem, check_plan, check_preserved, check_question
from astra.tasking.config import TasksConfig
from astra.tasking.offline.grammar import PlanText, question
from astra.tasking.offline.handlers import HANDLERS
from astra.tasking.tasks import Models, measure, tasks
from astra.tasking.writing import merge_plan
from astra.text.words import stands_in

MODEL = ModelConfig(backend="offline", model="test")
THING = {"type": "string", "x-entity": "thing"}
PERSON = {"type": "string", "x-entity": "person"}
CROP = {"type": "string", "enum": ["beans", "corn", "kale"]}


def tool(name: str, output: dict[str, Any], **parameters: Any) -> Tool:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return Tool(name=name, description=name, parameters=schema, output_schema=output)


TOOLS = (
    tool("find_grower", {"title": "grower", **PERSON}, plot=THING),
    tool("get_tool_shed", {"title": "shed", **THING}, grower=PERSON),
    tool("count_beds", {"type": "integer"}, plot=THING, crop=CROP),
    tool("get_soil", {"type": "string"}, plot=THING),
)
NAMED = {item.name: item for item in TOOLS}


def server(name: str, domain: str, tools: tuple[Tool, ...] = TOOLS) -> ToolServer:
    return ToolServer(
        name=name, title=name, description="", domain=domain, source="t", licence="MIT",
        language="en", execution=Execution.EMULATED, deterministic=True, tools=tools,
    )  # fmt: skip


def said(value: Any) -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.TASK, value=value)


def piped(step: int) -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=step)


def nested(plot: Any) -> tuple[ChainStep, ...]:
    return (
        ChainStep(tool="find_grower", arguments={"plot": said(plot)}),
        ChainStep(tool="get_tool_shed", arguments={"grower": piped(0)}),
    )


def config(**changes: Any) -> TasksConfig:
    values: dict[str, Any] = {
        "teacher": MODEL,
        "judge": MODEL,
        "samples": 4,
        "server_tasks": {"per_server": 4, "max_tools": 3},
        "augment": {"share": 0.5, "diverse": 1, "complicate": 1, "persona": 1},
        "languages": {},
        "personas": None,
        "unsolvable": {
            "missing_function": 0.3,
            "missing_parameter": 0.3,
            "irrelevant": 0.3,
            "donors": "recent",
        },
        "thresholds": {
            "quality": 4,
            "realism": 4,
            "necessity": 3,
            "difficulty": 1,
            "uniqueness": 1,
        },
        "max_words": 48,
        "near_duplicate": 0.9,
        "near_duplicate_scope": "server",
        "max_live_tasks": 10,
    }
    return TasksConfig.model_validate(values | changes)


async def outcomes(
    servers: Sequence[ToolServer],
    chains: Sequence[Chain],
    teacher: Teacher,
    metrics: StageMetrics,
    open_items: int = 6,
    **changes: Any,
) -> list[Task | Rejection]:
    """All that comes of the servers, counted as a stage counts it."""

    def of(server_id: str) -> list[Chain]:
        return [chain for chain in chains if chain.server_id == server_id]

    live = sum(one.execution is Execution.LIVE for one in servers)
    models = Models(teacher, teacher)
    found: list[Task | Rejection] = []
    async for one in tasks(servers, of, models, config(**changes), live, open_items, metrics):
        metrics.reject(one) if isinstance(one, Rejection) else measure(metrics, one)
        found.append(one)
    return found


def two_servers() -> tuple[list[ToolServer], Chain]:
    other = (
        tool("find_vet", PERSON, pet=THING),
        tool("get_collar", {"type": "string"}, pet=THING),
        tool("get_cage", {"type": "integer"}, pet=THING),
    )
    servers = [server("club", "garden"), server("clinic", "animals", other)]
    chain = Chain(
        server_id=servers[0].id, steps=nested(None), walk_weight=1, votes_for=1, votes_against=0,
        task_sketch="",
    )  # fmt: skip
    return servers, chain


def build(
    handlers: OfflineHandlers = HANDLERS, **changes: Any
) -> tuple[list[Task], StageMetrics, dict[str, ToolServer]]:
    servers, chain = two_servers()
    metrics = StageMetrics("tasks")
    teacher = OfflineTeacher(MODEL, handlers)
    found = asyncio.run(outcomes(servers, [chain], teacher, metrics, **changes))
    selected = [one for one in found if isinstance(one, Task)]
    return selected, metrics, {item.id: item for item in servers}


def test_nested_plan_becomes_one_question_with_its_words() -> None:
    text = PlanText(nested("Amber Cove"), NAMED)
    asked = {question(text, random.Random(seed)) for seed in range(60)}
    assert "What is the tool shed of the grower of Amber Cove?" in asked
    assert any(q.startswith(("Find", "First", "Look")) and "that grower" in q for q in asked)
    assert len(asked) > 5
    assert all(stands_in("Amber Cove", q) for q in asked)


@pytest.mark.parametrize(
    ("literal", "text", "there"),
    [
        ("4", "row 42", False),
        ("4", "row 4.", True),
        ("4", "row 4.5", False),
        ("Amber Cove", "of Amber Cove?", True),
        ("Amber Cove", "of amber cove", False),
        ("corn", "Corn beds", True),
    ],
)
def test_a_value_counts_only_as_a_whole(literal: str, text: str, there: bool) -> None:
    assert stands_in(literal, text) is there


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("What is the tool shed of the grower?", "value_not_stated"),
        ("Call get_tool_shed for Amber Cove please.", "tool_named"),
        ("Amber Cove", "question_too_short"),
        ("Amber Cove " + "and more " * 30, "question_too_long"),
        ("告诉我 Amber Cove 的种植者的工具棚在哪里", "language_changed"),
    ],
)
def test_bad_questions_are_refused(asked: str, reason: str) -> None:
    with pytest.raises(TaskProblem) as problem:
        check_question(asked, nested("Amber Cove"), TOOLS, "en", 48)
    assert problem.value.reason == reason


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ((), "plan_empty"),
        ((ChainStep(tool="ghost", arguments={}),), "plan_unknown_tool"),
        ((ChainStep(tool="get_soil", arguments={}),), "plan_argument_missing"),
        ((ChainStep(tool="get_soil", arguments={"plot": piped(0)}),), "plan_bad_reference"),
        ((ChainStep(tool="get_soil", arguments={"plot": said(3)}),), "value_violates_schema"),
        (
            (ChainStep(tool="get_soil", arguments={"plot": said("A"), "x": said(1)}),),
            "plan_unknown_argument",
        ),
    ],
)
def test_bad_plans_are_refused(plan: tuple[ChainStep, ...], reason: str) -> None:
    with pytest.raises(TaskProblem) as problem:
        check_plan(plan, NAMED)
    assert problem.value.reason == reason


def test_plan_must_follow_the_chain() -> None:
    with pytest.raises(TaskProblem, match="find_grower"):
        merge_plan(nested(None), nested("Amber Cove")[:1])
    assert merge_plan(nested(None), nested("Amber Cove")) == nested("Amber Cove")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("What is the soil of Amber Cove?", "augmentation_unchanged"),
        ("I ask you: what is the soil of Amber Dale?", "augmentation_lost_value"),
        ("Amber Cove is lovely, tell me everything you know", "augmentation_lost_intent"),
    ],
)
def test_augmentation_must_preserve(changed: str, reason: str) -> None:
    with pytest.raises(TaskProblem) as problem:
        check_preserved("What is the soil of Amber Cove?", changed, ["Amber Cove"], "en")
    assert problem.value.reason == reason


def test_all_kinds_are_built_and_hold_their_promise() -> None:
    selected, metrics, servers = build()
    kinds = {task.kind for task in selected}
    assert kinds == set(TaskKind)
    assert {task.augmentation for task in selected} == {"none", "diverse", "complicate", "persona"}
    for task in selected:
        own = servers[task.server_id]
        if task.kind in (TaskKind.CHAIN, TaskKind.SERVER):
            check_plan(task.plan, {item.name: item for item in own.tools})
            check_question(task.question, task.plan, own.tools, "en", 48)
        elif task.kind is TaskKind.MISSING_FUNCTION:
            assert set(task.withheld_tools) < {item.name for item in own.tools}
            assert task.plan == ()
        elif task.kind is TaskKind.MISSING_PARAMETER:
            values = [s.value for step in task.plan for s in step.arguments.values()
                      if s.origin is ArgumentOrigin.TASK]  # fmt: skip
            assert values.count(None) == 1
        else:
            assert isinstance(task.scores["necessity"], Unscored)
    assert metrics.counts["tasks"] == len(selected)


def test_low_scores_and_outages_of_the_judge_drop_tasks() -> None:
    def strict(variables: Any, rng: random.Random) -> TaskScores:
        if len(variables["question"]) % 2:
            raise ProviderError("down")
        return TaskScores(reason="", quality=5, realism=3, necessity=5, difficulty=1, uniqueness=1)

    selected, metrics, _ = build({**HANDLERS, SCORE: strict})
    assert selected == []
    assert metrics.dropped["low_realism"] > 0
    assert metrics.dropped["ask_failed"] > 0


def test_teacher_that_drops_values_adds_no_variant() -> None:
    def vandal(variables: Any, rng: random.Random) -> Rewritten:
        return Rewritten(question="Something else entirely is asked here.")

    selected, metrics, _ = build({**HANDLERS, "tasking/augment": vandal})
    assert {task.augmentation for task in selected} == {"none"}
    assert metrics.dropped["augmentation_lost_value"] > 0


def test_additions_of_small_numbers_need_no_tool() -> None:
    step = ChainStep(tool="calculate", arguments={"expression": said("17 + 25")})
    view = {"name": "s", "language": "en"}
    variables = {"server": view, "tools": [], "question": "Calculate the expression 17 + 25.",
                 "kind": "chain", "steps": [step.model_dump(mode="json")]}  # fmt: skip
    assert HANDLERS[SCORE](variables, random.Random(0)).necessity < 3


def test_same_tasks_whatever_the_hash_seed(root: Path) -> None:
    code = (
        "import sys; sys.path[:0] = ['src', 'tests/tasking']; import test_tasking as t;"
        "print([task.id for task in t.build()[0]])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 200
