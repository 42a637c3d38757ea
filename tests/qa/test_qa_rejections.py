"""What both stages keep of the questions that they refuse, and that none waits for another."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from astra.contamination.index import ContaminationIndex
from astra.contamination.suites import SuiteTexts
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError
from astra.qa.config import Mode
from astra.qa.gates import OwnQuestions
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa import QuestionWriter, instances
from astra.qa.qa_valid import judge_all, judge_instance, measure, valid
from astra.qa.replies import CompletenessReport, NecessityReport, StepReport
from astra.qa.selection import JudgedInstance, JudgedShelf
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.store.metrics import StageMetrics

RULES = OfflineTeacher(ModelConfig(backend="offline", model="rules-1"), HANDLERS)
VERIFIERS = {"qa/dependency", "qa/atomicity", "qa/sequential", "qa/completeness"}


class Altered:
    """The offline rules, whose replies ``change`` may replace; it sees the ask and the reply."""

    name = "altered"

    def __init__(self, change: Callable[[Ask[Any], Any], Any]) -> None:
        self._change = change

    async def ask(self, ask: Ask[Any]) -> Any:
        return self._change(ask, await RULES.ask(ask))


def make(config: Any, teacher: Any, folder: Path | None = None) -> list[QAInstance | Rejection]:
    async def collect() -> list[QAInstance | Rejection]:
        writer = QuestionWriter(config, folder) if folder else QuestionWriter(config)
        metrics = StageMetrics("qa")
        outcomes = [o async for o in instances(writer, teacher, 4, metrics)]
        # A free question that breaks a rule is asked for again: its first try is no outcome.
        last = [o for o in outcomes if isinstance(o, QAInstance) or o.final]
        assert metrics.counts["in"] == len(last) == writer.total()
        return last

    return asyncio.run(collect())


def hear(instance: QAInstance, config: Any, judge: Any) -> list[JudgedInstance | Rejection]:
    return asyncio.run(judge_instance(instance, judge, config))


def run_valid(
    instances: list[QAInstance], config: Any, judge: Any = RULES
) -> tuple[list[QAInstance], list[Rejection]]:
    async def collect() -> list[Any]:
        metrics = StageMetrics("qa_valid")
        return [o async for o in valid(instances, judge, config, 4, metrics)]

    outcomes = asyncio.run(collect())
    return (
        [outcome for outcome in outcomes if isinstance(outcome, QAInstance)],
        [outcome for outcome in outcomes if isinstance(outcome, Rejection)],
    )


@pytest.fixture
def pair(documents: Any, build: Any) -> list[QAInstance]:
    return [build(documents[which]()) for which in ("chain", "comparison")]


def test_a_refused_question_can_be_read(qa_config: Any) -> None:
    def wrong(ask: Ask[Any], reply: Any) -> Any:
        return reply.model_copy(update={"main_question": "What is it?"})

    refused = make(qa_config(instances={"train": 4}), Altered(wrong))
    assert {rejection.reason for rejection in refused if isinstance(rejection, Rejection)} == {
        "not_in_question"
    }
    for rejection in refused:
        assert isinstance(rejection, Rejection)
        assert re.match(r"1 needs .*, never mentioned \| What is it\? ", rejection.detail)
        assert rejection.detail.count("?") + rejection.detail.count(".") >= 2
        assert " | 1. " in rejection.detail
        assert rejection.item.startswith("train/")


def test_a_reply_to_another_question_is_kept_with_what_was_asked(qa_config: Any) -> None:
    def other(ask: Ask[Any], reply: Any) -> Any:
        steps = reply.sub_questions[:1]
        return reply.model_copy(
            update={"sub_questions": steps, "main_question": "What is on the moon?"}
        )

    config = qa_config(
        instances={"train": 4},
        scenarios={"multi_hop": 1},
        sources={"real_estate": 1},
        hops={2: 1},
    )
    for rejection in make(config, Altered(other)):
        assert isinstance(rejection, Rejection)
        assert rejection.reason == "off_outline"
        assert "What is on the moon?" in rejection.detail
        assert rejection.detail.startswith("words steps [1] of 2 | ")


def test_each_question_without_a_plan_is_a_row_of_its_own(qa_config: Any) -> None:
    config = qa_config(
        instances={"train": 6}, scenarios={"multi_hop": 1}, sources={"real_estate": 1}, hops={1: 1}
    )
    refused = make(config, RULES)
    assert [rejection.part for rejection in refused if isinstance(rejection, Rejection)] == [
        f"en {number}" for number in range(6)
    ]
    assert {rejection.reason for rejection in refused if isinstance(rejection, Rejection)} == {
        "no_plan"
    }
    assert len({rejection.id for rejection in refused}) == 6


def test_a_refused_request_names_its_line_and_sample(
    qa_config: Any, every_mode: dict[str, Any], knowledge: Path
) -> None:
    path = knowledge / "texts_en.jsonl"
    line = json.loads(path.read_text())
    path.write_text("".join(json.dumps(line | {"n": number}) + "\n" for number in range(2)))
    corpus = every_mode["knowledge_base_en"]
    assert corpus["mode"] == Mode.KNOWLEDGE_BASE
    config = qa_config(instances={"train": 0}, corpora={"texts": corpus})

    def moved(ask: Ask[Any], reply: Any) -> Any:
        return reply.model_copy(update={"main_question": "Where is it?", "sub_questions": ()})

    refused = [
        rejection
        for rejection in make(config, Altered(moved), knowledge)
        if isinstance(rejection, Rejection)
    ]
    assert [(rejection.item.rpartition("/")[2], rejection.part) for rejection in refused] == [
        (f"line {place}", f"sample {sample}") for place in (1, 2) for sample in range(3)
    ]
    assert all("Where is it?" in rejection.detail for rejection in refused)
    assert len({rejection.id for rejection in refused}) == 6


@pytest.mark.parametrize("name", ["necessity", "dependency", "atomicity", "sequential"])
@pytest.mark.parametrize("misfits", [1, 2, 3])
def test_tries_that_do_not_fit_are_kept(
    name: str, misfits: int, pair: list[QAInstance], valid_config: Any
) -> None:
    def first_ones(ask: Ask[Any], reply: Any) -> Any:
        if ask.template != f"qa/{name}" or ask.sample >= misfits:
            return reply
        verdicts = tuple(verdict.model_copy(update={"id": 9}) for verdict in reply.verdicts)
        return reply.model_copy(update={"verdicts": verdicts})

    *tries, outcome = hear(pair[0], valid_config(), Altered(first_ones))
    followed = min(misfits, 2)
    assert [
        (rejection.item, rejection.part, rejection.reason, rejection.attempt, rejection.final)
        for rejection in tries
        if isinstance(rejection, Rejection)
    ] == [(pair[0].id, name, "verdicts_do_not_fit", n, False) for n in range(followed)]
    assert all(
        "verdicts for [9" in rejection.detail
        for rejection in tries
        if isinstance(rejection, Rejection)
    )
    said = [rejection.said for rejection in tries if isinstance(rejection, Rejection)]
    assert all(f"{name}, sub-question 9: " in words for words in said)
    if misfits < 3:
        assert isinstance(outcome, JudgedInstance)
        assert outcome.instance == _judged(pair[0], valid_config())
    else:
        assert isinstance(outcome, Rejection)
        assert outcome.final
        assert outcome.reason == ("judge_failed" if name == "necessity" else "unscored")
        assert (outcome.item, outcome.attempt) == (pair[0].id, 2)
        assert f"{name}: verdicts for [9" in outcome.detail
        assert f"{name}, sub-question 9: " in outcome.said


def _judged(instance: QAInstance, config: Any) -> QAInstance:
    (outcome,) = hear(instance, config, RULES)
    assert isinstance(outcome, JudgedInstance)
    return outcome.instance


def test_an_unscored_instance_names_every_verifier_that_failed(
    pair: list[QAInstance], valid_config: Any
) -> None:
    def down(ask: Ask[Any], reply: Any) -> Any:
        if ask.template in ("qa/dependency", "qa/completeness"):
            raise ParseError("no JSON")
        return reply

    (outcome,) = hear(pair[0], valid_config(), Altered(down))
    assert isinstance(outcome, Rejection)
    assert outcome.detail.startswith("dependency: no JSON; completeness: no JSON | ")
    assert pair[0].main_question in outcome.detail


def test_failed_tries_are_counted_apart_from_drops(
    pair: list[QAInstance], valid_config: Any
) -> None:
    def first(ask: Ask[Any], reply: Any) -> Any:
        misfit = ask.template == "qa/atomicity" and ask.sample == 0
        return StepReport(verdicts=()) if misfit else reply

    kept, rejections = run_valid(pair, valid_config(), Altered(first))
    metrics = StageMetrics("qa_valid")
    for rejection in rejections:
        metrics.reject(rejection)
    assert len(kept) == 2
    assert metrics.document()["dropped"] == {}
    assert metrics.document()["tries"] == {"verdicts_do_not_fit": 2}


def test_what_the_necessity_judge_said_is_kept(pair: list[QAInstance], valid_config: Any) -> None:
    def contrary(ask: Ask[Any], reply: Any) -> Any:
        if not isinstance(reply, NecessityReport):
            return reply
        changed = {"needs_tool": True, "reason": "I cannot compare"}
        last = reply.verdicts[-1].model_copy(update=changed)
        return NecessityReport(verdicts=(*reply.verdicts[:-1], last))

    (outcome,) = hear(pair[1], valid_config(), Altered(contrary))
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "necessity_conflict"
    assert outcome.said == "necessity, sub-question 3: I cannot compare"
    assert outcome.detail.startswith("3 (greater): judge says True, rule False | ")
    assert pair[1].main_question in outcome.detail


def test_low_quality_tells_marks_question_and_the_verifiers_words(
    documents: Any, build: Any, valid_config: Any
) -> None:
    document = documents["chain"]()
    document["sub_questions"][0]["question"] = "What is the captain of Blue Heron and what is 7?"
    document["main_question"] += " Round to 3 digits."
    instance = build(document)
    kept, (outcome,) = run_valid([instance], valid_config())
    assert kept == []
    assert (outcome.item, outcome.reason) == (instance.id, "low_quality")
    assert outcome.detail.startswith(
        "QS 0.625 < 0.900: completeness 0.00, atomicity 0.50, dependency 1.00, sequential 1.00 | "
    )
    assert instance.main_question in outcome.detail
    assert outcome.said == (
        "atomicity, sub-question 1: asks for more than one thing\n"
        "completeness: missing ['Round', '3']"
    )


def test_incomplete_without_a_word_is_told_as_well(
    pair: list[QAInstance], valid_config: Any
) -> None:
    def incomplete(ask: Ask[Any], reply: Any) -> Any:
        known = isinstance(reply, CompletenessReport)
        return CompletenessReport(complete=False, missing=()) if known else reply

    _, rejections = run_valid(pair, valid_config(), Altered(incomplete))
    assert {rejection.said for rejection in rejections} == {"completeness: not complete"}


def test_every_drop_names_a_row_of_the_input(
    documents: Any, build: Any, valid_config: Any, tmp_path: Path
) -> None:
    twin = documents["chain"]()
    twin["main_question"] = twin["main_question"].rstrip("?")
    poor = documents["comparison"]()
    poor["main_question"] += " Round to 3 digits, and tell me which of 2 is 4."
    own = documents["comparison"]()
    own["main_question"] = "Tell me which of Blue Heron and Red Kite has the higher length today"
    inputs = [build(document) for document in (documents["chain"](), twin, poor, own)]
    suite = SuiteTexts("rival", texts={own["main_question"]})
    path = tmp_path / "index.parquet"
    ContaminationIndex.of([suite], ngram=10).save(path)
    kept, rejections = run_valid(inputs, valid_config(contamination=str(path)))
    assert len(kept) == 1
    reasons = {rejection.reason: rejection for rejection in rejections}
    assert set(reasons) == {"near_duplicate", "low_quality", "contaminated_text"}
    assert reasons["low_quality"].item == inputs[2].id
    assert reasons["contaminated_text"].item == inputs[3].id
    assert reasons["contaminated_text"].detail.startswith("rival, ")
    assert f"main question: {own['main_question']}" in reasons["contaminated_text"].detail
    assert reasons["near_duplicate"].item in {inputs[0].id, inputs[1].id}
    assert "captain of Blue Heron" in reasons["near_duplicate"].detail


def test_the_shared_part_of_a_question_is_named(pair: list[QAInstance]) -> None:
    text = pair[1].sub_questions[2].question
    gate = OwnQuestions(ContaminationIndex.of([SuiteTexts("rival", texts={text})], ngram=12))
    assert gate(pair[0]) is None
    problem = gate(pair[1])
    assert problem is not None
    assert problem[1].endswith(f": sub-question 3: {text}")


class Paused:
    """Rules that wait at the asks of chosen templates until they are let go."""

    name = "paused"

    def __init__(self, templates: set[str], question: str = "") -> None:
        self._templates = templates
        self._question = question
        self.go = asyncio.Event()
        self.waiting: Counter[str] = Counter()
        self.most = 0

    async def ask(self, ask: Ask[Any]) -> Any:
        meant = self._question in ask.variables.get("main_question", "")
        if ask.template in self._templates and meant:
            self.waiting[ask.template] += 1
            self.most = max(self.most, self.waiting.total())
            await self.go.wait()
            self.waiting[ask.template] -= 1
        return await RULES.ask(ask)


def test_the_verifiers_are_asked_together(pair: list[QAInstance], valid_config: Any) -> None:
    async def watched() -> None:
        judge = Paused(VERIFIERS)
        hearing = asyncio.create_task(judge_instance(pair[0], judge, valid_config()))
        while judge.waiting.total() < len(VERIFIERS):
            await asyncio.sleep(0)
        assert set(judge.waiting) == VERIFIERS
        judge.go.set()
        (outcome,) = await hearing
        assert isinstance(outcome, JudgedInstance)
        assert list(outcome.instance.scores) == [
            "dependency", "atomicity", "sequential", "completeness", "qs",
        ]  # fmt: skip

    asyncio.run(asyncio.wait_for(watched(), 20))


def test_an_instance_that_waits_keeps_no_other_from_being_judged(
    pair: list[QAInstance], valid_config: Any
) -> None:
    async def watched() -> list[Any]:
        metrics = StageMetrics("qa_valid")
        judge = Paused({"qa/necessity"}, pair[0].main_question)

        async def collect() -> list[Any]:
            return [o async for o in judge_all(pair, judge, valid_config(), 2, metrics)]

        judging = asyncio.create_task(collect())
        while metrics.counts["in"] < 1:
            await asyncio.sleep(0)
        assert judge.waiting.total() == 1
        judge.go.set()
        return await judging

    outcomes = asyncio.run(asyncio.wait_for(watched(), 20))
    assert [outcome.item for outcome in outcomes] == [instance.id for instance in pair]


def test_no_more_instances_are_open_than_allowed(
    documents: Any, build: Any, valid_config: Any
) -> None:
    instances = variants(documents, build, 12)

    async def watched() -> int:
        judge = Paused({"qa/necessity"})
        metrics = StageMetrics("qa_valid")

        async def collect() -> int:
            return len([o async for o in judge_all(instances, judge, valid_config(), 3, metrics)])

        judging = asyncio.create_task(collect())
        for _ in range(50):
            await asyncio.sleep(0)
        assert judge.most == 3
        judge.go.set()
        return await judging

    assert asyncio.run(asyncio.wait_for(watched(), 20)) == 12


def test_a_judge_that_fails_for_good_is_raised_as_it_is(
    pair: list[QAInstance], valid_config: Any
) -> None:
    """Not within a group: a stage tells errors for the user from others by their class."""

    def broken(ask: Ask[Any], reply: Any) -> Any:
        if ask.template in VERIFIERS:
            raise RuntimeError("broken")
        return reply

    with pytest.raises(RuntimeError, match="broken"):
        run_valid(pair, valid_config(), Altered(broken))


def test_results_do_not_depend_on_who_answers_first(
    documents: Any, build: Any, valid_config: Any
) -> None:
    """Rejections are kept in the same order as well, tries of one instance among them."""

    class Slow:
        name = "slow"

        def __init__(self, first: str) -> None:
            self._first = first

        async def ask(self, ask: Ask[Any]) -> Any:
            for _ in range(0 if ask.template == self._first else 20):
                await asyncio.sleep(0)
            if ask.template in VERIFIERS - {"qa/completeness"} and ask.sample == 0:
                return StepReport(verdicts=())
            if ask.template == "qa/sequential":
                raise ProviderError("down")
            return await RULES.ask(ask)

    instances = variants(documents, build, 4)
    runs = [run_valid(instances, valid_config(), Slow(first)) for first in sorted(VERIFIERS)]
    assert all(outcomes == runs[0] for outcomes in runs)
    assert [rejection.part for rejection in runs[0][1][:4]] == [
        "atomicity",
        "dependency",
        "sequential",
        "",
    ]


def variants(documents: Any, build: Any, count: int) -> list[QAInstance]:
    """Instances that differ in their question's ending."""
    copies: list[QAInstance] = []
    for number in range(count):
        document = documents["chain"]()
        document["main_question"] += " Please." * number
        copies.append(build(document))
    return copies


