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
from astra.tasking.asks import CHAIN_TASK, SCORE, TaskScores, WrittenTask, score_ask
from astra.tasking.checks import TaskProblem, check_plan, check_question, leaked_names
from astra.tasking.config import TasksConfig
from astra.tasking.measures import measure
from astra.tasking.offline.grammar import PlanText, question
from astra.tasking.offline.handlers import HANDLERS
from astra.tasking.pipeline import Models
from astra.tasking.tasks import tasks
from astra.tasking.writing import merge_plan
from astra.text.words import stands_in
from configs import block, changed

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


OWN: dict[str, Any] = {
    "teacher": MODEL,
    "judge": MODEL,
    "samples": 4,
    "server_tasks": {"per_server": 4, "max_tools": 3},
    "augment": {"share": 0.5, "diverse": 1, "complicate": 1, "persona": 1, "max_shared": None},
    "now": None,
    "personas": None,
    "unsolvable": {
        "missing_function": 0.15,
        "missing_parameter": 0.15,
        "irrelevant": 0.15,
        "donors": "recent",
    },
    "thresholds": {"uniqueness": 1},
    "max_words": 48,
    "near_duplicate_scope": "server",
    "min_live_tasks": 0,
    "max_live_tasks": 10,
    "max_tasks": None,
    "write_margin": 2.5,
}


def config(**changes: Any) -> TasksConfig:
    return TasksConfig.model_validate(changed(changed(block("tasks"), OWN), changes))


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
    wanted = config(**changes)
    share = wanted.share_written(len(servers), len(chains))
    async for one in tasks(servers, of, models, wanted, live, open_items, metrics, share):
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


def built(
    handlers: OfflineHandlers = HANDLERS, **changes: Any
) -> tuple[list[Task | Rejection], StageMetrics]:
    servers, chain = two_servers()
    metrics = StageMetrics("tasks")
    teacher = OfflineTeacher(MODEL, handlers)
    return asyncio.run(outcomes(servers, [chain], teacher, metrics, **changes)), metrics


def build(
    handlers: OfflineHandlers = HANDLERS, **changes: Any
) -> tuple[list[Task], StageMetrics, dict[str, ToolServer]]:
    found, metrics = built(handlers, **changes)
    selected = [one for one in found if isinstance(one, Task)]
    return selected, metrics, {item.id: item for item in two_servers()[0]}


def test_nested_plan_becomes_one_question_with_its_words() -> None:
    text = PlanText(nested("Amber Cove"), NAMED)
    asked = {question(text, random.Random(seed)) for seed in range(60)}
    assert "What is the tool shed of the grower of Amber Cove?" in asked
    assert any(q.startswith(("Find", "First", "Look")) and "that grower" in q for q in asked)
    assert len(asked) > 5
    assert all(stands_in("Amber Cove", q) for q in asked)


def described(name: str, description: str, output: dict[str, Any]) -> Tool:
    return tool(name, output, plot=THING).model_copy(update={"description": description})


def asked_of(one: Tool, path: tuple[str, ...] = ()) -> str:
    plan = [ChainStep(tool=one.name, arguments={"plot": said("Amber Cove")})]
    return PlanText(plan, {one.name: one}).noun(0, path)


def test_a_question_has_the_words_of_a_plain_description() -> None:
    rent = {"type": "integer"}
    vague = described("read_sheet", "Get the late rent of a plot.", rent)
    assert asked_of(vague) == "the late rent of Amber Cove"
    assert not PlanText([ChainStep(tool=vague.name, arguments={})], {vague.name: vague}).is_order(0)
    counted = described("show_card", "Count the visits of a plot with a given month.", rent)
    assert asked_of(counted) == "the number of visits of Amber Cove"
    other = described("read_sheet", "Reads a sheet.", rent)
    assert asked_of(other) == "the read sheet of Amber Cove"
    assert PlanText([ChainStep(tool=other.name, arguments={})], {other.name: other}).is_order(0)


