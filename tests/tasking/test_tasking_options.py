"""What the larger scales turn on: Chinese, people from a file, thresholds, the whole set."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from test_tasking import NAMED, build, nested, piped, said, server, tool

from astra.prompting import render
from astra.records.graph import Chain, ChainStep
from astra.records.task import Task, TaskKind
from astra.settings import ParamsError, validate
from astra.tasking.asks import (
    SCORE,
    TaskScores,
    WrittenTask,
    chain_task_ask,
    score_ask,
    server_task_ask,
)
from astra.tasking.checks import TaskProblem, check_question, task_literals
from astra.tasking.config import TasksConfig
from astra.tasking.offline.grammar_zh import ChineseText, question
from astra.tasking.offline.handlers import HANDLERS
from astra.tasking.personas import PersonasError, load_people, offered
from astra.tasking.pipeline import Originals
from astra.tasking.scoring import SOLVABLE
from astra.tasking.unsolvable import Donor, Donors, donor_of, misplaced
from astra.tasking.variant_asks import DIVERSE, complicate_ask, diverse_ask, persona_ask
from astra.text.language import detect_language
from astra.text.words import stands_in, words

CHINESE = {
    "find_grower": "查找地块的园丁。",
    "get_tool_shed": "查询园丁的工具棚。",
    "count_beds": "统计地块上的苗床数量。",
    "get_soil": "查询地块的土壤类型",
}
CHINESE_TOOLS = {
    name: one.model_copy(update={"description": CHINESE[name]}) for name, one in NAMED.items()
}


def asked(plan: tuple[ChainStep, ...], tools: Any = CHINESE_TOOLS) -> set[str]:
    text = ChineseText(plan, tools)
    return {question(text, random.Random(seed)) for seed in range(40)}


def test_chinese_questions_name_the_values_and_not_the_tools() -> None:
    several = asked(nested("Amber Cove"))
    assert "请问Amber Cove的园丁的工具棚是什么？" in several
    assert len(several) == 4
    for one in several:
        check_question(one, nested("Amber Cove"), list(CHINESE_TOOLS.values()), "zh", 60)
    beds = (
        ChainStep(tool="count_beds", arguments={"plot": said("Opal Bay"), "crop": said("corn")}),
    )
    assert any("Opal Bay" in one and "crop为corn" in one for one in asked(beds))
    english = asked(nested("Amber Cove"), NAMED)
    assert {detect_language(one) for one in english} == {"zh"}
    assert any("tool shed" in one for one in english)


@pytest.mark.parametrize(
    ("literal", "text", "there"),
    [
        ("北京", "请问北京的天气", True),
        ("Amber Cove", "请问Amber Cove的价格", True),
        ("4", "第4行", True),
        ("4", "第42行", False),
        ("4", "第4.5米", False),
        ("上海", "请问北京的天气", False),
    ],
)
def test_values_stand_in_chinese_text_without_spaces(literal: str, text: str, there: bool) -> None:
    assert stands_in(literal, text) is there


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("好吗", "question_too_short"),
        ("查" * 61 + "Amber Cove", "question_too_long"),
        ("What is the tool shed of the grower of Amber Cove?", "language_changed"),
        ("请告诉我工具棚是什么。", "value_not_stated"),
    ],
)
def test_bad_chinese_questions_are_refused(text: str, reason: str) -> None:
    with pytest.raises(TaskProblem) as problem:
        check_question(text, nested("Amber Cove"), list(CHINESE_TOOLS.values()), "zh", 60)
    assert problem.value.reason == reason


def test_chinese_characters_are_words() -> None:
    assert words("请问 Amber's 价格") == ["请", "问", "Amber's", "价", "格"]


def test_a_share_of_the_tasks_is_chinese_and_stays_so_through_augmentation() -> None:
    tasks, _, _ = build(languages={"zh": 0.5}, max_words=80)
    chinese = [task for task in tasks if task.language == "zh"]
    assert 0.25 < len(chinese) / len(tasks) < 0.75
    assert {detect_language(task.question) for task in chinese} == {"zh"}
    assert {"none", "diverse", "complicate"} <= {task.augmentation for task in chinese}
    assert TaskKind.MISSING_PARAMETER in {task.kind for task in chinese}


def test_shares_of_languages_are_at_most_one_whole() -> None:
    values = {"zh": 0.7, "fr": 0.4}
    with pytest.raises(Exception, match="add up to more than 1"):
        build(languages=values)
    with pytest.raises(ParamsError, match="near_duplicate_scope"):
        validate("tasks", {"near_duplicate_scope": "all"}, TasksConfig)


PEOPLE = """
- {age: 40, occupation: archivist, education: a degree in history, about: I like order.,
   skills: [maps, latin]}
