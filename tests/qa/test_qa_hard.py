"""Hard planned questions: choices among rows, pages, twins and many hops."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from astra.llm.offline import OfflineTeacher
from astra.qa.config import HardBy
from astra.qa.knowledge.operations import PAGE_ROWS, perform
from astra.qa.knowledge.sources import build_sources
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa import QuestionWriter, instances
from astra.qa.questions.kinds import compositions_of
from astra.qa.questions.plan import EVEN_SHARE, QuestionPlan
from astra.qa.questions.shapes import Composition, compositions
from astra.qa.questions.traits import is_hard, traits_of, ways_of
from astra.records.environment import Trait
from astra.records.qa import AnswerType, QAInstance, QuestionKind, Split
from astra.records.score import Rejection
from astra.store.metrics import StageMetrics

KINDS = {
    "read_only": 0.6,
    "write": 0.15,
    "mixed": 0.1,
    "missing_tool": 0.05,
    "missing_parameter": 0.04,
    "infeasible": 0.03,
    "already_satisfied": 0.03,
}
SPLITS = {"train": 300, "heldout": 160}


@pytest.fixture(scope="module")
def config(qa_config: Any) -> Any:
    return qa_config(
        languages={"en": 0.7, "zh": 0.3},
        kinds=KINDS,
        extended=True,
        sources={"hotels": 3, "library": 2, "real_estate": 2, "healthcare": 1, "elements": 0},
        hops={1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1},
        max_steps=10,
        instances=SPLITS,
        hard=0.5,
        pages=3,
        worlds=4,
    )


@pytest.fixture(scope="module")
def plans(config: Any) -> list[tuple[Split, str, QuestionPlan]]:
    return [
        (wanted[0].split, wanted[0].language, wanted[1])
        for wanted in QuestionWriter(config).wanted()
        if isinstance(wanted, tuple) and isinstance(wanted[1], QuestionPlan)
    ]


@pytest.fixture(scope="module")
def outcomes(config: Any) -> list[QAInstance | Rejection]:
    async def collect() -> list[QAInstance | Rejection]:
        writer, metrics = QuestionWriter(config), StageMetrics("qa")
        teacher = OfflineTeacher(config.teacher, HANDLERS)
        return [outcome async for outcome in instances(writer, teacher, 4, metrics)]

    return asyncio.run(collect())


def test_every_rule_passes_what_the_offline_teacher_words(outcomes: list[Any]) -> None:
    dropped = Counter(o.reason for o in outcomes if isinstance(o, Rejection))
    assert set(dropped) <= {"no_plan"}
    assert dropped.total() < len(outcomes) / 20


def test_the_wanted_share_is_hard_in_every_split(
    plans: list[tuple[Split, str, QuestionPlan]],
) -> None:
    for split in (Split.TRAIN, Split.HELDOUT):
        own = [plan.composition for where, _, plan in plans if where is split]
        assert sum(is_hard(c, 2) for c in own) / len(own) == pytest.approx(0.5, abs=0.1)
        found = Counter(trait for composition in own for trait in traits_of(composition))
        assert set(found) == set(Trait) - {Trait.UNLIKE_NAMES, Trait.FORMATS}
        chinese = [p.composition for where, lang, p in plans if where is split and lang == "zh"]
        assert any(is_hard(c, 2) for c in chinese)
        acting = [c for c in own if c.kind in (QuestionKind.WRITE, QuestionKind.MIXED)]
        assert any(is_hard(c, 2) for c in acting)


def planned(config: Any) -> list[Composition]:
    return [
        wanted[1].composition
        for wanted in QuestionWriter(config).wanted()
        if isinstance(wanted, tuple) and isinstance(wanted[1], QuestionPlan)
    ]


def test_what_has_no_weight_is_asked_by_no_question(qa_config: Any) -> None:
    """Neither hard questions nor others go over rows and pages; one trait makes a hard one."""
    weights = {"fields": 1, "rows": 0, "pages": 0, "twins": 1, "hops": 0}
    few = qa_config(
        hard=0.4,
        hard_traits=1,
        hard_by=weights,
        sources={"real_estate": 1, "healthcare": 1},
        instances={"train": 120},
        compositions={"train": 1.0},
    )
    drawn = planned(few)
    ways = Counter(way for composition in drawn for way in ways_of(composition))
    assert set(ways) == {HardBy.FIELDS, HardBy.TWINS}
    assert sum(is_hard(c, 1) for c in drawn) / len(drawn) == pytest.approx(0.4, abs=0.05)
    assert not any(is_hard(c, 2) for c in drawn if len(ways_of(c)) < 2)


def test_a_weight_makes_its_questions_likelier(qa_config: Any) -> None:
    def share(weight: float) -> float:
        config = qa_config(
            hard=0.5,
            hard_traits=1,
            hard_by={"fields": weight, "rows": 1, "pages": 0, "twins": 1, "hops": 1},
            sources={"real_estate": 1},
            instances={"train": 120},
            compositions={"train": 1.0},
        )
        drawn = [c for c in planned(config) if is_hard(c, 1)]
        return sum(HardBy.FIELDS in ways_of(c) for c in drawn) / len(drawn)

    assert share(8) > 2 * share(1)


def test_splits_share_no_composition(plans: list[tuple[Split, str, QuestionPlan]]) -> None:
    train, heldout = (
        {plan.composition.signature for split, _, plan in plans if split is own}
        for own in (Split.TRAIN, Split.HELDOUT)
    )
    assert not train & heldout


def test_no_shape_fills_a_split(plans: list[tuple[Split, str, QuestionPlan]]) -> None:
    shapes = Counter(plan.composition.shape for split, _, plan in plans if split is Split.TRAIN)
    assert max(shapes.values()) <= SPLITS["train"] * EVEN_SHARE + 1


def test_names_of_places_are_not_those_of_things(config: Any) -> None:
    places: set[str] = set()
    things: set[str] = set()
    of_places = {"hotel", "branch", "district", "office", "clinic", "ward", "chain"}
    of_things = {"room", "book", "listing"}
    for by_name in build_sources(config, Split.TRAIN).values():
        for source in (source for variants in by_name.values() for source in variants):
            for entity, names in source.starts.items():
                places |= set(names) if entity in of_places else set()
                things |= set(names) if entity in of_things else set()
    assert places
    assert things
    assert not places & things


def test_without_hard_questions_nothing_is_chosen(qa_config: Any) -> None:
    config = qa_config(hard=0, extended=True, sources={"hotels": 1}, instances={"train": 20})
    [source] = build_sources(config, Split.TRAIN)["en"]["hotels"]
    assert not any(r.choice or r.twin or r.op in ("rows", "page") for r in source.relations)
    for kind in QuestionKind:
        if kind not in (QuestionKind.CODE, QuestionKind.FORBIDDEN):
            assert not any(is_hard(c, 2) for c in compositions_of(kind, source, 5))


def test_no_question_ends_by_checking_the_link_it_came_by(config: Any) -> None:
    checks = 0
    [source, *_] = build_sources(config, Split.TRAIN)["en"]["hotels"]
    for composition in compositions(source, 4):
        for node in composition.nodes:
            if node.relation.op == "check":
                checks += 1
                assert composition.starts != (node.relation.extra,)
    assert checks


def every(config: Any, trait: Trait) -> list[Composition]:
    [source, *_] = build_sources(config, Split.TRAIN)["en"]["hotels"]
    return [c for c in compositions(source, 6) if trait in traits_of(c)]


def test_traits_are_read_off_the_steps(config: Any) -> None:
    for composition in every(config, Trait.PAGES):
        pages = [node for node in composition.nodes if node.relation.op == "page"]
        assert len(pages) > 1
        assert Trait.SELECTION in traits_of(composition)
        assert is_hard(composition, 2)
    for composition in every(config, Trait.TWINS):
        asked = {node.relation.name for node in composition.nodes}
        assert any(node.relation.twin in asked for node in composition.nodes)
    assert all(composition.hops > 3 for composition in every(config, Trait.HOPS))
    assert any(traits_of(c) == {Trait.HOPS} for c in every(config, Trait.HOPS))


def test_nothing_is_looked_up_that_its_row_shows(config: Any) -> None:
    for composition in every(config, Trait.SELECTION):
        for node in composition.nodes:
            if node.choice and node.relation.op == "lookup":
                shown = composition.nodes[node.parents[0] - 1].relation.select.split(":")
                assert node.relation.select not in shown


def test_pages_are_full_and_in_the_order_of_the_excerpt(
    plans: list[tuple[Split, str, QuestionPlan]],
) -> None:
    seen = 0
    for _, _, plan in plans:
        for operation, answer in zip(plan.operations, plan.answers, strict=True):
            if operation.op != "page":
                continue
            seen += 1
            known = dict(enumerate(plan.answers, start=1))
            again, _ = perform(operation, None, QuestionKind.READ_ONLY, plan.tables, known)
            assert again == answer
            assert len(answer["rows"]) == PAGE_ROWS or answer["next_page"] is None
    assert seen > 20


def test_a_twin_never_answers_as_the_other_does(
    plans: list[tuple[Split, str, QuestionPlan]],
) -> None:
    seen = 0
    for _, _, plan in plans:
        nodes = plan.composition.nodes
        answers = {node.relation.name: plan.answers[at] for at, node in enumerate(nodes)}
        for at, node in enumerate(nodes):
            if node.relation.twin in answers and node.relation.twin:
                seen += 1
                assert plan.answers[at] != answers[node.relation.twin]
    assert seen > 20


def test_a_choice_has_a_size_and_a_last_page_is_no_empty_answer(outcomes: list[Any]) -> None:
    picked = last_pages = 0
    for instance in outcomes:
        for step in instance.sub_questions if isinstance(instance, QAInstance) else ():
            assert step.operation
            if step.operation.op == "pick":
                picked += 1
                assert step.answer.domain_size
                assert step.answer.domain_size > 1
                assert step.answer.type in (AnswerType.STRING, AnswerType.NUMBER)
            if step.operation.op == "page" and step.answer.value["next_page"] is None:
                last_pages += 1
            if step.operation.op in ("rows", "page"):
                assert step.answer.domain_size
                assert step.answer.domain_size > 1
            assert step.answer.ordered is (step.operation.op not in ("rows", "list", "above"))
    assert picked > 20
    assert last_pages > 20


def test_questions_are_worded_in_more_than_the_words_of_their_relations(
    outcomes: list[Any],
) -> None:
    own = other = 0
    for instance in outcomes:
        if not isinstance(instance, QAInstance) or instance.language != "en":
            continue
        for step in instance.sub_questions:
            if step.operation and step.operation.op == "lookup":
                words = step.operation.select.replace("_", " ")
                found = re.search(rf"\b{words}\b", instance.main_question)
                own, other = own + bool(found), other + (not found)
    assert own > 50
    assert other > 50
