"""The present parsers, rules and selection on what a strong model wrote about six real servers.

The asks stand as an earlier build wrote them; no test depends on how today's prompts are worded.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import pytest
from exchanges import SIX_SERVERS, finished, recorded, replayed
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from test_judged_selection import RecordedJudge
from typer.testing import CliRunner

from astra.cli.main import commands
from astra.llm.structured import parse_reply
from astra.records.base import Record
from astra.records.graph import Chain, ToolGraph
from astra.records.score import Rejection
from astra.records.task import Task, TaskKind
from astra.records.tool import Tool, ToolServer
from astra.records.trajectory import SFTSample, Trajectory
from astra.records.verdict import ChainVerdict
from astra.scoring.asks import AnswerGrade, ConductGrade, TurnGrade
from astra.scoring.config import SFTSetConfig
from astra.scoring.judge import score
from astra.scoring.select import shortlisted
from astra.scoring.view import View, view_of
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records
from astra.tasking.asks import TaskScores, WrittenCall, WrittenTask, as_plan
from astra.tasking.checks import check_plan, check_question
from astra.tasking.measures import SetMeasures
from astra.tasking.stated import Standing, given_values
from astra.tasking.variant_asks import PersonalRequest, Replanned, Rewritten, Solvability
from astra.toolbank.domains import DomainLabel
from astra.toolbank.results import ResultGuess
from astra.toolgraph.arguments import Binder, replay, taken_from_results
from astra.toolgraph.asks import BackChain, BackQuery, ChainProposals, CoherenceVerdict
from astra.toolgraph.proposals import proposed_chains, read_proposal
from astra.trajectories.dependencies import held_dependencies
from astra.trajectories.emulated import EmulatedReply
from astra.trajectories.follow_up import FollowUp
from astra.trajectories.user import UserReply
from configs import block

PILOT = Path(__file__).parents[2] / "examples" / "pilot"
REPLIES: dict[str, type[BaseModel]] = {
    reply.__name__: reply
    for reply in (
        AnswerGrade, BackChain, BackQuery, ChainProposals, CoherenceVerdict, ConductGrade,
        DomainLabel, EmulatedReply, FollowUp, PersonalRequest, Replanned, ResultGuess, Rewritten,
        Solvability, TaskScores, TurnGrade, UserReply, WrittenCall, WrittenTask,
    )
}  # fmt: skip
TEMPLATES = {
    ConductGrade.__name__: "scoring/conduct",
    AnswerGrade.__name__: "scoring/final_answer",
    TurnGrade.__name__: "scoring/turn",
}
TABLES: dict[str, tuple[type[Record], int]] = {
    "tools": (ToolServer, 6),
    "graph": (ToolGraph, 6),
    "chain_verdicts": (ChainVerdict, 24),
    "chains": (Chain, 19),
    "tasks": (Task, 22),
    "trajectories": (Trajectory, 22),
    "sft_set": (SFTSample, 22),
    "rejected/tools": (Rejection, 0),
    "rejected/graph": (Rejection, 2),
    "rejected/chains": (Rejection, 5),
    "rejected/tasks": (Rejection, 30),
    "rejected/trajectories": (Rejection, 0),
    "rejected/sft_set": (Rejection, 0),
}
"""The pilot's tables with their records and how many there are."""
TURN = re.compile(r"Judge turn (\d+)")
"""How the recorded asks of a turn name it, counted from 1."""
PRIVATE = re.compile(
    r"/(?:home|root|tmp|Users)/|localhost|127\.0\.0\.1|\b(?:sk|hf|ghp)[-_]\w{10}|\w@[\w-]+\.[a-z]"
)
Exchange = dict[str, Any]
RecordType = TypeVar("RecordType", bound=Record)


@pytest.fixture(scope="module")
def exchanges() -> list[Exchange]:
    return recorded(SIX_SERVERS)


def table(name: str, model: type[RecordType]) -> list[RecordType]:
    return list(read_records(PILOT / f"{name}.parquet", model))


@pytest.fixture(scope="module")
def servers() -> dict[str, ToolServer]:
    return {server.id: server for server in table("tools", ToolServer)}


