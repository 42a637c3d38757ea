"""Tools that write: conditions of their documents, and new cells much like the standing ones."""

from __future__ import annotations

from typing import Any

import pytest
from env_samples import ENVS, answer
from planted import tool
from write_samples import house, step

from astra.envsynth.candidates import candidate_of
from astra.envsynth.effects import KnownEffect
from astra.envsynth.verify import verify
from astra.records.qa import QAInstance, SubQuestion, Table
from astra.records.state import Write, WriteAction
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

STALLS = Table(
    name="stalls",
    columns=("stall", "holder", "address", "fee", "state"),
    rows=(
        ("S-11", "Nora Holt", "12 Mill Lane", 40, "open"),
        ("S-12", "Lena Orr", "9 Harbour Road", 55, "closed"),
        ("S-13", "Hugo Penn", "70 Park Street", 65, "open"),
        ("S-14", "Rosa Dahl", "3 Station Square", 80, "taken"),
    ),
)


def change(column: str, value: Any) -> SubQuestion:
    write = Write(action=WriteAction.UPDATE, table="stalls", where={"stall": "S-11"},
                  values={column: value})  # fmt: skip
    kind = "number" if isinstance(value, int) else "string"
    return step(1, "update", f"stall.set_{column}", "stalls", {"stall": "S-11", column: value},
                answer(kind, value), write, select=column)  # fmt: skip


TAKE, MOVE, RAISE = change("state", "taken"), change("address", "5 Bell Row"), change("fee", 45)


def document(column: str, description: str = "Change a stall.", **schema: Any) -> Tool:
    made = tool("change_stall", {"stall": "string", column: "string"})
    kind = {"type": "integer" if column == "fee" else "string", **schema}
    properties = {"stall": {"type": "string"}, column: kind}
    return made.model_copy(
        update={"description": description,
                "parameters": made.parameters | {"properties": properties}}
    )  # fmt: skip


def code(column: str, *conditions: str, error: str = "it is so") -> str:
    lines = "".join(f"        {line}\n" for line in conditions)
    return (
        f"def change_stall(world, stall, {column}):\n"
        "    for row in world.tables['stalls']:\n"
        "        if row['stall'] != stall:\n            continue\n"
        f"        if row['{column}'] == {column}:\n            raise ValueError('{error}')\n"
        f"{lines}        row['{column}'] = {column}\n        return {column}\n"
        "    raise ValueError('no such stall')\n"
    )


def source(question: SubQuestion, table: Table = STALLS) -> QAInstance:
    return house(question, knowledge=(table,), final=answer("enum", "done", domain_size=5))


def effects(question: SubQuestion, made: Tool, table: Table = STALLS) -> tuple[KnownEffect, ...]:
    assert question.operation is not None
    arguments = question.operation.arguments
    (call,) = candidate_of(source(question, table), made, "", {1: arguments}).calls
    return call.effects


def own(found: tuple[KnownEffect, ...]) -> list[KnownEffect]:
    """The effects on its own row that the call must have, the refusals aside."""
    return [
        one
        for one in found
        if one.required and one.after is not None and one.arguments["stall"] == "S-11"
    ]


def reason(sandbox: Sandbox, question: SubQuestion, made: Tool, written: str) -> str:
    assert question.operation is not None
    calls = {1: question.operation.arguments}
    problem = verify([candidate_of(source(question), made, written, calls)], sandbox, ENVS.sandbox)
    return problem[0].problem[0] if problem[0].problem else ""


OPEN = "Take an open stall."


def test_a_row_that_the_document_leaves_out_must_be_refused(sandbox: Sandbox) -> None:
    made = document("state", OPEN)
    kept = "if row['state'] != 'open':\n            raise ValueError('this stall is not free')"
    assert reason(sandbox, TAKE, made, code("state")) == "not_refused"
    assert reason(sandbox, TAKE, made, code("state", kept)) == ""
    assert reason(sandbox, TAKE, document("state"), code("state")) == ""


def test_a_row_that_another_step_changes_is_no_row_left_out(sandbox: Sandbox) -> None:
    taken = Write(action=WriteAction.UPDATE, table="stalls", where={"stall": "S-12"},
                  values={"state": "taken"})  # fmt: skip
    second = step(2, "update", "stall.set_state", "stalls", {"stall": "S-12", "state": "taken"},
                  answer("string", "taken"), taken, select="state")  # fmt: skip
    both = house(TAKE, second, knowledge=(STALLS,), final=answer("enum", "done", domain_size=5))
    calls = {one.id: one.operation.arguments for one in (TAKE, second) if one.operation}
    made = document("state", OPEN)
    kept = "if row['state'] == 'taken':\n            raise ValueError('this stall is not free')"
    candidate = candidate_of(both, made, code("state", kept), calls)
    assert verify([candidate], sandbox, ENVS.sandbox)[0].problem is None


def test_a_row_that_stands_as_the_gold_one_does_must_be_changed_too(
    sandbox: Sandbox,
) -> None:
    made = document("state")
    other = "if row['stall'] == 'S-13':\n            raise ValueError('not this one')"
    assert reason(sandbox, TAKE, made, code("state", other)) == "wrong_effect"
    closed = "if row['state'] == 'closed':\n            raise ValueError('it is shut')"
    assert reason(sandbox, TAKE, made, code("state", closed)) == ""  # S-11 and S-13 are open


