"""Worlds of services: the example is proved and has goals, and what is wrong is refused by name."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from goal_samples import CONFIG
from small_worlds import FEW

from astra.llm.protocol import ModelConfig
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.score import Rejection
from astra.records.state import WriteAction
from astra.records.world import ColumnType, ToolRole, World, WorldGoal, WorldShape
from astra.sandbox.local import LocalSandbox
from astra.settings import ParamsError, validate
from astra.store.metrics import StageMetrics
from astra.worlds.config import WorldsConfig
from astra.worlds.estimate import world_asks
from astra.worlds.goal_plans import world_plans
from astra.worlds.goal_stage import make_goals
from astra.worlds.services.hosting import service_world
from astra.worlds.services.schemas import column_type, flat, record
from astra.worlds.services.source import SERVICES, ServiceRefused, ServiceSource, read_service
from astra.worlds.services.tables import Place, place_of
from astra.worlds.soundness import WorldFault
from astra.worlds.subjects import WorldSubject
from astra.worlds.worlds import Planned, WorldTeachers, worlds

CAFE = ServiceSource(name="repair_cafe", split=Split.TRAIN)
Files = dict[str, Any]
Plant = Callable[[Files], object]
OFFLINE = {"backend": "offline", "model": "v1"}


def cafe() -> Files:
    """The files of the example, to be changed."""
    files = read_service(CAFE)
    folder = SERVICES / CAFE.name
    rules = yaml.safe_load((folder / "rules.yaml").read_text(encoding="utf-8"))
    return deepcopy({"openapi": files.document, "rows": files.rows, "rules": rules})


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Makes the world of files that were changed."""
    files = cafe()

    def host(*plants: Plant) -> World:
        changed = deepcopy(files)
        for plant in plants:
            plant(changed)
        folder = tmp_path / SERVICES / CAFE.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in changed.items():
            (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        return service_world(CAFE, WorldShape.FULL)

    return host


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "seed": 0, "shape": "full", "domains": ["gym_classes"], "variants": {}, "composed": 0,
        "attempts": 1, "teacher": OFFLINE, "judge": OFFLINE, "subjects": [], "services": [],
        "inner_attempts": 4, "max_asks": 80, "agreement_cases": 12, "proofs": FEW.model_dump(),
        "contamination": None, "sandbox": {"cpu_s": 60}, **changes,
    }  # fmt: skip


def made(sandbox: LocalSandbox, *planned: Planned) -> list[World | Rejection]:
    """What stage ``worlds`` makes of services and subjects."""
    config = WorldsConfig.model_validate(settings())
    nobody: Any = None

    async def collected() -> list[World | Rejection]:
        teachers = WorldTeachers(nobody, nobody)
        outcomes = worlds(planned, teachers, sandbox, config, None, 2, StageMetrics("worlds"))
        return [outcome async for outcome in outcomes]

    return asyncio.run(collected())


def operation(files: Files, path: str, method: str) -> Any:
    return files["openapi"]["paths"][path][method]


def body(files: Files, path: str, method: str) -> Any:
    return operation(files, path, method)["requestBody"]["content"]["application/json"]["schema"]


def component(files: Files, name: str) -> Any:
    return files["openapi"]["components"]["schemas"][name]


def rule(files: Files, at: int) -> Any:
    return files["rules"]["rules"][at]


