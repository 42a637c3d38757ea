"""Write tasks end to end: tools made, proved, merged; arenas whose checker was attacked first."""

from __future__ import annotations

import json
from typing import Any

import pytest
from env_runs import everything, merged
from env_samples import ENVS, answer
from write_samples import (
    BOOKINGS,
    CANCEL,
    COUNT,
    EVERY_WRITE,
    GUESTS,
    NEW,
    RESERVE,
    ROOMS,
    house,
    step,
)

from astra.arena.env import ArenaEnv
from astra.arena.reward import FinalAnswer, RewardMode, score_episode
from astra.arena.scripted import PlayedScript, ScriptedPolicy, play, reference_calls, script
from astra.arena.state import apply_writes, parse_state, same_state
from astra.envsynth.candidates import candidate_of
from astra.envsynth.selfcheck import check_arenas, state_mutants
from astra.envsynth.verify import verify
from astra.envsynth.worlds import key_of
from astra.llm.offline import OfflineTeacher
from astra.records.base import canonical_json
from astra.records.environment import Arena, Environment
from astra.records.message import CallStatus, ToolCall
from astra.records.qa import Bar, QAInstance, QuestionKind, SubQuestion, Table
from astra.records.score import Rejection
from astra.records.state import FieldClass, Tables, Write, WriteAction
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

WHOLE = house(*EVERY_WRITE)
STATUS = step(6, "lookup", "booking.status", "bookings", {"guest": "Lena Orr"},
              answer("string", "cancelled"), select="status", dependencies=(3,), hop=2)  # fmt: skip


@pytest.fixture(scope="module")
def sandbox(patient_sandbox: Sandbox) -> Sandbox:
    return patient_sandbox


def made_of(
    instance: QAInstance, teacher: Any, sandbox: Sandbox
) -> tuple[list[Environment], list[Rejection]]:
    outcomes = everything([instance], teacher, sandbox)
    return (
        [item for item in outcomes if isinstance(item, Environment)],
        [item for item in outcomes if isinstance(item, Rejection)],
    )


def arena_of(instance: QAInstance, teacher: Any, sandbox: Sandbox) -> Arena:
    made, dropped = made_of(instance, teacher, sandbox)
    assert dropped == []
    found = merged([instance], made, teacher, sandbox)
    assert found.dropped == []
    return found.arenas[0]


@pytest.fixture(scope="module")
def arena(sandbox: Sandbox) -> Arena:
    from astra.envsynth.offline.handlers import HANDLERS

    return arena_of(WHOLE, OfflineTeacher(ENVS.teacher, HANDLERS), sandbox)


def test_every_kind_of_write_becomes_a_proved_tool(
    teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    made, dropped = made_of(WHOLE, teacher, sandbox)
    assert dropped == []
    assert {item.sub_question_id: item.tool.name for item in made} == {
        1: "get_price", 2: "reserve_room", 3: "cancel_booking", 4: "remove_guest",
        5: "count_bookings",
    }  # fmt: skip
    for item in made:
        assert "def " + item.tool.name + "(world, " in item.code
        assert item.checks["worlds"] >= 2
        assert item.checks["perturbed_calls"] >= 3


def test_an_arena_states_its_world_and_who_may_write_what(arena: Arena) -> None:
    state = parse_state(arena.state)
    assert state.writes == {
        "get_price": (), "reserve_room": ("bookings",), "cancel_booking": ("bookings",),
        "remove_guest": ("guests",), "count_bookings": (),
    }  # fmt: skip
    assert state.world.ids.keys() == {"bookings"}
    assert state.world.clock.endswith("T09:00:00")


def run(arena: Arena, sandbox: Sandbox, *calls: ToolCall) -> PlayedScript:
    played = play([(arena, calls)], sandbox)[0]
    assert isinstance(played, PlayedScript)
    return played


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="c", name=name, arguments=canonical_json(arguments))


