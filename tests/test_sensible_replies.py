"""What a careful reader answers to a prompt passes its ask's parser and rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from astra.llm.protocol import ParseError
from astra.llm.structured import parse_reply
from astra.prompting import Placeholder, example, render, templates, variables_of
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.tool import Tool
from astra.scoring.asks import AnswerGrade, ConductGrade, TurnGrade
from astra.tasking.asks import TaskScores, WrittenTask, as_plan
from astra.tasking.checks import check_plan, check_question
from astra.tasking.variant_asks import PersonalRequest, Replanned, Rewritten, Solvability
from astra.tasking.writing import merge_plan
from astra.text.names import Pool, pool_of, suggested_names
from astra.text.strict_json import STRICT
from astra.toolbank.domains import DomainLabel
from astra.toolbank.results import ResultGuess
from astra.toolgraph.asks import BackChain, BackQuery, ChainProposals, CoherenceVerdict
from astra.trajectories.emulated import EmulatedReply
from astra.trajectories.follow_up import FollowUp
from astra.trajectories.user import UserReply

REPLIES: dict[str, type[BaseModel]] = {
    "scoring/conduct": ConductGrade,
    "scoring/final_answer": AnswerGrade,
    "scoring/turn": TurnGrade,
    "tasking/chain_task": WrittenTask,
    "tasking/complicate": Rewritten,
    "tasking/diverse": WrittenTask,
    "tasking/drop_parameter": Rewritten,
    "tasking/persona": PersonalRequest,
    "tasking/replan": Replanned,
    "tasking/score": TaskScores,
    "tasking/server_task": WrittenTask,
    "tasking/solvable": Solvability,
    "toolbank/domain": DomainLabel,
    "toolbank/result": ResultGuess,
    "toolgraph/back_chain": BackChain,
    "toolgraph/back_query": BackQuery,
    "toolgraph/coherence": CoherenceVerdict,
    "toolgraph/propose": ChainProposals,
    "trajectories/emulate": EmulatedReply,
    "trajectories/follow_up": FollowUp,
    "trajectories/user": UserReply,
}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "trip": {"type": "string", "x-entity": "thing"},
        "size": {"type": "string", "default": "short"},
    },
    "required": ["trip"],
    "additionalProperties": False,
}


def example_replies(prompt: str, first: str) -> list[dict[str, Any]]:
    """The objects after the word Example that begin with key ``first``."""
    _, _, examples = prompt.rpartition("\nExample")
    starts = [at for at in range(len(examples)) if examples.startswith(f'{{"{first}":', at)]
    return [STRICT.raw_decode(examples, at)[0] for at in starts]


def test_every_prompt_of_the_track_is_here() -> None:
    track = {"scoring", "tasking", "toolbank", "toolgraph", "trajectories"}
    assert REPLIES.keys() == {name for name in templates() if name.split("/")[0] in track}


@pytest.mark.parametrize(("template", "reply"), REPLIES.items(), ids=list(REPLIES))
def test_each_example_is_a_reply_with_its_fields_in_the_order_of_the_schema(
    template: str, reply: type[BaseModel]
) -> None:
    """Enforced decoding follows the schema: an example in another order would mislead."""
    fields = list(reply.model_fields)
    found = example_replies(example(template), fields[0])
    assert found
    for value in found:
        parse_reply(json.dumps(value), reply)
        assert list(value) == fields


def test_a_task_for_one_call_shows_one_call() -> None:
    names = variables_of("tasking/server_task")
    for number in (1, 2):
        variables = {name: Placeholder(name) for name in names} | {"number": number}
        (reply,) = example_replies(render("tasking/server_task", variables), "question")
        assert len(reply["steps"]) == number


def test_a_result_is_to_be_guessed_unless_its_schema_is_published() -> None:
    """Fields that a description names in prose are no schema: a guess is wanted all the same."""
    variables = {name: Placeholder(name) for name in variables_of("toolbank/result")}
    published = render("toolbank/result", variables | {"output_schema": {"type": "string"}})
    described = render("toolbank/result", variables | {"output_schema": None})
    assert "`output_schema` and `example` are both null" in published
    assert "both null" not in described
    assert "null only if the text does not let you tell" in described


def test_origins_of_values_are_explained_where_there_are_values() -> None:
    variables = {name: Placeholder(name) for name in variables_of("scoring/conduct")}
    assert '- "derived": ' in render("scoring/conduct", variables)
    without = render("scoring/conduct", variables | {"suspects": []})
    assert '- "derived": ' not in without
    assert "`values` is []" in without


def test_a_written_task_may_leave_out_defaults_and_nulls() -> None:
    tools = {
        name: Tool(name=name, description="", parameters=PARAMETERS)
        for name in ("count_seats", "find_dancer")
    }
    trip = ArgumentSource(origin=ArgumentOrigin.TASK)
    size = ArgumentSource(origin=ArgumentOrigin.DEFAULT, value="short")
    chain = (
        ChainStep(tool="count_seats", arguments={"trip": trip, "size": size}),
        ChainStep(tool="find_dancer", arguments={"trip": trip}),
    )
    stated = '{"name": "trip", "value": "Jade Glen"}'
    text = (
        '{"question": "How many short seats has Jade Glen, and who is its dancer?", "steps": ['
        f'{{"tool": "count_seats", "arguments": [{stated}]}}, '
        f'{{"tool": "find_dancer", "arguments": [{stated}]}}]}}'
    )
    reply = parse_reply(text, WrittenTask)
    plan = merge_plan(chain, as_plan(reply.steps))
    check_plan(plan, tools)
    check_question(reply.question, plan, list(tools.values()), "en", 20)
    assert plan[0].arguments["size"] == size


def test_labels_without_a_reason_are_refused() -> None:
    labels: dict[str, Any] = {name: 4 for name in TaskScores.model_fields if name != "reason"}
    labels["wrong_values"] = []
    with pytest.raises(ParseError, match="reason"):
        parse_reply(json.dumps(labels), TaskScores)
    assert parse_reply(json.dumps({"reason": "Plain.", **labels}), TaskScores).realism == 4


def test_suggested_names_differ_by_key_and_stay_out_of_the_arenas() -> None:
    drawn = [suggested_names("server", sample) for sample in range(20)]
    assert drawn[0] == suggested_names("server", 0)
    assert len({name for names in drawn for name in names}) > 60
    assert all(pool_of(name) is Pool.SERVERS for names in drawn for name in names)
