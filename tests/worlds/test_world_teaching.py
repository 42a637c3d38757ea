"""Worlds that a model writes, against a local server whose bad replies are planted one by one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from small_worlds import FEW, small_world
from taught_parts import parts_of, rows_code

from astra.llm.build import Teachers
from astra.llm.protocol import ModelConfig
from astra.records.qa import Split
from astra.records.score import Rejection
from astra.records.world import World, WorldShape
from astra.sandbox.local import LocalSandbox
from astra.settings import ParamsError, validate
from astra.worlds import teaching
from astra.worlds.config import WorldsConfig
from astra.worlds.estimate import world_asks
from astra.worlds.soundness import WorldFault
from astra.worlds.subjects import WorldSubject
from astra.worlds.teaching import TaughtWorld
from chat_server import Answer, ChatServer, runtime

MODELS = count()
"""Every run asks a model of its own name: no answer comes from an earlier run's cache."""
STEPS = {
    "You design the records": "schema",
    "You write the rules": "rules",
    "You implement tools over shared tables": "tools",
    "You write the program that fills": "rows",
    "You check calls against one sentence": "decide",
}
"""How each prompt begins."""
SUBJECT = WorldSubject(
    name="reading_rooms", about="A library that lends copies to members.", split=Split.TRAIN
)
Parts = dict[str, Any]
Plant = Callable[[Any], Any]
RIGHT: Parts = parts_of(small_world(), "")
NAMES = {tool["role"]: tool["name"] for tool in RIGHT["schema"]["tools"]}
FIND, LOANS, CANCEL, EXTEND = (NAMES[role] for role in ("find", "list", "cancel", "extend"))


class Model:
    """Writes the small world's parts; ``faults`` are the replies that go first, by part."""

    def __init__(self, **faults: list[Any]) -> None:
        self.faults = {step: list(replies) for step, replies in faults.items()}
        self.prompts: dict[str, list[str]] = {step: [] for step in STEPS.values()}
        self.late = ""
        """The tool whose code takes a while."""
        self.slip = 0
        """How many cases it decides wrongly."""

    def __call__(self, body: dict[str, Any]) -> Answer:
        prompt = body["messages"][0]["content"]
        step = next(name for start, name in STEPS.items() if prompt.startswith(start))
        self.prompts[step].append(prompt)
        waiting = self.faults.get(step)
        reply = waiting.pop(0) if waiting else self.reply(step, prompt)
        slow = bool(self.late) and f'in this order: ["{self.late}"' in prompt
        return Answer(json.dumps(reply), delay_s=0.5 if slow else 0)

    def reply(self, step: str, prompt: str) -> Any:
        if step == "decide":
            return self.decided(prompt)
        if step == "tools":
            wanted = json.loads(prompt.split("in this order: ")[1].split("\n")[0])
            return {"tools": [RIGHT["tools"][name] for name in wanted]}
        return RIGHT[step]

    def decided(self, prompt: str) -> Any:
        """What the sentence of the rule says to somebody who knows English, word by word."""
        text = prompt.split("# The rule\n")[1].split("\n")[0]
        lines = [line for line in prompt.splitlines() if line.startswith('{"case"')]
        cases = [allowed_by(text, json.loads(line)) for line in lines]
        for at in range(self.slip):
            cases[at] = not cases[at]
        return {"cases": [{"case": at, "allowed": one} for at, one in enumerate(cases, start=1)]}


def allowed_by(text: str, case: Any) -> bool:
    """The reading of the small world's sentences, apart from any expression."""
    if f"`{case['call']}`" not in text:
        return True
    if most := re.search(r"`days` is at most (\d+)", text):
        return case["arguments"]["days"] <= int(most[1])
    assert "has shown the member of the loan" in text
    (loan,) = [r for r in case["records"]["loans"] if r["loan_id"] == case["arguments"]["loan_id"]]
    shown = [one["result"]["member_id"] for one in case["before"] if "result" in one]
    return loan["member_id"] in shown


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASTRA_TEST_KEY", "k")


def settings(**changes: Any) -> dict[str, Any]:
    model = {"backend": "openai", "model": f"m{next(MODELS)}"}
    return {
        "seed": 0, "shape": "small", "domains": [], "variants": {}, "composed": 0, "attempts": 1,
        "teacher": model, "judge": model, "subjects": [SUBJECT.model_dump(mode="json")],
        "services": [], "inner_attempts": 40, "max_asks": 200, "agreement_cases": 12,
        "proofs": FEW.model_dump(), "contamination": None, "sandbox": {}, **changes,
    }  # fmt: skip