def test_waiting_instances_are_not_held_in_memory(
    documents: Any, build: Any, valid_config: Any
) -> None:
    count = 400

    def stream() -> Iterator[QAInstance]:
        for number in range(count):
            document = documents["chain"]()
            document["main_question"] = f"What is the age of the captain of Blue Heron {number}?"
            yield build(document)

    def alive() -> int:
        gc.collect()
        return sum(isinstance(thing, QAInstance) for thing in gc.get_objects())

    with JudgedShelf() as shelf:
        before = alive()
        for instance in stream():
            shelf.add(JudgedInstance(item=instance.id, instance=_scored(instance), against=""))
        assert alive() - before < 5
        most = kept = 0
        config = valid_config(duplicate_similarity=1.0)
        for number, outcome in enumerate(shelf.select(config, [])):
            kept += isinstance(outcome, QAInstance)
            if number % 100 == 99:
                most = max(most, alive() - before)
        assert kept == count
        assert most < 80


def _scored(instance: QAInstance) -> QAInstance:
    scores = {"qs": {"kind": "scored", "value": 1.0}}
    return QAInstance.model_validate({**instance.model_dump(), "scores": scores})


def test_metrics_have_every_count_even_where_nothing_passes(valid_config: Any) -> None:
    metrics = StageMetrics("qa_valid")

    async def drain() -> None:
        async for outcome in valid([], RULES, valid_config(), 2, metrics):
            assert isinstance(outcome, QAInstance)
            measure(metrics, outcome)

    asyncio.run(drain())
    assert metrics.document() == {
        "dropped": {}, "sub_questions": 0, "sub_questions_with_tool": 0, "audited": 0,
        "asks_saved": 0, "shapes": {},
    }  # fmt: skip