def test_a_call_changes_what_a_later_one_sees_and_ids_and_times_are_seeded(
    arena: Arena, sandbox: Sandbox
) -> None:
    count, reserve = call("count_bookings", room="Amber Cove"), call("reserve_room", **NEW)
    runs = [run(arena, sandbox, count, reserve, count) for _ in range(2)]
    assert [done.result.value for done in runs[0].calls] == [1, True, 2]
    assert runs[0].end_state == runs[1].end_state
    assert runs[0].end_state is not None
    new = runs[0].end_state["bookings"][-1]
    state = parse_state(arena.state)
    assert new["booking"] == f"bookings-{state.world.ids['bookings'] + 1}"
    assert new["made"] == state.world.clock


def test_each_episode_starts_from_the_snapshot(arena: Arena, sandbox: Sandbox) -> None:
    reserve = call("reserve_room", **NEW)
    counted = play([(arena, [reserve, call("count_bookings", room="Amber Cove")])] * 3, sandbox)
    assert [one.calls[1].result.value for one in counted if isinstance(one, PlayedScript)] == [
        2,
        2,
        2,
    ]
    assert len(parse_state(arena.state).world.tables["bookings"]) == 3


def test_a_call_that_fails_changes_nothing(arena: Arena, sandbox: Sandbox) -> None:
    done = run(arena, sandbox, call("reserve_room", **{**NEW, "room": "Nowhere"}))
    assert done.calls[0].result.status == CallStatus.ERROR
    assert done.calls[0].result.content == "error: no room named Nowhere"
    assert done.end_state == parse_state(arena.state).world.tables


def test_an_undeclared_write_is_refused_and_undone(arena: Arena, sandbox: Sandbox) -> None:
    greedy = arena.tools[0].model_copy(
        update={"code": "def get_price(world, room):\n    world.tables['guests'].clear()\n"
                        "    return 120\n"}
    )  # fmt: skip
    assert greedy.tool.name == "get_price"
    spoilt = arena.model_copy(update={"tools": (greedy, *arena.tools[1:])})
    done = run(spoilt, sandbox, call("get_price", room="Amber Cove"))
    assert done.calls[0].result.status == CallStatus.ERROR
    assert "must not change table guests" in done.calls[0].result.content
    assert done.end_state == parse_state(arena.state).world.tables


def test_a_dead_session_takes_no_state_with_it(arena: Arena, sandbox: Sandbox) -> None:
    broken = arena.tools[0].model_copy(
        update={"code": "def get_price(world, room):\n    raise SystemExit(1)\n"}
    )
    spoilt = arena.model_copy(update={"tools": (broken, *arena.tools[1:])})
    calls = (
        call("reserve_room", **NEW), call("get_price", room="Amber Cove"),
        call("count_bookings", room="Amber Cove"),
    )  # fmt: skip
    for played in (run(spoilt, sandbox, *calls), _one_by_one(spoilt, sandbox, calls)):
        assert [one.result.status for one in played.calls] == ["ok", "error", "ok"]
        assert played.calls[2].result.value == 2


def _one_by_one(arena: Arena, sandbox: Sandbox, calls: tuple[ToolCall, ...]) -> PlayedScript:
    env = ArenaEnv(arena, sandbox)
    from astra.records.message import ExecutedCall

    done = tuple(ExecutedCall(turn=0, call=one, result=env.execute_now(one)) for one in calls)
    env.close_now()
    return PlayedScript(done, env.tables)


def test_the_end_state_decides_the_reward(arena: Arena, sandbox: Sandbox) -> None:
    gold = reference_calls(arena)
    final = "<answer>2</answer>"

    def score(calls: list[ToolCall], **options: Any) -> Any:
        played = run(arena, sandbox, *calls)
        return score_episode(arena, played.calls, final, end_state=played.end_state, **options)

    full = score(gold)
    assert (full.subtasks, full.solved, full.state_reached, full.success) == (6, 6, True, True)
    dropped = score(gold[:2] + gold[3:])
    # one write is missing: no write counts, nor does the answer; both reads do
    assert (dropped.solved, dropped.state_reached, dropped.answer_correct) == (2, False, True)
    assert not dropped.success
    extra = score([*gold, call("reserve_room", **{**NEW, "nights": 9})])
    assert (extra.state_reached, extra.success) == (False, False)
    assert extra.reward < full.reward
    assert score(gold, mode=RewardMode.STATE).reward == pytest.approx(0.95)
    assert score(gold[1:], mode=RewardMode.STATE).reward == 0.0  # a read has no evidence
    assert score(gold[2:], mode=RewardMode.ANSWER, final_answer=FinalAnswer.IGNORE).reward == 0.0
    with pytest.raises(ValueError, match="end state"):
        score_episode(arena, (), final)