def written(
    model: Model, sandbox: LocalSandbox, shared: WorldFault | None = None, openapi: str = "",
    **changes: Any,
) -> list[World | Rejection]:  # fmt: skip
    config = WorldsConfig.model_validate(settings(**changes))
    with ChatServer(default=model) as server, Teachers(runtime(server.url, max_attempts=2)) as one:
        teacher = one.teacher(config.teacher, {})
        taught = TaughtWorld(SUBJECT, teacher, teacher, sandbox, config, lambda _: shared, openapi)
        return asyncio.run(taught.outcomes())


def planted(part: Parts, *edits: Plant) -> list[Any]:
    """Copies of a reply, each with one fault."""
    copies = [deepcopy(part) for _ in edits]
    return [replaced if (replaced := edit(copy)) is not None else copy
            for edit, copy in zip(edits, copies, strict=True)]  # fmt: skip


def refused(outcomes: list[World | Rejection], part: str) -> list[set[str]]:
    """The reasons for which each try of a part was refused, in order."""
    found = [one for one in outcomes if isinstance(one, Rejection) and one.part == part]
    return [{one.reason for one in found if one.attempt == at}
            for at in range(max((one.attempt for one in found), default=-1) + 1)]  # fmt: skip


def check(
    outcomes: list[World | Rejection], part: str, prompts: list[str], reasons: list[str]
) -> None:
    """Each try was refused for its reason, the next ask says so, and the last one passed."""
    tries = refused(outcomes, part)
    assert [reason in found for reason, found in zip(reasons, tries, strict=True)] == [True] * len(
        reasons
    ), list(zip(reasons, tries, strict=True))
    for reason, prompt in zip(reasons, prompts[1:], strict=False):
        assert f"- {reason}: " in prompt
    assert isinstance(outcomes[-1], World)


def table(reply: Any, name: str) -> Any:
    return next(one for one in reply["tables"] if one["name"] == name)


def outline(reply: Any, name: str) -> Any:
    return next(one for one in reply["tools"] if one["name"] == name)


def test_a_world_without_a_fault_passes_at_once(sandbox: LocalSandbox) -> None:
    model = Model()
    (world,) = written(model, sandbox)
    assert isinstance(world, World)
    assert world.domain == "reading_rooms"
    assert world.checks["agreed_cases"] == 24
    assert world.checks["effects"] > 0
    assert len(world.prompt_hash.split("+")) == 5
    assert {step: len(prompts) for step, prompts in model.prompts.items()} == {
        "schema": 1, "rules": 1, "tools": 1, "rows": 1, "decide": 2,
    }  # fmt: skip
    assert all(f"{rule.text} (`{rule.reason}`)" in world.policy for rule in world.rules)
    assert not any('"require"' in prompt for prompt in model.prompts["decide"])


def test_the_document_of_a_service_is_shown_once_and_sets_the_size(sandbox: LocalSandbox) -> None:
    """Its schemas and operations are looked at where tables and tools are designed."""
    model = Model()
    (world,) = written(model, sandbox, openapi="openapi: 3.0.3 # {{ the reading rooms }}")
    assert isinstance(world, World)
    assert world.shape is WorldShape.SERVICE
    shown = {step: "{{ the reading rooms }}" in prompts[0]
             for step, prompts in model.prompts.items()}  # fmt: skip
    assert [step for step, is_shown in shown.items() if is_shown] == ["schema"]
    assert "2 to 20 tables" in model.prompts["schema"][0]


def two_keys(reply: Any) -> None:
    members = table(reply, "members")
    members["key"] = members["columns"][0]["name"] = "copy_id"


