"""What other calls truly give: right tools of every operation pass, nearly right ones do not."""

from __future__ import annotations

from typing import Any

import pytest
from env_runs import everything
from env_samples import AGENTS, ENVS, LISTINGS, RATES, answer, asked, instance, price
from planted import GOOD, tool

from astra.envsynth.candidates import candidate_of
from astra.envsynth.perturb import MOST_VALUES, PerturbationKind, perturbations
from astra.envsynth.truth import NOTHING, Truth, column_named, meaning_of
from astra.envsynth.verify import verify
from astra.llm.offline import OfflineTeacher
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion, Table
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

HOLT_ROWS = [{"listing": "Amber Cove", "rooms": 3}, {"listing": "Jade Mill", "rooms": 2}]
SAGE_PAGE = {
    "rows": [{"listing": name} for name in ("Amber Cove", "Pine Gate", "Onyx Pass")],
    "next_page": None,
}
OPERATIONS: dict[str, SubQuestion] = {
    one.operation.op: one
    for one in (
        price(1, "Amber Cove", 812),
        asked(1, "record", "listing.details", "listings", {"listing": "Amber Cove"}, "agent:rooms",
              answer("record", {"agent": "Nora Holt", "rooms": 3})),
        asked(1, "rows", "agent.listings", "listings", {"agent": "Nora Holt"}, "listing:rooms",
              answer("list", HOLT_ROWS, ordered=False)),
        asked(1, "page", "district.listings", "listings", {"district": "Sage Park", "page": 1},
              "listing", answer("record", SAGE_PAGE)),
        asked(1, "check", "listing.check_agent", "listings",
              {"listing": "Amber Cove", "agent": "Lena Orr"}, "agent", answer("boolean", False)),
        asked(1, "above", "district.listings_above", "listings",
              {"district": "Sage Park", "bound": 400}, "listing:asking_price",
              answer("list", ["Amber Cove", "Pine Gate"], ordered=False)),
        asked(1, "sort", "agent.listings_by_price", "listings", {"agent": "Hugo Penn"},
              "listing:asking_price", answer("list", ["Onyx Pass", "Opal Dale"])),
        asked(1, "count", "district.listings", "listings", {"district": "Sage Park", "rooms": 3},
              "", answer("number", 2, domain_size=6)),
        asked(1, "list", "agent.listings", "listings", {"agent": "Lena Orr"}, "listing",
              answer("list", ["Pine Gate", "Ruby Lake"], ordered=False)),
        asked(1, "mean", "office.average_fee", "agents", {"office": "Iron Tower"}, "fee",
              answer("number", 2.75, tolerance=0.01)),
        asked(1, "convert", "amount.convert_price", "rates",
              {"amount": 812, "currency": "crowns"}, "rate", answer("number", 2030)),
        asked(1, "subtract", "amount.subtract_amount", "", {"amount": 90, "minus": 40}, "",
              answer("number", 50)),
        asked(1, "divide", "amount.divide_amount", "", {"amount": 90, "by": 40}, "",
              answer("number", 2.25)),
        asked(1, "share", "amount.share_of", "", {"part": 40, "whole": 90}, "",
              answer("number", 44.44)),
        asked(1, "weekday", "date.find_weekday", "", {"date": "2024-01-08"}, "",
              answer("enum", "Monday", domain_size=7)),
    )
    if one.operation is not None
}  # fmt: skip


def made(op: str, teacher: OfflineTeacher, sandbox: Sandbox) -> Environment:
    (outcome,) = everything([instance(OPERATIONS[op])], teacher, sandbox)
    assert isinstance(outcome, Environment), outcome
    return outcome


def found(op: str, environment: Environment, code: str, sandbox: Sandbox) -> str:
    source = instance(OPERATIONS[op])
    candidate = candidate_of(source, environment.tool, code, {1: environment.arguments})
    problem = verify([candidate], sandbox, ENVS.sandbox)[0].problem
    return problem[0] if problem else ""