def test_scripted_policies_are_ordered_on_a_write_arena(arena: Arena, sandbox: Sandbox) -> None:
    rewards: dict[str, float] = {}
    for policy in ScriptedPolicy:
        calls, final = script(policy, arena)
        played = run(arena, sandbox, *calls)
        rewards[policy] = score_episode(
            arena, played.calls, final, end_state=played.end_state
        ).reward
    assert rewards["gold"] == pytest.approx(1.0, abs=1e-6)
    assert rewards["silent"] == rewards["empty"] == 0.0
    assert max(rewards["repeat"], rewards["guess"]) < rewards["gold"]


def test_the_checker_of_an_arena_refuses_every_mutant(arena: Arena, sandbox: Sandbox) -> None:
    state, expected = parse_state(arena.state), parse_state(arena.state).world.tables
    reasons = [reason for reason, _ in state_mutants(state, expected)]
    assert set(reasons) == {
        "wiped_state_passes", "corrupted_value_passes", "missing_row_passes", "extra_write_passes",
    }  # fmt: skip
    for _, mutant in state_mutants(state, expected):
        assert not same_state(expected, mutant, state.fields)
    assert check_arenas([arena], sandbox) == [None]


def blind(arena: Arena, *columns: str) -> Arena:
    """The arena with a checker that ignores columns of the bookings."""
    state = parse_state(arena.state)
    fields = {"bookings": dict.fromkeys((*columns, "booking", "made"), FieldClass.IGNORE)}
    changed = state.model_copy(update={"fields": fields})
    return arena.model_copy(update={"state": canonical_json(changed.model_dump(mode="json"))})


def test_an_arena_whose_checker_can_be_fooled_does_not_ship(
    arena: Arena, teacher: OfflineTeacher, sandbox: Sandbox
) -> None:
    only_cancel = arena_of(house(CANCEL), teacher, sandbox)
    # What the cancelled booking says is read back: a dropped write is found out by that read.
    read_back = arena_of(house(CANCEL, STATUS), teacher, sandbox)
    tables = parse_state(only_cancel.state).world.tables
    last = arena.steps[4]
    early = arena.model_copy(
        update={"steps": (*arena.steps[:4], last.model_copy(update={"hop_level": 1}))}
    )
    bad = {
        "no_call_passes": blind(only_cancel, "status"),
        "dropped_write_passes": blind(arena, "status"),
        "untouched_state_passes": blind(read_back, "status"),
        "order_matters": early,
        "reference_fails": arena.model_copy(update={"expected_state": canonical_json(tables)}),
    }
    found = check_arenas(list(bad.values()), sandbox)
    assert [problem and problem[0] for problem in found] == list(bad)
    assert check_arenas([only_cancel, read_back], sandbox) == [None, None]


