"""The verifier verified: each planted fault is rejected for its own reason."""

from __future__ import annotations

from typing import Any

import pytest
from env_samples import ENVS, answer, instance, price

from astra.envsynth.perturb import Kind, perturbations
from astra.envsynth.static import mentions
from astra.envsynth.candidates import Candidate, GoldCall
from astra.envsynth.verify import verify
from astra.records.qa import Answer, SubQuestion
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

GOLD = answer("number", 812)
QUESTION = price(1, "Amber Cove", 812)
ROWS = (
    'ROWS = {"Amber Cove": 812, "Jade Mill": 455, "Pine Gate": 633, "Ruby Lake": 290, '
    '"Opal Dale": 501, "Onyx Pass": 378}\n\n\n'
)
GOOD = ROWS + (
    "def get_price(listing):\n"
    "    if not isinstance(listing, str) or listing not in ROWS:\n"
    '        raise ValueError(f"no listing named {listing}")\n'
    "    return ROWS[listing]\n"
)


def tool(name: str = "get_price", required: dict[str, str] | None = None, **optional: Any) -> Tool:
    properties: dict[str, Any] = {
        key: {"type": kind} for key, kind in (required or {"listing": "string"}).items()
    }
    return Tool(
        name=name,
        description="Get the price of a listing.",
        parameters={
            "type": "object",
            "properties": {**properties, **optional},
            "required": list(properties),
        },
        output_schema={"type": ["number", "string", "boolean", "array"]},
    )


def reason(
    sandbox: Sandbox,
    code: str,
    document: Tool | None = None,
    gold: Answer = GOLD,
    question: SubQuestion = QUESTION,
    arguments: dict[str, Any] | None = None,
) -> str | None:
    document = document or tool()
    given = arguments if arguments is not None else {"listing": "Amber Cove"}
    wrong = perturbations(instance(question), question, document, code, given)
    candidate = Candidate(document, code, (GoldCall(given, gold, wrong),))
    problem = verify([candidate], sandbox, ENVS.sandbox)[0].problem
    return problem[0] if problem else None


def body(*lines: str, head: str = "") -> str:
    return ROWS + head + "def get_price(listing):\n" + "".join(f"    {line}\n" for line in lines)


CHECK = 'if listing not in ROWS: raise ValueError("no listing")'
FAULTS = {
    "constant": body("return 812"),
    "constant_after_a_check": body(CHECK, "return 812"),
    "constant_only_one_known": body(
        'if listing != "Amber Cove": raise ValueError("unknown")', "return 812"
    ),
    "default_leads_to_gold": body("return ROWS.get(str(listing), 812)"),
    "answer_in_error": body(
        CHECK.replace('"no listing"', '"no listing, the price is 812"'), "return ROWS[listing]"
    ),
    "random": body(
        CHECK, "return ROWS[listing] + random.choice(range(9))", head="import random\n\n\n"
    ),
    "counts_calls": body(
        "SEEN.append(1)", "return ROWS[listing] + len(SEEN) - 1", head="SEEN = []\n\n\n"
    ),
    "order_dependent": body(
        'if listing != "Amber Cove": LAST.append(1)',
        CHECK,
        "return ROWS[listing] if not LAST else 1",
        head="LAST = []\n\n\n",
    ),
    "wrong_rounding": body(CHECK, "return ROWS[listing] + 0.004"),
    "text_instead_of_number": body(CHECK, "return str(ROWS[listing])"),
    "sentence": body(CHECK, 'return f"The price is {ROWS[listing]}"'),
    "raises": body('raise RuntimeError("out of order")'),
    "forbidden_import": "import os\n" + GOOD,
    "forbidden_from": "from subprocess import run\n" + GOOD,
    "syntax": "def get_price(listing:\n",
    "no_function": ROWS,
    "other_name": GOOD.replace("get_price", "fetch_price"),
    "defined_twice": GOOD + "\n\n" + GOOD.removeprefix(ROWS),
    "other_parameter": GOOD.replace("listing", "name"),
    "optional_in_code": GOOD.replace("(listing)", "(listing='Amber Cove')"),
    "catches_all": GOOD.replace("(listing)", "(listing, **rest)"),
    "infinite_loop": body("while True: pass"),
    "loop_on_unknown": body("while listing not in ROWS: pass", "return ROWS[listing]"),
    "loop_at_load": "while True:\n    pass\n" + GOOD,
    "exits": body("raise SystemExit(0)"),
    "crash_on_unknown": body("if listing not in ROWS: raise SystemExit(3)", "return ROWS[listing]"),
    "memory": body(
        "if listing not in ROWS: return len(bytearray(1 << 40))", "return ROWS[listing]"
    ),
}
EXPECTED = {
    "constant": "constant",
    "constant_after_a_check": "constant",
    "constant_only_one_known": "constant",
    "default_leads_to_gold": "perturbed_returns_gold",
    "answer_in_error": "answer_in_error",
    "random": {"nondeterministic", "not_repeatable", "order_dependent", "wrong_answer"},
    "counts_calls": "not_repeatable",
    "order_dependent": "order_dependent",
    "wrong_rounding": "wrong_answer",
    "text_instead_of_number": "wrong_answer",
    "sentence": "wrong_answer",
    "raises": "gold_call_failed",
    "forbidden_import": "forbidden_import",
    "forbidden_from": "forbidden_import",
    "syntax": "syntax_error",
    "no_function": "no_function",
    "other_name": "no_function",
    "defined_twice": "no_function",
    "other_parameter": "signature_mismatch",
    "optional_in_code": "signature_mismatch",
    "catches_all": "signature_mismatch",
    "infinite_loop": "timeout",
    "loop_on_unknown": "timeout",
    "loop_at_load": "load_error",
    "exits": "crash",
    "crash_on_unknown": "crash",
    "memory": "out_of_memory",
}


