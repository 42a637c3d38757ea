"""Tools that take thought: records, lists and pages, names unlike the question, other forms."""

from __future__ import annotations

from typing import Any

import pytest
from env_runs import everything, final, merged
from env_samples import ENVS, EVERY_OP, answer, asked, instance, price

from astra.envsynth import asks
from astra.envsynth.offline.handlers import HANDLERS
from astra.envsynth.wishes import NO_WISHES, Wishes, name_problem, wishes_of
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, Teacher
from astra.records.environment import Environment, Trait
from astra.records.qa import QAInstance, SubQuestion, Table
from astra.records.score import Rejection
from astra.records.state import Write, WriteAction
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox
from astra.text.likeness import shared_words

BERTHS = Table(
    name="berths",
    columns=("berth", "quay", "depth", "fee"),
    rows=(
        ("Grey Seal", "North Wall", 7, 41), ("Tall Mast", "North Wall", 9, 58),
        ("Low Tide", "North Wall", 4, 22), ("Iron Ring", "North Wall", 6, 37),
        ("Old Crane", "East Mole", 8, 53), ("Salt Store", "East Mole", 5, 29),
    ),
)  # fmt: skip
FIELDS = "berth:fee"


def shown(*names: str) -> list[dict[str, Any]]:
    return [{"berth": row[0], "fee": row[3]} for row in BERTHS.rows if row[0] in names]


def page(number: int, given: Any, rows: list[dict[str, Any]], after: int | None) -> SubQuestion:
    gold = answer("record", {"rows": rows, "next_page": after})
    earlier = (1,) if isinstance(given, dict) else ()
    return asked(
        number, "page", "quay.berths", "berths", {"quay": "North Wall", "page": given}, FIELDS,
        gold, earlier, number,
    )  # fmt: skip


PAGES = (
    page(1, 1, shown("Grey Seal", "Tall Mast", "Low Tide"), 2),
    page(2, {"from": 1, "pick": "next_page"}, shown("Iron Ring"), None),
    asked(3, "pick", "berth.cheapest", "", {"value": {"from": [1, 2], "pick": "berth",
          "lowest": "fee"}}, "", answer("string", "Low Tide"), (1, 2), 3, False),
    asked(4, "lookup", "berth.depth", "berths", {"berth": {"from": 3}}, "depth",
          answer("number", 4), (3,), 4),
)  # fmt: skip
ROWS = asked(
    1, "rows", "quay.berths", "berths", {"quay": "East Mole"}, FIELDS,
    answer("list", shown("Old Crane", "Salt Store"), ordered=False),
)  # fmt: skip
ARITHMETIC = (
    asked(1, "subtract", "amount.subtract_amount", "", {"amount": 58, "minus": 22.5}, "",
          answer("number", 35.5)),
    asked(2, "divide", "amount.divide_amount", "", {"amount": 58, "by": 7}, "",
          answer("number", 8.29, tolerance=0.01)),
    asked(3, "share", "amount.find_share", "", {"part": 29, "whole": 58}, "",
          answer("number", 50, tolerance=0.01)),
)  # fmt: skip


@pytest.fixture(scope="module")
def sandbox(patient_sandbox: Sandbox) -> Sandbox:
    return patient_sandbox


def harbour(*questions: SubQuestion) -> QAInstance:
    return instance(*questions, domain="harbour", entities=("North Wall",)).model_copy(
        update={"knowledge": (BERTHS,)}
    )


def made(
    whole: QAInstance, teacher: Teacher, sandbox: Sandbox, **changes: Any
) -> list[Environment]:
    """The environments of an instance that loses none."""
    outcomes = final(everything([whole], teacher, sandbox, **changes))
    assert [item for item in outcomes if isinstance(item, Rejection)] == []
    return [item for item in outcomes if isinstance(item, Environment)]


def called(environment: Environment, sandbox: Sandbox, **arguments: Any) -> Any:
    """What a call of the tool returns, or its error."""
    session = sandbox.session({environment.tool.name: environment.code})
    result = session.call(environment.tool.name, arguments)
    session.close()
    return result.error or result.value