def test_the_example_is_proved_and_its_goals_are_solved_with_their_users(
    sandbox: LocalSandbox,
) -> None:
    """The same files give the same world, and users talk of what they want there."""
    world, again = made(sandbox, CAFE, CAFE)
    assert isinstance(world, World)
    assert world == again
    assert (world.domain, world.split, world.shape) == ("repair_cafe", "train", "service")
    assert world.checks["effects"] > 0
    assert world.checks["foreign_calls"] > 0
    assert len(world.tables) == 4
    assert all(15 <= len(rows) <= 25 for rows in world.rows.values() if rows)
    assert all(rule.text in world.policy for rule in world.rules)
    roles = {tool.tool.name: tool.role for tool in world.tools}
    assert roles["find_guest"] is ToolRole.FIND
    assert roles["listRepairs"] is ToolRole.LIST
    assert roles["searchSessions"] is ToolRole.SEARCH
    assert roles["cancelRepair"] is ToolRole.CANCEL
    config = CONFIG.model_copy(update={"instances": {Split.TRAIN: 16}})
    (plan,) = world_plans([world], config)
    outcomes = make_goals(plan, sandbox, config).outcomes
    goals = [WorldGoal.model_validate_json(one.goal) for one in outcomes if isinstance(one, Arena)]
    assert len(goals) == 16
    assert {goal.outcome.kind for goal in goals} >= {"done", "declined"}
    assert all(goal.script is not None for goal in goals)
    assert Counter(goal.needs_user for goal in goals)[True] > 0


def test_a_small_shape_has_a_short_policy() -> None:
    small, full = (service_world(CAFE, shape) for shape in (WorldShape.SMALL, WorldShape.FULL))
    assert len(small.policy.split()) < len(full.policy.split()) / 1.5
    assert "## " not in small.policy
    assert small.rows == full.rows


def test_names_types_and_references_come_from_document_and_rows() -> None:
    world = service_world(CAFE, WorldShape.FULL)
    repairs = next(table for table in world.tables if table.name == "repairs")
    columns = {column.name: column for column in repairs.columns}
    assert repairs.key == "repair_id"
    assert columns["guest_id"].references == "guests"
    assert columns["state"].values == ("booked", "done", "cancelled")
    assert columns["booked_on"].type is ColumnType.DATE
    move = next(tool for tool in world.tools if tool.tool.name == "moveRepair")
    assert [*move.tool.parameters["properties"]] == ["repair_id", "session_id"]
    search = next(tool for tool in world.tools if tool.tool.name == "searchSessions")
    assert "least_seats_left" in search.tool.parameters["properties"]
    texts = {one.text for one in world.invariants}
    assert {"seats_left is at least 0", "minutes is at most 120"} <= texts


