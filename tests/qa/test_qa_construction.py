"""What holds by construction is recorded as such, and no judge is asked about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, ProviderError
from astra.qa.construction import audited, known
from astra.qa.offline.handlers import HANDLERS
from astra.qa.qa_valid import judge_all, judge_instance
from astra.qa.selection import JudgedInstance
from astra.records.base import content_id
from astra.records.qa import QAInstance
from astra.records.score import Rejection, Scored
from astra.store.metrics import StageMetrics

RULES = OfflineTeacher(ModelConfig(backend="offline", model="rules-1"), HANDLERS)
VERIFIERS = ["dependency", "atomicity", "sequential", "completeness"]


class Heard:
    """The offline judge; ``asks`` holds the template and the steps of each ask."""

    name = "heard"

    def __init__(self) -> None:
        self.asks: list[tuple[str, list[int]]] = []

    async def ask(self, ask: Ask[Any]) -> Any:
        self.asks.append((ask.template.removeprefix("qa/"), ask.variables["asked"]))
        return await RULES.ask(ask)


class Down:
    """A judge that never answers."""

    name = "down"

    async def ask(self, ask: Ask[Any]) -> Any:
        raise ProviderError("down")


def hear(instance: QAInstance, config: Any, judge: Any) -> JudgedInstance | Rejection:
    return asyncio.run(judge_instance(instance, judge, config))[-1]


@pytest.fixture
def config(valid_config: Any) -> Any:
    return valid_config(audit_share=0.0)


def freely(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "source": "context:texts", "composition": "harbour:free:boat.captain(@)"}


@pytest.mark.parametrize("which", ["chain", "comparison"])
def test_nobody_is_asked_about_a_planned_question(
    which: str, documents: Any, build: Any, config: Any
) -> None:
    outcome = hear(build(documents[which]()), config, Down())
    assert isinstance(outcome, JudgedInstance)
    scores = outcome.instance.scores
    assert scores["qs"] == Scored(value=1.0)
    assert all(scores[name] == Scored(value=1.0, by_construction=True) for name in VERIFIERS)
    needs = [step.tool_necessity for step in outcome.instance.sub_questions]
    assert needs == ([True, True] if which == "chain" else [True, True, False])


def test_a_record_tells_construction_from_a_verdict(
    documents: Any, build: Any, config: Any
) -> None:
    outcome = hear(build(freely(documents["chain"]())), config, RULES)
    assert isinstance(outcome, JudgedInstance)
    stored = outcome.instance.model_dump(mode="json")
    assert stored["scores"]["sequential"]["by_construction"] is True
    assert stored["scores"]["atomicity"] == {"kind": "scored", "value": 1.0}
    assert QAInstance.model_validate(stored) == outcome.instance


def test_of_a_free_question_operations_prove_necessity_and_order(
    documents: Any, build: Any, config: Any
) -> None:
    judge = Heard()
    instance = build(freely(documents["comparison"]()))
    assert isinstance(hear(instance, config, judge), JudgedInstance)
    assert sorted(judge.asks) == [
        ("atomicity", [1, 2, 3]), ("completeness", [1, 2, 3]), ("dependency", [3]),
    ]  # fmt: skip
    assert known(instance, config).asks_saved(instance) == 2
    refused = hear(instance, config, Down())
    assert isinstance(refused, Rejection)
    assert refused.reason == "unscored"


def test_a_free_question_without_operations_is_judged_in_full(
    documents: Any, build: Any, config: Any
) -> None:
    document = freely(documents["chain"]())
    for step in document["sub_questions"]:
        step["operation"] = None
    instance, judge = build(document), Heard()
    hear(instance, config, judge)
    assert {name for name, _ in judge.asks} == {"necessity", *VERIFIERS}
    assert known(instance, config).asks_saved(instance) == 0


def test_necessity_is_asked_of_the_steps_that_state_no_operation(
    documents: Any, build: Any, config: Any
) -> None:
    document = freely(documents["chain"]())
    document["sub_questions"][1]["operation"] = None
    instance, judge = build(document), Heard()
    outcome = hear(instance, config, judge)
    assert ("necessity", [2]) in judge.asks
    assert isinstance(outcome, JudgedInstance)
    assert [step.tool_necessity for step in outcome.instance.sub_questions] == [True, True]
    assert known(instance, config).asks_saved(instance) == 0


def _superfluous(document: dict[str, Any]) -> None:
    document["sub_questions"][1]["operation"]["arguments"] = {"captain": "Ada Finch"}


def _undeclared(document: dict[str, Any]) -> None:
    document["sub_questions"][1].update(dependencies=[], hop_level=1)


def _late(document: dict[str, Any]) -> None:
    document["sub_questions"][1]["hop_level"] = 3


@pytest.mark.parametrize(
    ("plant", "verifier", "free"),
    [
        (_superfluous, "dependency", False),
        (_superfluous, "sequential", False),
        (_undeclared, "dependency", False),
        (_superfluous, "sequential", True),
        (_late, "sequential", True),
    ],
)
def test_order_and_dependencies_are_computed_and_not_taken_for_granted(
    plant: Any, verifier: str, free: bool, documents: Any, build: Any, config: Any
) -> None:
    document = documents["chain"]()
    plant(document)
    instance = build(freely(document) if free else document)
    score = known(instance, config).scores[verifier]
    assert isinstance(score, Scored)
    assert score.value < 1.0
    assert score.by_construction


def test_waiting_for_an_action_is_no_superfluous_dependency(
    documents: Any, build: Any, config: Any
) -> None:
    document = documents["chain"]()
    first, second = document["sub_questions"]
    first["operation"] = {**first["operation"], "op": "update"}
    second["operation"] = {**second["operation"], "arguments": {"captain": "Ada Finch"}}
    scores = known(build(document), config).scores
    assert scores["dependency"] == scores["sequential"] == Scored(value=1.0, by_construction=True)
    first["operation"]["op"] = "lookup"
    assert known(build(document), config).scores["dependency"] != scores["dependency"]
    second["bar"] = "no_call"
    assert known(build(document), config).scores["dependency"] == scores["dependency"]


def test_about_the_share_is_audited_and_asked_everything(
    documents: Any, build: Any, valid_config: Any
) -> None:
    sample = build(documents["chain"]())
    ids = [content_id(["instance", number]) for number in range(4000)]
    chosen = [
        audited(sample.model_copy(update={"id": id}), valid_config(audit_share=0.05)) for id in ids
    ]
    assert sum(chosen) / len(chosen) == pytest.approx(0.05, abs=0.012)
    assert not any(
        audited(sample.model_copy(update={"id": id}), valid_config(audit_share=0.0)) for id in ids
    )
    judge = Heard()
    hear(sample, valid_config(audit_share=1.0), judge)
    assert {name for name, _ in judge.asks} == {"necessity", *VERIFIERS}


def test_saved_asks_are_counted(documents: Any, build: Any, config: Any) -> None:
    metrics = StageMetrics("qa_valid")
    instances = [
        build(document)
        for document in (
            documents["chain"](), freely(documents["chain"]()), documents["comparison"](),
        )
    ]  # fmt: skip

    async def drain() -> int:
        return len([o async for o in judge_all(instances, RULES, config, 2, metrics)])

    assert asyncio.run(drain()) == 3
    assert metrics.counts["asks_saved"] == 5 + 2 + 5
    assert metrics.counts["audited"] == 0
