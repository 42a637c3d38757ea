"""Tools that a language model wrote: faults that it was told to plant, and flawless ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from env_samples import ENVS, answer, instance

from astra.envsynth.candidates import candidate_of
from astra.envsynth.leaks import secrets_of
from astra.envsynth.static import document_problem
from astra.envsynth.truth import filters_of
from astra.envsynth.verify import verify
from astra.records.environment import Environment
from astra.records.qa import Operation, QAInstance, SubQuestion, Table
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

TOOLS: dict[str, Any] = json.loads(Path(__file__).with_name("model_tools.json").read_text())
DEPARTURES = Table.model_validate(TOOLS["optional_date_is_ignored"]["table"])
OPERATIONS = {
    "optional_date_is_ignored": ("argmin", "package.cheapest_departure", "departure:base_price"),
    "unknown_key_leads_to_gold": ("lookup", "section.fee_tier", "fee_tier"),
    "default_of_no_column": ("lookup", "tier.audit_charge", "audit_charge"),
    "first_row_is_never_found": ("lookup", "manager.age", "age"),
}


def asked(name: str, domain_size: int | None = None) -> QAInstance:
    """The question behind a tool, with its table and operation where it had any."""
    case = TOOLS[name]
    table = Table.model_validate(case["table"]) if case["table"] else None
    kind = "string" if isinstance(case["answer"], str) else "number"
    operation = None
    if name in OPERATIONS and table is not None:
        op, relation, select = OPERATIONS[name]
        operation = Operation(
            op=op, relation=relation, table=table.name, arguments=case["arguments"], select=select
        )
    question = SubQuestion(
        id=1, hop_level=1, question=case["question"], tool_necessity=True, operation=operation,
        answer=answer(kind, case["answer"], domain_size=domain_size),
    )  # fmt: skip
    knowledge = (table,) if table else ()
    return instance(question).model_copy(update={"knowledge": knowledge})


def problem(
    sandbox: Sandbox, name: str, source: QAInstance, code: str = "", tool: Tool | None = None
) -> tuple[str, str]:
    case = TOOLS[name]
    candidate = candidate_of(
        source,
        tool or Tool.model_validate(case["tool"]),
        code or case["code"],
        {1: case["arguments"]},
    )
    return verify([candidate], sandbox, ENVS.sandbox)[0].problem or ("", "")


def without_filter(name: str, parameter: str) -> Tool:
    tool = Tool.model_validate(TOOLS[name]["tool"])
    properties = {k: v for k, v in tool.parameters["properties"].items() if k != parameter}
    return tool.model_copy(update={"parameters": tool.parameters | {"properties": properties}})


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("earlier_answer_as_example", {"package": "Swiss Alps Discovery"}, "SAD-0627"),
        ("earlier_name_as_example", {"workshop": "Teal Ledge"}, "Nora Ashby"),
    ],
)
def test_a_document_must_not_name_the_answer_of_another_step(
    name: str, given: dict[str, str], kind: str
) -> None:
    first = SubQuestion(
        id=1, hop_level=1, question=f"Which one for {given}?", answer=answer("string", kind)
    )
    second = SubQuestion(
        id=2, hop_level=2, question="How much is it for that one?", dependencies=(1,),
        answer=answer("number", 6),
    )  # fmt: skip
    secrets = secrets_of(instance(first, second))
    tool = Tool.model_validate(TOOLS[name]["tool"])
    found = document_problem(tool, secrets, None)
    assert found is not None
    assert found[0] == "answer_in_document"
    assert kind in found[1]
    plain = json.loads(json.dumps(tool.parameters).replace(kind, "AB-12"))
    clean = tool.model_copy(update={"parameters": plain})
    assert document_problem(clean, secrets, None) is None


def test_an_optional_filter_that_the_code_ignores_is_found(sandbox: Sandbox) -> None:
    name = "optional_date_is_ignored"
    reason, detail = problem(sandbox, name, asked(name))
    assert reason == "ignores_argument"
    assert 'date="' in detail
    bare = asked(name).model_copy(update={"knowledge": ()})
    question = bare.sub_questions[0].model_copy(update={"operation": None})
    bare = bare.model_copy(update={"sub_questions": (question,)})
    assert problem(sandbox, name, bare)[0] == "ignores_argument"
    true = TOOLS["merge_drops_rows"]["members"][1]["code"]
    assert problem(sandbox, name, asked(name), true) == ("", "")
    assert problem(sandbox, name, bare, true) == ("", "")


@pytest.mark.parametrize("few", [5, None])
def test_a_fallback_for_unknown_keys_is_found(sandbox: Sandbox, few: int | None) -> None:
    name = "unknown_key_leads_to_gold"
    found = problem(sandbox, name, asked(name, few))
    assert found[0] == "perturbed_returns_gold"
    assert 'section="Qwrx Vzzt"' in found[1]
    code = TOOLS[name]["code"].replace(
        'return TIERS.get(section, "Field Station")',
        "if section not in TIERS:\n"
        '        raise ValueError(f"no section {section}")\n'
        "    return TIERS[section]",
    )
    assert problem(sandbox, name, asked(name, few), code) == ("", "")


def test_a_default_and_a_filter_by_no_column_are_found(sandbox: Sandbox) -> None:
    name = "default_of_no_column"
    tool = Tool.model_validate(TOOLS[name]["tool"])
    assert problem(sandbox, name, asked(name))[0] == "default_in_document"
    term = {k: v for k, v in tool.parameters["properties"]["term"].items() if k != "default"}
    properties = tool.parameters["properties"] | {"term": term}
    bare = tool.model_copy(update={"parameters": tool.parameters | {"properties": properties}})
    assert problem(sandbox, name, asked(name), tool=bare)[0] == "unknown_filter"
    code = TOOLS[name]["code"].replace(", term=None", "").replace("term is not None", "False")
    assert problem(sandbox, name, asked(name), code, without_filter(name, "term")) == ("", "")


def test_a_row_that_is_never_found_is_missing(sandbox: Sandbox) -> None:
    name = "first_row_is_never_found"
    reason, detail = problem(sandbox, name, asked(name))
    assert reason == "rows_missing"
    assert 'get_manager_age(manager="Hugo Grant") raised ValueError' in detail
    code = TOOLS[name]["code"].replace("range(1, ", "range(0, ")
    assert problem(sandbox, name, asked(name), code) == ("", "")
    wrong = code.replace('"age": 25', '"age": 26')
    assert problem(sandbox, name, asked(name), wrong)[0] == "wrong_result"


@pytest.mark.parametrize("name", ["fare", "fare_by_date", "fare_nested"])
def test_a_flawless_tool_over_made_up_rows_passes(sandbox: Sandbox, name: str) -> None:
    assert problem(sandbox, name, asked(name)) == ("", "")


@pytest.mark.parametrize("name", ["fare", "fare_nested"])
def test_made_up_rows_do_not_hide_a_constant(sandbox: Sandbox, name: str) -> None:
    code: str = TOOLS[name]["code"]
    gold = TOOLS[name]["answer"]
    constant = code.replace('return row["fare"]', f"return {gold}")
    reason, detail = problem(sandbox, name, asked(name), constant)
    assert reason == "constant"
    assert f"{TOOLS[name]['tool']['name']}(" in detail
    assert f"returned {gold}" in detail


def merge_case(with_table: bool) -> tuple[QAInstance, list[Environment], Tool]:
    case = TOOLS["merge_drops_rows"]
    tool = Tool.model_validate(case["tool"])
    questions: list[SubQuestion] = []
    members: list[Environment] = []
    for number, member in enumerate(case["members"], start=1):
        operation = Operation(
            op="argmin", relation="package.cheapest_departure", table="departures",
            arguments=member["arguments"], select="departure:base_price",
        )  # fmt: skip
        questions.append(
            SubQuestion(
                id=number, hop_level=1, question=member["question"], tool_necessity=True,
                answer=answer("string", member["answer"]),
                operation=operation if with_table else None,
            )
        )  # fmt: skip
        members.append(
            Environment(
                qa_id="q", sub_question_id=number, tool=tool, code=case["members"][1]["code"],
                arguments=member["arguments"], answer=questions[-1].answer, checks={},
                prompt_hash="",
            )
        )  # fmt: skip
    knowledge = (DEPARTURES,) if with_table else ()
    return instance(*questions).model_copy(update={"knowledge": knowledge}), members, tool


@pytest.mark.parametrize(("with_table", "reason"), [(True, "rows_missing"), (False, "rows_lost")])
def test_a_merge_that_drops_rows_is_found(sandbox: Sandbox, with_table: bool, reason: str) -> None:
    source, members, tool = merge_case(with_table)
    calls = {member.sub_question_id: member.arguments for member in members}
    full = members[1].code
    kept = ("SAD-0725", "SAD-0627", "PBA-0617")
    dropped = "".join(
        line
        for line in full.splitlines(keepends=True)
        if '{"departure"' not in line or any(departure in line for departure in kept)
    )
    union = full.replace("DEPARTURES", "ROWS")  # all rows, in a code of its own
    candidates = [
        candidate_of(source, tool, code, calls, members)
        for code in (TOOLS["merge_drops_rows"]["code"], dropped, union)
    ]
    proofs = verify(candidates, sandbox, ENVS.sandbox)
    found = [proof.problem and proof.problem[0] for proof in proofs]
    assert found == ["ignores_argument", reason, None]


def test_members_with_other_parameters_cannot_be_compared(sandbox: Sandbox) -> None:
    source, members, tool = merge_case(with_table=False)
    renamed = members[0].model_copy(update={"arguments": {"bundle": "Swiss Alps"}})
    calls = {member.sub_question_id: member.arguments for member in members}
    code = members[1].code.replace("DEPARTURES", "ROWS")
    candidate = candidate_of(source, tool, code, calls, [renamed, members[1]])
    problem = verify([candidate], sandbox, ENVS.sandbox)[0].problem
    assert problem is not None
    assert problem[0] == "rows_lost"


def test_filters_are_the_columns_of_the_table() -> None:
    source = asked("optional_date_is_ignored")
    assert filters_of(source, source.sub_questions[0]) == DEPARTURES.columns
    fare = asked("fare")
    assert filters_of(fare, fare.sub_questions[0]) is None