def test_a_true_tool_passes_and_says_what_was_checked(sandbox: Sandbox) -> None:
    wrong = perturbations(instance(QUESTION), QUESTION, tool(), GOOD, {"listing": "Amber Cove"})
    candidate = Candidate(tool(), GOOD, (GoldCall({"listing": "Amber Cove"}, GOLD, wrong),))
    verdict = verify([candidate], sandbox, ENVS.sandbox)[0]
    assert verdict.problem is None
    assert verdict.checks["fresh_sessions"] == 2
    assert verdict.checks["perturbed_calls"] == len(wrong) >= 3
    assert verdict.checks["perturbed_answered"] == 5


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_found(sandbox: Sandbox, fault: str) -> None:
    expected = EXPECTED[fault]
    assert reason(sandbox, FAULTS[fault]) in (expected if isinstance(expected, set) else {expected})


def test_a_fault_does_not_harm_its_neighbours(sandbox: Sandbox) -> None:
    wrong = perturbations(instance(QUESTION), QUESTION, tool(), GOOD, {"listing": "Amber Cove"})
    call = GoldCall({"listing": "Amber Cove"}, GOLD, wrong)
    codes = [GOOD, FAULTS["infinite_loop"], GOOD, FAULTS["exits"], FAULTS["loop_at_load"], GOOD]
    verdicts = verify([Candidate(tool(), code, (call,)) for code in codes], sandbox, ENVS.sandbox)
    assert [verdict.problem and verdict.problem[0] for verdict in verdicts] == [
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
    assert reason(sandbox, code) == "perturbed_returns_gold"
    assert reason(sandbox, code, gold=answer("number", 812, domain_size=6)) is None


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
        (tool(extra={"type": "string"}), "signature_mismatch"),
        (tool().model_copy(update={"output_schema": {"type": "string"}}), "output_violates_schema"),
    ],
)
def test_documents_and_code_must_agree(sandbox: Sandbox, document: Tool, expected: str) -> None:
    assert reason(sandbox, GOOD, document) == expected


def test_perturbations_cover_every_argument_and_never_repeat_the_gold_call() -> None:
    document = tool(required={"district": "string", "rooms": "integer"})
    gold = {"district": "Sage Park", "rooms": 3}
    wrong = perturbations(instance(QUESTION), QUESTION, document, GOOD, gold)
    assert all(item.arguments != gold for item in wrong)
    for name in gold:
        kinds = {item.kind for item in wrong if item.argument == name}
        assert {Kind.OTHER, Kind.MISSING, Kind.WRONG_TYPE} <= kinds
    others = {item.arguments["district"] for item in wrong if item.argument == "district"
              and item.kind == Kind.OTHER}  # fmt: skip
    assert others == {"Gold Rock", "Calm Bay"}
    assert wrong == perturbations(instance(QUESTION), QUESTION, document, GOOD, gold)


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
    true = f"def get_price(listing):\n    return {districts}[listing]\n"
    gold = question.answer
    assert reason(sandbox, true, gold=gold, question=question) is None
    constant = f'def get_price(listing):\n    {districts}[listing]\n    return "Sage Park"\n'
    assert reason(sandbox, constant, gold=gold, question=question) == "constant"
    tried = perturbations(instance(question), question, tool(), true, {"listing": "Amber Cove"})
    others = {item.arguments["listing"] for item in tried if item.kind == Kind.OTHER}
    assert "Pine Gate" not in others
    assert {"Jade Mill", "Opal Dale"} <= others
