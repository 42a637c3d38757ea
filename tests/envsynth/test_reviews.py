"""The review of a document: what it may add, what it is shown, and that it costs no tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from env_runs import everything
from env_samples import ENVS, EVERY_OP, LISTINGS, answer, asked, instance, price
from merge_samples import Asked
from test_envs_faults import Spoiled, reasons

from astra.envsynth import asks
from astra.envsynth.faults import FailedTry, ToolPart
from astra.envsynth.offline.handlers import HANDLERS
from astra.envsynth.truth import filters_of
from astra.envsynth.wishes import NO_WISHES
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import ParseError, ProviderError
from astra.prompting import render
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion
from astra.sandbox.protocol import Sandbox

COUNT = asked(
    1, "count", "district.listings", "listings", {"district": "Sage Park"}, "",
    answer("number", 3, domain_size=6),
)  # fmt: skip


@pytest.fixture(scope="module")
def sandbox(patient_sandbox: Sandbox) -> Sandbox:
    return patient_sandbox


def document(filter_name: str, **changes: Any) -> asks.DocumentReply:
    tool: dict[str, Any] = {
        "name": "count_listings",
        "description": "Count the listings of a district.",
        "parameters": {
            "type": "object", "required": ["district"], "additionalProperties": False,
            "properties": {"district": {"type": "string"}, filter_name: {"type": "integer"}},
        },
        "output_schema": {"type": "integer"},
    }  # fmt: skip
    return asks.DocumentReply(tool=asks.ToolDocument.model_validate({**tool, **changes}))


def reviewed(sandbox: Sandbox, **replies: list[Any]) -> tuple[Asked, list[Any]]:
    teacher = Asked(Spoiled(**replies))
    changes: dict[str, Any] = {"inner_attempts": 2, "outer_attempts": 2}
    return teacher, everything([instance(COUNT)], teacher, sandbox, **changes)


def test_a_review_that_alone_fails_leaves_the_document_as_it_was(sandbox: Sandbox) -> None:
    teacher, outcomes = reviewed(sandbox, complexity=[document("max_rooms")])
    assert teacher.templates == ["document", "complexity", "call", "code"]
    assert reasons(outcomes) == ["unknown_filter"]
    assert not outcomes[0].final
    assert isinstance(outcomes[-1], Environment)
    assert list(outcomes[-1].tool.parameters["properties"]) == ["district"]


def test_a_review_that_nobody_can_read_leaves_it_too_an_outage_does_not(sandbox: Sandbox) -> None:
    _, outcomes = reviewed(sandbox, complexity=[ParseError("no JSON")])
    assert reasons(outcomes) == ["parse_error"]
    assert list(outcomes[-1].tool.parameters["properties"]) == ["district"]
    teacher, outcomes = reviewed(sandbox, complexity=[ProviderError("down")])
    assert teacher.templates[:4] == ["document", "complexity", "document", "complexity"]
    assert len(outcomes[-1].tool.parameters["properties"]) == 2


def test_a_review_may_mend_a_document_but_does_not_excuse_it(sandbox: Sandbox) -> None:
    bad = document("rooms", description="Count the listings of Sage Park.")
    _, outcomes = reviewed(sandbox, document=[bad], complexity=[document("rooms")])
    assert reasons(outcomes) == []
    teacher, outcomes = reviewed(sandbox, document=[bad], complexity=[document("max_rooms")])
    assert reasons(outcomes) == ["unknown_filter"]
    for ask in teacher.asks[2:4]:  # the next document and its review
        assert ask.variables["feedback"].startswith("unknown_filter: ")
        assert "max_rooms" in render(ask.template, ask.shown)


def paged(**picked: Any) -> QAInstance:
    """Pages of a list, from which a later step picks."""
    given = {"agent": "Nora Holt", "page": 1}
    page = asked(1, "page", "agent.listings", "listings", given, "listing:rooms",
                 answer("record", {"rows": [{"listing": "Jade Mill", "rooms": 2}],
                                   "next_page": None}))  # fmt: skip
    reference = {"from": [1], "pick": "listing", **picked}
    cost = price(2, "Jade Mill", 455)
    operation = cost.operation and cost.operation.model_copy(
        update={"arguments": {"listing": reference}}
    )
    return instance(page, cost.model_copy(update={"operation": operation, "dependencies": (1,)}))


@pytest.mark.parametrize(
    ("picked", "column"),
    [({"where": {"rooms": 2}}, "rooms"), ({"lowest": "asking_price"}, "asking_price"),
     ({"highest": "listed_date"}, "listed_date")],
)  # fmt: skip
def test_no_filter_does_what_a_later_step_does(picked: dict[str, Any], column: str) -> None:
    whole = paged(**picked)
    page, cost = whole.sub_questions
    assert column not in (filters_of(whole, page) or ())
    assert {"agent", "page", "district"} <= set(filters_of(whole, page) or ())
    assert column in (filters_of(whole, cost) or ())  # the step's own tool picks nothing
    ask = asks.complexity_ask(whole, page, document("rooms").tool.tool(), None, 0)
    assert column not in ask.variables["columns"]
    assert "agent" not in ask.variables["columns"]  # a parameter already


def test_an_answer_used_whole_forbids_no_filter() -> None:
    whole = instance(COUNT)
    assert filters_of(whole, COUNT) == LISTINGS.columns


def shown(
    question: SubQuestion, failed: FailedTry | None = None, whole: QAInstance | None = None
) -> str:
    ask = asks.document_ask(whole or instance(question), question, NO_WISHES, failed, 0)
    return render(ask.template, ask.shown)


def test_a_page_may_always_be_the_last() -> None:
    page = paged().sub_questions[0]
    for value in (2, None):
        gold = answer(
            "record", {"rows": [{"listing": "Jade Mill", "rooms": 2}], "next_page": value}
        )
        text = shown(page.model_copy(update={"answer": gold}))
        assert '"next_page": ["integer", "null"]' in text


def test_a_document_is_told_which_columns_it_gives_and_takes() -> None:
    assert 'type number, from "asking_price" of the table, rows found by ["listing"]' in shown(
        price(1, "Amber Cove", 812)
    )
    paged_text = shown(paged().sub_questions[0])
    assert 'from "listing:rooms" of the table, rows found by ["agent"]' in paged_text
    assert "rows found by" not in shown(EVERY_OP[12], whole=instance(*EVERY_OP))  # a conversion
    assert "of the table" not in shown(EVERY_OP[14], whole=instance(*EVERY_OP))  # a calculation
    bare = COUNT.model_copy(update={"operation": None})
    assert "of the table" not in shown(bare)


def test_a_document_is_told_what_the_user_says() -> None:
    whole = instance(COUNT).model_copy(update={"main_question": "How many are there?"})
    ask = asks.document_ask(whole, COUNT, NO_WISHES, None, 0)
    assert "How many are there?" in render(ask.template, ask.shown)


def test_a_new_document_is_told_which_part_failed() -> None:
    told = {part: shown(COUNT, FailedTry(part, ("constant", "always 3"))) for part in ToolPart}
    assert all("constant: always 3" in text for text in told.values())
    assert "Your previous tool was rejected" in told[ToolPart.DOCUMENT]
    assert "the call written for it kept failing" in told[ToolPart.CALL]
    assert "the code written for it kept failing" in told[ToolPart.CODE]
    assert "previous" not in shown(COUNT)


def test_small_numbers_are_not_kept_out_of_a_document() -> None:
    steps = (COUNT, price(2, "Amber Cove", 812))
    ask = asks.complexity_ask(instance(*steps), COUNT, document("rooms").tool.tool(), None, 0)
    assert 812 in ask.variables["kept_out"]
    assert "Sage Park" in ask.variables["kept_out"]
    assert 3 not in ask.variables["kept_out"]


def test_a_word_that_only_the_step_says_is_listed_by_the_offline_document() -> None:
    """Names and what the user says are asked for as they are."""
    table = LISTINGS.model_copy(
        update={
            "columns": (*LISTINGS.columns, "status"),
            "rows": tuple((*row, "sold" if row[4] > 3 else "free") for row in LISTINGS.rows),
        }
    )
    given = {"district": "Sage Park", "status": "free"}
    step = asked(1, "count", "district.listings", "listings", given, "", answer("number", 3))
    for said, listed in (("mine in Sage Park", ["free", "sold"]), ("free in Sage Park", None)):
        whole = instance(step).model_copy(update={"main_question": said, "knowledge": (table,)})
        ask = asks.document_ask(whole, step, NO_WISHES, None, 0)
        reply = asyncio.run(OfflineTeacher(ENVS.teacher, HANDLERS).ask(ask))
        schemas = reply.tool.parameters["properties"]
        assert schemas["status"].get("enum") == listed
        assert "enum" not in schemas["district"]
