from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from astra.contamination.index import ContaminationError, ContaminationIndex
from astra.contamination.suites import SuiteTexts
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, ParseError, ProviderError
from astra.prompting import render
from astra.qa.config import Threshold
from astra.qa.gates import FreshQuestions
from astra.qa.hearing import judge_variables
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa_valid import judge_all, judge_instance, measure, valid
from astra.qa.replies import CompletenessReport, NecessityReport, StepReport
from astra.qa.selection import JudgedInstance, JudgedShelf, cut_off
from astra.records.qa import QAInstance
from astra.records.score import Rejection, Scored, Unscored
from astra.store.metrics import StageMetrics

JUDGE = OfflineTeacher(ModelConfig(backend="offline", model="rules-1"), HANDLERS)


class Judge:
    """The offline judge, except for one template whose replies are replaced or fail."""

    name = "judge"

    def __init__(self, template: str, replacement: Any) -> None:
        self._template = template
        self._replacement = replacement
        self.asked = 0

    async def ask(self, ask: Ask[Any]) -> Any:
        if ask.template not in (self._template, "qa/*") and self._template != "qa/*":
            return await JUDGE.ask(ask)
        self.asked += 1
        if isinstance(self._replacement, Exception):
            raise self._replacement
        return self._replacement


def hear(instance: QAInstance, config: Any, judge: Any = JUDGE) -> list[JudgedInstance | Rejection]:
    """All that comes of judging an instance."""
    return asyncio.run(judge_instance(instance, judge, config))


def judged(instance: QAInstance, config: Any, judge: Any = JUDGE) -> QAInstance | Rejection:
    outcome = hear(instance, config, judge)[-1]
    return outcome.instance if isinstance(outcome, JudgedInstance) else outcome


def select(instances: list[Any], config: Any) -> tuple[list[QAInstance], list[Rejection]]:
    """What is kept and dropped of judged instances."""
    with JudgedShelf() as shelf:
        for entry in instances:
            known = isinstance(entry, JudgedInstance)
            shelf.add(entry if known else JudgedInstance(item=entry.id, instance=entry, against=""))
        outcomes = list(shelf.select(config, [FreshQuestions(config.duplicate_similarity)]))
    return (
        [outcome for outcome in outcomes if isinstance(outcome, QAInstance)],
        [outcome for outcome in outcomes if isinstance(outcome, Rejection)],
    )


def scores(outcome: QAInstance | Rejection) -> dict[str, float]:
    assert isinstance(outcome, QAInstance), outcome
    return {n: s.value for n, s in outcome.scores.items() if isinstance(s, Scored)}


@pytest.mark.parametrize("which", ["chain", "comparison"])
def test_a_sound_instance_gets_full_marks(
    which: str, documents: Any, build: Any, valid_config: Any
) -> None:
    outcome = judged(build(documents[which]()), valid_config())
    assert set(scores(outcome).values()) == {1.0}
    assert len(scores(outcome)) == 5
    kept, rejections = select([outcome], valid_config())
    assert (len(kept), rejections) == (1, [])


def test_necessity_is_set_and_the_record_reidentified(
    documents: Any, build: Any, valid_config: Any
) -> None:
    before = build(documents["comparison"]())
    after = judged(before, valid_config())
    assert isinstance(after, QAInstance)
    assert [step.tool_necessity for step in after.sub_questions] == [True, True, False]
    assert after.id != before.id
    assert QAInstance.model_validate(after.model_dump()) == after


def test_single_hop_has_nothing_to_judge_about_dependencies(
    documents: Any, build: Any, valid_config: Any
) -> None:
    document = documents["chain"]()
    document["sub_questions"].pop()
    document.update(
        scenario="single_hop",
        main_question="What is the captain of Blue Heron?",
        final_answer={"type": "string", "value": "Ada Finch"},
    )
    outcome = judged(build(document), valid_config())
    assert scores(outcome)["qs"] == 1.0
    assert isinstance(outcome, QAInstance)
    assert outcome.scores["dependency"] == Unscored(reason="not applicable")