@pytest.fixture(scope="module")
def trajectories() -> list[Trajectory]:
    return table("trajectories", Trajectory)


def kind(exchange: Exchange) -> str:
    """The name of the reply that was asked for; empty for an agent's turn."""
    asked = exchange["ask"].get("response_format")
    return asked["json_schema"]["name"] if asked else ""


def replies(exchanges: Iterable[Exchange], model: type[BaseModel]) -> list[Any]:
    return [
        parse_reply(one["answer"]["content"], model)
        for one in exchanges
        if kind(one) == model.__name__
    ]


def tools_of(server: ToolServer) -> dict[str, Tool]:
    return {tool.name: tool for tool in server.tools}


def server_of(servers: dict[str, ToolServer], names: Iterable[str]) -> ToolServer:
    """The one server that has all the tools."""
    wanted = set(names)
    (found,) = [one for one in servers.values() if wanted <= tools_of(one).keys()]
    return found


def test_every_reply_satisfies_its_ask_and_the_present_model(exchanges: list[Exchange]) -> None:
    kinds = Counter(kind(one) for one in exchanges)
    assert len({one["id"] for one in exchanges}) == len(exchanges) == 478
    assert kinds.pop("") == 80
    assert kinds.keys() == REPLIES.keys()
    for one in exchanges:
        if not kind(one):
            continue
        validator = Draft202012Validator(one["ask"]["response_format"]["json_schema"]["schema"])
        written = one["answer"]["content"]
        assert validator.is_valid(json.loads(written)), one["id"]
        assert not validator.is_valid({"unasked": 1}), one["id"]
        read = parse_reply(written, REPLIES[kind(one)])
        assert read.model_dump(mode="json").keys() >= json.loads(written).keys(), one["id"]


@pytest.mark.parametrize("name", TABLES)
def test_the_pilots_tables_are_read_and_keep_their_ids(name: str) -> None:
    model, rows = TABLES[name]
    records = table(name, model)
    assert len(records) == rows
    for record in records:
        assert model.model_validate(record.model_dump(exclude={"id"})).id == record.id


def test_nothing_private_is_in_them(exchanges: list[Exchange]) -> None:
    texts = [json.dumps(one, ensure_ascii=False) for one in exchanges]
    for name, (model, _) in TABLES.items():
        texts += [record.model_dump_json() for record in table(name, model)]
    assert {hit for text in texts for hit in PRIVATE.findall(text)} == set()


def test_card_and_page_tell_the_sets_figures() -> None:
    card = (PILOT / "README.md").read_text("utf-8")
    page = (PILOT.parents[1] / "docs" / "strong-model.md").read_text("utf-8")
    samples = table("sft_set", SFTSample)
    calls = [sum(len(message.tool_calls) for message in one.messages) for one in samples]
    few = sum(1 <= number <= 5 for number in calls) / len(calls)
    assert f"| calls per conversation | 4.42 | {fmean(calls):.2f} |" in card
    assert f"| calls per sample | 4.42 | {fmean(calls):.2f} |" in page
    messages = fmean(len(one.messages) for one in samples)
    assert f"| messages per conversation | 10.59 | {messages:.2f} |" in card
    assert f"| messages per sample | 10.59 | {messages:.2f} |" in page
    for text in (card, page):
        assert f"| share with 1 to 5 calls | 72.2 % | {100 * few:.1f} % |" in text
    for server in table("tools", ToolServer):
        assert f"| `{server.name}` | {len(server.tools)} |" in card


def test_requests_of_a_family_share_few_words_and_no_name_is_common() -> None:
    metrics = StageMetrics("tasks")
    measures = SetMeasures(metrics)
    for server in table("tools", ToolServer):
        measures.know(server)
        for task in table("tasks", Task):
            if task.server_id == server.id:
                measures.add(task)
    measures.finish()
    values = metrics.document()
    assert values["family_shared_wording"] == 0.0527
    assert values["top_name"]["tasks"] == 1