def test_rows_pages_and_arithmetic_become_tools(teacher: OfflineTeacher, sandbox: Sandbox) -> None:
    first, second, depth = made(harbour(*PAGES), teacher, sandbox)
    assert (first.tool.name, first.arguments) == (
        "browse_berths", {"quay": "North Wall", "page": 1},
    )  # fmt: skip
    assert second.arguments == {"quay": "North Wall", "page": 2}
    assert depth.arguments == {"berth": "Low Tide"}
    [rows] = made(harbour(ROWS), teacher, sandbox)
    assert rows.tool.name == "list_berths"
    assert rows.tool.output_schema == {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"berth": {"type": "string"}, "fee": {"type": "integer"}},
            "required": ["berth", "fee"],
        },
    }
    tools = made(harbour(*ARITHMETIC), teacher, sandbox)
    assert [tool.tool.name for tool in tools] == [
        "subtract_amount", "divide_amount", "find_share",
    ]  # fmt: skip
    assert called(tools[0], sandbox, amount=10, minus=12.25) == -2.25
    assert called(tools[1], sandbox, amount=1, by=0) == "ValueError: by must not be 0"
    assert called(tools[2], sandbox, part=1, whole=0) == "ValueError: whole must not be 0"
    assert called(tools[2], sandbox, part=1, whole=3) == 33.33