def _useless_dependency(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["operation"]["arguments"] = {"captain": "Ada Finch"}


def _hidden_literal(d: dict[str, Any]) -> None:
    # The year is in no question, so nobody could know it.
    arguments = d["sub_questions"][1]["operation"]["arguments"]
    arguments["year"] = 1999


def _two_tasks(d: dict[str, Any]) -> None:
    d["sub_questions"][0]["question"] = "What is the captain of Blue Heron and what is its age?"


def _off_topic(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["question"] = "What is the weather like in step 1?"


def _serialised(d: dict[str, Any]) -> None:
    d["sub_questions"][1]["operation"]["arguments"] = {"captain": "Ada Finch"}
    d["sub_questions"][1]["question"] = "What is the age of Ada Finch?"


def _half_answered(d: dict[str, Any]) -> None:
    d["main_question"] += " And what is the age of the captain of Grey Gull?"


def _other_final(d: dict[str, Any]) -> None:
    d["final_answer"]["value"] = 41


def _number_ignored(d: dict[str, Any]) -> None:
    d["main_question"] += " Round to 3 digits."


@pytest.mark.parametrize(
    ("plant", "verifier"),
    [
        (_useless_dependency, "dependency"),
        (_hidden_literal, "dependency"),
        (_two_tasks, "atomicity"),
        (_off_topic, "atomicity"),
        (_serialised, "sequential"),
        (_half_answered, "completeness"),
        (_other_final, "completeness"),
        (_number_ignored, "completeness"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_planted_faults_are_found_by_their_verifier(
    plant: Any, verifier: str, documents: Any, build: Any, valid_config: Any
) -> None:
    document = documents["chain"]()
    plant(document)
    outcome = judged(build(document), valid_config())
    marks = scores(outcome)
    assert marks[verifier] < 1.0
    assert marks["qs"] < 0.9
    kept, rejections = select([outcome], valid_config())
    assert kept == []
    assert rejections[0].reason == "low_quality"
    assert f"{verifier} {marks[verifier]:.2f}" in rejections[0].detail


@pytest.mark.parametrize("error", [ProviderError("down"), ParseError("no JSON")])
def test_a_judge_outage_accepts_nothing(
    error: Exception, documents: Any, build: Any, valid_config: Any
) -> None:
    instances = [build(documents[which]()) for which in ("chain", "comparison")]

    async def collect() -> list[Any]:
        judge = Judge("qa/*", error)
        metrics = StageMetrics("qa_valid")
        return [o async for o in judge_all(instances, judge, valid_config(), 4, metrics)]

    outcomes = asyncio.run(collect())
    assert [o.reason for o in outcomes] == ["judge_failed", "judge_failed"]


@pytest.mark.parametrize("name", ["dependency", "atomicity", "sequential", "completeness"])
def test_one_missing_score_rejects(
    name: str, documents: Any, build: Any, valid_config: Any
) -> None:
    judge = Judge(f"qa/{name}", ProviderError("down"))
    outcome = judged(build(documents["chain"]()), valid_config(), judge)
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "unscored"
    assert name in outcome.detail


@pytest.mark.parametrize("name", ["dependency", "atomicity", "sequential"])
def test_verdicts_for_other_ids_are_asked_again_then_fail(
    name: str, documents: Any, build: Any, valid_config: Any
) -> None:
    report = StepReport.model_validate({"verdicts": [{"id": 7, "ok": True, "reason": ""}]})
    judge = Judge(f"qa/{name}", report)
    outcome = judged(build(documents["chain"]()), valid_config(), judge)
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "unscored"
    assert judge.asked == 3


def _needs(*flags: bool) -> NecessityReport:
    return NecessityReport.model_validate(
        {
            "verdicts": [
                {"id": number, "needs_tool": flag, "reason": ""}
                for number, flag in enumerate(flags, start=1)
            ]
        }
    )


def test_necessity_against_the_rule_is_a_conflict(
    documents: Any, build: Any, valid_config: Any
) -> None:
    instance = build(documents["comparison"]())
    outcome = judged(instance, valid_config(), Judge("qa/necessity", _needs(True, True, True)))
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "necessity_conflict"


def test_what_others_depend_on_must_need_a_tool(
    documents: Any, build: Any, valid_config: Any
) -> None:
    document = documents["chain"]()
    for step in document["sub_questions"]:
        step["operation"] = None
    judge = Judge("qa/necessity", _needs(False, True))
    outcome = judged(build(document), valid_config(), judge)
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "necessity_illegitimate"
    allowed = judged(build(document), valid_config(allow_plain_dependencies=True), judge)
    assert isinstance(allowed, QAInstance)
    none = judged(build(document), valid_config(), Judge("qa/necessity", _needs(False, False)))
    assert isinstance(none, Rejection)
    assert none.reason == "no_tool_needed"


@pytest.mark.parametrize(
    ("template", "report", "reason", "verdict"),
    [
        *(
            (f"qa/{name}", StepReport, '"reason"', '"ok"')
            for name in ("atomicity", "dependency", "sequential")
        ),
        ("qa/necessity", NecessityReport, '"reason"', '"needs_tool"'),
        ("qa/completeness", CompletenessReport, '"missing"', '"complete"'),
    ],
)
def test_a_judge_gives_its_reason_before_its_verdict(
    template: str, report: Any, reason: str, verdict: str, documents: Any, build: Any
) -> None:
    """In the prompt, its example and the reply's fields, which enforced decoding follows."""
    prompt = render(template, judge_variables(build(documents["chain"]()), [1, 2]))
    for part in prompt.split("## Reply")[1].split("## Example"):
        assert 0 <= part.index(reason) < part.index(verdict)
    shown = report.model_json_schema()
    [fields] = [
        kind["properties"]
        for kind in (shown, *shown.get("$defs", {}).values())
        if verdict.strip('"') in kind["properties"]
    ]
    assert list(fields).index(reason.strip('"')) < list(fields).index(verdict.strip('"'))


def test_complete_with_something_missing_is_not_complete(
    documents: Any, build: Any, valid_config: Any
) -> None:
    report = CompletenessReport(complete=True, missing=("the colour",))
    judge = Judge("qa/completeness", report)
    outcome = judged(build(documents["chain"]()), valid_config(), judge)
    assert scores(outcome)["completeness"] == 0.0


def test_unscored_never_passes_selection(documents: Any, build: Any, valid_config: Any) -> None:
    kept, rejections = select([build(documents["chain"]())], valid_config())
    assert kept == []
    assert [r.reason for r in rejections] == ["unscored"]


def test_near_duplicates_keep_one(documents: Any, build: Any, valid_config: Any) -> None:
    twin = documents["chain"]()
    twin["main_question"] = "What is the age of the captain of Blue Heron"
    pair = [judged(build(d), valid_config()) for d in (documents["chain"](), twin)]
    kept, rejections = select(pair, valid_config())
    assert len(kept) == 1
    assert [r.reason for r in rejections] == ["near_duplicate"]
    assert select(pair[::-1], valid_config())[0] == kept


def passed(instances: list[QAInstance], config: Any, metrics: StageMetrics) -> list[QAInstance]:
    """What leaves the stage."""

    async def collect() -> list[QAInstance]:
        kept: list[QAInstance] = []
        async for outcome in valid(instances, JUDGE, config, 2, metrics):
            if isinstance(outcome, Rejection):
                metrics.reject(outcome)
            else:
                measure(metrics, outcome)
                kept.append(outcome)
        return kept

    return asyncio.run(collect())


@pytest.mark.parametrize("part", ["main_question", "sub_question"])
def test_questions_of_a_benchmark_are_kept_out(
    part: str, documents: Any, build: Any, valid_config: Any, tmp_path: Path
) -> None:
    first, second = (build(documents[which]()) for which in ("chain", "comparison"))
    asked = first.main_question if part == "main_question" else first.sub_questions[0].question
    suite = SuiteTexts(
        "rival", texts={f"{asked} Show how you found it, with every number you used."}
    )
    path = tmp_path / "index.parquet"
    ContaminationIndex.of([suite], ngram=6).save(path)
    metrics = StageMetrics("qa_valid")
    kept = passed([first, second], valid_config(contamination=str(path)), metrics)
    assert [instance.main_question for instance in kept] == [second.main_question]
    document = metrics.document()
    assert document["dropped"] == {"contaminated_text": 1}
    assert document["contamination_suites"]["rival"]["texts"] == 1
    assert len(passed([first, second], valid_config(), StageMetrics("qa_valid"))) == 2


def test_an_index_that_is_not_there_stops_the_stage(
    documents: Any, build: Any, valid_config: Any, tmp_path: Path
) -> None:
    config = valid_config(contamination=str(tmp_path / "none.parquet"))
    with pytest.raises(ContaminationError, match="astra contamination build"):
        passed([build(documents["chain"]())], config, StageMetrics("qa_valid"))


def test_percentile_keeps_the_top_and_ties() -> None:
    half = Threshold(kind="percentile", value=50)
    assert cut_off([0.1, 0.2, 0.3, 0.4], half) == 0.3
    assert cut_off([1.0, 1.0, 1.0], Threshold(kind="percentile", value=90)) == 1.0
    assert cut_off([0.5], Threshold(kind="percentile", value=100)) == 0.5
    assert cut_off([], half) == 0.0
    assert cut_off([0.5], Threshold(kind="absolute", value=0.9)) == 0.9
    with pytest.raises(ValueError, match="lies in"):
        Threshold(kind="absolute", value=90)


@pytest.mark.parametrize(
    "name", ["necessity", "dependency", "atomicity", "sequential", "completeness"]
)
def test_prompts_show_the_item(name: str, documents: Any, build: Any) -> None:
    instance = build(documents["comparison"]())
    text = render(f"qa/{name}", judge_variables(instance, [1, 2, 3]))
    for step in instance.sub_questions:
        assert step.question in text
    assert instance.main_question in text
    assert '"verdicts"' in text or '"complete"' in text
