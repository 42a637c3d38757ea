from __future__ import annotations

from collections.abc import Iterator

import pytest
from arena_samples import PRICE_CODE, ROOMS_CODE, one_parameter_tool

from astra.records.environment import Arena, ArenaStep
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox


def number(value: float, domain_size: int | None = None) -> Answer:
    return Answer(type=AnswerType.NUMBER, value=value, domain_size=domain_size)


@pytest.fixture
def arena() -> Arena:
    """Two prices (large domain) and a count (small domain); the final answer is a list."""
    steps = (
        ArenaStep(id=1, hop_level=1, question="Price of Amber Cove?", answer=number(812),
                  tool_name="get_price", arguments={"listing": "Amber Cove"}),
        ArenaStep(id=2, hop_level=1, question="Price of Jade Mill?", answer=number(455),
                  tool_name="get_price", arguments={"listing": "Jade Mill"}),
        ArenaStep(id=3, hop_level=1, question="Rooms of Jade Mill?", answer=number(3, 6),
                  tool_name="count_rooms", arguments={"listing": "Jade Mill"}),
        ArenaStep(id=4, hop_level=2, question="All three?", dependencies=(1, 2, 3),
                  answer=Answer(type=AnswerType.LIST, value=[812, 455, 3])),
    )  # fmt: skip
    return Arena(
        qa_id="qa", split=Split.TRAIN, domain="real_estate", language="en", source="test",
        kind=QuestionKind.READ_ONLY, scenario=Scenario.PARALLEL_SINGLE_HOP, hops=2,
        main_question="Prices of Amber Cove and Jade Mill, and rooms of Jade Mill?",
        final_answer=Answer(type=AnswerType.LIST, value=[812, 455, 3]),
        tools=(one_parameter_tool("get_price", PRICE_CODE),
               one_parameter_tool("count_rooms", ROOMS_CODE)),
        steps=steps, entities=("Amber Cove", "Jade Mill"), composition="c",
    )  # fmt: skip


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with LocalSandbox(SandboxLimits(call_timeout_s=0.5)) as opened:
        yield opened