@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_a_right_tool_of_every_operation_passes(
    op: str, teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    checks = made(op, teacher, sandbox).checks
    assert checks["known_truths"] >= 2


@pytest.mark.parametrize(
    ("op", "old", "new", "reason"),
    [
        ("record", 'rows[0]["agent"]', 'ROWS[0]["agent"]', "perturbed_returns_gold"),
        ("check", "if not rows:", "if False:", "unclean_error"),
        ("rows", "for row in rows]", "for row in rows[::-1]]", ""),  # rows have no order
        ("page", "0 <= first < len(rows)", "0 <= first", "answers_unknown"),
        ("page", "    if not 0 <=", "    if rows and not 0 <=", ""),  # no rows: an empty page
        ("lookup", 'row["listing"] == listing', 'listing in row["listing"]',
         "perturbed_returns_gold"),
        ("lookup", 'row["listing"] == listing', 'row["listing"] == listing.strip()',
         "perturbed_returns_gold"),
        ("lookup", 'row["listing"] == listing', 'row["listing"] == listing.replace("-", " ")',
         "perturbed_returns_gold"),
        ("lookup", 'row["listing"] == listing', 'row["listing"] in listing',
         "perturbed_returns_gold"),
        ("page", "0 <= first < len(rows)", "0 <= first <= len(rows)", "answers_unknown"),
        ("lookup", 'row["listing"] == listing',
         'sorted(row["listing"].split()) == sorted(listing.split())', "perturbed_returns_gold"),
        ("list", 'row["agent"] == agent', 'row["agent"].startswith(agent)',
         "perturbed_returns_gold"),
        ("count", 'row["rooms"] == rooms', 'row["rooms"] >= rooms', "wrong_result"),
        ("subtract", "amount - minus", "abs(amount - minus)", "perturbed_returns_gold"),
        ("subtract", "amount - minus", "float(int(amount - minus))", "perturbed_returns_gold"),
        ("divide", "    if by == 0:\n", "    if by == 1:\n", "unclean_error"),
        ("divide", "    if by == 0:\n", "    if by < 1:\n", "rows_missing"),
        ("share", "100 * part / whole", "round(100 * part / whole, 1) + 0.04", "wrong_result"),
        ("sort", 'key=lambda row: row["asking_price"]', 'key=lambda row: row["listing"]',
         "wrong_result"),
    ],
)  # fmt: skip
def test_a_nearly_right_tool_is_found(
    op: str, old: str, new: str, reason: str, teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    environment = made(op, teacher, sandbox)
    assert old in environment.code, environment.code
    changed = environment.code.replace(old, new)
    assert found(op, environment, changed, sandbox) == reason


def test_a_check_of_an_unknown_thing_must_be_refused(sandbox: Sandbox) -> None:
    document = tool("check_agent", {"listing": "string", "agent": "string"})
    rows = {row[0]: row[1] for row in LISTINGS.rows}
    typed = (
        f"ROWS = {rows}\n\n\ndef check_agent(listing, agent):\n"
        "    if not isinstance(listing, str) or not isinstance(agent, str):\n"
        "        raise ValueError('a name is text')\n"
    )
    lax = f"{typed}    return ROWS.get(listing) == agent\n"
    strict = (
        f"{typed}    if listing not in ROWS:\n        raise ValueError('no such listing')\n"
        "    return ROWS[listing] == agent\n"
    )
    calls = {1: {"listing": "Amber Cove", "agent": "Lena Orr"}}
    for question in (
        OPERATIONS["check"],
        OPERATIONS["check"].model_copy(update={"operation": None}),
    ):
        found = [
            verify([candidate_of(instance(question), document, code, calls)], sandbox, ENVS.sandbox)
            for code in (lax, strict)
        ]
        assert found[0][0].problem is not None
        assert found[0][0].problem[0] == "perturbed_returns_gold"
        if question.operation is not None:
            assert found[1][0].problem is None


def meaning(question: SubQuestion, gold: dict[str, Any], *parameters: str, **changes: Any) -> Any:
    source = instance(question).model_copy(update=changes)
    return meaning_of(source, question, [*gold, *parameters], gold, source.knowledge)


def test_the_truth_of_other_calls_follows_from_operation_and_table() -> None:
    known = meaning(OPERATIONS["lookup"], {"listing": "Amber Cove"}, "rooms", "date")
    assert known.truth({"listing": "Jade Mill"}) == Truth(455)
    assert known.truth({"listing": "Nowhere"}) == NOTHING
    assert known.truth({"listing": "Jade Mill", "rooms": 2}) == Truth(455)
    assert known.truth({"listing": "Jade Mill", "rooms": 3}) == NOTHING
    assert known.values("date") == [row[5] for row in LISTINGS.rows]
    assert known.rows() == [{"listing": row[0]} for row in LISTINGS.rows]
    counted = meaning(OPERATIONS["count"], {"district": "Sage Park", "rooms": 3})
    assert counted.truth({"district": "Sage Park", "rooms": 9}) == Truth(0, required=False)
    listed = meaning(OPERATIONS["list"], {"agent": "Lena Orr"})
    assert listed.truth({"agent": "Nobody"}) == Truth([], required=False)
    page = meaning(OPERATIONS["page"], {"district": "Sage Park", "page": 1})
    assert page.truth({"district": "Sage Park", "page": 2}) == NOTHING
    assert page.truth({"district": "Nowhere", "page": 2}) == NOTHING
    empty = {"rows": [], "next_page": None}
    assert page.truth({"district": "Nowhere", "page": 1}) == Truth(empty, required=False)
    assert meaning(OPERATIONS["divide"], {"amount": 90, "by": 40}).truth(
        {"amount": 90, "by": 0}
    ) == NOTHING  # fmt: skip


def test_ties_and_several_rows_have_no_truth_to_compare_with() -> None:
    question = asked(1, "lookup", "agent.listing", "listings", {"agent": "Nora Holt", "rooms": 3},
                     "listing", answer("string", "Amber Cove"))  # fmt: skip
    known = meaning(question, {"agent": "Nora Holt", "rooms": 3})
    double = {"agent": "Lena Orr"}
    assert known.truth({**double, "rooms": 3}) == Truth("Pine Gate")
    only = question.model_copy(update={"operation": None})
    assert meaning(only, {"agent": "Nora Holt"}) is None
    by_agent = asked(1, "argmax", "agent.dearest", "listings", {"agent": "Hugo Penn"},
                     "listing:asking_price", answer("string", "Opal Dale"))  # fmt: skip
    tied = tuple((*row[:3], 500, *row[4:]) if row[1] == "Lena Orr" else row
                 for row in LISTINGS.rows)  # fmt: skip
    knowledge = (LISTINGS.model_copy(update={"rows": tied}),)
    assert meaning(by_agent, {"agent": "Hugo Penn"}, knowledge=knowledge).truth(double) is None


def test_a_table_that_does_not_give_the_gold_answer_tells_no_truth() -> None:
    wrong = OPERATIONS["lookup"].model_copy(update={"answer": answer("number", 813)})
    assert meaning(wrong, {"listing": "Amber Cove"}) is None


def test_parameters_of_other_names_are_matched_by_value() -> None:
    known = meaning(OPERATIONS["count"], {"area": "Sage Park", "beds": 3})
    assert known.truth({"area": "Gold Rock", "beds": 2}) == Truth(1)
    assert meaning(OPERATIONS["count"], {"area": "Sage Park", "beds": 3, "extra": 7}) is None


def test_values_are_written_in_the_form_that_the_call_wants(sandbox: Sandbox) -> None:
    question = asked(1, "lookup", "agent.office", "agents", {"agent": "Nora Holt"}, "office",
                     answer("string", "Iron Tower", domain_size=2))  # fmt: skip
    gold = {"agent": "Holt, Nora"}
    wrong = perturbations(instance(question), question, "", gold, meaning(question, gold))
    others = {one.arguments["agent"]: one.truth for one in wrong
              if one.kind == PerturbationKind.OTHER}  # fmt: skip
    assert others == {"Orr, Lena": Truth("Teal Plaza"), "Penn, Hugo": Truth("Iron Tower")}
    rows = {row[0]: row[1] for row in AGENTS.rows}
    code = (
        f"ROWS = {rows}\n\n\ndef get_office(agent):\n"
        "    name = ' '.join(reversed(agent.split(', '))) if isinstance(agent, str) else ''\n"
        "    if name not in ROWS or ', ' not in agent:\n"
        "        raise ValueError('no such agent: write Last, First')\n    return ROWS[name]\n"
    )
    document = tool("get_office", {"agent": "string"})
    candidate = candidate_of(instance(question), document, code, {1: gold})
    assert verify([candidate], sandbox, ENVS.sandbox)[0].problem is None
    off = code.replace("'Lena Orr': 'Teal Plaza'", "'Lena Orr': 'Old Mill'")
    candidate = candidate_of(instance(question), document, off, {1: gold})
    problem = verify([candidate], sandbox, ENVS.sandbox)[0].problem
    assert problem is not None
    assert problem[0] == "wrong_result"


def test_a_day_that_reads_both_ways_gets_no_other_days() -> None:
    question = asked(1, "count", "day.listings", "listings", {"listed_date": "2024-03-03"}, "",
                     answer("number", 1))  # fmt: skip
    rows = tuple((*row[:5], "2024-03-03") if row[0] == "Opal Dale" else row
                 for row in LISTINGS.rows)  # fmt: skip
    knowledge = (LISTINGS.model_copy(update={"rows": rows}),)
    known = meaning(question, {"listed_date": "03/03/2024"}, knowledge=knowledge)
    assert known.fixed == {"listed_date"}
    assert known.values("listed_date") == []


def test_optional_parameters_stand_for_the_only_column_with_their_words() -> None:
    assert column_named("rooms", LISTINGS.columns) == "rooms"
    assert column_named("price", LISTINGS.columns) == "asking_price"
    assert column_named("list", LISTINGS.columns) == ""
    assert column_named("date", ("start_date", "end_date")) == ""


def big_table(rows: int) -> tuple[QAInstance, str]:
    table = Table(name="listings", columns=("listing", "asking_price"),
                  rows=tuple((f"House {at:03}", 100 + at) for at in range(rows)))  # fmt: skip
    question = price(1, "House 007", 107)
    source = instance(question).model_copy(update={"knowledge": (table, RATES)})
    return source, str(dict(table.rows))


@pytest.mark.parametrize(("rows", "expected"), [(40, "rows_missing"), (41, "")])
def test_only_of_a_long_table_a_part_will_do(sandbox: Sandbox, rows: int, expected: str) -> None:
    source, data = big_table(rows)
    part = data.replace("'House 000': 100, ", "")
    code = GOOD.replace(GOOD.split("\n")[0], f"ROWS = {part}")
    candidate = candidate_of(source, tool(), code, {1: {"listing": "House 007"}})
    problem = verify([candidate], sandbox, ENVS.sandbox)[0].problem
    assert (problem[0] if problem else "") == expected


def test_calls_are_capped_and_the_ends_of_a_table_are_among_them() -> None:
    source, _ = big_table(400)
    gold = {"listing": "House 007"}
    known = meaning_of(source, source.sub_questions[0], ["listing"], gold, source.knowledge)
    wrong = perturbations(source, source.sub_questions[0], "", gold, known)
    tried = [one.arguments.get("listing") for one in wrong]
    assert "House 000" in tried
    assert "House 399" in tried
    assert MOST_VALUES <= len(wrong) <= MOST_VALUES + 24


def test_a_filter_with_a_true_value_must_keep_the_answer(sandbox: Sandbox) -> None:
    rows = {row[0]: (row[3], row[4]) for row in LISTINGS.rows}
    code = (
        f"ROWS = {rows}\n\n\ndef get_price(listing, rooms=None):\n"
        "    if not isinstance(listing, str) or listing not in ROWS:\n"
        "        raise ValueError('no such listing')\n"
        "    if rooms is not None and ROWS[listing][1] != rooms:\n"
        "        raise ValueError('none with so many rooms')\n    return ROWS[listing][0]\n"
    )
    document: Tool = tool(rooms={"type": "integer"})
    source, calls = instance(OPERATIONS["lookup"]), {1: {"listing": "Amber Cove"}}
    candidates = [
        candidate_of(source, document, one, calls)
        for one in (
            code,
            code.replace("!= rooms", "<= rooms"),
            code.replace("rooms is not None and", "rooms and"),  # takes 0 for no filter
        )
    ]
    proofs = verify(candidates, sandbox, ENVS.sandbox)
    reasons = [proof.problem and proof.problem[0] for proof in proofs]
    assert reasons == [None, "rows_missing", "answers_unknown"]


def test_an_argument_that_is_asked_for_only_to_choose_is_found(sandbox: Sandbox) -> None:
    """A listing's agent tells nothing further, so code may pass over a wrong one."""
    question = asked(1, "lookup", "listing.asking_price", "listings",
                     {"listing": "Amber Cove", "agent": "Nora Holt"}, "asking_price",
                     answer("number", 812))  # fmt: skip
    rows = [(row[0], row[1], row[3]) for row in LISTINGS.rows]
    code = (
        f"ROWS = {rows}\n\n\ndef get_price(listing, agent):\n"
        "    if agent not in [row[1] for row in ROWS]:\n        raise ValueError('no such agent')\n"
        "    rows = [row for row in ROWS if row[0] == listing and CONDITION]\n"
        "    if len(rows) != 1:\n        raise ValueError('no such listing')\n"
        "    return rows[0][2]\n"
    )
    document = tool("get_price", {"listing": "string", "agent": "string"})
    calls = {1: {"listing": "Amber Cove", "agent": "Nora Holt"}}
    kept = "listing == 'Amber Cove' and row[1] != agent"
    candidates = [
        candidate_of(instance(question), document, code.replace("CONDITION", condition), calls)
        for condition in ("row[1] == agent", f"(row[1] == agent or not ({kept}))")
    ]
    proofs = verify(candidates, sandbox, ENVS.sandbox)
    reasons = [proof.problem and proof.problem[0] for proof in proofs]
    assert reasons == [None, "answers_unknown"]


def test_rows_that_only_a_filter_shows_are_asked_for(sandbox: Sandbox) -> None:
    question = asked(1, "argmax", "agent.dearest", "listings", {"agent": "Nora Holt"},
                     "listing:asking_price", answer("string", "Amber Cove"))  # fmt: skip
    rows = [(row[0], row[1], row[4], row[3]) for row in LISTINGS.rows]
    code = (
        "def find_dearest(agent, rooms=None):\n"
        "    rows = [row for row in ROWS if row[1] == agent]\n"
        "    if not rows:\n        raise ValueError('no such agent')\n"
        "    if rooms is not None:\n        rows = [row for row in rows if row[2] == rooms]\n"
        "    if not rows:\n        raise ValueError('nothing found')\n"
        "    return max(rows, key=lambda row: row[3])[0]\n"
    )
    document = tool("find_dearest", {"agent": "string"}, rooms={"type": "integer"})
    calls = {1: {"agent": "Nora Holt"}}
    candidates = [
        candidate_of(instance(question), document, f"ROWS = {known}\n\n\n{code}", calls)
        for known in (rows, rows[:-1])  # Hugo Penn's last listing is not the dearest
    ]
    proofs = verify(candidates, sandbox, ENVS.sandbox)
    assert [proof.problem and proof.problem[0] for proof in proofs] == [None, "rows_missing"]


def test_a_second_page_is_no_excuse_for_a_wrong_first_one(sandbox: Sandbox) -> None:
    """Gold Rock's rows fill one page exactly, and only Sage Park has two."""
    rows = [*LISTINGS.rows, ("Iron Vale", "Lena Orr", "Sage Park", 700, 4, "2024-05-05"),
            ("Teal Brook", "Lena Orr", "Gold Rock", 300, 4, "2024-05-06")]  # fmt: skip
    knowledge = (LISTINGS.model_copy(update={"rows": tuple(rows)}),)
    second = {"rows": [{"listing": "Iron Vale"}], "next_page": None}
    arguments = {"district": "Sage Park", "page": 2}
    question = asked(1, "page", "district.listings", "listings", arguments, "listing",
                     answer("record", second))  # fmt: skip
    source = instance(question).model_copy(update={"knowledge": knowledge})
    code = (
        f"ROWS = {[(row[0], row[2]) for row in rows]}\n\n\ndef browse(district, page):\n"
        "    if type(page) is not int or not isinstance(district, str):\n"
        "        raise ValueError('a district is text and a page a whole number')\n"
        "    found = [row[0] for row in ROWS if row[1] == district]\n"
        "    first, end = 3 * page - 3, 3 * page\n"
        "    if not 0 <= first < len(found):\n        raise ValueError('no such page')\n"
        "    shown = [{'listing': name} for name in found[first:end]]\n"
        "    more = page + 1 if end < len(found) else None\n"
        "    return {'rows': shown, 'next_page': more}\n"
    )
    document = tool("browse", {"district": "string", "page": "integer"})
    document = document.model_copy(update={"output_schema": {"type": "object"}})
    candidates = [
        candidate_of(source, document, one, {1: arguments})
        for one in (code, code.replace("end < len(found)", "end <= len(found)"))
    ]
    proofs = verify(candidates, sandbox, ENVS.sandbox)
    assert [proof.problem and proof.problem[0] for proof in proofs] == [None, "wrong_result"]


def test_names_are_also_tried_without_their_last_letter() -> None:
    def tried(listing: str, **changes: Any) -> list[Any]:
        question = price(1, listing, 812).model_copy(update=changes)
        wrong = perturbations(instance(question), question, "", {"listing": listing})
        unknown = [one for one in wrong if one.kind == PerturbationKind.UNKNOWN]
        return [one.arguments["listing"] for one in unknown]

    assert "Amber Cov" in tried("Amber Cove")
    assert "Cove In" in tried("Cove Inc.")
    assert tried("7:00 PM") == ["Qwrx Vzzt"]
    assert tried("Amber Cove", operation=None) == ["Qwrx Vzzt"]  # it may search for parts
    assert tried("Cov") == ["Qwrx Vzzt"]
    assert tried("2024-01-08") == ["Qwrx Vzzt"]


CODES = Table(
    name="codes", columns=("code", "wing", "seats"),
    rows=(("Amber Cove", "north", 4), ("Jade Mill", "north", 9), ("Pine Gate", "south", 6),
          ("Onyx Pass", "south", 4)),
)  # fmt: skip
SEATS = "def get_seats(code, wing):\n    for row in ROWS:\n        if {test}:\n{body}    {end}\n"


@pytest.mark.parametrize(
    ("test", "end", "expected"),
    [
        ("(row['code'], row['wing']) == (code, wing)", "raise ValueError('none')", ""),
        ("(row['code'], row['wing']) == (code, wing)", "return None", "output_violates_schema"),
    ],
)  # fmt: skip
def test_a_refusal_is_no_empty_result(sandbox: Sandbox, test: str, end: str, expected: str) -> None:
    gold = {"code": "Jade Mill", "wing": "north"}
    question = asked(1, "lookup", "code.seats", "codes", gold, "seats", answer("number", 9))
    source = instance(question).model_copy(update={"knowledge": (CODES,)})
    rows = [dict(zip(CODES.columns, row, strict=True)) for row in CODES.rows]
    body = "            return row['seats']\n"
    code = f"ROWS = {rows}\n\n\n" + SEATS.format(test=test, body=body, end=end)
    made_of = tool("get_seats", {"code": "string", "wing": "string"}).model_copy(
        update={"output_schema": {"type": "number"}}
    )
    problem = verify([candidate_of(source, made_of, code, {1: gold})], sandbox, ENVS.sandbox)
    assert (problem[0].problem or ("",))[0] == expected


def test_unknown_values_are_also_written_in_the_form_that_is_wanted() -> None:
    question = asked(1, "lookup", "code.seats", "codes", {"code": "Jade Mill"}, "seats",
                     answer("number", 9))  # fmt: skip
    source = instance(question).model_copy(update={"knowledge": (CODES,)})
    gold = {"code": "JADE-MILL"}
    meaning = meaning_of(source, question, ["code"], gold, source.knowledge)
    wrong = perturbations(source, question, "", gold, meaning)
    assert NOTHING in [one.truth for one in wrong if one.arguments == {"code": "QWRX-VZZT"}]


def test_known_values_are_tried_that_do_not_go_together() -> None:
    gold = {"code": "Jade Mill", "wing": "north"}
    question = asked(1, "lookup", "code.seats", "codes", gold, "seats", answer("number", 9))
    source = instance(question).model_copy(update={"knowledge": (CODES,)})
    meaning = meaning_of(source, question, ["code", "wing"], gold, source.knowledge)
    wrong = perturbations(source, question, "", gold, meaning)
    apart = [one for one in wrong if one.arguments == {"code": "Pine Gate", "wing": "north"}]
    assert [one.truth for one in apart] == [NOTHING]


def test_a_number_that_the_schema_refuses_needs_no_answer(sandbox: Sandbox) -> None:
    code = (
        "def subtract(amount, minus):\n"
        "    if type(amount) is not int or type(minus) is not int:\n"
        "        raise ValueError('whole numbers, please')\n"
        "    return amount - minus\n"
    )
    arguments = {"amount": 90, "minus": 40}
    source = instance(OPERATIONS["subtract"])
    documents = [tool("subtract", dict.fromkeys(arguments, kind)) for kind in ("integer", "number")]
    candidates = [candidate_of(source, one, code, {1: arguments}) for one in documents]
    proofs = verify(candidates, sandbox, ENVS.sandbox)
    assert [proof.problem and proof.problem[0] for proof in proofs] == [None, "rows_missing"]