SCHEMAS: dict[str, tuple[str, Plant]] = {
    "a key that is no column": (
        "bad_columns", lambda r: table(r, "members").update(key="number_id")),
    "a key that two tables have": ("bad_key", two_keys),
    "a key of type string": (
        "bad_key", lambda r: table(r, "members")["columns"][0].update(type="string")),
    "two tables": ("tables_out_of_bounds", lambda r: r["tables"].pop(0) and None),
    "a reference to nothing": (
        "unknown_table", lambda r: table(r, "loans")["columns"][1].update(references="people")),
    "an enum of one value": (
        "bad_columns", lambda r: table(r, "copies")["columns"][2].update(values=["on_shelf"])),
    "a tool twice": ("duplicate_tool", lambda r: r["tools"].append(r["tools"][0])),
    "the host's tool": (
        "duplicate_tool", lambda r: outline(r, LOANS).update(name="decline_request")),
    "no tool that finds": ("roles", lambda r: outline(r, FIND).update(role="get")),
    "a list that writes": ("roles", lambda r: outline(r, LOANS).update(writes=["loans"])),
    "a cancel that does not": ("roles", lambda r: outline(r, CANCEL).update(writes=[])),
    "a column that no table has": (
        "unknown_column", lambda r: outline(r, LOANS)["shows"]["loans"].append("colour")),
    "a filter that names no column": (
        "unknown_filter", lambda r: outline(r, LOANS)["parameters"]["properties"].update(
            mood={"type": "string", "description": "Only such"})),
    "an array for a parameter": (
        "bad_document", lambda r: outline(r, EXTEND)["parameters"]["properties"].update(
            days={"type": "array"})),
    "a parameter required and not there": (
        "bad_document", lambda r: outline(r, EXTEND)["parameters"]["required"].append("until")),
    "a key that nobody shows": (
        "unreachable_tool", lambda r: outline(r, LOANS)["shows"].update(loans=["due_date"])),
    "an invariant of nothing": (
        "bad_expression", lambda r: r["invariants"][0].update(holds={"eq": [{"self": "x"}, 1]})),
    "an operator made up": (
        "bad_expression", lambda r: r["invariants"][0].update(holds={"is_fine": []})),
    "an invariant that is no condition": (
        "bad_expression", lambda r: r["invariants"][0].update(holds=7)),
}  # fmt: skip


def test_bad_schemas_go_back_with_their_reasons(sandbox: LocalSandbox) -> None:
    reasons = [reason for reason, _ in SCHEMAS.values()]
    model = Model(schema=planted(RIGHT["schema"], *(edit for _, edit in SCHEMAS.values())))
    outcomes = written(model, sandbox)
    check(outcomes, "schema", model.prompts["schema"], reasons)
    assert len(model.prompts["rules"]) == 1  # nothing was built on a bad one


def rule(number: int, **fields: Any) -> Plant:
    return lambda reply: reply["rules"][number].update(fields)


def to_policy(reply: Any) -> None:
    reply["rules"][1]["enforced"] = "policy"


DAYS = next(int(m[1]) for m in [re.search(r"at most (\d+)", small_world().rules[1].text)] if m)
RULES: dict[str, tuple[str, Plant]] = {
    "no rule": ("rules_out_of_bounds", lambda r: r.update(rules=[])),
    "every rule is the tools'": ("policy_rules_out_of_bounds", rule(0, enforced="tool")),
    "a tool is to know what was said": ("unenforceable", rule(0, enforced="tool")),
    "a wordy policy": ("words_out_of_bounds", lambda r: r.update(about="and so on " * 30)),
    "a tool that is not there": ("unknown_tool", rule(1, tools=["fly"])),
    "how a request ends is governed": ("unknown_tool", rule(1, tools=["hand_over"])),
    "an argument that is none": (
        "unknown_argument", rule(1, require={"le": [{"arg": "weeks"}, 3]})),
    "a column that is none": (
        "bad_expression", rule(1, require={"le": [{"field": [
            {"row": ["loans", {"arg": "loan_id"}]}, "weeks"]}, 3]})),
    "a column that nobody shows": (
        "unknown_column", rule(0, require={"seen": [FIND, "due_date", "2026-01-01"]})),
    "a fact that nobody can read": (
        "unseen_fact", rule(1, require={"exists": ["copies", {"shelf_state": "out"}]})),
    "two texts compared with a number": (
        "bad_expression", rule(1, require={"le": [{"arg": "days"}, "three"]})),
    "a code for two": ("shared_reason", lambda r: r["rules"][1].update(
        reason=r["rules"][0]["reason"])),
    "a code in words": ("unnamed_reason", rule(1, reason="Too long!")),
    "a rule that nothing breaks": (
        "rule_never_breaks", lambda r: (to_policy(r), rule(1, require={"le": [
            {"arg": "days"}, 600]})(r))[2:] or None),
    "a rule that nothing keeps": (
        "rule_never_holds", lambda r: (to_policy(r), rule(1, require={"lt": [
            {"arg": "days"}, 0]})(r))[2:] or None),
    "another number in the text": (
        "other_reading", rule(1, text=small_world().rules[1].text.replace(
            f"at most {DAYS}", f"at most {DAYS + 1}"))),
}  # fmt: skip