def test_a_scorer_that_needs_no_answer_is_found(
    arena: Arena, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lenient(arena: Arena, calls: Any, final: str | None, *rest: Any, **options: Any) -> Any:
        return score_episode(arena, calls, final or "<answer>2</answer>", *rest, **options)

    monkeypatch.setattr("astra.envsynth.selfcheck.score_episode", lenient)
    problem = check_arenas([arena], sandbox)[0]
    assert problem is not None
    assert problem[0] == "missing_answer_passes"


def _plain(tables: Tables, *left_out: str) -> list[str]:
    """Rows as text, without the columns named."""
    skipped = {"booking", "made", *left_out}
    return sorted(
        canonical_json([name, {key: cell for key, cell in row.items() if key not in skipped}])
        for name, rows in tables.items()
        for row in rows
    )


def _sizes(tables: Tables) -> dict[str, int]:
    return {name: len(rows) for name, rows in tables.items()}


AMBER = '["rooms",{"floor":11,"price":120,"room":"Amber Cove"}]'


@pytest.mark.parametrize(
    ("checker", "reason"),
    [
        (lambda expected, end: True, "dropped_write_passes"),
        (lambda expected, end: _sizes(end) == _sizes(expected), "dropped_write_passes"),
        (lambda expected, end: set(_plain(end)) >= set(_plain(expected)), "dropped_write_passes"),
        (lambda expected, end: set(_plain(end)) <= set(_plain(expected)), "wiped_state_passes"),
        (lambda expected, end: _plain(end, "price") == _plain(expected, "price"),
         "corrupted_value_passes"),
        (lambda expected, end: set(_plain(end)) == set(_plain(expected)), "extra_write_passes"),
        (lambda expected, end: [row for row in _plain(end) if row != AMBER]
         == [row for row in _plain(expected) if row != AMBER], "missing_row_passes"),
    ],
)  # fmt: skip
def test_a_faulty_checker_is_found_by_its_mutants(
    arena: Arena, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, checker: Any, reason: str
) -> None:
    monkeypatch.setattr("astra.arena.reward.same_state", lambda one, other, _: checker(one, other))
    problem = check_arenas([arena], sandbox)[0]
    assert problem is not None
    assert problem[0] == reason


def test_the_same_change_by_another_order_or_spelling_is_the_same_state() -> None:
    fields = {"notes": {"id": FieldClass.IGNORE, "text": FieldClass.TEXT}}
    one = {
        "notes": [{"id": "n-1", "text": "Call Nora", "n": 1}, {"id": "n-2", "text": "b", "n": 2}]
    }
    other = {
        "notes": [{"id": "n-8", "text": "b", "n": 2.0}, {"id": "n-9", "text": "call  nora", "n": 1}]
    }
    assert same_state(one, other, fields)
    assert not same_state(one, other, {})
    assert not same_state(one, {"notes": one["notes"][:1]}, fields)
    assert not same_state(one, {"notes": [one["notes"][0], one["notes"][0]]}, fields)
    true = {"notes": [{"id": 1, "text": "b", "n": True}]}
    assert not same_state(true, {"notes": [{"id": 1, "text": "b", "n": 1}]}, fields)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (Write(action=WriteAction.DELETE, table="guests", where={"guest": "Nobody"}),
         "impossible_write"),
        (Write(action=WriteAction.DELETE, table="guests"), "impossible_write"),
        (Write(action=WriteAction.INSERT, table="guests", values={"guest": "x"}),
         "impossible_write"),
        (Write(action=WriteAction.INSERT, table="pets", values={}), "impossible_write"),
        (Write(action=WriteAction.INSERT, table="guests",
               values={"guest": "Lena Orr", "city": "Rome"}), "impossible_write"),
        (Write(action=WriteAction.UPDATE, table="rooms", where={"room": "Jade Mill"},
               values={"colour": "red"}), "impossible_write"),
        (Write(action=WriteAction.UPDATE, table="rooms", where={"room": "Jade Mill"},
               values={"price": 95}), "idle_write"),
        (Write(action=WriteAction.UPDATE, table="bookings", where={"room": "Jade Mill"},
               values={"made": "2024-01-01"}), "impossible_write"),
    ],
)  # fmt: skip
def test_writes_that_cannot_happen_or_change_nothing_are_dropped(
    teacher: OfflineTeacher, sandbox: Sandbox, write: Write, reason: str
) -> None:
    asked = RESERVE.model_copy(update={"writes": (write,)})
    made, dropped = made_of(house(asked), teacher, sandbox)
    assert made == []
    assert [one.reason for one in dropped] == [reason]