def test_the_commands_take_the_pilots_set(tmp_path: Path) -> None:
    source = str(PILOT / "sft_set.parquet")
    shown = CliRunner().invoke(commands, ["show", source])
    assert "22 match" in shown.output
    exported = CliRunner().invoke(
        commands, ["sft", "export", "--source", source, "--out", str(tmp_path)]
    )
    assert "train.parquet: 21 conversations" in exported.output


def test_every_trajectory_is_the_replay_of_its_last_turn(
    exchanges: list[Exchange], trajectories: list[Trajectory]
) -> None:
    talks = {
        tuple((message.role, message.content) for message in replayed(one).messages)
        for one in finished(exchanges)
    }
    for trajectory in trajectories:
        said = tuple((message.role, message.content) for message in trajectory.messages)
        assert said in talks, trajectory.id


def test_few_sources_of_proposals_are_refused(
    exchanges: list[Exchange], servers: dict[str, ToolServer]
) -> None:
    """The ids of all rooms at once have no single path."""
    refused: Counter[str] = Counter()
    sources = 0
    for reply in replies(exchanges, ChainProposals):
        steps = [step for proposal in reply.proposals for step in proposal.steps]
        sources += sum(len(step.arguments) for step in steps)
        server = server_of(servers, (step.tool for step in steps))
        for proposal in reply.proposals:
            reading = read_proposal(server, proposal, "")
            assert reading.steps, proposal.task
            refused.update(one.reason for one in reading.rejections)
    assert sources == 298
    assert refused == {"source_type_differs": 2}


def test_accepted_chains_are_bound_the_same_and_hold(
    exchanges: list[Exchange], servers: dict[str, ToolServer]
) -> None:
    binders: dict[str, Binder] = {}
    for reply in replies(exchanges, ChainProposals):
        used = [step.tool for proposal in reply.proposals for step in proposal.steps]
        server = server_of(servers, used)
        readings = [read_proposal(server, proposal, "") for proposal in reply.proposals]
        binders[server.id] = Binder(server.tools, proposed_chains(readings))
    for chain in table("chains", Chain):
        bound = binders[chain.server_id].bind([step.tool for step in chain.steps])
        assert set(taken_from_results(chain.steps)) == set(taken_from_results(bound)), chain.id
        replay(chain.steps, tools_of(servers[chain.server_id]), random.Random(0))


def test_no_value_of_a_request_is_absent(
    exchanges: list[Exchange], servers: dict[str, ToolServer]
) -> None:
    written = [*replies(exchanges, WrittenTask), *replies(exchanges, WrittenCall)]
    planned = [(reply.question, as_plan(reply.steps)) for reply in written]
    planned += [(task.question, task.plan) for task in table("tasks", Task) if task.plan]
    standings: Counter[Standing] = Counter()
    for question, plan in planned:
        tools = tools_of(server_of(servers, (step.tool for step in plan)))
        standings.update(one.standing for one in given_values(question, plan, tools))
    assert standings[Standing.ABSENT] == 0
    assert standings[Standing.STATED] > 50 < standings[Standing.DERIVED]


def test_a_request_without_its_values_would_be_noticed(servers: dict[str, ToolServer]) -> None:
    noticed: list[str] = []
    for task in table("tasks", Task):
        tools = tools_of(servers[task.server_id])
        given = given_values("Please do what I told you to do.", task.plan, tools)
        if any(one.standing is Standing.ABSENT for one in given):
            noticed.append(task.id)
    assert len(noticed) >= 15


def test_tasks_that_can_be_solved_pass_the_rules(servers: dict[str, ToolServer]) -> None:
    passed = 0
    for task in table("tasks", Task):
        if task.kind in (TaskKind.CHAIN, TaskKind.SERVER):
            tools = tools_of(servers[task.server_id])
            check_plan(task.plan, tools)
            check_question(task.question, task.plan, [*tools.values()], task.language, 200)
            passed += 1
    assert passed == 19


def place_of(exchange: Exchange) -> tuple[str, int]:
    """The template of a judge's ask, and how many turns came before the one it is about."""
    number = TURN.search(exchange["ask"]["messages"][0]["content"])
    return TEMPLATES[kind(exchange)], int(number[1]) - 1 if number else 0


