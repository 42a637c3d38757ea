"""Task kinds, Chinese and the operations that go with them: quotas, end states, planted faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ModelConfig
from astra.qa.gates import FreshQuestions, Gate
from astra.qa.knowledge.operations import WRITE_OPS, after, evaluate, join
from astra.qa.knowledge.worlds import build_world
from astra.qa.offline.handlers import HANDLERS
from astra.qa.offline.phrases_zh import join as join_zh
from astra.qa.qa import QuestionWriter, instances
from astra.qa.qa_valid import judge_all
from astra.qa.questions.outcomes import OUTCOMES, closing
from astra.qa.questions.plan import apportion
from astra.qa.rules import check
from astra.qa.selection import JudgedInstance, JudgedShelf
from astra.qa.wording import Problem
from astra.records.qa import AnswerType, Bar, Operation, QAInstance, QuestionKind, Split, Table
from astra.records.score import Rejection
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records, write_records
from astra.text.language import detect_language
from astra.text.mentions import mentions
from astra.text.names import Pool, pool_of

TEACHER = OfflineTeacher(ModelConfig(backend="offline", model="rules-1"), HANDLERS)
KINDS = {
    "read_only": 0.4, "write": 0.1, "mixed": 0.1, "missing_tool": 0.1, "missing_parameter": 0.1,
    "infeasible": 0.1, "already_satisfied": 0.1,
}  # fmt: skip
HOPS = range(1, 6)


def run(config: Any, concurrency: int = 4) -> list[QAInstance | Rejection]:
    async def collect() -> list[QAInstance | Rejection]:
        writer, metrics = QuestionWriter(config), StageMetrics("qa")
        return [o async for o in instances(writer, TEACHER, concurrency, metrics)]

    return asyncio.run(collect())


def every_kind(qa_config: Any, **changes: Any) -> Any:
    values = {
        "languages": {"en": 0.5, "zh": 0.5},
        "kinds": KINDS,
        "extended": True,
        "sources": {"hotels": 3, "library": 2, "real_estate": 1, "healthcare": 1},
        "instances": {"train": 240},
        "compositions": {"train": 1.0},
        "lookup_weight": 1.0,
    }
    return qa_config(**{**values, **changes})


@pytest.fixture(scope="module")
def questions(qa_config: Any) -> list[QAInstance]:
    return [o for o in run(every_kind(qa_config)) if isinstance(o, QAInstance)]


def test_every_language_and_kind_gets_its_share(questions: list[QAInstance]) -> None:
    counts = Counter((instance.language, instance.kind) for instance in questions)
    for kind, share in KINDS.items():
        for language in ("en", "zh"):
            assert counts[language, QuestionKind(kind)] == pytest.approx(120 * share, abs=1)


def test_counts_add_up_and_the_largest_remainders_win() -> None:
    assert apportion(10, {"a": 0.55, "b": 0.27, "c": 0.18}) == {"a": 5, "b": 3, "c": 2}
    assert apportion(0, {"a": 1.0}) == {"a": 0}


def test_more_kinds_of_answers_and_operations_occur(questions: list[QAInstance]) -> None:
    steps = [step for instance in questions for step in instance.sub_questions]
    assert {step.answer.type for step in steps} == set(AnswerType)
    ops = {step.operation.op for step in steps if step.operation}
    assert ops >= WRITE_OPS | {"above", "sort", "check", "record", "convert", "weekday", "count"}
    assert any(step.operation and "+" in step.operation.table for step in steps)
    assert {step.answer.unit for step in steps} & {"m", "kg"}
    converted = [s for s in steps if s.operation and "unit" in s.operation.arguments]
    assert all(s.answer.unit == s.operation.arguments["unit"] for s in converted if s.operation)
    assert all(s.answer.tolerance == 0.01 for s in converted)


def test_a_written_question_ends_in_the_state_its_writes_say(questions: list[QAInstance]) -> None:
    acting = [i for i in questions if i.kind in (QuestionKind.WRITE, QuestionKind.MIXED)]
    assert acting
    for instance in acting:
        writes = [write for step in instance.sub_questions for write in step.writes]
        end = {table.name: table for table in after(instance.knowledge, writes)}
        for before in instance.knowledge:
            touched = [write for write in writes if write.table == before.name]
            assert (end[before.name] != before) is bool(touched)
            actions = [write.action for write in touched]
            grown = actions.count("insert") - actions.count("delete")
            assert len(end[before.name].rows) == len(before.rows) + grown
        for write in writes:
            held = [
                dict(zip(end[write.table].columns, r, strict=True)) for r in end[write.table].rows
            ]
            wanted = {**write.where, **write.values}
            there = any(wanted.items() <= row.items() for row in held)
            assert there is (write.action != "delete")
    assert all(not s.writes for i in questions if i not in acting for s in i.sub_questions)


def test_a_key_is_not_the_argument_that_happens_to_come_first(
    questions: list[QAInstance], tmp_path: Path
) -> None:
    """What is read back from disk passes the same rules, whatever the order of arguments."""
    write_records(tmp_path / "qa.parquet", [turned(one) for one in questions], QAInstance)
    moved = 0
    for instance in read_records(tmp_path / "qa.parquet", QAInstance):
        assert check(instance, HOPS, set(instance.entities)) is None
        for step in instance.sub_questions:
            act = step.operation
            if act is not None and act.op in WRITE_OPS:
                moved += next(iter(act.arguments)) != act.relation.partition(".")[0]
    assert moved > 0, "no write's key came after another argument: the test proves nothing"


def turned(instance: QAInstance) -> QAInstance:
    """The same question with the arguments of its operations in the opposite order."""
    document = instance.model_dump(mode="json")
    for step in document["sub_questions"]:
        if step["operation"] is not None:
            arguments = step["operation"]["arguments"]
            step["operation"]["arguments"] = dict(reversed(arguments.items()))
    return QAInstance.model_validate(document)


def test_a_reading_after_a_write_depends_on_it(questions: list[QAInstance]) -> None:
    seen = 0
    for instance in questions:
        last = instance.sub_questions[-1]
        writes = {s.id for s in instance.sub_questions if s.writes}
        if instance.kind is QuestionKind.MIXED and set(last.dependencies) & writes:
            seen += 1
            assert last.operation
            answers = {s.id: s.answer.value for s in instance.sub_questions}
            unchanged = evaluate(last.operation, instance.knowledge, answers)
            assert unchanged != last.answer.value
    assert seen


def test_what_cannot_be_done_still_needs_a_call(questions: list[QAInstance]) -> None:
    bars = {
        QuestionKind.MISSING_TOOL: Bar.NO_TOOL,
        QuestionKind.MISSING_PARAMETER: Bar.NO_CALL,
        QuestionKind.INFEASIBLE: Bar.NO_CALL,
        QuestionKind.ALREADY_SATISFIED: Bar.NO_CALL,
    }
    for instance in questions:
        barred = [step for step in instance.sub_questions if step.bar]
        assert len(barred) < len(instance.sub_questions)
        assert {step.bar for step in barred} == (
            {bars[instance.kind]} if instance.kind in bars else set()
        )
        if instance.kind in OUTCOMES[instance.language]:
            assert instance.final_answer.value == OUTCOMES[instance.language][instance.kind]
        if instance.kind is QuestionKind.MISSING_PARAMETER:
            [step] = barred
            assert step.operation
            hidden = [v for v in step.operation.arguments.values() if not isinstance(v, dict)]
            assert not any(mentions(instance.main_question, value) for value in hidden)


def test_no_question_tells_its_kind_by_its_ending(questions: list[QAInstance]) -> None:
    endings: dict[str, set[QuestionKind]] = {}
    for instance in questions:
        fitting = [
            sorts
            for sorts in ((True, False), (False, True), (True, True))
            if instance.main_question.endswith(closing(instance.language, *sorts))
        ]
        assert len(fitting) == 1
        endings.setdefault(f"{instance.language}{fitting[0]}", set()).add(instance.kind)
        assert (instance.kind is QuestionKind.MIXED) is (fitting == [(True, True)])
    assert len(endings) == 6
    assert all(len(kinds) >= 3 for ending, kinds in endings.items() if "(True, True)" not in ending)


def test_the_closing_quotes_every_outcome_that_the_wording_allows() -> None:
    assert closing("en", acts=True, reads=False) == (
        'Answer "done", "already done", "not possible", "no tool" or "missing value".'
    )
    assert closing("en", acts=False, reads=True) == (
        'If you cannot, answer "no tool" or "missing value".'
    )
    assert closing("en", acts=True, reads=True) == (
        'If you cannot, answer "already done", "not possible", "no tool" or "missing value".'
    )
    assert closing("zh", acts=False, reads=True) == "如果办不到，请回答“没有工具”或“缺少信息”。"


def test_chinese_questions_are_chinese_and_their_names_the_splits(
    questions: list[QAInstance],
) -> None:
    chinese = [instance for instance in questions if instance.language == "zh"]
    assert chinese
    assert len({i.main_question[:2] for i in chinese}) >= 8
    for instance in chinese:
        assert detect_language(instance.main_question) == "zh"
        assert {pool_of(name) for name in instance.entities} == {Pool.TRAIN}
        assert instance.knowledge[0].columns[0].isascii()
    assert join_zh(["甲", "乙", "丙"]) == "甲、乙和丙"


def test_chinese_worlds_of_splits_share_no_name() -> None:
    names = [build_world("healthcare", split, 0, 0, 150, "zh", True).names for split in Split]
    assert all(names)
    assert not names[0] & names[1] | names[0] & names[2] | names[1] & names[2]


def judge(instances: list[QAInstance], config: Any) -> list[Any]:
    async def collect() -> list[Any]:
        metrics = StageMetrics("qa_valid")
        return [o async for o in judge_all(instances, TEACHER, config, 4, metrics)]

    return asyncio.run(collect())


def select(
    judged: list[JudgedInstance], config: Any, *gates: Gate
) -> tuple[list[QAInstance], list[Rejection]]:
    with JudgedShelf() as shelf:
        for entry in judged:
            shelf.add(entry)
        fresh = FreshQuestions(config.duplicate_similarity)
        outcomes = list(shelf.select(config, [*gates, fresh]))
    return (
        [outcome for outcome in outcomes if isinstance(outcome, QAInstance)],
        [outcome for outcome in outcomes if isinstance(outcome, Rejection)],
    )


def test_everything_made_passes_the_judges(questions: list[QAInstance], valid_config: Any) -> None:
    judged = judge(questions, valid_config())
    assert all(isinstance(outcome, JudgedInstance) for outcome in judged)
    assert all(outcome.against == "" for outcome in judged)
    for outcome in judged:
        for step in outcome.instance.sub_questions:
            assert step.tool_necessity is (
                step.bar is None and step.operation.op not in ("greater", "less")
            )
    kept, dropped = select(judged, valid_config())
    assert len(kept) >= 0.9 * len(judged)
    assert {rejection.reason for rejection in dropped} <= {"near_duplicate"}


def test_a_gate_refuses_before_near_duplicates_are_looked_for(
    questions: list[QAInstance], valid_config: Any
) -> None:
    judged = sorted(judge(questions[:4], valid_config()), key=lambda entry: entry.instance.id)
    first = judged[0].instance
    fields = first.model_dump(exclude={"id"})
    spellings = (
        QAInstance.model_validate({**fields, "main_question": first.main_question + " " * spaces})
        for spaces in range(1, 99)
    )
    twin = next(instance for instance in spellings if instance.id > first.id)

    def contaminated(instance: QAInstance) -> Problem | None:
        return ("contaminated", "a suite") if instance.id == first.id else None

    waiting = [*judged, JudgedInstance(item="twin", instance=twin, against="")]
    kept, dropped = select(waiting, valid_config(), contaminated)
    assert [(rejection.item, rejection.reason) for rejection in dropped] == [
        (judged[0].item, "contaminated")
    ]
    assert twin in kept
    kept, dropped = select(waiting, valid_config())
    assert [(rejection.item, rejection.reason) for rejection in dropped] == [
        ("twin", "near_duplicate")
    ]


def test_same_output_whatever_the_concurrency(qa_config: Any) -> None:
    config = every_kind(qa_config, instances={"train": 30})
    first, second = run(config, 1), run(config, 7)
    assert [o.model_dump_json() for o in first] == [o.model_dump_json() for o in second]


def _first(questions: list[QAInstance], kind: str, language: str = "en") -> dict[str, Any]:
    fitting = (i for i in questions if i.kind == kind and i.language == language)
    return next(fitting).model_dump(mode="json", exclude={"id"})


def _bar_lifted(d: dict[str, Any]) -> None:
    d["sub_questions"][-1].pop("bar")


def _bar_changed(d: dict[str, Any]) -> None:
    barred = d["sub_questions"][-1]
    barred["bar"] = "no_call" if barred["bar"] == "no_tool" else "no_tool"


def _all_barred(d: dict[str, Any]) -> None:
    for step in d["sub_questions"]:
        step["bar"] = "no_tool"


def _other_outcome(d: dict[str, Any]) -> None:
    d["final_answer"]["value"] = "all good"


def _outcome_for_a_value(d: dict[str, Any]) -> None:
    d["final_answer"].update(type="enum", value="done")


def _write_forgotten(d: dict[str, Any]) -> None:
    for step in d["sub_questions"]:
        step.pop("writes", None)


def _write_corrupted(d: dict[str, Any]) -> None:
    write = next(s for s in d["sub_questions"] if s.get("writes"))["writes"][0]
    write.update(values={"price": -1}, where={"room": "Nowhere"}, action="update")


def _read_only(d: dict[str, Any]) -> None:
    d["kind"] = "read_only"


def _hidden_value_told(d: dict[str, Any]) -> None:
    arguments = d["sub_questions"][-1]["operation"]["arguments"]
    hidden = next(value for value in arguments.values() if not isinstance(value, dict))
    d["main_question"] = f"{hidden}. {d['main_question']}"


def _possible_after_all(d: dict[str, Any]) -> None:
    """The one who stands in the way is gone."""
    step = d["sub_questions"][-1]
    table = next(t for t in d["knowledge"] if t["name"] == step["operation"]["table"])
    column = table["columns"].index(step["operation"]["select"])
    table["rows"] = [row for row in table["rows"] if row[column] != step["answer"]["value"]]


def _in_english(d: dict[str, Any]) -> None:
    d["language"] = "en"


VIOLATIONS: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("missing_tool", _bar_lifted, "kind"),
    ("missing_tool", _bar_changed, "kind"),
    ("missing_tool", _all_barred, "kind"),
    ("missing_tool", _other_outcome, "final_answer"),
    ("missing_tool", _read_only, "kind"),
    ("missing_parameter", _hidden_value_told, "nothing_missing"),
    ("missing_parameter", _bar_lifted, "kind"),
    ("write", _write_forgotten, "write_mismatch"),
    ("write", _write_corrupted, "write_mismatch"),
    ("write", _read_only, "kind"),
    ("mixed", _outcome_for_a_value, "final_answer"),
    ("mixed", _write_forgotten, "write_mismatch"),
    ("infeasible", _possible_after_all, "not_derivable"),
    ("infeasible", _bar_lifted, "kind"),
    ("already_satisfied", _other_outcome, "final_answer"),
]


@pytest.mark.parametrize(("kind", "violate", "reason"), VIOLATIONS)
def test_each_rule_of_a_kind_catches_its_violation(
    kind: str, violate: Any, reason: str, questions: list[QAInstance]
) -> None:
    document = _first(questions, kind)
    names = set(document["entities"])
    assert check(QAInstance.model_validate(document), HOPS, names) is None
    violate(document)
    problem = check(QAInstance.model_validate(document), HOPS, names)
    assert problem is not None
    assert problem[0] == reason


def test_two_writes_of_one_cell_are_refused() -> None:
    step = {
        "hop_level": 1,
        "question": "Set the price of Blue Heron.",
        "dependencies": [],
    }

    def update(id: int, price: int) -> dict[str, Any]:
        return {
            **step,
            "id": id,
            "answer": {"type": "number", "value": price},
            "operation": {
                "op": "update", "relation": "boat.set_price", "table": "boats",
                "arguments": {"boat": "Blue Heron", "price": price}, "select": "price",
            },
            "writes": [
                {
                    "action": "update", "table": "boats", "where": {"boat": "Blue Heron"},
                    "values": {"price": price},
                }
            ],
        }  # fmt: skip

    instance = QAInstance.model_validate(
        {
            "split": "train", "domain": "harbour", "language": "en", "source": "test",
            "kind": "write", "scenario": "parallel_single_hop",
            "main_question": "Set the price of Blue Heron to 7 and to 9. Is it done or not?",
            "final_answer": {"type": "enum", "value": "done"},
            "sub_questions": [update(1, 7), update(2, 9)],
            "knowledge": [
                {"name": "boats", "columns": ["boat", "price"], "rows": [["Blue Heron", 5]]}
            ],
            "entities": ["Blue Heron"], "composition": "x",
        }
    )  # fmt: skip
    problem = check(instance, HOPS, {"Blue Heron"})
    assert problem is not None
    assert problem[0] == "conflicting_writes"


def _berthing(*steps: dict[str, Any]) -> QAInstance:
    """A question whose steps write in a table of boats; each says op, arguments, select, answer."""
    where = {"boat": "Blue Heron"}
    subs: list[dict[str, Any]] = []
    for number, step in enumerate(steps, 1):
        cell, value = step["select"], step["answer"]
        updates = step["op"] == "update"
        kind = "number" if isinstance(value, int) else "string"
        write = {"action": step["op"], "table": "boats", "where": where,
                 "values": {cell: value} if updates else {}}  # fmt: skip
        subs.append(
            {
                "id": number,
                "hop_level": 1,
                "question": f"Set the {cell} of Blue Heron to {value}",
                "answer": {"type": kind, "value": value},
                "operation": {
                    "op": step["op"],
                    "relation": f"boat.{cell}",
                    "table": "boats",
                    "select": cell,
                    "arguments": {**where, **({cell: value} if updates else {})},
                },
                "writes": [write],
            }
        )
    return QAInstance.model_validate(
        {
            "split": "train", "domain": "harbour", "language": "en", "source": "test",
            "kind": "write", "scenario": "parallel_single_hop",
            "main_question": "Set Blue Heron to 2 bikes, 7 bags and 9 bags at Iron Quay. Answer.",
            "final_answer": {"type": "enum", "value": "done"}, "sub_questions": subs,
            "knowledge": [
                {"name": "boats", "columns": ["boat", "bikes", "bags"],
                 "rows": [["Blue Heron", 0, 1], ["Red Kite", 3, 4]]}
            ],
            "entities": ["Blue Heron"], "composition": "x",
        }
    )  # fmt: skip


def test_two_cells_of_one_row_are_two_updates() -> None:
    bikes = {"op": "update", "select": "bikes", "answer": 2}
    bags = {"op": "update", "select": "bags", "answer": 7}
    assert check(_berthing(bikes, bags), HOPS, {"Blue Heron"}) is None
    again = {"op": "update", "select": "bags", "answer": 9}
    removed = {"op": "delete", "select": "bags", "answer": 7}
    for other in (again, removed):
        problem = check(_berthing(bags, other), HOPS, {"Blue Heron"})
        assert problem is not None
        assert problem[0] == "conflicting_writes"


def test_the_language_of_a_question_is_checked(questions: list[QAInstance]) -> None:
    document = _first(questions, "read_only", "zh")
    _in_english(document)
    problem = check(QAInstance.model_validate(document), HOPS, set(document["entities"]))
    assert problem is not None
    assert problem[0] == "wrong_language"


def test_a_join_that_is_none_is_refused(questions: list[QAInstance]) -> None:
    instance = next(i for i in questions if any("+" in table.name for table in i.knowledge))
    document = instance.model_dump(mode="json", exclude={"id"})
    view = next(table for table in document["knowledge"] if "+" in table["name"])
    view["rows"] = view["rows"][::-1] + view["rows"][:1]
    problem = check(QAInstance.model_validate(document), HOPS, set(document["entities"]))
    assert problem is not None
    assert problem[0] == "bad_join"


def test_join_by_hand() -> None:
    boats = Table(name="boats", columns=("boat", "pier"), rows=(("A", "P"), ("B", "Q"), ("C", "P")))
    piers = Table(name="piers", columns=("pier", "town"), rows=(("P", "X"), ("R", "Y")))
    both = join("boats+piers", [boats, piers])
    assert both.columns == ("boat", "pier", "town")
    assert both.rows == (("A", "P", "X"), ("C", "P", "X"))
    count = Operation(
        op="count", relation="town.boats", table="boats+piers", arguments={"town": "X"}
    )
    assert evaluate(count, (boats, piers, both), {}) == 2