def test_two_reservations_share_one_tool(teacher: OfflineTeacher, sandbox: Sandbox) -> None:
    other = {"room": "Ruby Lake", "guest": "Hugo Penn", "nights": 1}
    second = RESERVE.model_copy(
        update={
            "id": 6, "question": "Ruby Lake for Hugo Penn?",
            "operation": RESERVE.operation
            and RESERVE.operation.model_copy(update={"arguments": other}),
            "writes": (
                RESERVE.writes[0].model_copy(update={"values": {**other, "status": "active"}}),
            ),
        }
    )  # fmt: skip
    merged = arena_of(house(RESERVE, second), teacher, sandbox)
    assert [tool.tool.name for tool in merged.tools] == ["reserve_room"]
    assert len(merged.steps) == 2


KEYED = Table(
    name="stays", columns=("room", "guest"),
    rows=(("Jade Mill", "Lena Orr"), ("Pine Gate", "Hugo Penn"), ("Opal Dale", "Rosa Dahl")),
)  # fmt: skip
LOOK = step(1, "lookup", "room.guest", "stays", {"room": "Jade Mill"},
            answer("string", "Lena Orr"), select="guest")  # fmt: skip


def barred(guest: str, op: str, relation: str, standing: str) -> SubQuestion:
    arguments = {"guest": guest, "room": "Jade Mill"}  # in no order that means anything
    act = step(2, op, relation, "stays", arguments, answer("string", standing), select="guest",
               dependencies=(1,), hop=2)  # fmt: skip
    return act.model_copy(update={"bar": Bar.NO_CALL, "tool_necessity": False})


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (QuestionKind.INFEASIBLE,
         barred("Nora Holt", "insert", "room.reserve_room", "Lena Orr")),
        (QuestionKind.ALREADY_SATISFIED,
         barred("Lena Orr", "update", "room.set_guest", "Lena Orr")),
        (QuestionKind.MISSING_PARAMETER,
         barred("Nora Holt", "update", "room.set_guest", "Nora Holt")),
    ],
)  # fmt: skip
def test_a_tool_that_must_not_be_called_is_offered_and_works(
    teacher: OfflineTeacher, sandbox: Sandbox, kind: QuestionKind, act: SubQuestion
) -> None:
    whole = house(LOOK, act, kind=kind, knowledge=(KEYED, ROOMS, GUESTS),
                  final=answer("string", "not possible"))  # fmt: skip
    arena = arena_of(whole, teacher, sandbox)
    name = act.operation.relation.split(".")[1] if act.operation else ""
    assert [tool.tool.name for tool in arena.tools] == ["get_guest", name]
    assert [one.tool_name for one in arena.steps] == ["get_guest", None]
    world = parse_state(arena.state).world
    assert json.loads(arena.expected_state) == world.tables
    assert list(world.tables["rooms"][0]) == list(ROOMS.columns), "the code was proven on these"
    final = "<answer>not possible</answer>"
    gold = run(arena, sandbox, *reference_calls(arena))
    score = score_episode(arena, gold.calls, final, end_state=gold.end_state)
    assert (score.subtasks, score.success, score.state_reached) == (2, True, True)
    free = call(name, room="Ruby Lake", guest="Nora Holt")
    if kind != QuestionKind.INFEASIBLE:
        free = call(name, room="Jade Mill", guest="Nora Holt")
    acted = run(arena, sandbox, *reference_calls(arena), free)
    assert acted.calls[-1].result.status == CallStatus.OK
    wrong = score_episode(arena, acted.calls, final, end_state=acted.end_state)
    assert (wrong.solved, wrong.success, wrong.state_reached) == (1, False, False)
    if kind != QuestionKind.MISSING_PARAMETER and act.operation is not None:
        refused = run(arena, sandbox, call(name, **act.operation.arguments))
        assert refused.calls[0].result.status == CallStatus.ERROR


