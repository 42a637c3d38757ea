"""Stage envs_merged: groups that merge or stay apart, splits, and arenas that must not ship."""

from __future__ import annotations

from typing import Any

import pytest
from env_runs import Merged, everything, merged
from env_samples import ENVS, EVERY_OP, LISTINGS, answer, asked, instance, price
from merge_samples import Asked, environment, free_pair, price_code

from astra.envsynth import asks
from astra.envsynth.candidates import candidate_of
from astra.envsynth.merge import MergedTool, rename, unique_names
from astra.envsynth.offline.handlers import HANDLERS
from astra.envsynth.offline.tool_code import read_rows
from astra.envsynth.selfcheck import check_arenas
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask
from astra.prompting import render
from astra.qa.knowledge.operations import PAGE_ROWS, evaluate
from astra.records.environment import Arena, Environment
from astra.records.qa import Operation, QAInstance, Split, SubQuestion
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

PAIR = (price(1, "Amber Cove", 812), price(2, "Jade Mill", 455))
BOTH = answer("list", [812, 455])


class Merger:
    """The offline teacher with merge replies of the test's choice."""

    name = "merger"

    def __init__(self, spoil: Any) -> None:
        self._inner = OfflineTeacher(ENVS.teacher, HANDLERS)
        self._spoil = spoil
        self.merges: list[Any] = []

    async def ask(self, ask: Ask[Any]) -> Any:
        reply = await self._inner.ask(ask)
        if ask.template == "envsynth/merge_code":
            self.merges.append(ask.variables)
        return self._spoil(ask, reply)


def arenas_of(
    instances: list[QAInstance],
    sandbox: Sandbox,
    teacher: Any = None,
    drop: tuple[int, ...] = (),
    **changes: int,
) -> Merged:
    offline = OfflineTeacher(ENVS.teacher, HANDLERS)
    made = [
        item
        for item in everything(instances, offline, sandbox)
        if isinstance(item, Environment) and item.sub_question_id not in drop
    ]
    return merged(instances, made, teacher or offline, sandbox, **changes)


def test_two_look_ups_share_one_tool_whose_data_serve_both(sandbox: Sandbox) -> None:
    found = arenas_of([instance(*PAIR, final=BOTH)], sandbox)
    assert found.dropped == []
    assert (found.metrics.counts["merged_groups"], found.metrics.counts["merged_members"]) == (1, 2)
    (arena,) = found.arenas
    assert [tool.tool.name for tool in arena.tools] == ["get_asking_price"]
    assert [step.tool_name for step in arena.steps] == ["get_asking_price"] * 2
    rows = read_rows(arena.tools[0].code)
    names = [row["listing"] for row in rows]
    assert {"Amber Cove", "Jade Mill"} <= set(names)
    assert len(names) == len(set(names)) > 4  # a key and three others each: a union
    truth = {row[0]: row[3] for row in LISTINGS.rows}
    assert all(row["asking_price"] == truth[row["listing"]] for row in rows)


def test_other_operations_stay_apart_under_unique_names(sandbox: Sandbox) -> None:
    found = arenas_of([instance(*EVERY_OP[3:7])], sandbox)
    assert found.dropped == []
    assert [tool.tool.name for tool in found.arenas[0].tools] == [
        "list_listings", "count_listings", "count_listings_by_rooms", "get_total_asking_price",
    ]  # fmt: skip
    assert [step.tool_name for step in found.arenas[0].steps][2] == "count_listings_by_rooms"


def test_the_whole_instance_with_every_operation_ships(sandbox: Sandbox) -> None:
    found = arenas_of([instance(*EVERY_OP)], sandbox)
    assert found.dropped == []
    assert found.arenas[0].hops == 3
    assert found.arenas[0].steps[-1].tool_name is None


def free_arenas(sandbox: Sandbox, spoil: Any = None, **changes: int) -> tuple[Merged, Merger]:
    """The pair that only a teacher can merge."""
    whole, made = free_pair()
    teacher = Merger(spoil or (lambda _, reply: reply))
    return merged([whole], made, teacher, sandbox, **changes), teacher