def test_bad_rules_go_back_with_their_reasons(sandbox: LocalSandbox) -> None:
    reasons = [reason for reason, _ in RULES.values()]
    model = Model(rules=planted(RIGHT["rules"], *(edit for _, edit in RULES.values())))
    outcomes = written(model, sandbox)
    check(outcomes, "rules", model.prompts["rules"], reasons)
    told = model.prompts["rules"][-1]
    assert f"is at most {DAYS + 1}" in told  # what was refused stands beside the reason
    assert "by its text" in told
    assert "by its expression" in told


def body(name: str, old: str = "", new: str = "", **fields: Any) -> Plant:
    """A reply in which one tool's code has something else in place of ``old``."""

    def plant(reply: Any) -> None:
        (tool,) = [one for one in reply["tools"] if one["name"] == name]
        assert old in tool["code"], tool["code"]
        tool["code"] = tool["code"].replace(old, new)
        tool.update(fields)

    return plant


def start(name: str, text: str) -> Plant:
    """A reply in which one tool's function begins with other lines."""

    def plant(reply: Any) -> None:
        (tool,) = [one for one in reply["tools"] if one["name"] == name]
        tool["code"] = re.sub(rf"(def {name}\(.*\):\n)", rf"\1    {text}\n", tool["code"])

    return plant


END = "return {name: row[name] for name in"
FIRST = 'world.tables["members"][0]'
BODIES: dict[str, tuple[str, str, Plant]] = {
    "no Python": ("syntax_error", CANCEL, body(CANCEL, "def ", "define ")),
    "other parameters": ("signature_mismatch", CANCEL, body(
        CANCEL, "(world, loan_id)", "(world, loan)")),
    "a module that is not allowed": (
        "load_error", CANCEL, body(CANCEL, "def _row", "import socket\n\n\ndef _row")),
    "a tool left out": ("missing_tool", CANCEL, lambda r: r.update(
        tools=[one for one in r["tools"] if one["name"] != CANCEL])),
    "no changes": ("other_effect", CANCEL, body(CANCEL, changes=[])),
    "changes of no column": ("unknown_column", CANCEL, body(CANCEL, changes=[
        {"action": "update", "table": "loans", "key": {"arg": "loan_id"},
         "values": {"colour": "red"}}])),
    "a new row without cells": ("other_effect", CANCEL, body(CANCEL, changes=[
        {"action": "insert", "table": "loans", "binds": "new", "values": {"renewals": 0}}])),
    "a write elsewhere": ("undeclared_write", CANCEL, start(CANCEL, f'{FIRST}["email"] = "x"')),
    "a row removed": ("undeclared_write", CANCEL, start(CANCEL, 'world.tables["members"].pop()')),
    "another row than said": ("other_effect", CANCEL, start(
        CANCEL, 'world.tables["loans"][0]["renewals"] += 1')),
    "a cell too many in the result": ("undeclared_column", CANCEL, body(
        CANCEL, END, 'return {"email": "x"} | {name: row[name] for name in')),
    "a result that is not so": ("untrue_record", LOANS, start(
        LOANS, 'return [{"loan_id": row["loan_id"], "member_id": member_id} '
               'for row in world.tables["loans"]]')),
    "somebody else's rows": ("other_record", LOANS, start(
        LOANS, 'return [{name: row[name] for name in ("loan_id", "member_id")} '
               'for row in world.tables["loans"]]')),
    "the first row left out": (
        "missing_record", LOANS, body(LOANS, "return items", "return items[1:]")),
    "days that change nothing": ("idle_argument", EXTEND, lambda r: outline(r, EXTEND)[
        "changes"][0]["values"].update(due_date="2026-01-01")),
    "a constant": ("other_record", FIND, start(
        FIND, f'return {{name: {FIRST}[name] for name in ("member_id", "email")}}')),
    "a record of nobody": ("constant", FIND, start(FIND, 'return {"plan": "plus"}')),
    "a crash": ("unexpected_failure", CANCEL, start(CANCEL, "world.tables['loans'][loan_id]")),
    "no refusal at all": ("never_succeeds", CANCEL, start(CANCEL, 'raise ValueError("not now")')),
    "a refusal in other words": ("undeclared_refusal", CANCEL, start(
        CANCEL, "raise ValueError(str(loan_id))")),
    "an exit": ("unexpected_failure", CANCEL, start(CANCEL, "raise SystemExit(0)")),
    "None": ("undeclared_column", CANCEL, body(
        CANCEL, END, "return None\n    return {name: 0 for name in")),
    "no guard": ("guard_missing", EXTEND, body(
        EXTEND, f"_at_most(days, {DAYS})", "_at_most(days, 600)")),
    "too strict a guard": ("guard_too_strict", EXTEND, body(
        EXTEND, f"_at_most(days, {DAYS})", f"_at_most(days, {DAYS - 1})")),
}  # fmt: skip