@pytest.mark.parametrize(
    ("description", "stalls"),
    [
        (OPEN, ["S-12", "S-14"]),
        ("Take a stall.", []),
        ("Take a reopened stall.", []),  # another word
        ("Set a stall to open or closed.", []),  # what there is, no condition
    ],
)
def test_a_condition_is_a_cell_that_the_description_names(
    description: str, stalls: list[str]
) -> None:
    every = effects(TAKE, document("state", description))
    found = [one for one in every if "description" in one.reason]
    assert [one.arguments["stall"] for one in found] == stalls
    assert all(one.after is None for one in found)


def test_an_update_leaves_other_rows_with_the_new_cell_alone(sandbox: Sandbox) -> None:
    made = document("state")
    taking_back = (
        "for other in world.tables['stalls']:",
        "    other['state'] = 'open' if other['state'] == state else other['state']",
    )
    # Only S-14 is taken in the tables, and it must stay so.
    assert reason(sandbox, TAKE, made, code("state", *taking_back)) == "wrong_effect"
    alone = "if any(other['state'] == state for other in world.tables['stalls'][1:3]):"
    refusing = (alone, "    raise ValueError('no two at once')")
    assert reason(sandbox, TAKE, made, code("state", *refusing)) == ""


def test_a_new_cell_much_like_the_standing_one_is_written(sandbox: Sandbox) -> None:
    lax = "if row['address'].startswith(address[:-1]):\n            raise ValueError('it is so')"
    near = "if address in row['address']:\n            raise ValueError('it is so')"
    made = document("address")
    assert reason(sandbox, MOVE, made, code("address")) == ""
    assert reason(sandbox, MOVE, made, code("address", lax)) == "wrong_effect"
    assert reason(sandbox, MOVE, made, code("address", near)) == "wrong_effect"
    fee = document("fee")
    rough = "if abs(row['fee'] - fee) < 2:\n            raise ValueError('it is so')"
    assert reason(sandbox, RAISE, fee, code("fee")) == ""
    assert reason(sandbox, RAISE, fee, code("fee", rough)) == "wrong_effect"


def test_the_effect_is_that_cell_alone() -> None:
    (found,) = own(effects(MOVE, document("address")))
    assert found.arguments == {"stall": "S-11", "address": "12 Mill Lan"}
    assert found.after is not None
    assert [row["address"] for row in found.after["stalls"]] == [
        "12 Mill Lan", "9 Harbour Road", "70 Park Street", "3 Station Square",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("question", "made"),
    [
        (TAKE, document("state")),  # a category: cells repeat
        (MOVE, document("address", enum=["5 Bell Row", "12 Mill Lane"])),
        (MOVE, document("address", pattern="(Row|Lane|Road|Street|Square)$")),
        (RAISE, document("fee", multipleOf=5)),
        (change("holder", "Lena Orr"), document("holder")),  # a name that another cell has
        (change("address", "Nora Holt"), document("address")),
    ],
)
def test_what_may_have_a_form_or_a_meaning_of_its_own_is_left_alone(
    question: SubQuestion, made: Tool
) -> None:
    table = STALLS.model_copy(
        update={"columns": (*STALLS.columns, "deputy"),
                "rows": tuple((*row, f"{row[1]}") for row in STALLS.rows)}
    )  # fmt: skip
    assert own(effects(question, made, table)) == []


def test_an_error_may_name_what_the_call_itself_writes(sandbox: Sandbox) -> None:
    made = document("state")
    assert reason(sandbox, TAKE, made, code("state", error="the stall is taken already")) == ""
    told = code("address").replace("no such stall", "no such stall, try S-11")
    assert reason(sandbox, MOVE, document("address"), told) == "answer_in_error"


def test_a_value_in_another_form_tells_of_no_other() -> None:
    made = document("address")
    arguments = {"stall": "s-11", "address": "5 Bell Row"}
    (call,) = candidate_of(source(MOVE), made, "", {1: arguments}).calls
    assert call.effects == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ""),
        ("raise ValueError('no such stall')", "return address", "not_refused"),
        ("row['stall'] != stall", "stall not in row['stall']", "perturbed_returns_gold"),
        ("row['stall'] != stall", "row['stall'] not in stall", "perturbed_returns_gold"),
        ("row['stall'] != stall", "row['stall'] > stall", "ignores_argument"),
        ("return address", "return '5 Bell Row'", "wrong_result"),
        ("= address\n", "= '5 Bell Row'\n", "ignores_argument"),
        ("raise ValueError('no such stall')", "raise KeyError(stall)", "unclean_error"),
    ],
)
def test_a_call_about_another_row_does_the_same_to_that(
    sandbox: Sandbox, old: str, new: str, expected: str
) -> None:
    written = code("address", "if row['address'] == address:\n            raise ValueError('so')")
    assert old in written
    changed = written.replace(old, new) if old else written
    assert reason(sandbox, MOVE, document("address"), changed) == expected
