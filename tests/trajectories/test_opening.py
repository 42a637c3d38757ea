"""How an episode begins: which system prompt, which date, and with whom it may be played."""

from __future__ import annotations

from typing import Any

import pytest
from homes import given, step, task
from pydantic import ValidationError
from test_synthesis import OFFLINE, config

from astra.agent.prompt import (
    AGENT_SYSTEM_PROMPT,
    MISSING_VALUE,
    NO_TOOL,
    NOT_FOUND,
    extract_answer,
    final_message,
    untagged,
)
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.settings import ParamsError
from astra.trajectories.agenda import Agenda
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.opening import opening_messages, spoken
from astra.trajectories.trajectories import refuse_rule_emulator
from configs import block


@pytest.fixture
def price(homes: ToolServer) -> Task:
    return task(homes, "Price of Amber Cove?", step("get_price", listing=given("Amber Cove")))


def system(prompts: tuple[str, ...], of: Task, key: str = "k") -> str:
    first, second = opening_messages(of, prompts, key)
    assert (first.role, second.role) == ("system", "user")
    assert second.content == of.question
    return first.content


def test_the_list_is_all_there_is(price: Task) -> None:
    assert system(("standard",), price) == AGENT_SYSTEM_PROMPT
    drawn = {system(("Be brief.", "Be kind."), price, str(n)) for n in range(40)}
    assert drawn == {"Be brief.", "Be kind."}
    both = [system(("standard", "Be kind."), price, str(n)) for n in range(200)]
    assert 70 <= both.count(AGENT_SYSTEM_PROMPT) <= 130
    with pytest.raises(ValidationError, match="system_prompts"):
        config(system_prompts=[])


def test_who_has_a_date_is_told_it_with_the_weekday(price: Task) -> None:
    dated = price.model_copy(update={"now": "2026-03-10 14:05"})
    assert system(("standard",), dated) == (
        f"{AGENT_SYSTEM_PROMPT}\n\nIt is Tuesday, 2026-03-10 14:05."
    )
    assert system(("你是一个助手。",), dated) == (
        "你是一个助手。\n\n现在是 2026-03-10 14:05，星期二。"
    )
    assert system(("Be kind.",), price) == "Be kind."
    assert spoken("") == ""


def test_the_standard_prompt_says_what_final_messages_are_held_to() -> None:
    for phrase in (f"'{NO_TOOL}'", f"'{MISSING_VALUE}'", f"'{NOT_FOUND}'", "'; '", "<answer>"):
        assert phrase in AGENT_SYSTEM_PROMPT


def test_only_a_share_of_the_prompts_asks_for_tags() -> None:
    prompts = TrajectoriesConfig.model_validate(block("trajectories")).system_prompts
    tagged = [text for text in prompts if text == "standard" or "<answer>" in text]
    assert 0 < len(tagged) <= len(prompts) / 2
    assert len(set(prompts)) == len(prompts)


def test_people_read_an_answer_without_its_tags() -> None:
    assert untagged(final_message("The price is", ["5", "6"])) == "The price is 5; 6"
    text = "Two.\n\n<answer>a\nb</answer> and <answer>c</answer>"
    assert untagged(text) == "Two.\n\na\nb and c"
    assert extract_answer(untagged(text)) is None
    assert untagged("1 < 2, <answer> left open") == "1 < 2, <answer> left open"


MODEL: dict[str, Any] = {"backend": "openai", "model": "m"}


def test_a_model_is_not_let_loose_on_services_that_rules_make_up(
    homes: ToolServer, toy: ToolServer, price: Task
) -> None:
    live = task(toy, "Note?", step("read_note", name=given("hello")))
    with Agenda([price, live], [homes, toy]) as agenda:
        with pytest.raises(ParamsError, match=r"emulator=openai.*allow_rule_emulator=true"):
            refuse_rule_emulator(config(agent=MODEL), agenda)
        refuse_rule_emulator(config(agent=MODEL, allow_rule_emulator=True), agenda)
        refuse_rule_emulator(config(agent=MODEL, emulator=MODEL), agenda)
        refuse_rule_emulator(config(agent=OFFLINE, emulator=MODEL), agenda)
        refuse_rule_emulator(config(), agenda)
    with Agenda([live], [homes, toy]) as agenda:
        refuse_rule_emulator(config(agent=MODEL), agenda)