def test_a_merge_is_repaired_and_told_what_was_rejected(sandbox: Sandbox) -> None:
    def spoil_once(ask: Ask[Any], reply: Any) -> Any:
        if isinstance(reply, asks.MergeReply) and ask.sample == 0:
            return reply.model_copy(update={"code": reply.code.replace("455", "456")})
        return reply

    found, teacher = free_arenas(sandbox, spoil_once, merge_attempts=2)
    assert len(found.arenas[0].tools) == 1
    assert found.metrics.counts["merged_rewritten"] == found.metrics.counts["merged_groups"] == 1
    first, second = teacher.merges
    assert (first["feedback"], first["rejected"]) == ("", None)
    assert second["feedback"].startswith("wrong_answer")
    assert '"asking_price": 456' in second["rejected"]["code"]
    assert [call["id"] for call in second["rejected"]["calls"]] == [1, 2]


def test_a_merge_without_all_calls_falls_back(sandbox: Sandbox) -> None:
    def forgets(_: Ask[Any], reply: Any) -> Any:
        if isinstance(reply, asks.MergeReply):
            return asks.MergeReply(code=reply.code, calls=reply.calls[:1])
        return reply

    found, _ = free_arenas(sandbox, forgets)
    assert found.dropped == []
    assert found.metrics.counts["merge_failed_calls_missing"] == 1
    names = [tool.tool.name for tool in found.arenas[0].tools]
    assert names == ["get_asking_price", "get_asking_price_by_listing"]
    assert [step.tool_name for step in found.arenas[0].steps] == names


def test_a_merge_that_loses_rows_of_a_member_is_refused(sandbox: Sandbox) -> None:
    def loses(_: Ask[Any], reply: Any) -> Any:
        if isinstance(reply, asks.MergeReply):
            code = "".join(line for line in reply.code.splitlines(True) if "Onyx" not in line)
            return asks.MergeReply(code=code, calls=reply.calls)
        return reply

    found, teacher = free_arenas(sandbox, loses, merge_attempts=3)
    assert len(found.arenas[0].tools) == 2
    assert len(teacher.merges) == 3
    assert {one.part for one in found.tries} == {"merge 1 2"}
    whole, _ = free_arenas(sandbox)
    assert len(whole.arenas[0].tools) == 1


def test_a_teacher_that_says_that_no_tool_serves_all_is_asked_once(sandbox: Sandbox) -> None:
    def refuses(_: Ask[Any], reply: Any) -> Any:
        return asks.MergeReply(calls=[]) if isinstance(reply, asks.MergeReply) else reply

    found, teacher = free_arenas(sandbox, refuses, merge_attempts=9)
    assert len(teacher.merges) == 1
    assert [one.reason for one in found.tries] == ["not_served"]
    assert found.metrics.counts["merge_failed_not_served"] == 1
    assert len(found.arenas[0].tools) == 2
    with pytest.raises(ValueError, match="code"):
        asks.MergeReply(calls=[asks.MergedCall(id=1, arguments={})])


def test_steps_of_one_operation_are_merged_without_a_teacher(sandbox: Sandbox) -> None:
    asked = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
    found = arenas_of([instance(*PAIR, final=BOTH)], sandbox, asked)
    assert asked.asks == []
    counts = found.metrics.counts
    assert counts["groups_by_construction"] == counts["merged_as_is"] == 1
    assert counts["groupings_asked"] == 0
    assert found.arenas[0].prompt_hash == ""


def test_pages_of_one_list_share_a_tool_without_a_teacher(sandbox: Sandbox) -> None:
    more = tuple((f"Moss Hill {k}", "Nora Holt", "Sage Park", 700 + k, 3, "") for k in range(4))
    table = LISTINGS.model_copy(update={"rows": LISTINGS.rows + more})
    pages: list[SubQuestion] = []
    values: dict[int, Any] = {}
    for number, page in ((1, 1), (2, {"from": 1, "pick": "next_page"})):
        given = {"agent": "Nora Holt", "page": page}
        operation = Operation(op="page", relation="agent.listings", table="listings",
                              arguments=given, select="listing:asking_price")  # fmt: skip
        values[number] = evaluate(operation, [table], values)
        pages.append(
            asked(number, "page", operation.relation, "listings", given, operation.select,
                  answer("record", values[number]), tuple(range(1, number)), number)
        )  # fmt: skip
    picked = answer("string", values[2]["rows"][-1]["listing"])
    whole = instance(*pages, final=picked).model_copy(update={"knowledge": (table,)})
    teacher = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
    found = arenas_of([whole], sandbox, teacher)
    assert teacher.asks == []
    (arena,) = found.arenas
    assert [step.arguments["page"] for step in arena.steps] == [1, 2]
    assert [step.tool_name for step in arena.steps] == ["browse_listings"] * 2
    code = asks.code_ask(whole, pages[0], arena.tools[0].tool, {"agent": "Nora Holt"}, 6, 0)
    assert f"{PAGE_ROWS} to a page" in render(code.template, code.shown)


