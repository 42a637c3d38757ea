"""Writes over tables that a teacher made up: asked for with them, proved by the end state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from env_runs import everything, merged
from env_samples import ENVS, answer
from merge_samples import Asked
from write_samples import house, step

from astra.envsynth.offline.handlers import HANDLERS
from astra.llm.offline import OfflineTeacher
from astra.prompting import render
from astra.qa.knowledge.operations import writes_of
from astra.records.environment import Environment
from astra.records.qa import Operation, QAInstance, SubQuestion, Table
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

SLOTS = Table(
    name="clinic_slots",
    columns=("slot_id", "dentist_name", "start_hour", "patient_name"),
    rows=(
        ("S-11", "Ida Brook", 9, "free"),
        ("S-12", "Ida Brook", 11, "Tom Vane"),
        ("S-13", "Per Lund", 9, "Una Reed"),
        ("S-14", "Per Lund", 14, "free"),
        ("S-15", "Ida Brook", 15, "Kai Moor"),
    ),
)
FEES = Table(
    name="dentists", columns=("dentist_name", "visit_fee"),
    rows=(("Ida Brook", 40), ("Per Lund", 55), ("Ola Fern", 47.5), ("Eve Hart", 61)),
)  # fmt: skip


def acting(number: int, op: str, relation: str, given: dict[str, Any], select: str) -> SubQuestion:
    """A write over the slots, its effect derived from its operation."""
    operation = Operation(
        op=op, relation=relation, table="clinic_slots", arguments=given, select=select
    )
    gold = answer("string", given[select])
    return step(
        number, op, relation, "clinic_slots", given, gold, *writes_of(operation, {}), select=select
    )


@pytest.fixture(scope="module")
def sandbox(patient_sandbox: Sandbox) -> Sandbox:
    return patient_sandbox


@pytest.fixture(scope="module")
def whole() -> QAInstance:
    fee = step(1, "lookup", "dentist.visit_fee", "dentists", {"dentist_name": "Per Lund"},
               answer("number", 55), select="visit_fee")  # fmt: skip
    booked = acting(2, "update", "slot.book_slot", {"slot_id": "S-14", "patient_name": "Mara Lind"},
                    "patient_name")  # fmt: skip
    opened = acting(
        3, "insert", "slot.open_slot",
        {"slot_id": "S-16", "dentist_name": "Ola Fern", "start_hour": 8, "patient_name": "free"},
        "slot_id",
    )  # fmt: skip
    return house(fee, booked, opened, knowledge=(SLOTS, FEES), domain="dentistry", final=fee.answer)


def test_a_free_question_that_acts_becomes_an_arena_with_its_end_state(
    whole: QAInstance, sandbox: Sandbox
) -> None:
    teacher = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
    outcomes = everything([whole], teacher, sandbox)
    made = [one for one in outcomes if isinstance(one, Environment)]
    assert len(made) == len(outcomes) == 3
    codes = [ask for ask in teacher.asks if ask.template == "envsynth/code_stateful"]
    assert len(codes) == 3
    (arena,) = merged([whole], made, teacher, sandbox).arenas
    slots = {row["slot_id"]: row for row in json.loads(arena.expected_state)["clinic_slots"]}
    assert slots["S-14"]["patient_name"] == "Mara Lind"
    assert slots["S-16"]["start_hour"] == 8
    assert len(slots) == 6


def test_the_prompt_shows_its_tables_and_what_names_their_rows(
    whole: QAInstance, sandbox: Sandbox
) -> None:
    teacher = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
    everything([whole], teacher, sandbox)
    ask = next(
        ask
        for ask in teacher.asks
        if ask.template == "envsynth/code_stateful" and "open_slot" in ask.variables["question"]
    )
    text = render(ask.template, ask.shown)
    assert '## clinic_slots, columns ["slot_id", "dentist_name"' in text
    assert 'key "slot_id"' in text
    assert '"patient_name": "Mara Lind"' in text, "step 2 has happened"
    assert 'It may change ["clinic_slots"] and no other table.' in text


def test_two_writes_of_one_operation_share_a_tool_unless_their_values_cannot_be_matched(
    sandbox: Sandbox,
) -> None:
    steps = [
        acting(number, "update", "slot.book_slot", {"slot_id": slot, "patient_name": patient},
               "patient_name")
        for number, slot, patient in ((1, "S-11", "Mara Lind"), (2, "S-14", "Otto Pell"))
    ]  # fmt: skip
    whole = house(*steps, knowledge=(SLOTS, FEES), domain="dentistry")
    teacher = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
    made = [one for one in everything([whole], teacher, sandbox) if isinstance(one, Environment)]
    found = merged([whole], made, teacher, sandbox)
    assert found.metrics.counts["merged_as_is"] == 1
    assert len(found.arenas[0].tools) == 1
    given = {"slot_id": "S-14", "visitor": "Otto Pell"}
    document = json.loads(made[1].tool.model_dump_json().replace('"patient_name"', '"visitor"'))
    code = (
        made[1]
        .code.replace("slot_id, patient_name)", "slot_id, visitor)")
        .replace('    """', "    patient_name = visitor\n" + '    """', 1)
    )
    other = made[1].model_copy(update={"tool": Tool(**document), "code": code, "arguments": given})
    apart = merged([whole], [made[0], other], teacher, sandbox)
    assert [one.reason for one in apart.tries] == ["calls_unknown"]
    assert apart.metrics.counts["merge_failed_calls_unknown"] == 1
    assert "merge_code" not in teacher.templates
