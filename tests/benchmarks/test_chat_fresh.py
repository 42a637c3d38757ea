"""Which arenas of another seed the chat model's RL may train in, and where they are made."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from astra.records.qa import (
    Answer,
    AnswerType,
    QAInstance,
    QuestionKind,
    Scenario,
    Split,
    SubQuestion,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
import chat_fresh
from training_world import make_arena

from astra.arena.reward import score_episode
from astra.records.message import CallStatus, ExecutedCall, ToolCall, ToolResult


def instance(entity: str, composition: str, split: Split = Split.TRAIN) -> QAInstance:
    answer = Answer(type=AnswerType.NUMBER, value=7)
    question = f"What is the price of {entity}?"
    return QAInstance(
        split=split, domain="d", language="en", source="s", kind=QuestionKind.READ_ONLY,
        scenario=Scenario.SINGLE_HOP, main_question=question, final_answer=answer,
        sub_questions=(SubQuestion(id=1, hop_level=1, question=question, answer=answer),),
        entities=(entity,), composition=composition,
    )  # fmt: skip


def arena(of: QAInstance, split: Split = Split.TRAIN) -> Any:
    return SimpleNamespace(qa_id=of.id, split=split, main_question=of.main_question)


def test_fresh_arenas_share_nothing_with_what_is_measured_and_were_not_shown() -> None:
    built = [
        instance("Amber Cove", "held-out shape", Split.HELDOUT),
        instance("Jade Mill", "dev shape", Split.DEV),
        instance("Pine Gate", "shape"),
    ]
    kept, of_training = instance("Ruby Lake", "shape"), instance("Pine Gate", "new shape")
    others = [
        instance("Amber Cove", "shape"), instance("Jade Mill", "shape"),
        instance("Onyx Pass", "held-out shape"), instance("Opal Dale", "dev shape"),
    ]  # fmt: skip
    shown = instance("Gold Rock", "shape")
    fresh = [kept, of_training, *others, shown]
    arenas = [arena(one) for one in fresh] + [arena(instance("Sage Park", "shape"), Split.DEV)]
    found = chat_fresh.apart(arenas, fresh, built, [arena(shown)])
    assert [one.qa_id for one in found] == [kept.id, of_training.id]


def test_the_stages_run_in_order_with_another_seed_and_number_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = {stage: {"seed": 0, "kept": stage} for stage in chat_fresh.STAGES}
    built["qa"]["instances"] = {"train": 1200, "dev": 130, "heldout": 1200}
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(built))
    tools = tmp_path / "tools.parquet"
    tools.write_bytes(b"tools")
    monkeypatch.setattr(chat_fresh, "PARAMS_FILE", file)
    monkeypatch.setattr(chat_fresh, "TOOLS_FILE", tools)
    ran: list[tuple[str, str]] = []
    monkeypatch.setattr(
        chat_fresh, "run", lambda folder, stage, product: ran.append((stage, str(product)))
    )
    folder = chat_fresh.made(tmp_path)
    assert ran == [(stage, f"data/{stage}.parquet") for stage in chat_fresh.STAGES]
    params = yaml.safe_load((folder / "params.yaml").read_text())
    assert params.pop("qa") == built.pop("qa") | chat_fresh.CHANGES
    assert params == built
    tools.write_bytes(b"other tools")
    assert chat_fresh.made(tmp_path) != folder, "other tools, another folder"
    tools.write_bytes(b"tools")
    file.write_text(yaml.safe_dump(params | {"qa": {"seed": 0, "kept": "other"}}))
    assert chat_fresh.made(tmp_path) != folder, "other parameters, another folder"


def test_an_arena_without_its_tools_pays_for_saying_so_at_once() -> None:
    whole = make_arena(0)
    asked = chat_fresh.without_tools(whole)
    assert (asked.main_question, asked.tools, asked.irrelevant) == (
        whole.main_question, (), whole.irrelevant,
    )  # fmt: skip
    assert asked.id != whole.id
    call = ExecutedCall(
        turn=0,
        call=ToolCall(id="a", name="other", arguments="{}"),
        result=ToolResult(status=CallStatus.ERROR, content="error: no x"),
    )
    refusal, guess = "None helps. <answer>no tool</answer>", "<answer>42</answer>"
    assert score_episode(asked, [], refusal).f1 == pytest.approx(1, abs=1e-5)
    assert score_episode(asked, [call], refusal).f1 == pytest.approx(2 / 3, abs=1e-5)
    assert score_episode(asked, [], guess).f1 == score_episode(asked, [call], guess).f1 == 0


def test_all_hard_arenas_stay_and_one_look_up_in_so_many() -> None:
    hard = dict.fromkeys((1, 2, 6))
    arenas: list[Any] = [SimpleNamespace(at=at, is_hard=at in hard) for at in range(10)]
    assert [one.at for one in chat_fresh.mostly_hard(arenas)] == [0, 1, 2, 5, 6, 9]
    assert chat_fresh.mostly_hard([]) == []


def test_one_in_so_many_arenas_is_asked_without_its_tools() -> None:
    arenas = [make_arena(number) for number in range(13)]
    found = chat_fresh.some_without_tools(arenas, 6)
    assert [at for at, one in enumerate(found) if not one.tools] == [0, 6, 12]
    assert [one for one in found if one.tools] == [one for one in arenas if one in found]
