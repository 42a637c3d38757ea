"""How labelled messages of agents are scored: accuracy, agreement of the labellers, slots."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from astra.records.qa import QuestionKind
from astra.records.world import (
    AgentAct,
    EventKind,
    GoalOutcome,
    OutcomeKind,
    TraceEvent,
    UserAct,
    WorldGoal,
    WorldShape,
)
from astra.worlds.domain import load_domains
from astra.worlds.generator import generate

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import act_weights
import user_acts

ASK, REPORT, OTHER = AgentAct.ASK, AgentAct.REPORT, AgentAct.OTHER
SAID = ["For how many days?", "All of that is done.", "Your turn, then."]
FIRST = [("ask", ["days"]), ("report", []), ("ask", ["which loan"])]
SECOND = [("ask", ["days"]), ("report", []), ("other", [])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fixture of three messages in one context, labelled twice."""
    world = generate(load_domains()["library_loans"], 0, WorldShape.SMALL, 0)
    loan = world.rows["loans"][0]["loan_id"]
    opening = TraceEvent(kind=EventKind.USER, act=UserAct.OPENING, text="Renew my loan.",
                         facts={"loan_id": loan})  # fmt: skip
    answer = TraceEvent(kind=EventKind.USER, act=UserAct.ANSWER, text="2.", facts={"days": 2})
    goal = WorldGoal(kind=QuestionKind.WRITE, trace=(opening, answer),
                     outcome=GoalOutcome(kind=OutcomeKind.DONE))  # fmt: skip
    made = tmp_path_factory.mktemp("users")
    write(made / "worlds.jsonl.gz", [world.model_dump(mode="json")])
    context = {"id": "one-1", "world_id": world.id, "goal": goal.model_dump(mode="json"),
               "trace": [opening.model_dump(mode="json")]}  # fmt: skip
    write(made / "contexts.jsonl.gz", [context])
    write(made / "utterances_tune.jsonl",
          [{"id": f"tune-{at}", "context": "one-1", "text": text, "source": "strong"}
           for at, text in enumerate(SAID)])  # fmt: skip
    for name, labels in (("first", FIRST), ("second", SECOND)):
        write(made / f"labels_tune_{name}.jsonl",
              [{"id": f"tune-{at}", "act": act, "asks": asks}
               for at, (act, asks) in enumerate(labels)])  # fmt: skip
    return made


def write(path: Path, items: list[Any]) -> None:
    data = "".join(f"{json.dumps(one)}\n" for one in items).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def test_messages_are_scored_against_the_first_label(folder: Path) -> None:
    found = user_acts.summary(user_acts.labelled("tune", folder))
    assert found["act_accuracy"] == round(2 / 3, 4)
    assert found["act_accuracy_agreed"] == 1.0
    assert found["confusion"]["ask"] == {"ask": 1, "other": 1}
    assert found["slots"] == {"precision": 1.0, "recall": 0.5}
    assert (found["labellers_agree"], found["kappa"]) == (round(2 / 3, 4), 0.5)


def test_a_message_without_a_label_is_named(folder: Path, tmp_path: Path) -> None:
    for one in folder.iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    label = tmp_path / "labels_tune_second.jsonl"
    label.write_text("".join(label.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match=r"tune-2: 1 of 2 labels"):
        user_acts.labelled("tune", tmp_path)


@pytest.mark.parametrize("split", ["tune", "opened", "second", "third", "fourth", "fifth", "sixth"])
def test_the_figures_committed_are_those_of_the_code(split: str) -> None:
    """Repair: python benchmarks/user_acts.py --split SPLIT --write. What is sealed is not measured
    again."""
    found = user_acts.summary(user_acts.labelled(split))
    assert json.loads(user_acts.written(split).read_text()) == found


def test_kappa_is_what_is_agreed_beyond_chance() -> None:
    assert user_acts.kappa([(ASK, ASK), (REPORT, REPORT)]) == 1.0
    assert user_acts.kappa([(ASK, REPORT), (REPORT, ASK)]) == -1.0
    assert user_acts.kappa([(ASK, ASK), (ASK, ASK)]) is None
    assert user_acts.kappa([(ASK,)]) is None


def test_nothing_is_learned_from_the_worlds_of_sealed_messages() -> None:
    of = {name: one.world.id for name, one in user_acts.contexts().items()}
    messages = user_acts.lines(user_acts.FIXTURES / f"utterances_{user_acts.SEALED}.jsonl")
    sealed = {of[one["context"]] for one in messages}
    learned = {of[one.context] for one in act_weights.own_ways()}
    assert sealed
    assert learned
    assert not sealed & learned