def test_a_tool_that_does_what_it_must_refuse_is_found(sandbox: Sandbox) -> None:
    act = barred("Nora Holt", "insert", "room.reserve_room", "Lena Orr")
    whole = house(LOOK, act, kind=QuestionKind.INFEASIBLE, knowledge=(KEYED, ROOMS, GUESTS))
    document = COUNT_TOOL.model_copy(
        update={
            "name": "reserve_room",
            "parameters": {"type": "object", "required": ["room", "guest"], "properties": {
                "room": {"type": "string"}, "guest": {"type": "string"}}},
        }
    )  # fmt: skip
    code = (
        "def reserve_room(world, room, guest):\n"
        "    world.tables['stays'].append({'room': room, 'guest': guest})\n    return guest\n"
    )
    assert found(sandbox, whole, document, code, act) == "not_refused"


STAY = step(2, "insert", "room.reserve_room", "stays", {"room": "Ruby Lake", "guest": "Nora Holt"},
            answer("string", "Nora Holt"),
            Write(action=WriteAction.INSERT, table="stays",
                  values={"room": "Ruby Lake", "guest": "Nora Holt"}), select="guest")  # fmt: skip
STAY_TOOL = Tool(
    name="reserve_room", description="Reserve a room.",
    parameters={"type": "object", "required": ["room", "guest"], "properties": {
        "room": {"type": "string"}, "guest": {"type": "string"}}},
)  # fmt: skip


def staying(taken: str) -> str:
    """A tool that refuses unknown rooms and guests, and where ``taken`` is true of a row ``r``."""
    return (
        "def reserve_room(world, room, guest):\n"
        "    if room not in [r['room'] for r in world.tables['rooms']]:\n"
        "        raise ValueError('no such room')\n"
        "    if guest not in [r['guest'] for r in world.tables['guests']]:\n"
        "        raise ValueError('no such guest')\n"
        f"    if any({taken} for r in world.tables['stays']):\n"
        "        raise ValueError('it is taken')\n"
        "    world.tables['stays'].append({'room': room, 'guest': guest})\n    return guest\n"
    )


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        ("r['room'] == room", None),
        ("False", "duplicate_key"),
        ("(r['room'], r['guest']) == (room, guest)", "duplicate_key"),  # only the very same row
        ("r['room'] == room and {}['taken']", "unclean_error"),
    ],
)
def test_a_row_is_not_added_under_a_key_that_another_has(
    sandbox: Sandbox, taken: str, reason: str | None
) -> None:
    whole = house(STAY, knowledge=(KEYED, ROOMS, GUESTS))
    assert found(sandbox, whole, STAY_TOOL, staying(taken), STAY) == reason


def test_a_table_without_a_key_takes_rows_that_look_alike(sandbox: Sandbox) -> None:
    """Two rows of the table share their first cell, so that it names none of them."""
    twice = KEYED.model_copy(update={"rows": (*KEYED.rows, ("Jade Mill", "Rosa Dahl"))})
    assert (key_of(KEYED), key_of(twice), key_of(BOOKINGS)) == ("room", "", "")
    whole = house(STAY, knowledge=(twice, ROOMS, GUESTS))
    assert found(sandbox, whole, STAY_TOOL, staying("False"), STAY) is None


def test_a_first_row_has_its_own_key_taken_too(sandbox: Sandbox) -> None:
    empty = KEYED.model_copy(update={"rows": ()})
    whole = house(STAY, knowledge=(empty, ROOMS, GUESTS))
    assert found(sandbox, whole, STAY_TOOL, staying("r['room'] == room"), STAY) is None
    assert found(sandbox, whole, STAY_TOOL, staying("False"), STAY) == "duplicate_key"


DOCUMENT = {
    "type": "object", "required": ["room", "guest", "nights"],
    "properties": {"room": {"type": "string"}, "guest": {"type": "string"},
                   "nights": {"type": "integer"}},
}  # fmt: skip
RESERVE_TOOL = Tool(name="reserve_room", description="Reserve a room.", parameters=DOCUMENT)
COUNT_TOOL = Tool(
    name="count_bookings", description="Count the bookings of a room.",
    parameters={"type": "object", "required": ["room"], "properties": {"room": {"type": "string"}}},
)  # fmt: skip
ADD = (
    "{'booking': world.new_id('bookings'), 'room': room, 'guest': guest, 'nights': nights, "
    "'status': 'active', 'made': world.clock}"
)
KNOWN = (
    "if room not in [r['room'] for r in world.tables['rooms']] or "
    "guest not in [g['guest'] for g in world.tables['guests']]: raise ValueError('unknown')"
)