@pytest.mark.parametrize("tool", [FIND, LOANS, CANCEL, EXTEND])
def test_bad_tools_go_back_with_their_reasons(tool: str, sandbox: LocalSandbox) -> None:
    """Tools that nothing is said against are not asked for again."""
    chosen = [(reason, edit) for reason, named, edit in BODIES.values() if named == tool]
    every = {"tools": [*RIGHT["tools"].values()]}
    model = Model(tools=planted(every, *(edit for _, edit in chosen)))
    outcomes = written(model, sandbox)
    check(outcomes, f"tools/{tool}", model.prompts["tools"], [reason for reason, _ in chosen])
    assert all(f'in this order: ["{tool}"]' in prompt for prompt in model.prompts["tools"][1:])


def test_a_tool_that_never_ends(sandbox: LocalSandbox) -> None:
    every = {"tools": [*RIGHT["tools"].values()]}
    model = Model(tools=planted(every, start(CANCEL, "while True: pass")))
    outcomes = written(model, sandbox, proofs={"fuzz_calls": 30, "walk_calls": 10})
    assert refused(outcomes, f"tools/{CANCEL}") == [{"unexpected_failure"}]
    assert re.search(
        rf"- unexpected_failure: {CANCEL}.*(no answer|time)", model.prompts["tools"][1]
    )


def rows(edit: Callable[[Any], Any]) -> Plant:
    def plant(reply: Any) -> None:
        made = {name: [dict(row) for row in some] for name, some in small_world().rows.items()}
        made.pop("outcomes")
        reply["code"] = rows_code(made if (other := edit(made)) is None else other)

    return plant


def code(text: str) -> Plant:
    return lambda reply: reply.update(code=text)


ROWS: dict[str, tuple[str, Plant]] = {
    "no Python": ("load_error", code("rows!")),
    "a crash": ("bad_rows", code("def make_rows(clock, seed):\n    return 1 / 0\n")),
    "other parameters": ("bad_rows", code("def make_rows():\n    return {}\n")),
    "another name": ("load_error", code("def rows(clock, seed):\n    return {}\n")),
    "a list": ("bad_rows", code("def make_rows(clock, seed):\n    return []\n")),
    "lists of texts": ("bad_rows", rows(lambda r: r.update(loans=["a"]))),
    "a table made up": ("bad_rows", rows(lambda r: r.update(horses=[]))),
    "rows of nothing": ("rows_out_of_bounds", rows(lambda r: {})),
    "a reference to nobody": (
        "dangling_reference", rows(lambda r: r["loans"][0].update(member_id="MB-0"))),
    "a key twice": ("duplicate_key", rows(lambda r: r["members"].append(r["members"][0]))),
    "an email of two": ("unidentified_party", rows(
        lambda r: r["members"][1].update(email=r["members"][0]["email"]))),
    "a cell of another type": ("bad_cell", rows(lambda r: r["members"][0].update(email=3))),
    "a cell left out": ("bad_row", rows(lambda r: r["members"][0].pop("email") and None)),
    "what always holds does not": ("invariant_broken", rows(lambda r: next(
        c for c in r["copies"] if c["shelf_state"] == "on_shelf").update(shelf_state="on_loan"))),
    "chance without a seed": ("not_repeatable", code(
        "import random\n\n\ndef make_rows(clock, seed):\n    return {'x': random.random()}\n")),
    "nothing to cancel": ("never_succeeds", rows(lambda r: (
        [one.update(loan_state="returned") for one in r["loans"]],
        [one.update(shelf_state="on_shelf") for one in r["copies"]])[2:] or None)),
}  # fmt: skip


def test_bad_rows_go_back_with_their_reasons(sandbox: LocalSandbox) -> None:
    reasons = [reason for reason, _ in ROWS.values()]
    model = Model(rows=planted(RIGHT["rows"], *(edit for _, edit in ROWS.values())))
    outcomes = written(model, sandbox)
    check(outcomes, "rows", model.prompts["rows"], reasons)