def test_the_member_that_serves_all_stays_even_if_it_is_not_the_first(sandbox: Sandbox) -> None:
    whole, (first, second) = free_pair()
    knows_all = price_code("Jade Mill", "Amber Cove", "Opal Dale", "Pine Gate", "Ruby Lake")
    second = second.model_copy(update={"code": knows_all})
    asked = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
    found = merged([whole], [first, second], asked, sandbox)
    assert asked.templates == ["cluster"]
    assert [tool.code for tool in found.arenas[0].tools] == [knows_all]


def known_pair(first: str, second: str, **arguments: str) -> tuple[QAInstance, list[Environment]]:
    """Two look-ups of a table by one operation, each with a tool that has its own code."""
    whole = instance(*PAIR, final=BOTH)
    made = [environment(whole, 1, "Amber Cove", first), environment(whole, 2, "Jade Mill", second)]
    return whole, [made[0], made[1].model_copy(update=arguments and {"arguments": arguments})]


def test_two_tools_for_one_operation_make_no_arena(sandbox: Sandbox) -> None:
    whole, made = known_pair(price_code("Amber Cove"), price_code("Jade Mill"))
    refuses = Merger(
        lambda _, reply: asks.MergeReply(calls=[]) if isinstance(reply, asks.MergeReply) else reply
    )
    found = merged([whole], made, refuses, sandbox)
    assert found.arenas == []
    assert [(one.item, one.reason) for one in found.dropped] == [(whole.id, "twin_tools")]
    assert "steps [1, 2]" in found.dropped[0].detail
    assert found.tries[-1].reason == "not_served"


def test_a_member_that_contradicts_the_operation_is_the_wrong_one(sandbox: Sandbox) -> None:
    right = price_code(*(row[0] for row in LISTINGS.rows))
    wrong = right.replace("290", "291")  # a row that neither step asks for
    for codes in ((right, wrong), (wrong, right)):
        whole, made = known_pair(*codes)
        asked = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
        found = merged([whole], made, asked, sandbox)
        assert asked.asks == []
        assert [tool.code for tool in found.arenas[0].tools] == [right]


def test_a_member_that_wants_another_form_is_served_in_the_merged_one(sandbox: Sandbox) -> None:
    plain = price_code(*(row[0] for row in LISTINGS.rows))
    code = plain
    for row in LISTINGS.rows:
        code = code.replace(row[0], row[0].upper().replace(" ", "-"))
    whole, made = known_pair(plain, code, listing="JADE-MILL")
    asked = Asked(OfflineTeacher(ENVS.teacher, HANDLERS))
    found = merged([whole], made, asked, sandbox)
    assert asked.asks == []
    (arena,) = found.arenas
    assert [step.arguments for step in arena.steps] == [
        {"listing": "Amber Cove"}, {"listing": "Jade Mill"},
    ]  # fmt: skip


def test_what_no_table_tells_is_asked_of_members_in_a_form_that_both_read() -> None:
    whole, (first, second) = free_pair()
    tool, code, calls = first.tool, first.code, {1: first.arguments, 2: {"listing": "JADE-MILL"}}
    members = candidate_of(whole, tool, code, calls, [first, second]).members
    assert [member.calls for member in members] == [
        (({"listing": "Jade Mill"}, {"listing": "JADE-MILL"}),)
    ]
    calls[2] = second.arguments
    (other,) = candidate_of(whole, tool, code, calls, [first, second]).members
    assert [own for own, _ in other.calls or ()] == [
        {"listing": name} for name in ("Jade Mill", "Opal Dale", "Onyx Pass")
    ]


@pytest.mark.parametrize("groups", [[[1, 1]], [[1, 2], [2]], [[1, 7]]])
def test_impossible_clusters_are_refused(sandbox: Sandbox, groups: list[list[int]]) -> None:
    def spoil(_: Ask[Any], reply: Any) -> Any:
        return asks.ClusterReply(groups=groups) if isinstance(reply, asks.ClusterReply) else reply

    found, _ = free_arenas(sandbox, spoil)
    assert found.metrics.counts["clustering_failed_bad_ids"] == 1
    assert len(found.arenas[0].tools) == 2