def reserving(*lines: str) -> str:
    return "".join(["def reserve_room(world, room, guest, nights):\n",
                    *(f"    {line}\n" for line in lines), "    return True\n"])  # fmt: skip


APPEND = f"world.tables['bookings'].append({ADD})"
GOOD = reserving(KNOWN, APPEND)
COUNT_BODY = "return sum(r['room'] == room for r in world.tables['bookings'])"
FAULTY_WRITES = {
    "writes_nothing": (reserving(KNOWN), "wrong_effect"),
    "writes_twice": (reserving(KNOWN, APPEND, APPEND), "wrong_effect"),
    "wrong_value": (reserving(KNOWN, APPEND.replace("nights,", "nights + 1,")), "wrong_effect"),
    "also_writes_elsewhere": (
        reserving(KNOWN, APPEND, "world.tables['rooms'][0]['price'] += 1"), "undeclared_write",
    ),
    "drops_a_table": (reserving(KNOWN, APPEND, "del world.tables['guests']"), "undeclared_write"),
    "adds_a_column": (
        reserving(KNOWN, APPEND, "world.tables['bookings'][-1]['x'] = 1"), "undeclared_write",
    ),
    "constant_write": (
        reserving(f"room, guest, nights = {tuple(NEW.values())}", APPEND), "ignores_argument",
    ),
    "ignores_nights": (reserving(KNOWN, "nights = 3", APPEND), "ignores_argument"),
    "own_memory": (
        "SEEN = []\n\n\n" + reserving(KNOWN, "SEEN.append(1)", "nights += len(SEEN) - 1", APPEND),
        "not_repeatable",
    ),
    "reads_the_real_clock": (
        "from datetime import datetime\n\n\n"
        + reserving(KNOWN, APPEND.replace("world.clock", "datetime.now().isoformat()")),
        "clock_or_chance",
    ),
    "makes_random_ids": (
        "import uuid\n\n\n"
        + reserving(KNOWN, APPEND.replace("world.new_id('bookings')", "str(uuid.uuid4())")),
        "clock_or_chance",
    ),
    "trusts_row_order": (
        reserving("if world.tables['rooms'][0]['room'] == 'Onyx Pass': raise ValueError('closed')",
                  KNOWN, APPEND), "row_order",
    ),
    "no_world": (GOOD.replace("world, ", ""), "signature_mismatch"),
    "writes_for_nobody": (
        reserving(KNOWN.replace("['guests']", "['guests'] + [{'guest': guest}]"), APPEND),
        "not_refused",
    ),
    "refuses_rooms_without_bookings": (
        reserving(KNOWN.replace("world.tables['rooms']", "world.tables['bookings']"), APPEND),
        "wrong_effect",
    ),
    "crashes_on_unknown": (
        reserving("{r['room']: r for r in world.tables['rooms']}[room]", APPEND), "unclean_error",
    ),
    "takes_its_entry_over": (
        reserving(KNOWN, APPEND, "world.tables = []"), "undeclared_write",
    ),
}  # fmt: skip
FAULTY_READS = {
    "own_data": ("    return {'Amber Cove': 1, 'Jade Mill': 4}.get(room, 0)\n", "ignores_state"),
    "writes_while_reading": (
        "    world.tables['bookings'][0]['nights'] += 1\n    " + COUNT_BODY + "\n",
        "undeclared_write",
    ),
}


def found(sandbox: Sandbox, instance: QAInstance, tool: Tool, code: str, asked: SubQuestion) -> Any:
    assert asked.operation is not None
    candidate = candidate_of(instance, tool, code, {asked.id: asked.operation.arguments})
    problem = verify([candidate], sandbox, ENVS.sandbox)[0].problem
    return problem and problem[0]


