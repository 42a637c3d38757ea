"""Stage envs: every operation becomes a verified tool, and what fails says why."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from env_runs import everything, final
from env_samples import ENVS, EVERY_OP, answer, asked, instance, price
from pydantic import BaseModel

from astra.envsynth import asks
from astra.envsynth.envs import Outcome
from astra.envsynth.faults import FailedTry, ToolPart
from astra.envsynth.offline.handlers import HANDLERS
from astra.envsynth.wishes import NO_WISHES, Wishes
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import render
from astra.records.environment import Environment
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.sandbox.protocol import Sandbox


@pytest.fixture(scope="module")
def sandbox(patient_sandbox: Sandbox) -> Sandbox:
    return patient_sandbox


def run(
    instances: list[QAInstance], teacher: Teacher, sandbox: Sandbox, **changes: Any
) -> list[Outcome]:
    """What came of each sub-question in the end."""
    return final(everything(instances, teacher, sandbox, **changes))


class Spoiling:
    """The offline teacher, except that ``spoil`` may change or refuse a reply."""

    name = "spoiling"

    def __init__(self, spoil: Any) -> None:
        self._inner = OfflineTeacher(ENVS.teacher, HANDLERS)
        self._spoil = spoil
        self.asked: list[tuple[str, Mapping[str, Any], int]] = []

    async def ask(self, ask: Ask[Any]) -> Any:
        self.asked.append((ask.template, ask.variables, ask.sample))
        reply = await self._inner.ask(ask)
        return self._spoil(ask, reply, len(self.asked))


def test_every_operation_becomes_a_verified_tool(teacher: OfflineTeacher, sandbox: Sandbox) -> None:
    outcomes = run([instance(*EVERY_OP)], teacher, sandbox)
    assert [item for item in outcomes if isinstance(item, Rejection)] == []
    made = [item for item in outcomes if isinstance(item, Environment)]
    assert [item.sub_question_id for item in made] == list(range(1, 17))  # 17 needs no tool
    assert {item.sub_question_id: item.tool.name for item in made} == {
        1: "get_asking_price", 2: "get_agent", 3: "get_office", 4: "list_listings",
        5: "count_listings", 6: "count_listings", 7: "get_total_asking_price",
        8: "get_average_fee", 9: "get_highest_asking_price", 10: "get_lowest_asking_price",
        11: "find_dearest_listing", 12: "find_cheapest_listing", 13: "convert_price",
        14: "get_listed_date", 15: "add_days", 16: "days_between",
    }  # fmt: skip
    assert made[2].arguments == {"agent": "Nora Holt"}
    assert made[12].arguments == {"amount": 812, "currency": "crowns"}
    for item in made:
        assert item.checks["fresh_sessions"] == 2
        assert item.checks["perturbed_calls"] >= 3
        assert len(item.tool.description.split()) <= 12
        assert 1 <= len(item.tool.parameters["properties"]) <= 3


def test_scaling_adds_an_optional_filter_that_works(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    made = run([instance(EVERY_OP[4])], teacher, sandbox, other_keys=9)[0]
    assert isinstance(made, Environment)
    assert list(made.tool.parameters["properties"]) == ["district", "agent"]
    assert made.tool.parameters["required"] == ["district"]
    session = sandbox.session({made.tool.name: made.code})

    def call(**arguments: Any) -> Any:
        result = session.call(made.tool.name, arguments)
        return result.value if result.error == "" else result.error

    assert call(district="Sage Park") == 3
    assert call(district="Sage Park", agent="Lena Orr") == 1
    assert call(district="Calm Bay", agent="Lena Orr") == 0
    assert call(district="Nowhere") == "ValueError: no district named Nowhere"
    session.close()


def test_every_row_of_a_lookup_is_right(teacher: OfflineTeacher, sandbox: Sandbox) -> None:
    made = run([instance(price(1, "Amber Cove", 812))], teacher, sandbox, other_keys=99)[0]
    assert isinstance(made, Environment)
    truth = {row[0]: row[3] for row in instance(EVERY_OP[0]).knowledge[0].rows}
    session = sandbox.session({made.tool.name: made.code})
    for listing, value in truth.items():
        assert session.call(made.tool.name, {"listing": listing}).value == value
    session.close()


def test_failures_are_fed_back_and_the_repair_is_kept(sandbox: Sandbox) -> None:
    def spoil(ask: Ask[Any], reply: BaseModel, _: int) -> BaseModel:
        if isinstance(reply, asks.CodeReply) and ask.sample == 0:
            return asks.CodeReply(code="def get_asking_price(listing):\n    return 812\n")
        return reply

    teacher = Spoiling(spoil)
    made = run([instance(price(1, "Amber Cove", 812))], teacher, sandbox, inner_attempts=3)
    assert isinstance(made[0], Environment)
    assert "return 812" not in made[0].code
    steps = [(template.split("/")[1], sample) for template, _, sample in teacher.asked]
    assert steps == [
        ("document", 0), ("call", 0), ("code", 0), ("code", 1),
    ]  # fmt: skip
    assert teacher.asked[-1][1]["feedback"].startswith("constant: ")
    assert teacher.asked[-1][1]["rejected"] == "def get_asking_price(listing):\n    return 812\n"
    assert teacher.asked[2][1]["feedback"] == ""
    assert teacher.asked[2][1]["rejected"] is None


def test_retries_are_bounded_inside_and_outside(sandbox: Sandbox) -> None:
    def spoil(_: Ask[Any], reply: BaseModel, __: int) -> BaseModel:
        return asks.CodeReply(code="import os\n") if isinstance(reply, asks.CodeReply) else reply

    teacher = Spoiling(spoil)
    dropped = run(
        [instance(price(1, "Amber Cove", 812))], teacher, sandbox,
        inner_attempts=3, outer_attempts=2,
    )[0]  # fmt: skip
    assert isinstance(dropped, Rejection)
    assert dropped.reason == "forbidden_import"
    counts = [template.split("/")[1] for template, _, _ in teacher.asked]
    assert (counts.count("document"), counts.count("code")) == (2, 6)
    assert len({sample for template, _, sample in teacher.asked if "code" in template}) == 6


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ProviderError("down"), "provider_error"), (ParseError("?"), "parse_error")],
)
def test_an_outage_is_a_counted_drop_of_one_item(
    sandbox: Sandbox, error: Exception, reason: str
) -> None:
    def spoil(ask: Ask[Any], reply: BaseModel, _: int) -> BaseModel:
        if "Jade Mill" in ask.variables["question"]:
            raise error
        return reply

    both = instance(price(1, "Amber Cove", 812), price(2, "Jade Mill", 455))
    first, second = run([both], Spoiling(spoil), sandbox)
    assert isinstance(first, Environment)
    assert isinstance(second, Rejection)
    assert (second.reason, second.item, second.part) == (reason, both.id, "2")


def test_a_wrong_gold_answer_and_an_unjudged_question_are_dropped(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    wrong = price(1, "Amber Cove", 811)
    unjudged = price(2, "Jade Mill", 455).model_copy(update={"tool_necessity": None})
    bare = price(3, "Jade Mill", 455).model_copy(update={"operation": None})
    outcomes = run([instance(wrong, unjudged, bare)], teacher, sandbox)
    reasons = [item.reason for item in outcomes if isinstance(item, Rejection)]
    assert reasons == ["wrong_answer", "necessity_unknown", "provider_error"]


FURTHER_OPS = (
    asked(1, "record", "listing.details", "listings", {"listing": "Jade Mill"},
          "asking_price:rooms", answer("record", {"asking_price": 455, "rooms": 2})),
    asked(2, "above", "agent.listings_above", "listings", {"agent": "Nora Holt", "bound": 500},
          "listing:asking_price", answer("list", ["Amber Cove"], ordered=False)),
    asked(3, "below", "agent.listings_below", "listings", {"agent": "Lena Orr", "bound": 500},
          "listing:asking_price", answer("list", ["Ruby Lake"], ordered=False)),
    asked(4, "sort", "agent.listings_by_price", "listings", {"agent": "Nora Holt"},
          "listing:asking_price", answer("list", ["Jade Mill", "Amber Cove"])),
    asked(5, "check", "listing.check_agent", "listings",
          {"agent": "Nora Holt", "listing": "Jade Mill"}, "agent", answer("boolean", True)),
    asked(6, "check", "listing.check_agent", "listings",
          {"listing": "Jade Mill", "agent": "Lena Orr"}, "agent", answer("boolean", False)),
    asked(7, "multiply", "amount.multiply_amount", "", {"amount": 455, "times": 3}, "",
          answer("number", 1365)),
    asked(8, "weekday", "date.find_weekday", "", {"date": "2024-01-08"}, "",
          answer("enum", "Monday", domain_size=7)),
)  # fmt: skip


def test_further_operations_become_tools_too(teacher: OfflineTeacher, sandbox: Sandbox) -> None:
    outcomes = run([instance(*FURTHER_OPS)], teacher, sandbox)
    assert [item for item in outcomes if isinstance(item, Rejection)] == []
    assert [item.tool.name for item in outcomes if isinstance(item, Environment)] == [
        "get_details", "list_listings_above", "list_listings_below", "sort_listings_by_price",
        "check_agent", "check_agent", "multiply_amount", "find_weekday",
    ]  # fmt: skip


def test_only_what_others_build_on_becomes_executable_if_the_paper_is_followed(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    whole = instance(EVERY_OP[1], EVERY_OP[2], price(1, "Jade Mill", 455))
    made = run([whole], teacher, sandbox, nodes="non_leaf")
    assert [item.sub_question_id for item in made if isinstance(item, Environment)] == [2]
    assert len(run([whole], teacher, sandbox)) == 3


def test_arguments_that_nobody_was_told_are_unreachable(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    hidden = price(1, "Amber Cove", 812).model_copy(update={"question": "What is its price?"})
    dropped = run([instance(hidden)], teacher, sandbox)[0]
    assert isinstance(dropped, Rejection)
    assert dropped.reason == "untold_argument"
    undeclared = EVERY_OP[2].model_copy(update={"dependencies": ()})
    operation = undeclared.operation
    assert operation is not None
    written = operation.model_copy(update={"arguments": {"agent": "Nora Holt"}})
    secret = undeclared.model_copy(update={"operation": written, "question": "Whose office?"})
    dropped = run([instance(EVERY_OP[1], secret)], teacher, sandbox)[1]
    assert isinstance(dropped, Rejection)
    assert dropped.reason == "untold_argument"
    # What only the step's own question says is told to no agent.
    own = price(1, "Amber Cove", 812)
    whole = instance(own).model_copy(update={"main_question": "What does my listing cost?"})
    dropped = run([whole], teacher, sandbox)[0]
    assert isinstance(dropped, Rejection)
    assert dropped.reason == "untold_argument"


def test_batches_and_concurrency_change_nothing(teacher: OfflineTeacher, sandbox: Sandbox) -> None:
    many = [instance(price(1, "Amber Cove", 812), *EVERY_OP[1:8], domain=f"d{k}") for k in range(3)]
    assert run(many, teacher, sandbox) == run(many, teacher, sandbox, verify_batch=1)


def test_every_prompt_renders(teacher: OfflineTeacher) -> None:
    """The openai backend's texts: with and without operation, table and feedback."""
    whole = instance(*EVERY_OP)
    free = whole.model_copy(update={"knowledge": (), "knowledge_text": "Facts {{ here }}."})
    for owner in (whole, free):
        question = owner.sub_questions[12]
        tool = asyncio.run(
            teacher.ask(asks.document_ask(whole, whole.sub_questions[12], NO_WISHES, None, 0))
        ).tool.tool()
        made = Environment(
            qa_id="q", sub_question_id=13, tool=tool, code="CODE", arguments={"amount": 1},
            answer=answer("number", 1), checks={},
        )  # fmt: skip
        call, code = (
            asks.LastTry("constant: why", reply)
            for reply in ({"amount": 17}, "def wrong():\n    pass\n")
        )
        failed = FailedTry(ToolPart.CODE, ("constant", "why"))
        merge = asks.LastTry("constant: why", {"code": "def wrong():\n    pass\n", "calls": []})
        asked = [
            asks.document_ask(owner, question, NO_WISHES, failed, 0),
            asks.document_ask(owner, question, Wishes(True, True), failed, 0),
            asks.complexity_ask(owner, question, tool, failed, 0),
            asks.call_ask(owner, question, tool, 0, call),
            asks.code_ask(owner, question, tool, {"amount": 1}, 6, 0, code),
            asks.cluster_ask([(question, made)] * 2),
            asks.merge_ask([(question, made)] * 2, 0, merge),
        ]
        for ask in asked:
            text = render(ask.template, ask.shown)
            assert "Reply" in text
            if "feedback" in ask.variables:
                assert "constant: why" in text
            if "rejected" in ask.variables:
                assert '"amount": 17' in text or "| def wrong():" in text