def test_a_question_asks_for_what_a_record_holds() -> None:
    fields = {"grower": PERSON, "late_rent": {"type": "integer"}}
    record = described(
        "get_card",
        "Get the card of a plot: grower and late rent.",
        {"type": "object", "properties": fields, "required": list(fields)},
    )
    assert asked_of(record) == "the late rent of Amber Cove"
    assert asked_of(record, ("grower",)) == "the grower of Amber Cove"


def test_a_tool_that_is_called_by_a_verb_alone_is_ordered() -> None:
    number = {"type": "number"}
    multiply = tool("multiply", number, x=number, y=number)
    plan = [ChainStep(tool="multiply", arguments={"x": said(3), "y": said(5)})]
    text = PlanText(plan, {"multiply": multiply})
    assert text.is_order(0)
    assert text.order(0) == "multiply x 3 and y 5"


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
    ("name", "asked", "leaks"),
    [
        ("get_soil", "Use get_soil for Amber Cove.", True),
        ("getSoil", "Use getSoil for Amber Cove.", True),
        ("web-search", "Do a web-search for Amber Cove.", True),
        ("Search", "Search the notes for Amber Cove.", False),
        ("calculate", "Please calculate the area.", False),
        ("查询天气", "帮我查询天气", False),
        ("get_soil", "What soil do we get there?", False),
    ],
)
def test_plain_words_are_no_leaked_names(name: str, asked: str, leaks: bool) -> None:
    assert leaked_names(asked, [tool(name, {})]) == ([name] if leaks else [])


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
        return TaskScores(
            reason="",
            wrong_values=(),
            quality=5,
            realism=3,
            necessity=5,
            difficulty=1,
            uniqueness=1,
        )

    selected, metrics, _ = build({**HANDLERS, SCORE: strict})
    assert selected == []
    assert metrics.dropped["low_realism"] > 0
    assert metrics.dropped["ask_failed"] > 0


def test_a_broken_rule_is_a_try_that_counts_apart_and_the_second_one_stands() -> None:
    def careless(variables: Any, rng: random.Random) -> WrittenTask:
        written = HANDLERS[CHAIN_TASK](variables, rng)
        assert isinstance(written, WrittenTask)
        if "again" in variables:
            return written
        return written.model_copy(update={"question": "What is the tool shed of that grower?"})

    found, metrics = built({**HANDLERS, CHAIN_TASK: careless})
    chains = [one for one in found if isinstance(one, Task) and one.kind is TaskKind.CHAIN]
    assert chains
    tries = [one for one in found if isinstance(one, Rejection) and not one.final]
    assert {(one.reason, one.attempt) for one in tries} == {("value_not_stated", 0)}
    assert metrics.tries == {"value_not_stated": 4}
    assert "value_not_stated" not in metrics.dropped
    assert metrics.counts["values_stated"] > 0


def test_the_rule_judge_calls_wrong_what_does_not_stand_letter_by_letter() -> None:
    crops = ChainStep(tool="count_beds", arguments={"plot": said("Opal Bay"), "crop": said("corn")})
    for asked, wrong in (("How many corn beds has Opal Bay?", []),
                         ("How many maize beds has Opal Bay?", ["0.crop"])):  # fmt: skip
        task = Task(server_id="s", chain_id=None, kind=TaskKind.SERVER, language="en",
                    question=asked, plan=(crops,))  # fmt: skip
        ask = score_ask(server("club", "garden"), task)
        labels = HANDLERS[SCORE](ask.variables, random.Random(0))
        assert isinstance(labels, TaskScores)
        assert [one.place for one in labels.wrong_values] == wrong


def test_additions_of_small_numbers_need_no_tool() -> None:
    step = ChainStep(tool="calculate", arguments={"expression": said("17 + 25")})
    view = {"name": "s", "language": "en"}
    variables = {"server": view, "tools": [], "question": "Calculate the expression 17 + 25.",
                 "steps": [step.model_dump(mode="json")], "unstated": []}  # fmt: skip
    labels = HANDLERS[SCORE](variables, random.Random(0))
    assert isinstance(labels, TaskScores)
    assert labels.necessity < 3


def test_same_tasks_whatever_the_hash_seed(root: Path) -> None:
    code = (
        "import sys; sys.path[:0] = ['src', 'tests', 'tests/tasking']; import test_tasking as t;"
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
