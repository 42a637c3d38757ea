"""The card tells look-ups and hard arenas apart, and is refused for arenas that pay wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from astra.arena import scripted
from astra.cli import arena_card
from astra.cli.arena_card import CardError, card, policy_rewards
from astra.records.environment import Arena, ArenaStep, ArenaTool, Trait
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.tool import Tool
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox

CODE = """
def get_depth(berth):
    return {"Low Tide": 4, "Tall Mast": 29}[berth]
"""
PARAMETERS = {
    "type": "object",
    "properties": {"berth": {"type": "string"}},
    "required": ["berth"],
}


def arena(split: Split, depths: dict[str, int], *traits: Trait) -> Arena:
    """An arena with a look-up for every berth."""
    answers = [Answer(type=AnswerType.NUMBER, value=depth) for depth in depths.values()]
    asked = [f"What is the depth of {berth}?" for berth in depths]
    both = Answer(type=AnswerType.LIST, value=list(depths.values()))
    tool = Tool(name="get_depth", description="Get the depth of a berth.", parameters=PARAMETERS)
    return Arena(
        qa_id=f"{split}:{'+'.join(depths)}", split=split, domain="harbour", language="en",
        source="test", kind=QuestionKind.READ_ONLY, scenario=Scenario.SINGLE_HOP, hops=1,
        main_question=" ".join(asked), final_answer=both if len(depths) > 1 else answers[0],
        tools=(ArenaTool(tool=tool, code=CODE),), entities=tuple(depths),
        steps=tuple(
            ArenaStep(id=number, hop_level=1, question=question, answer=gold,
                      tool_name="get_depth", arguments={"berth": berth})
            for number, (berth, question, gold) in enumerate(
                zip(depths, asked, answers, strict=True), 1)
        ),
        composition="c", traits=traits,
    )  # fmt: skip


ARENAS = (
    arena(Split.TRAIN, {"Low Tide": 4}),
    arena(Split.TRAIN, {"Tall Mast": 29, "Low Tide": 4}, Trait.HOPS, Trait.PAGES),
    arena(Split.HELDOUT, {"Tall Mast": 29}, Trait.HOPS, Trait.PAGES),  # of one call: a look-up
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with LocalSandbox(SandboxLimits(call_timeout_s=20.0)) as opened:
        yield opened


def row(text: str, name: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_policies_are_paid_by_difficulty(sandbox: Sandbox) -> None:
    rewards = policy_rewards(ARENAS, sandbox)
    assert {name: len(paid[scripted.ScriptedPolicy.GOLD]) for name, paid in rewards.items()} == {
        "lookup": 2, "hard": 1,
    }  # fmt: skip
    text = card(ARENAS, rewards)
    assert row(text, "gold")[1:] == ["1.000", "1.000", "1.000", "1.000"]
    assert row(text, "silent")[1:] == ["0.000", "0.000", "0.000", "0.000"]
    assert row(text, "names")[1:] == ["1.000", "1.000", "1.000", "1.000"]
    assert max(float(paid) for paid in row(text, "repeat")[1:] if paid != "-") <= 0.5
    assert row(text, "hops") == ["50.0 %", "-", "100.0 %"]
    assert row(text, "pages") == ["50.0 %", "-", "100.0 %"]
    assert row(text, "hard") == ["50.0 %", "-", "0.0 %"]


def test_a_difficulty_without_arenas_has_dashes(sandbox: Sandbox) -> None:
    text = card(ARENAS[:1], policy_rewards(ARENAS[:1], sandbox))
    assert row(text, "gold")[1:] == ["1.000", "1.000", "-", "-"]


def test_no_card_is_written_for_an_arena_that_pays_wrongly(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rate(*given: Any) -> Any:
        scores = scripted.rate(*given)
        for policies in scores:
            silent = policies[scripted.ScriptedPolicy.SILENT]
            policies[scripted.ScriptedPolicy.SILENT] = replace(silent, reward=0.1)
        return scores

    monkeypatch.setattr(arena_card, "rate", rate)
    with pytest.raises(CardError, match=f"arena {ARENAS[0].id}: silent scores 0.1"):
        policy_rewards(ARENAS, sandbox)