DOCUMENTS: dict[str, tuple[str, str, Plant]] = {
    "no OpenAPI document": ("no_openapi", "`openapi`", lambda f: f["openapi"].pop("openapi")),
    "no operation": ("no_operations", "`paths`", lambda f: f["openapi"].update(paths={})),
    "a table that nothing shows": (
        "no_schema", "GET /chairs", lambda f: f["rows"].update(chairs=[{"id": "CH-1001"}])),
    "no key": (
        "no_key", "guest_id", lambda f: component(f, "Guest")["properties"].pop("id")),
    "a key that is a number": (
        "no_text_key", "guest-1001", lambda f: component(f, "Guest")["properties"]["id"].update(
            type="integer")),
    "a cell without a type": (
        "no_type", "`phone`", lambda f: component(f, "Guest")["properties"].update(phone={})),
    "a body that is a list": (
        "no_object", "POST /repairs (bookRepair)", lambda f: (
            operation(f, "/repairs", "post").update(
                requestBody={"content": {"application/json": {"schema": {"type": "array"}}}}))),
    "a field that is an object": (
        "nested_field", "POST /repairs (bookRepair)", lambda f: (
            body(f, "/repairs", "post")["properties"].update(item={"type": "object"}))),
    "a field that is no cell": (
        "unknown_column", "POST /repairs (bookRepair)", lambda f: (
            body(f, "/repairs", "post")["properties"].update(colour={"type": "string"}))),
    "a cell that nothing sets": (
        "unset_cell", "operations: {bookRepair", lambda f: (
            component(f, "Repair")["properties"]["state"].pop("default"))),
    "a cell that may be left out": (
        "unset_cell", "may leave it out", lambda f: (
            body(f, "/repairs", "post")["required"].remove("item"))),
    "a filter that is no column": (
        "unknown_filter", "GET /sessions (searchSessions): `limit`", lambda f: (
            operation(f, "/sessions", "get")["parameters"].append(
                {"name": "limit", "in": "query", "schema": {"type": "integer"}}))),
    "a write with a query": (
        "idle_argument", "DELETE /repairs/{repairId} (cancelRepair): `force`", lambda f: (
            operation(f, "/repairs/{repairId}", "delete").update(
                parameters=[{"name": "force", "in": "query", "schema": {"type": "boolean"}}]))),
    "a path of no table": (
        "unknown_table", "GET /opening (opening)", lambda f: f["openapi"]["paths"].update(
            {"/opening": {"get": {"operationId": "opening", "responses": {}}}})),
    "a verb without a row": (
        "no_row_named", "POST /repairs/purge (purge)", lambda f: f["openapi"]["paths"].update(
            {"/repairs/purge": {"post": {"operationId": "purge", "responses": {}}}})),
    "a verb that changes nothing": (
        "nothing_changed", "operations: {close", lambda f: f["openapi"]["paths"].update(
            {"/repairs/{repairId}/close": {"post": {"operationId": "close", "parameters": [
                {"name": "repairId", "in": "path", "required": True, "schema": {"type": "string"}}
            ], "responses": {}}}})),
    "two operations of one name": (
        "duplicate_tool", "getRepair", lambda f: (
            operation(f, "/guests/{guestId}", "patch").update(operationId="getRepair"))),
}  # fmt: skip
ROWS_AND_RULES: dict[str, tuple[str, str, Plant]] = {
    "a table without rows": ("no_rows", "repairs: a list", lambda f: f["rows"].update(repairs=[])),
    "rows that are no objects": (
        "no_rows", "repairs: each row", lambda f: f["rows"].update(repairs=["RE-1"])),
    "a row without its key": (
        "no_text_key", "row 2", lambda f: f["rows"]["guests"][1].pop("id")),
    "an argument that is no name": (
        "bad_rules", "`arg`", lambda f: rule(f, 3).update(require={"le": [{"arg": [1]}, 60]})),
    "a cell that no schema knows": (
        "unknown_cell", "row 3 has ['note']", lambda f: f["rows"]["guests"][2].update(note="x")),
    "no party": ("unknown_party", "'people'", lambda f: f["rules"]["party"].update(table="people")),
    "found by nothing": (
        "unknown_party", "['nick']", lambda f: f["rules"]["party"].update(found_by=[["nick"]])),
    "two first columns": (
        "bad_rules", "found_by", lambda f: f["rules"]["party"].update(
            found_by=[["name", "postcode"], ["email"]])),
    "a clock that is none": ("bad_rules", "clock", lambda f: f["rules"].update(clock="noon")),
    "an unknown key": ("bad_rules", "colour", lambda f: f["rules"].update(colour="red")),
    "an operation that is not there": (
        "unknown_operation", "['bookChair']", lambda f: (
            f["rules"]["operations"].update(bookChair={}))),
    "a cell set that is none": (
        "unknown_column", "['booked_at'] of repairs", lambda f: (
            f["rules"]["operations"]["bookRepair"]["sets"].update(booked_at="x"))),
    "a need that is no expression": (
        "bad_expression", "cancelRepair", lambda f: (
            f["rules"]["operations"]["cancelRepair"]["needs"][0].update(that={"is": [1, 2]}))),
    "a rule that is no condition": (
        "bad_expression", "rule cancel_window", lambda f: rule(f, 1).update(require={"arg": "x"})),
}  # fmt: skip
PROOFS: dict[str, tuple[str, str, Plant]] = {
    "a guest that is not there": (
        "dangling_reference", "GU-9999", lambda f: (
            f["rows"]["repairs"][0].update(guestId="GU-9999"))),
    "a state that is none": (
        "bad_cell", "repairs.state", lambda f: f["rows"]["repairs"][0].update(state="lost")),
    "two rows with a key": (
        "duplicate_key", "sessions", lambda f: (
            f["rows"]["sessions"].append(f["rows"]["sessions"][0]))),
    "seats that do not add up": (
        "invariant_broken", "the seats", lambda f: f["rows"]["sessions"][0].update(seats_left=1)),
    "a rule about another tool": (
        "unknown_tool", "bookChair", lambda f: rule(f, 1).update(tools=["bookChair"])),
    "two rules of one reason": (
        "shared_reason", "too_late", lambda f: rule(f, 2).update(reason="too_late")),
    "a rule that nothing breaks": (
        "rule_never_breaks", "repair_length", lambda f: rule(f, 3).update(
            require={"le": [{"arg": "minutes"}, 200]})),
    "seats that are not given back": (
        "invariant_broken", "cancelRepair", lambda f: (
            f["rules"]["operations"]["cancelRepair"].pop("also"))),
}  # fmt: skip