def judged_in(exchange: Exchange) -> Callable[[View], bool]:
    """The test whether a judge's ask is about a trajectory: it holds what was said and offered."""
    asked = exchange["ask"]["messages"][0]["content"]
    template, before = place_of(exchange)

    def holds(view: View) -> bool:
        rounds = view["rounds"][: before + 1] if template == "scoring/turn" else view["rounds"]
        offered = [f"- {tool['name']} [" for tool in view["tools"]]
        said = [line for one in rounds for line in one["text"].splitlines()]
        return len(rounds) > before and all(
            text in asked for text in (view["question"], *offered, *said)
        )

    return holds


@pytest.fixture(scope="module")
def judged(
    exchanges: list[Exchange], trajectories: list[Trajectory]
) -> dict[str, dict[tuple[str, int], str]]:
    """The judge's replies by trajectory, template and turn."""
    views = {one.id: view_of(one) for one in trajectories}
    found: dict[str, dict[tuple[str, int], str]] = {name: {} for name in views}
    for one in exchanges:
        if kind(one) in TEMPLATES:
            holds = judged_in(one)
            (name,) = [name for name, view in views.items() if holds(view)]
            assert place_of(one) not in found[name], "asked twice"
            found[name][place_of(one)] = one["answer"]["content"]
    return found


def test_selection_keeps_the_same(
    judged: dict[str, dict[tuple[str, int], str]], trajectories: list[Trajectory]
) -> None:
    """The judge gives one verdict for each value that today's rules suspect, or its reply fails."""
    config = SFTSetConfig.model_validate(block("sft_set"))
    samples = {one.trajectory_id: one for one in table("sft_set", SFTSample)}
    origins: Counter[str] = Counter()
    for trajectory in trajectories:
        graded = asyncio.run(score(trajectory, RecordedJudge(judged[trajectory.id]), config))
        assert graded.faults == (), trajectory.id
        origins.update(graded.origins)
        outcome = shortlisted(trajectory, graded, config)
        assert not isinstance(outcome, Rejection), trajectory.id
        assert outcome.scores == samples[trajectory.id].scores
        assert outcome.selection == samples[trajectory.id].selection
    assert len(samples) == 22
    assert origins == {"derived": 24, "converted": 13, "chosen": 1}, "38 values of 65 calls"


def test_selection_drops_what_a_judge_calls_unfaithful(
    judged: dict[str, dict[tuple[str, int], str]], trajectories: list[Trajectory]
) -> None:
    """The recorded verdicts on each answer with its last claim refuted."""
    config = SFTSetConfig.model_validate(block("sft_set"))
    for trajectory in trajectories:
        replies_of = dict(judged[trajectory.id])
        place = ("scoring/final_answer", 0)
        verdict = json.loads(replies_of[place])
        verdict["claims"][-1] |= {"verdict": "unsupported"}
        replies_of[place] = json.dumps(verdict | {"faithfulness": 0})
        graded = asyncio.run(score(trajectory, RecordedJudge(replies_of), config))
        outcome = shortlisted(trajectory, graded, config)
        assert isinstance(outcome, Rejection), trajectory.id
        assert outcome.reason == "not_faithful"


def test_planned_dependencies_are_held(trajectories: list[Trajectory]) -> None:
    """Two plans take a date's first part where the call wants the date: held, and not seen."""
    tasks = {task.id: task for task in table("tasks", Task)}
    held = {
        one.id: [found.held for found in held_dependencies(tasks[one.task_id].plan, one.calls)]
        for one in trajectories
        if tasks[one.task_id].kind in (TaskKind.CHAIN, TaskKind.SERVER)
    }
    assert sum(map(len, held.values())) == 29
    assert sum(map(sum, held.values())) == 22
    assert sum(any(one) for one in held.values()) == 8
    assert {name[:8] for name, found in held.items() if found and not all(found)} == {
        "0dfe147d",
        "7f03c711",
        "24f4ab64",
        "f5a7966b",
    }