def test_an_instance_without_an_environment_is_dropped(sandbox: Sandbox) -> None:
    found = arenas_of([instance(*PAIR, final=BOTH)], sandbox, drop=(2,))
    assert found.arenas == []
    assert [item.reason for item in found.dropped] == ["missing_environment"]


def test_splits_never_meet_and_held_out_data_win(sandbox: Sandbox) -> None:
    def one(split: Split, entity: str, shape: str) -> QAInstance:
        return instance(PAIR[0], split=split, entities=(entity,), composition=shape)

    rows = [
        one(Split.HELDOUT, "Amber Cove", "a"),
        one(Split.DEV, "amber  cove", "b"),
        one(Split.TRAIN, "Jade Mill", "a"),
        one(Split.TRAIN, "Pine Gate", "c"),
    ]
    found = arenas_of(rows, sandbox)
    assert sorted(arena.split for arena in found.arenas) == [Split.HELDOUT, Split.TRAIN]
    assert sorted(item.reason for item in found.dropped) == ["split_composition", "split_entity"]


def _arena(sandbox: Sandbox) -> Arena:
    return arenas_of([instance(*PAIR, final=BOTH)], sandbox).arenas[0]


def test_an_arena_that_cannot_prove_its_reward_does_not_ship(sandbox: Sandbox) -> None:
    arena = _arena(sandbox)
    first, second = arena.steps
    tool = arena.tools[0]
    schema = {**tool.tool.parameters, "required": []}
    lenient = tool.model_copy(
        update={
            "tool": tool.tool.model_copy(update={"parameters": schema}),
            "code": "def get_asking_price(listing='Amber Cove'):\n"
            "    return {'Amber Cove': 812, 'Jade Mill': 455}[listing]\n",
        }
    )
    broken = {
        "replay_failed": {
            "steps": (first, second.model_copy(update={"arguments": {"listing": "Nobody"}}))
        },
        "reference_fails": {
            "steps": (first.model_copy(update={"answer": answer("number", 1)}), second)
        },
        "dropped_call_passes": {"steps": (first, first.model_copy(update={"id": 2}))},
        "arena_does_not_load": {"tools": (tool.model_copy(update={"code": "1 / 0\n"}),)},
        "empty_arguments_pass": {"tools": (lenient,), "steps": (first,)},
        "no_tool_needed": {
            "steps": (first.model_copy(update={"tool_name": None, "arguments": {}}),)
        },
    }
    arenas = [arena, *(arena.model_copy(update=change) for change in broken.values())]
    problems = check_arenas(arenas, sandbox)
    assert [problem and problem[0] for problem in problems] == [None, *broken]
    twins = arena.model_copy(update={"tools": (tool, tool)})
    problem = check_arenas([twins], sandbox)[0]
    assert problem is not None
    assert problem[0] == "arena_does_not_load"
    assert "not unique" in problem[1]


def test_renaming_touches_names_not_data() -> None:
    tool = Tool(name="get_x", description="d", parameters={"type": "object", "required": ["key"]})
    code = 'ROWS = ["get_x"]\n\n\ndef get_x(key):\n    return get_x2(key) or get_x(ROWS)\n'
    made = rename(MergedTool(tool, code, {}), "get_x_by_key")
    assert made.code == (
        'ROWS = ["get_x"]\n\n\ndef get_x_by_key(key):\n'
        "    return get_x2(key) or get_x_by_key(ROWS)\n"
    )
    names = [item.tool.name for item in unique_names([MergedTool(tool, code, {})] * 4)]
    assert names == ["get_x", "get_x_by_key", "get_x_2", "get_x_3"]


def test_equal_answers_of_one_tool_need_their_own_calls(sandbox: Sandbox) -> None:
    rooms = [
        asked(k, "lookup", "listing.rooms", "listings", {"listing": name}, "rooms",
              answer("number", 3, domain_size=5))
        for k, name in ((1, "Amber Cove"), (2, "Pine Gate"))
    ]  # fmt: skip
    found = arenas_of([instance(*rooms, final=answer("list", [3, 3]))], sandbox)
    assert found.dropped == []
    assert len(found.arenas) == 1
