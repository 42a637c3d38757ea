"""The verifier verified: each planted fault is rejected for its own reason."""

from __future__ import annotations

import pytest
from env_samples import ENVS, answer, instance, price
from planted import EXPECTED, FAULTS, GOLD, GOOD, MORE, QUESTION, reason, tool

from astra.envsynth.candidates import CandidateTool, GoldCall
from astra.envsynth.leaks import mentions
from astra.envsynth.perturb import PerturbationKind, perturbations
from astra.envsynth.static import call_problem
from astra.envsynth.verify import verify
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox


def test_a_true_tool_passes_and_says_what_was_checked(sandbox: Sandbox) -> None:
    wrong = perturbations(instance(QUESTION), QUESTION, GOOD, {"listing": "Amber Cove"})
    candidate = CandidateTool(tool(), GOOD, (GoldCall({"listing": "Amber Cove"}, GOLD, wrong),))
    (proof,) = verify([candidate], sandbox, ENVS.sandbox)
    assert proof.problem is None
    assert proof.checks["fresh_sessions"] == 2
    assert proof.checks["perturbed_calls"] == len(wrong) >= 3
    assert proof.checks["perturbed_answered"] == 5


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_found(sandbox: Sandbox, fault: str) -> None:
    assert reason(sandbox, FAULTS[fault]) == EXPECTED[fault]


@pytest.mark.parametrize("fault", sorted(MORE))
def test_a_planted_fault_of_another_kind_is_found(sandbox: Sandbox, fault: str) -> None:
    code, given, expected = MORE[fault]
    assert reason(sandbox, code, **given) == expected


def test_a_fault_does_not_harm_its_neighbours(sandbox: Sandbox) -> None:
    wrong = perturbations(instance(QUESTION), QUESTION, GOOD, {"listing": "Amber Cove"})
    call = GoldCall({"listing": "Amber Cove"}, GOLD, wrong)
    codes = [GOOD, FAULTS["infinite_loop"], GOOD, FAULTS["exits"], FAULTS["loop_at_load"], GOOD]
    proofs = verify([CandidateTool(tool(), code, (call,)) for code in codes], sandbox, ENVS.sandbox)
    assert [proof.problem and proof.problem[0] for proof in proofs] == [
        None, "timeout", None, "crash", "load_error", None,
    ]  # fmt: skip


def test_an_ignored_argument_is_found(sandbox: Sandbox) -> None:
    document = tool(required={"district": "string", "rooms": "integer"})
    code = (
        'ROWS = {"Sage Park": 3, "Gold Rock": 2, "Calm Bay": 1}\n\n\n'
        "def get_price(district, rooms):\n"
        "    if district not in ROWS or not isinstance(rooms, int):\n"
        '        raise ValueError("unknown")\n'
        "    return ROWS[district]\n"
    )
    for gold in (answer("number", 3, domain_size=6), answer("number", 3)):
        found = reason(
            sandbox, code, document, gold, arguments={"district": "Sage Park", "rooms": 3}
        )
        assert found == "ignores_argument"


def test_swapped_arguments_must_matter_unless_symmetric(sandbox: Sandbox) -> None:
    document = tool(required={"start": "string", "end": "string"})
    code = (
        "from datetime import date\n\n\ndef get_price(start, end):\n"
        "    return abs((date.fromisoformat(end) - date.fromisoformat(start)).days)\n"
    )
    gold = answer("number", 14)
    arguments = {"start": "2024-01-08", "end": "2024-01-22"}
    assert reason(sandbox, code, document, gold, arguments=arguments) == "perturbed_returns_gold"
    operation = QUESTION.operation
    assert operation is not None
    symmetric = QUESTION.model_copy(
        update={"operation": operation.model_copy(update={"op": "days_between"})}
    )
    assert reason(sandbox, code, document, gold, symmetric, arguments) is None


def test_chance_hits_of_small_domains_are_no_fault(sandbox: Sandbox) -> None:
    code = GOOD.replace("455", "812")
    untold = QUESTION.model_copy(update={"operation": None})
    assert reason(sandbox, code) == "perturbed_returns_gold"
    assert reason(sandbox, code, question=untold) == "perturbed_returns_gold"
    few = answer("number", 812, domain_size=6)
    assert reason(sandbox, code, gold=few, question=untold) is None
    assert reason(sandbox, code, gold=few) == "wrong_result"