def test_pages_of_shared_tables_may_depend_on_the_order_of_rows(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    raised = asked(
        5, "update", "berth.set_fee", "berths", {"berth": {"from": 3}, "fee": 30}, "fee",
        answer("number", 30), (3,), 4,
    ).model_copy(
        update={
            "question": "Set the fee of the berth from step 3 to 30.",
            "writes": (
                Write(
                    action=WriteAction.UPDATE, table="berths", where={"berth": "Low Tide"},
                    values={"fee": 30},
                ),
            ),
        }
    )  # fmt: skip
    tools = made(harbour(*PAGES[:3], raised), teacher, sandbox)
    assert [tool.tool.name for tool in tools] == ["browse_berths", "browse_berths", "set_fee"]


@pytest.mark.parametrize("number", [0, -1, 3, 99, "1", True, 1.0, None])
def test_a_page_that_does_not_exist_is_refused(
    number: Any, teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    tool = made(harbour(*PAGES), teacher, sandbox)[0]
    assert called(tool, sandbox, quay="North Wall", page=number) == f"ValueError: no page {number}"
    assert called(tool, sandbox, quay="Nowhere", page=1) == "ValueError: no quay named Nowhere"


def test_a_check_knows_both_things_it_is_asked_about(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    check = asked(1, "check", "berth.check_quay", "berths", {"berth": "Low Tide",
                  "quay": "East Mole"}, "quay", answer("boolean", False))  # fmt: skip
    [tool] = made(harbour(check), teacher, sandbox)
    assert called(tool, sandbox, berth="Low Tide", quay="North Wall") is True
    assert called(tool, sandbox, berth="Low Tide", quay="?") == "ValueError: no quay named ?"


def deep(*steps: SubQuestion) -> QAInstance:
    """An instance that says it goes four levels deep: it is no look-up."""
    last = steps[-1].model_copy(update={"hop_level": 4})
    return instance(*steps[:-1], last)


def test_names_repeat_no_word_of_the_question_where_that_is_wished(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    whole = deep(*EVERY_OP)
    questions = {question.id: question.question for question in whole.sub_questions}
    plain = made(whole, teacher, sandbox)
    assert all(shared_words(one.tool.name, questions[one.sub_question_id]) for one in plain)
    unlike = made(whole, teacher, sandbox, unlike_names=1.0)
    for environment in unlike:
        assert shared_words(environment.tool.name, questions[environment.sub_question_id]) == []
        assert "_" in environment.tool.name
    assert [one.tool.description for one in unlike] == [one.tool.description for one in plain]


def test_a_name_like_the_question_goes_back_to_the_teacher(sandbox: Sandbox) -> None:
    class Stubborn:
        name = "stubborn"

        def __init__(self, obeys: bool) -> None:
            self._inner, self._obeys = OfflineTeacher(ENVS.teacher, HANDLERS), obeys
            self.told: list[str] = []

        async def ask(self, ask: Ask[Any]) -> Any:
            reply = await self._inner.ask(ask)
            if isinstance(reply, asks.DocumentReply):
                self.told.append(ask.variables["feedback"])
                if not (self._obeys and ask.variables["feedback"]):
                    named = reply.tool.model_copy(update={"name": "look_up_price"})
                    return reply.model_copy(update={"tool": named})
            return reply

    whole = deep(
        price(1, "Amber Cove", 812).model_copy(update={"question": "The price of Amber Cove?"})
    )
    obeying = Stubborn(obeys=True)
    tries = everything([whole], obeying, sandbox, unlike_names=1.0, outer_attempts=2)
    assert isinstance(tries[-1], Environment)
    assert [one.reason for one in tries if isinstance(one, Rejection)] == ["name_like_question"]
    assert obeying.told == ["", "name_like_question: look_up_price repeats price: use other words"]
    dropped = everything([whole], Stubborn(obeys=False), sandbox, unlike_names=1.0)
    assert [one.reason for one in dropped if isinstance(one, Rejection)] == ["name_like_question"]


def test_values_are_wanted_in_another_form_where_that_is_wished(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    chain = (EVERY_OP[1], EVERY_OP[2], EVERY_OP[13], EVERY_OP[14])
    agent, office, listed, later = made(instance(*chain), teacher, sandbox, formats=1.0)
    assert agent.arguments == {"listing": "Cove, Amber"}
    assert office.arguments == {"agent": "Holt, Nora"}
    assert listed.answer.value == "2024-01-08"
    assert later.arguments == {"date": "08/01/2024", "days": 14}
    assert later.tool.parameters["properties"]["date"]["description"].endswith("DD/MM/YYYY.")
    refusal = "ValueError: listing must have its last word first, then a comma and the rest"
    for written in ("Amber Cove", "Cove,Amber", ", Amber", "", 7, None):
        assert called(agent, sandbox, listing=written) == refusal
    assert called(agent, sandbox, listing="Mill, Jade") == "Nora Holt"
    unknown = called(agent, sandbox, listing="Where, No")  # the given value, not what it means
    assert unknown == "ValueError: no listing named Where, No"
    for written in ("2024-01-08", "08.01.2024", "31/02/2024", 8):
        refusal = "ValueError: date must be written as DD/MM/YYYY"
        assert called(later, sandbox, date=written, days=1) == refusal


def test_a_tool_that_takes_the_questions_own_form_too_is_rejected(sandbox: Sandbox) -> None:
    class Lenient(OfflineTeacher):
        async def ask(self, ask: Ask[Any]) -> Any:
            reply = await super().ask(ask)
            if not isinstance(reply, asks.CodeReply):
                return reply
            lenient = reply.code.replace(
                "    last, comma", '    if ", " not in text:\n        return text\n    last, comma'
            )
            assert lenient != reply.code
            return reply.model_copy(update={"code": lenient})

    outcomes = everything(
        [instance(EVERY_OP[1])], Lenient(ENVS.teacher, HANDLERS), sandbox, formats=1.0
    )
    [dropped] = [one for one in outcomes if isinstance(one, Rejection)]
    assert dropped.reason == "perturbed_returns_gold"
    assert 'listing="Amber Cove"' in dropped.detail


def test_hard_tools_make_hard_arenas_that_honest_play_solves(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    """The reference plays every arena before it ships, so a shipped one can be solved."""
    whole = harbour(*PAGES)
    environments = made(whole, teacher, sandbox, unlike_names=1.0, formats=1.0)
    outcome = merged([whole], environments, teacher, sandbox)
    assert outcome.dropped == []
    [arena] = outcome.arenas
    assert arena.traits == (
        Trait.SELECTION, Trait.PAGES, Trait.UNLIKE_NAMES, Trait.FORMATS, Trait.HOPS,
    )  # fmt: skip
    assert arena.is_hard
    easy = merged([whole], made(whole, teacher, sandbox), teacher, sandbox).arenas[0]
    assert easy.traits == (Trait.SELECTION, Trait.PAGES, Trait.HOPS)


def test_the_shares_decide_what_is_wished(teacher: OfflineTeacher) -> None:
    many = [deep(price(1, "Amber Cove", 800 + n), price(2, "Jade Mill", 455)) for n in range(400)]
    config = ENVS.model_copy(update={"unlike_names": 0.3, "formats": 0.2})
    drawn = [[wishes_of(whole, q, config) for q in whole.sub_questions] for whole in many]
    assert all(first == second for first, second in drawn)  # one tool could serve both
    assert 0.2 < sum(first.unlike_name for first, _ in drawn) / 400 < 0.4
    assert 0.12 < sum(first.other_form for first, _ in drawn) / 400 < 0.28
    assert any(first.unlike_name != first.other_form for first, _ in drawn)
    assert wishes_of(many[0], many[0].sub_questions[0], ENVS) == NO_WISHES
    chinese = many[0].sub_questions[0].model_copy(update={"question": "琥珀湾的要价是多少？"})
    sure = ENVS.model_copy(update={"unlike_names": 1.0, "formats": 1.0})
    assert wishes_of(many[0], chinese, sure) == Wishes(unlike_name=False, other_form=True)
    bare = many[0].sub_questions[0].model_copy(update={"operation": None})
    assert wishes_of(many[0], bare, sure) == Wishes(unlike_name=True, other_form=True)


@pytest.mark.parametrize(
    ("value", "wished"),
    [
        ("Amber Cove", True), ("2024-01-08", True), ("avery.quinn@example.com", False),
        ("AK-9052", False), ("condo", False), ("Cranston, RI", False), ("for sale", False),
        ("", False), (3, False),
    ],
)  # fmt: skip
def test_another_form_is_wished_for_only_where_a_value_has_one(value: Any, wished: bool) -> None:
    sure = ENVS.model_copy(update={"formats": 1.0})

    def step(number: int, value: Any) -> SubQuestion:
        return asked(number, "lookup", "listing.agent", "listings", {"listing": value}, "agent",
                     answer("string", "Nora Holt"))  # fmt: skip

    whole = instance(step(1, value), step(2, "Jade Mill"))
    assert wishes_of(whole, whole.sub_questions[0], sure).other_form is wished
    assert wishes_of(whole, whole.sub_questions[1], sure).other_form is wished, "one tool"


def test_an_amount_and_an_earlier_answer_may_have_another_form() -> None:
    sure = ENVS.model_copy(update={"formats": 1.0})

    def second(first: SubQuestion, **arguments: Any) -> bool:
        step = asked(2, "multiply", "price.total", "", arguments, "", answer("number", 9), (1,), 2)
        whole = instance(first, step)
        return wishes_of(whole, step, sure).other_form

    bare = price(1, "Amber Cove", 812)
    dollars = bare.model_copy(update={"answer": answer("number", 812, unit="USD per night")})
    slots = bare.model_copy(update={"answer": answer("number", 812, unit="slots")})
    named = bare.model_copy(update={"answer": answer("string", "Nora Holt")})
    assert second(bare, amount={"from": 1}, times=3)
    assert second(dollars, fee={"from": 1})
    assert not second(slots, seats={"from": 1})
    assert second(named, guest={"from": 1})


def test_a_look_up_keeps_names_that_its_question_has() -> None:
    sure = ENVS.model_copy(update={"unlike_names": 1.0})
    whole = instance(price(1, "Amber Cove", 812))
    assert wishes_of(whole, whole.sub_questions[0], sure) == NO_WISHES
    picked = price(2, "Amber Cove", 812)
    operation = picked.operation
    assert operation is not None
    of_part = operation.model_copy(update={"arguments": {"listing": {"from": 1, "pick": "name"}}})
    picking = instance(
        price(1, "Amber Cove", 812), picked.model_copy(update={"operation": of_part})
    )
    free = instance(price(1, "Amber Cove", 812).model_copy(update={"operation": None}))
    twin = operation.model_copy(update={"arguments": {"listing": "Amber Cove", "rooms": 3}})
    twins = instance(price(1, "Amber Cove", 812), picked.model_copy(update={"operation": twin}))
    for other in (picking, free, twins):
        assert wishes_of(other, other.sub_questions[0], sure).unlike_name
    other_table = twin.model_copy(update={"table": "flats"})
    apart = instance(
        price(1, "Amber Cove", 812), picked.model_copy(update={"operation": other_table})
    )
    assert wishes_of(apart, apart.sub_questions[0], sure) == NO_WISHES


def test_only_a_name_that_was_wished_for_is_judged() -> None:
    def tool(name: str) -> Tool:
        return Tool(name=name, description="d", parameters={"type": "object"})

    question = "Which gate does flight KX 204 leave from?"
    assert name_problem(Wishes(), tool("get_gate"), question) is None
    assert name_problem(Wishes(unlike_name=True), tool("find_boarding_point"), question) is None
    problem = name_problem(Wishes(unlike_name=True), tool("get_gates_of_flights"), question)
    assert problem == (
        "name_like_question", "get_gates_of_flights repeats gates, flights: use other words",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "asked_for"),
    [("lookup", False), ("record", False), ("check", False), ("convert", False),
     ("multiply", False), ("insert", False), ("list", True), ("count", True), ("rows", True)],
)  # fmt: skip
def test_only_tools_over_several_rows_are_reviewed(op: str, asked_for: bool) -> None:
    question = asked(1, op, "a.b", "t", {"a": "x"}, "b", answer("string", "y"))
    assert asks.gains_filter(question) is asked_for
    assert asks.gains_filter(question.model_copy(update={"operation": None}))


def test_the_shape_of_an_answer_holds_no_value_of_it() -> None:
    value = {"rows": [{"berth": "Low Tide", "fee": 2.5}], "next_page": None, "open": True}
    assert asks.shape_of(value) == {
        "rows": [{"berth": "string", "fee": "number"}],
        "next_page": "null, or another type", "open": "boolean",
    }  # fmt: skip
    assert asks.shape_of([]) == []