def test_true_stateful_tools_pass(sandbox: Sandbox) -> None:
    early = COUNT.model_copy(update={"answer": answer("number", 1, domain_size=9), "hop_level": 1})
    assert found(sandbox, house(RESERVE), RESERVE_TOOL, GOOD, RESERVE) is None
    code = f"def count_bookings(world, room):\n    {COUNT_BODY}\n"
    assert found(sandbox, house(early, CANCEL), COUNT_TOOL, code, early) is None


READING = "def count_bookings(world, room):\n"
LATER_READS = {
    "true": (READING + f"    {COUNT_BODY}\n", None),
    "also_asks_what_a_later_step_writes": (
        READING + "    return sum(r['room'] == room and r['status'] == 'active' "
        "for r in world.tables['bookings'])\n", "wrong_result",
    ),
    "refuses_what_a_later_step_writes": (
        READING + "    if any(r['status'] == 'cancelled' for r in world.tables['bookings']):\n"
        f"        raise ValueError('closed')\n    {COUNT_BODY}\n", "rows_missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", sorted(LATER_READS))
def test_a_reading_is_true_after_what_later_steps_write(sandbox: Sandbox, fault: str) -> None:
    code, reason = LATER_READS[fault]
    gold = answer("number", 1, domain_size=9)
    step = COUNT.model_copy(update={"id": 1, "answer": gold, "hop_level": 1, "dependencies": ()})
    assert step.operation is not None
    mill = step.operation.model_copy(update={"arguments": {"room": "Jade Mill"}})
    step = step.model_copy(update={"operation": mill})
    assert found(sandbox, house(step, CANCEL), COUNT_TOOL, code, step) == reason


@pytest.mark.parametrize("fault", sorted(FAULTY_WRITES))
def test_a_planted_fault_of_a_write_is_found(sandbox: Sandbox, fault: str) -> None:
    code, reason = FAULTY_WRITES[fault]
    assert found(sandbox, house(RESERVE), RESERVE_TOOL, code, RESERVE) == reason


@pytest.mark.parametrize("fault", sorted(FAULTY_READS))
def test_a_planted_fault_of_a_stateful_read_is_found(sandbox: Sandbox, fault: str) -> None:
    body, reason = FAULTY_READS[fault]
    early = COUNT.model_copy(update={"answer": answer("number", 1), "hop_level": 1})
    code = "def count_bookings(world, room):\n" + body
    assert found(sandbox, house(early, CANCEL), COUNT_TOOL, code, early) == reason


def test_writes_follow_their_definition_and_leave_the_given_tables_alone() -> None:
    columns = {"bookings": BOOKINGS.columns, "rooms": ROOMS.columns, "guests": GUESTS.columns}
    tables = {"guests": [{"guest": "A", "city": "x"}, {"guest": "B", "city": "x"}],
              "bookings": [], "rooms": []}  # fmt: skip
    writes = [
        Write(action=WriteAction.UPDATE, table="guests", where={"city": "x"}, values={"city": "y"}),
        Write(action=WriteAction.DELETE, table="guests", where={"guest": "A"}),
        RESERVE.writes[0],
    ]
    after = apply_writes(tables, writes, columns, {"bookings": BOOKINGS.fields})
    assert after["guests"] == [{"guest": "B", "city": "y"}]
    assert after["bookings"] == [{**NEW, "status": "active", "booking": None, "made": None}]
    assert tables["guests"][0] == {"guest": "A", "city": "x"}
    assert tables["bookings"] == []


def test_a_row_of_another_table_that_a_new_row_names_must_be_there(sandbox: Sandbox) -> None:
    whole = house(STAY, knowledge=(KEYED, ROOMS, GUESTS))
    right = staying("r['room'] == room")
    assert found(sandbox, whole, STAY_TOOL, right, STAY) is None
    anyone = right.replace("guest not in", "not guest in [guest] +")
    assert found(sandbox, whole, STAY_TOOL, anyone, STAY) == "not_refused"
    silent = right.replace("raise ValueError('it is taken')", "return guest")
    assert found(sandbox, whole, STAY_TOOL, silent, STAY) in ("not_refused", "duplicate_key")