@pytest.mark.parametrize("value", ["", [], None])
def test_an_empty_answer_proves_nothing(sandbox: Sandbox, value: object) -> None:
    assert reason(sandbox, GOOD, gold=answer("string", value)) == "empty_answer"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (tool("GetPrice"), "bad_name"),
        (tool(required={"listing": "text"}), "bad_schema"),
        (tool(required={"the listing": "string"}), "bad_schema"),
        (tool().model_copy(update={"description": " "}), "no_description"),
        (tool().model_copy(update={"description": "Get 812 for a listing."}), "answer_in_document"),
        (tool(required={"listing": "integer"}), "call_violates_schema"),
        (tool(rooms={"type": "integer"}), "signature_mismatch"),
        (tool().model_copy(update={"output_schema": {"type": "string"}}), "answer_violates_schema"),
    ],
)
def test_documents_and_code_must_agree(sandbox: Sandbox, document: Tool, expected: str) -> None:
    assert reason(sandbox, GOOD, document) == expected


def test_a_call_is_told_where_it_violates_the_document() -> None:
    assert call_problem(tool(), {"listing": "Amber Cove"}) is None
    assert call_problem(tool(), {"listing": 7}) == (
        "call_violates_schema",
        "listing: 7 is not of type 'string'",
    )


@pytest.mark.parametrize("reference", ["https://example.invalid/a.json", "#/$defs/none"])
def test_a_document_makes_nobody_fetch_what_it_refers_to(
    sandbox: Sandbox, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("fetched"))
    schema = {"$ref": reference}
    document = tool().model_copy(update={"output_schema": schema})
    assert reason(sandbox, GOOD, document) == "answer_violates_schema"
    properties = {"listing": schema}
    document = tool().model_copy(
        update={"parameters": tool().parameters | {"properties": properties}}
    )
    assert reason(sandbox, GOOD, document) == "cell_violates_schema"
    free = QUESTION.model_copy(update={"operation": None})
    assert reason(sandbox, GOOD, document, question=free) == "call_violates_schema"


def test_perturbations_cover_every_argument_and_never_repeat_the_gold_call() -> None:
    gold = {"district": "Sage Park", "rooms": 3}
    wrong = perturbations(instance(QUESTION), QUESTION, GOOD, gold)
    assert all(item.arguments != gold for item in wrong)
    for name in gold:
        kinds = {item.kind for item in wrong if item.argument == name}
        assert {
            PerturbationKind.OTHER,
            PerturbationKind.MISSING,
            PerturbationKind.WRONG_TYPE,
        } <= kinds
    others = {item.arguments["district"] for item in wrong if item.argument == "district"
              and item.kind == PerturbationKind.OTHER}  # fmt: skip
    assert others == {"Gold Rock", "Calm Bay"}
    assert wrong == perturbations(instance(QUESTION), QUESTION, GOOD, gold)


def test_mentions_is_by_whole_words() -> None:
    assert mentions("price 812.", 812)
    assert not mentions("price 8123", 812)
    assert not mentions("price 812.5", 812)
    assert not mentions("a 3", 3)
    assert mentions("at Amber Cove!", "Amber Cove")
    assert mentions("both Pine Gate and Ruby Lake", ["Pine Gate", "Ruby Lake"])
    assert not mentions("only Pine Gate", ["Pine Gate", "Ruby Lake"])


def test_a_value_that_truly_shares_the_answer_is_no_evidence(sandbox: Sandbox) -> None:
    """Pine Gate lies in Sage Park too: a true tool says so, and a constant is still found."""
    question = price(1, "Amber Cove", 812).model_copy(
        update={"answer": answer("string", "Sage Park")}
    )
    districts = (
        '{"Amber Cove": "Sage Park", "Pine Gate": "Sage Park", "Jade Mill": "Gold Rock", '
        '"Opal Dale": "Calm Bay"}'
    )
    check = f"    if listing not in {districts}:\n        raise ValueError('no listing')\n"
    true = f"def get_price(listing):\n{check}    return {districts}[listing]\n"
    gold = question.answer
    assert reason(sandbox, true, gold=gold, question=question) is None
    constant = f'def get_price(listing):\n{check}    return "Sage Park"\n'
    assert reason(sandbox, constant, gold=gold, question=question) == "constant"
    tried = perturbations(instance(question), question, true, {"listing": "Amber Cove"})
    others = {item.arguments["listing"] for item in tried if item.kind == PerturbationKind.OTHER}
    assert "Pine Gate" not in others
    assert {"Jade Mill", "Opal Dale"} <= others