@pytest.mark.parametrize("name", [*DOCUMENTS, *ROWS_AND_RULES])
def test_what_cannot_be_hosted_is_refused_by_name(name: str, hosted: Callable[..., World]) -> None:
    reason, told, plant = {**DOCUMENTS, **ROWS_AND_RULES}[name]
    with pytest.raises(ServiceRefused) as refused:
        hosted(plant)
    assert [one for one in refused.value.faults if one.reason == reason and told in one.detail], (
        refused.value.faults
    )


@pytest.mark.parametrize("name", PROOFS)
def test_what_does_not_hold_is_refused_by_its_proof(
    name: str,
    hosted: Callable[..., World],
    prove: Callable[[World], WorldFault | None],
) -> None:
    reason, told, plant = PROOFS[name]
    fault = prove(hosted(plant))
    assert fault is not None
    assert fault.reason == reason, fault
    assert told in fault.detail


def test_rows_go_optional_fields_stay_and_owners_stand_in_paths(
    hosted: Callable[..., World], prove: Callable[[World], WorldFault | None]
) -> None:
    """A DELETE without a state, a PATCH whose fields may be left out, a POST below its owner."""

    def changed(files: Files) -> None:
        rules, paths = files["rules"]["operations"], files["openapi"]["paths"]
        rules["cancelRepair"].pop("sets")
        phone = body(files, "/guests/{guestId}", "patch")
        phone["properties"]["email"] = {"type": "string"}
        phone["required"] = []
        post = paths["/repairs"].pop("post")
        schema = post["requestBody"]["content"]["application/json"]["schema"]
        schema["properties"].pop("guestId")
        schema["required"].remove("guestId")
        paths["/guests/{guestId}/repairs"]["post"] = post

    world = hosted(changed)
    tools = {tool.tool.name: tool for tool in world.tools}
    assert [one.action for one in tools["cancelRepair"].changes][-1] is WriteAction.DELETE
    assert tools["changeGuest"].tool.parameters["required"] == ["guest_id"]
    assert tools["bookRepair"].changes[0].values["guest_id"] == {"arg": "guest_id"}
    assert "nothing to change is given" in tools["changeGuest"].code
    assert prove(world) is None


def test_a_call_about_rows_of_two_parties_is_refused(
    hosted: Callable[..., World], prove: Callable[[World], WorldFault | None]
) -> None:
    """A repair that names the one that it follows, which has to be of the same guest."""

    def follows(files: Files) -> None:
        component(files, "Repair")["properties"]["first_repair_id"] = {
            "type": "string", "nullable": True,
        }  # fmt: skip
        fields = body(files, "/repairs", "post")
        fields["properties"]["first_repair_id"] = {"type": "string"}
        fields["required"].append("first_repair_id")

    world = hosted(follows)
    book = next(tool for tool in world.tools if tool.tool.name == "bookRepair")
    assert "that belongs to somebody else" in book.code
    assert prove(world) is None


def test_a_folder_that_is_not_there_is_refused(sandbox: LocalSandbox) -> None:
    (outcome,) = made(sandbox, ServiceSource(name="boat_club", split=Split.TRAIN))
    assert isinstance(outcome, Rejection)
    assert outcome.final
    assert outcome.reason == "unreadable"
    assert "boat_club/openapi.yaml" in outcome.detail


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if not isinstance(node, dict | list):
        return
    for name, inner in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*path, name)
        yield from _places(inner, (*path, name))