- {age: 22, occupation: barista, hobbies: [chess]}
- {language: zh, age: 33, occupation: 小学教师, education: 本科, skills: [备课, 沟通],
   hobbies: [阅读]}
"""


def test_people_come_from_the_file_and_introduce_themselves(tmp_path: Path) -> None:
    path = tmp_path / "people.yaml"
    path.write_text(PEOPLE)
    people = load_people(path)
    assert people[0].introduction() == (
        "I am an archivist aged 40. I have a degree in history. I like order. "
        "I am good at maps and latin."
    )
    assert people[2].introduction() == (
        "我是一名小学教师，今年33岁。我的学历是本科。我擅长备课、沟通。我喜欢阅读。"
    )
    task = Task(server_id="s", chain_id=None, kind=TaskKind.SERVER, language="en", question="?",
                plan=())  # fmt: skip
    assert sorted(offered(people, task, 0)) == sorted(p.introduction() for p in people[:2])
    tasks, _, _ = build(
        personas=str(path), augment={"share": 1.0, "diverse": 0, "complicate": 0, "persona": 2}
    )
    personas = [t.question for t in tasks if t.augmentation == "persona" and t.kind in SOLVABLE]
    assert personas
    assert all(text.startswith(("I am an archivist", "I am a barista")) for text in personas)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "lists nobody"),
        ("- {age: 40}", "occupation"),
        (f"- {{age: 40, occupation: x, about: {'y' * 201}}}", "about"),
        ("- {age: 40, occupation: x, skills: [a, b, c, d, e, f]}", "skills"),
        ("- [", "is not usable"),
    ],
)
def test_a_bad_file_of_people_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "people.yaml"
    path.write_text(text)
    with pytest.raises(PersonasError, match=message):
        load_people(path)
    with pytest.raises(PersonasError, match="not found"):
        load_people(tmp_path / "absent.yaml")


def test_the_built_in_people_are_usable(root: Path) -> None:
    people = load_people(root / "conf" / "personas.yaml")
    assert {person.language for person in people} == {"en", "zh"}
    assert len(people) >= 20
    assert all(detect_language(p.introduction()) == p.language for p in people)


@pytest.mark.parametrize(
    ("label", "reason"), [("difficulty", "low_difficulty"), ("uniqueness", "low_uniqueness")]
)
def test_selection_labels_have_thresholds_for_what_can_be_solved(label: str, reason: str) -> None:
    def judge(variables: Any, rng: random.Random) -> TaskScores:
        good = {"quality": 5, "realism": 5, "necessity": 5, "difficulty": 5, "uniqueness": 5}
        return TaskScores.model_validate(good | {label: 2, "reason": "", "wrong_values": []})

    limits = {"quality": 4, "realism": 4, "necessity": 3, "difficulty": 1, "uniqueness": 1}
    handlers = {**HANDLERS, SCORE: judge}
    kept, _, _ = build(handlers, thresholds=limits | {label: 2})
    tasks, metrics, _ = build(handlers, thresholds=limits | {label: 3})
    # What has no solution is made of what passed: there is none of that without.
    assert {task.kind for task in kept} == set(TaskKind)
    assert tasks == []
    assert metrics.dropped[reason] > 0


def test_every_label_of_the_judge_is_a_plot(tmp_path: Path) -> None:
    tasks, metrics, _ = build()
    metrics.write(tmp_path, tmp_path / "plots")
    for name in set(TaskScores.model_fields) - {"reason", "wrong_values"}:
        rows = (tmp_path / "plots/tasks" / f"{name}.csv").read_text().splitlines()
        assert rows[0] == "value,count"
        assert sum(int(row.split(",")[1]) for row in rows[1:]) == len(tasks)


def test_the_judge_sees_the_tools_it_has_to_tell_apart() -> None:
    club = server("club", "garden")
    plan = (ChainStep(tool="get_soil", arguments={"plot": said("Amber Cove")}),)
    task = Task(server_id=club.id, chain_id=None, kind=TaskKind.SERVER, language="en",
                question="What is the soil of Amber Cove?", plan=plan)  # fmt: skip
    ask = score_ask(club, task)
    prompt = render(ask.template, ask.shown)
    planned, others = prompt.split("Other tools")
    assert "get_soil" in planned
    assert all(name in others for name in ("find_grower", "get_tool_shed", "count_beds"))


def test_writers_are_told_the_length_that_the_rules_allow() -> None:
    club = server("club", "garden")
    steps = (ChainStep(tool="get_soil", arguments={"plot": said("Amber Cove")}),)
    chain = Chain(server_id=club.id, steps=steps, walk_weight=1, votes_for=1, votes_against=0,
                  task_sketch="")  # fmt: skip
    task = Task(server_id=club.id, chain_id=None, kind=TaskKind.SERVER, language="en",
                question="What is the soil of Amber Cove?", plan=())  # fmt: skip
    for ask in (
        chain_task_ask(club, chain, 0, "en", 23),
        server_task_ask(club, 1, 0, "en", 23),
        diverse_ask(club, task, 0, 23),
        complicate_ask(club, task, [], 0, 23),
        persona_ask(club, task, [], ["I am new here."], 0, 23),
    ):
        assert "at most 23 words" in render(ask.template, ask.shown)
        assert "max_words" not in ask.variables


def twin(of: Task, server_id: str, **changes: Any) -> Task:
    return Task.model_validate(of.model_dump() | {"id": "", "server_id": server_id} | changes)


def test_near_duplicates_go_across_the_whole_set_but_not_those_on_purpose() -> None:
    first = Task(server_id="a", chain_id=None, kind=TaskKind.SERVER, language="en",
                 question="What is the soil of Amber Cove?", plan=())  # fmt: skip
    originals = Originals(0.9)
    assert originals.add(first)
    assert not originals.add(twin(first, "b"))
    assert originals.add(
        twin(first, "a", kind=TaskKind.MISSING_FUNCTION, withheld_tools=["get_soil"])
    )
    assert originals.add(twin(first, "c", kind=TaskKind.IRRELEVANT))
    assert not originals.add(twin(first, "d", kind=TaskKind.IRRELEVANT))


def test_the_scope_of_near_duplicates() -> None:
    def same(variables: Any, rng: random.Random) -> WrittenTask:
        written = HANDLERS[DIVERSE](variables, rng)
        question = f"{variables['question']} Please be quick about that today."
        return WrittenTask.model_validate(written.model_dump() | {"question": question})

    augment = {"share": 1.0, "diverse": 2, "complicate": 0, "persona": 0, "max_shared": None}
    for scope in ("server", "set"):
        tasks, metrics, _ = build(
            {**HANDLERS, DIVERSE: same}, near_duplicate_scope=scope, augment=augment
        )
        questions = [
            t.question for t in tasks if t.augmentation == "diverse" and t.kind in SOLVABLE
        ]
        assert len(questions) == len(set(questions)) > 0
        assert metrics.dropped["near_duplicate"] > 0


def donors(of: str, count: int) -> list[Donor]:
    owner = server(of, f"domain of {of}", (tool(f"{of}_tool", {}),))
    plan = (ChainStep(tool=f"{of}_tool", arguments={}),)
    return [
        donor_of(owner, Task(server_id=of, chain_id=None, kind=TaskKind.SERVER, language="en",
                             question=f"{of} {n}?", plan=plan))
        for n in range(count)
    ]  # fmt: skip


def chosen(pool: list[Donor], places: int = 60) -> list[str]:
    holder = Donors("stable")
    for donor in pool:
        holder.extend([donor])
    club = server("club", "garden")
    put = [misplaced(club, holder.fitting(club), place) for place in range(places)]
    return [one.task.question for one in put]


def test_stable_donors_move_only_where_a_question_came_or_went() -> None:
    others = [donor for name in ("b", "c", "d") for donor in donors(name, 12)]
    before = chosen([*donors("a", 12), *others])
    assert before == chosen([*others, *donors("a", 12)])
    after = chosen([*others, *donors("z", 12)])
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert moved
    assert all(old.startswith("a ") or new.startswith("z ") for old, new in moved)
    assert len(moved) < 0.6 * len(before)


def test_what_fits_no_earlier_server_goes_to_later_ones_that_want_some_too() -> None:
    holder = Donors("stable")
    (donor,) = donors("a", 1)
    assert [holder.due(wanted, ()) for wanted in (2, 3)] == [0, 0]
    assert holder.due(0, [donor]) == 0, "who wants none gets none"
    assert [holder.due(2, [donor]) for _ in range(4)] == [4, 4, 3, 2]


def test_a_question_is_put_neither_to_its_own_domain_nor_where_its_tools_are() -> None:
    holder = Donors("recent")
    holder.extend(donors("a", 2))
    same_tools = server("x", "other", (tool("a_tool", {}),))
    assert not holder.fitting(same_tools)
    assert not holder.fitting(server("y", "domain of a"))
    assert len(holder.fitting(server("z", "other"))) == 2


def test_values_of_lists_and_objects_are_stated_item_by_item() -> None:
    listing = tool("tag_plot", {"type": "string"}, plot={}, tags={"type": "array"})
    step = ChainStep(tool="tag_plot", arguments={
        "plot": said({"name": "Amber Cove", "open": True, "rows": [3, None]}),
        "tags": said(["dry", "old"]), "grower": piped(0),
    })  # fmt: skip
    assert task_literals([step]) == ["Amber Cove", "3", "dry", "old"]
    with pytest.raises(TaskProblem, match="old"):
        check_question("Tag row 3 of Amber Cove as dry.", [step], [listing], "en", 40)