def test_a_tool_that_its_outline_stands_in_the_way_of(sandbox: LocalSandbox) -> None:
    """The outline is what is asked for again, with the reason."""
    wrong = deepcopy(RIGHT["schema"])
    outline(wrong, CANCEL)["writes"] = ["loans"]
    cannot = {"name": CANCEL, "impossible": "the copy's state has to change, in table copies"}
    bodies = [cannot if name == CANCEL else one for name, one in RIGHT["tools"].items()]
    model = Model(schema=[wrong], tools=[{"tools": bodies}])
    outcomes = written(model, sandbox)
    assert refused(outcomes, "schema") == [{"impossible"}]
    assert f"- impossible: {CANCEL}: the copy's state" in model.prompts["schema"][1]
    assert f'in this order: ["{CANCEL}"]' in model.prompts["tools"][1]
    assert isinstance(outcomes[-1], World)


def test_one_case_decided_otherwise_refuses_the_rule(sandbox: LocalSandbox) -> None:
    model = Model()
    model.slip = 1
    outcomes = written(model, sandbox, inner_attempts=2)
    assert [one.reason for one in outcomes if isinstance(one, Rejection)] == ["other_reading"] * 4
    assert outcomes[-1].final  # pyright: ignore[reportAttributeAccessIssue]
    assert len(model.prompts["rules"]) == 2
    assert len(model.prompts["schema"]) == len(model.prompts["rows"]) == 1


def test_a_part_that_stays_bad_ends_the_world(sandbox: LocalSandbox) -> None:
    bad = planted(RIGHT["schema"], *(edit for _, edit in list(SCHEMAS.values())[:1])) * 9
    model = Model(schema=bad)
    outcomes = written(model, sandbox, inner_attempts=3)
    assert len(model.prompts["schema"]) == 3
    assert [one.final for one in outcomes if isinstance(one, Rejection)][-1]
    assert not any(isinstance(one, World) for one in outcomes)
    outcomes = written(Model(schema=bad), sandbox, max_asks=2)
    assert [one.reason for one in outcomes if isinstance(one, Rejection) and one.final] == [
        "asks_spent"
    ]


def test_a_reply_that_cannot_be_read_goes_back(sandbox: LocalSandbox) -> None:
    nothing = [{"title": "Nothing"}] * 2
    model = Model(schema=[*nothing])
    outcomes = written(model, sandbox)
    check(outcomes, "schema", model.prompts["schema"][1:], ["parse_error"])


def test_what_a_benchmark_has_is_refused(sandbox: LocalSandbox) -> None:
    shared = WorldFault("contaminated", "tool names of a suite: 0.5")
    outcomes = written(Model(), sandbox, shared, inner_attempts=1)
    assert [one.reason for one in outcomes if isinstance(one, Rejection)] == ["contaminated"]
    assert isinstance(outcomes[-1], Rejection)
    assert outcomes[-1].part == "schema"


def test_the_same_answers_give_the_same_world(
    sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them comes first."""
    monkeypatch.setattr(teaching, "TOOLS_AN_ASK", 1)
    models = [Model(), Model()]
    models[1].late = FIND
    first, second = (written(model, sandbox) for model in models)
    assert first == second
    assert models[0].prompts["rows"] == models[1].prompts["rows"]


def test_the_estimate() -> None:
    """The estimate counts asks for subjects alone."""
    some = WorldsConfig.model_validate(settings())
    none = WorldsConfig.model_validate(settings(subjects=[]))
    assert all(0 < one.asks.about <= one.asks.most == 200 for one in world_asks(some))
    assert not any(one.asks.most for one in world_asks(none))
    assert {one.kind for one in world_asks(some)} == {f"worlds/{step}" for step in STEPS.values()}


def test_rules_write_no_worlds_of_subjects() -> None:
    offline = {"backend": "offline", "model": "v1"}
    with pytest.raises(ParamsError, match="backend openai"):
        validate("worlds", settings(teacher=offline), WorldsConfig)
    taken = {**SUBJECT.model_dump(mode="json"), "name": "tool_rental"}
    with pytest.raises(ParamsError, match="a domain of that name"):
        validate("worlds", settings(subjects=[taken]), WorldsConfig)
    assert WorldsConfig.model_validate(settings()).shape is WorldShape.SMALL
    assert ModelConfig.model_validate(offline).backend == "offline"