def test_odd_files_are_refused_and_never_crash(hosted: Callable[..., World]) -> None:
    """One node after the other is something else."""
    rng = random.Random(5)
    ends: Counter[bool] = Counter()
    for _ in range(120):
        odd = rng.choice([None, 0, True, "", "a {b}", [], [[]], {}, {"a": 1}, {"$ref": "#/x"}])
        kind = rng.choice(["openapi", "openapi", "rows", "rules"])
        place = rng.random()

        def spoil(files: Files, kind: str = kind, place: float = place, odd: Any = odd) -> None:
            places = [*_places(files[kind])]
            *path, last = places[int(place * len(places))]
            node = files[kind]
            for name in path:
                node = node[name]
            node[last] = odd

        try:
            hosted(spoil)
            ends[True] += 1
        except ServiceRefused:
            ends[False] += 1
    assert ends[False] > 20


def test_every_fault_of_the_operations_is_told_at_once(hosted: Callable[..., World]) -> None:
    plants = [DOCUMENTS[name][2] for name in ("a body that is a list", "a path of no table")]
    with pytest.raises(ServiceRefused) as refused:
        hosted(*plants)
    assert {one.reason for one in refused.value.faults} == {"no_object", "unknown_table"}


def test_parameters_refuse_what_no_service_can_be() -> None:
    for bad, told in (
        ({"services": [{"name": "gym_classes", "split": "train"}]}, "a domain of that name"),
        ({"services": [{"name": "../x", "split": "train"}]}, "pattern"),
        ({"shape": "service"}, "full or small"),
    ):
        with pytest.raises(ParamsError, match=told):
            validate("worlds", settings(**bad), WorldsConfig)


def test_a_teacher_reads_the_document_of_its_subject(sandbox: LocalSandbox) -> None:
    """The estimate counts it; one that is not there is refused before anything is asked."""
    about = {"name": "mending", "about": "Guests bring broken things to be mended.",
             "split": "train"}  # fmt: skip
    model = {"backend": "openai", "model": "m"}
    plain, read = (
        world_asks(WorldsConfig.model_validate(
            settings(teacher=model, judge=model, subjects=[{**about, **more}])))
        for more in ({}, {"openapi": "repair_cafe/openapi.yaml"})
    )  # fmt: skip
    assert read[0].prompt_tokens > plain[0].prompt_tokens + 500
    assert read[1].prompt_tokens == plain[1].prompt_tokens
    (outcome,) = made(sandbox, WorldSubject.model_validate({**about, "openapi": "none.yaml"}))
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "unreadable"
    with pytest.raises(ValueError, match="below sources/services"):
        WorldSubject.model_validate({**about, "openapi": "../openapi.yaml"})
    assert ModelConfig.model_validate(model).backend == "openai"


def test_schemas_of_several_parts_are_one() -> None:
    first = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    extended = {"allOf": [first, {"properties": {"b": {"type": "integer"}}}]}
    assert set(flat(extended)["properties"]) == {"a", "b"}
    assert flat(extended)["required"] == ["a"]
    assert flat({"type": ["string", "null"]}) == {"type": "string", "nullable": True}
    either = flat({"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "x"})
    assert either == {"type": "integer", "description": "x", "nullable": True}
    assert column_type({"oneOf": [{"type": "string"}, {"type": "integer"}]}) is None
    page = {"type": "object", "properties": {"items": {"type": "array", "items": extended}}}
    assert set(record(page)["properties"]) == {"a", "b"}


def test_paths_say_what_they_are_about() -> None:
    tables = ("guests", "repair_jobs")
    assert place_of("/v1/guests/{id}/repairJobs", tables) == Place(
        "repair_jobs", "", ("guests", "id")
    )
    assert place_of("/repair-jobs/{id}/close", tables) == Place(
        "repair_jobs", "id", None, ("close",)
    )
    assert place_of("/status", tables) == Place("")
