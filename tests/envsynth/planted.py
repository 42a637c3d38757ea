"""Bad environments, each with the reason for which it must be rejected."""

from __future__ import annotations

from typing import Any

from env_samples import ENVS, answer, instance, price

from astra.envsynth.candidates import candidate_of
from astra.envsynth.static import MAX_CODE_CHARS
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
    question = question.model_copy(update={"answer": gold})
    given = arguments if arguments is not None else {"listing": "Amber Cove"}
    calls = {question.id: given}
    candidate = candidate_of(instance(question), document or tool(), code, calls)
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
EXPECTED: dict[str, str] = {
    "constant": "constant",
    "constant_after_a_check": "constant",
    "constant_only_one_known": "constant",
    "default_leads_to_gold": "perturbed_returns_gold",
    "answer_in_error": "answer_in_error",
    "random": "clock_or_chance",
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

DISTRICTS = (
    'ROWS = {"Amber Cove": "Sage Park", "Jade Mill": "Gold Rock", "Pine Gate": "Calm Bay", '
    '"Ruby Lake": "Gold Rock", "Opal Dale": "Calm Bay", "Onyx Pass": "Gold Rock"}\n\n\n'
)
LISTS = (
    'ROWS = {"Amber Cove": ["b", "a"], "Jade Mill": ["c"], "Pine Gate": ["d", "e"], '
    '"Ruby Lake": ["f"], "Opal Dale": ["g"], "Onyx Pass": ["h"]}\n\n\n'
)


def over(rows: str, *lines: str, signature: str = "listing") -> str:
    """A look-up over other data; unknown listings are refused."""
    return f"{rows}def get_price({signature}):\n" + "".join(
        f"    {line}\n" for line in (CHECK, *lines)
    )


KM, NEAR = answer("number", 812, unit="km"), answer("number", 812, tolerance=0.01)
SAGE, DAY = answer("string", "Sage Park"), answer("date", "2024-01-08")
ORDERED, TRUE = answer("list", ["b", "a"]), answer("boolean", True)
RECORD = answer("record", {"price": 812, "sold": True})
OPTIONAL = tool(district={"type": "string"})
MORE: dict[str, tuple[str, dict[str, Any], str]] = {
    "wrong_unit": (
        over(ROWS, 'return {"value": ROWS[listing], "unit": "m"}'), {"gold": KM}, "wrong_answer",
    ),
    "unit_in_text": (over(ROWS, 'return f"{ROWS[listing]} km"'), {"gold": KM}, "wrong_answer"),
    "near_miss_rounding": (over(ROWS, "return ROWS[listing] + 0.02"), {"gold": NEAR},
                           "wrong_answer"),
    "rounded_to_hundreds": (over(ROWS, "return round(ROWS[listing], -2)"), {}, "wrong_answer"),
    "percent_for_share": (over(ROWS, "return ROWS[listing] / 100"), {}, "wrong_answer"),
    "cyrillic_letter": (
        over(DISTRICTS.replace('"Sage', '"S\u0430ge'), "return ROWS[listing]"), {"gold": SAGE},
        "wrong_answer",
    ),
    "zero_width_space": (
        over(DISTRICTS.replace("Sage Park", "Sage\u200b Park"), "return ROWS[listing]"),
        {"gold": SAGE}, "wrong_answer",
    ),
    "article_added": (over(DISTRICTS, 'return "the " + ROWS[listing]'), {"gold": SAGE},
                      "wrong_answer"),
    "list_order": (over(LISTS, "return sorted(ROWS[listing])"), {"gold": ORDERED}, "wrong_answer"),
    "list_as_text": (over(LISTS, 'return ", ".join(ROWS[listing])'), {"gold": ORDERED},
                     "wrong_answer"),
    "list_with_more": (over(LISTS, 'return [*ROWS[listing], "z"]'), {"gold": ORDERED},
                       "wrong_answer"),
    "list_repeated": (over(LISTS, "return ROWS[listing] * 2"), {"gold": ORDERED}, "wrong_answer"),
    "spoken_date": (
        over(DISTRICTS.replace("Sage Park", "8 January 2024"), "return ROWS[listing]"),
        {"gold": DAY}, "wrong_answer",
    ),
    "day_and_month_swapped": (
        over(DISTRICTS.replace("Sage Park", "2024-08-01"), "return ROWS[listing]"),
        {"gold": DAY}, "wrong_answer",
    ),
    "one_for_true": (over(ROWS, "return int(ROWS[listing] == 812)"), {"gold": TRUE},
                     "wrong_answer"),
    "record_with_more": (
        over(ROWS, 'return {"price": ROWS[listing], "sold": True, "id": 1}'),
        {"gold": RECORD, "document": tool().model_copy(update={"output_schema": None})},
        "wrong_answer",
    ),
    "prints_instead": (over(ROWS, "print(ROWS[listing])"), {}, "wrong_answer"),
    "not_a_number": (over(ROWS, 'return float("nan")'), {}, "gold_call_failed"),
    "not_json": (over(ROWS, "return {ROWS[listing]}"), {}, "gold_call_failed"),
    "empty_answer": (GOOD, {"gold": answer("string", "")}, "empty_answer"),
    "answer_in_a_default_of_the_document": (
        GOOD.replace("(listing)", "(listing, price=812)"),
        {"document": tool(price={"type": "integer", "default": 812})}, "answer_in_document",
    ),
    "answer_in_a_default_of_the_code": (
        over(ROWS, "return price", signature="listing, price=812"),
        {"document": tool(price={"type": "integer"})}, "ignores_argument",
    ),
    "answer_is_echoed": (
        over(ROWS, "return price", signature="listing, price"),
        {"document": tool(required={"listing": "string", "price": "integer"}),
         "arguments": {"listing": "Amber Cove", "price": 812}}, "ignores_argument",
    ),
    "optional_filter_without_effect": (
        over(ROWS, "return ROWS[listing]", signature="listing, district=None"),
        {"document": OPTIONAL}, "ignores_argument",
    ),
    "given_optional_without_effect": (
        over(ROWS, "return ROWS[listing]", signature="listing, district=None"),
        {"document": OPTIONAL, "arguments": {"listing": "Amber Cove", "district": "Sage Park"}},
        "ignores_argument",
    ),
    "own_result_changed": (
        over(LISTS, "ROWS[listing].append('z')", "return ROWS[listing][:-1]"), {"gold": ORDERED},
        "not_repeatable",
    ),
    "answers_once": (
        over(ROWS, "return ROWS.pop(listing)"), {}, "not_repeatable",
    ),
    "real_date": (
        "from datetime import date\n\n\n"
        + over(ROWS, "return ROWS[listing] + 0 * date.today().year"), {}, "clock_or_chance",
    ),
    "memory_address": (over(ROWS, "return ROWS[listing] + 0 * id(listing)"), {},
                       "clock_or_chance"),
    "key_error": (body("return ROWS[listing]"), {}, "unclean_error"),
    "error_of_many_lines": (
        body(CHECK.replace('"no listing"', '"no listing\\nknown are others"'),
             "return ROWS[listing]"), {}, "unclean_error",
    ),
    "error_dumps_the_data": (
        body('if listing not in ROWS: raise ValueError(f"no listing; rows: {[*ROWS] * 9}")',
             "return ROWS[listing]"), {}, "answer_in_error",
    ),
    "swapped_arguments": (
        "from datetime import date\n\n\ndef get_price(start, end):\n    try:\n"
        "        days = date.fromisoformat(end) - date.fromisoformat(start)\n"
        "    except ValueError:\n        raise ValueError('no date') from None\n"
        "    return abs(days.days)\n",
        {"document": tool(required={"start": "string", "end": "string"}),
         "gold": answer("number", 14), "arguments": {"start": "2024-01-08", "end": "2024-01-22"}},
        "perturbed_returns_gold",
    ),
    "same_for_two": (GOOD.replace("455", "812"), {}, "perturbed_returns_gold"),
    "fuzzy_match": (
        body("known = [name for name in ROWS if name.split()[0] in listing.split()]",
             "return ROWS[(known or ['Amber Cove'])[0]]"), {}, "perturbed_returns_gold",
    ),
    "recursion": (body("return get_price(listing)"), {}, "gold_call_failed"),
    "no_parameters": (
        "def get_price():\n    return 812\n",
        {"document": tool().model_copy(update={"parameters": {"type": "object", "properties": {}}}),
         "arguments": {}}, "too_few_perturbations",
    ),
    "too_long": (GOOD + "# " + "x" * MAX_CODE_CHARS, {}, "code_too_long"),
    "optional_by_no_column": (
        over(ROWS, "return ROWS[listing]", signature="listing, note=None"),
        {"document": tool(note={"type": "string"})}, "unknown_filter",
    ),
    "default_in_the_document": (
        over(ROWS, "return ROWS[listing]", signature="listing, rooms=None"),
        {"document": tool(rooms={"type": "integer", "default": 3})}, "default_in_document",
    ),
    "optional_number_without_effect": (
        over(ROWS, "return ROWS[listing]", signature="listing, rooms=None"),
        {"document": tool(rooms={"type": "integer"})}, "ignores_argument",
    ),
    "optional_day_without_effect": (
        over(ROWS, "return ROWS[listing]", signature="listing, listed_date=None"),
        {"document": tool(listed_date={"type": "string", "format": "date"})}, "ignores_argument",
    ),
    "optional_checked_but_not_filtered": (
        over(ROWS, "if rooms not in (None, 2, 3, 4, 5): raise ValueError('no such number')",
             "return ROWS[listing]", signature="listing, rooms=None"),
        {"document": tool(rooms={"type": "integer"})}, "ignores_argument",
    ),
    "error_names_the_gold_argument": (
        body('if listing not in ROWS: raise ValueError("no such listing; try Amber Cove")',
             "return ROWS[listing]"), {}, "answer_in_error",
    ),
    "first_row_dropped": (GOOD.replace('"Jade Mill": 455, ', ""), {}, "rows_missing"),
    "last_row_dropped": (GOOD.replace(', "Onyx Pass": 378', ""), {}, "rows_missing"),
    "other_value_wrong": (GOOD.replace("455", "456"), {}, "wrong_result"),
    "unknown_is_answered": (
        body("return ROWS.get(listing if isinstance(listing, str) else '', 0)"), {},
        "answers_unknown",
    ),
    "interrupts": (
        body("if listing != 'Amber Cove': raise KeyboardInterrupt", "return 812"), {},
        "unclean_error",
    ),
}  # fmt: skip
