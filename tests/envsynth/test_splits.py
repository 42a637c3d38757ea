"""Which names keep two splits apart: those that somebody who solves a question meets."""

from __future__ import annotations

import pytest
from env_samples import LISTINGS, answer, asked, instance, price

from astra.envsynth.splits import SplitGuard, met_entities
from astra.records.qa import QAInstance, Split


def one(split: Split, *entities: str) -> QAInstance:
    return instance(price(1, "Amber Cove", 812), split=split, entities=entities, composition=split)


def test_a_name_that_only_stands_in_rows_beside_is_shared() -> None:
    held_out = one(Split.HELDOUT, "Amber Cove", "Lena Orr")
    asking = asked(
        1, "lookup", "listing.agent", "listings", {"listing": "Pine Gate"}, "agent",
        answer("string", "Lena Orr"),
    )  # fmt: skip
    train = instance(asking, entities=("Pine Gate", "Lena Orr"))
    assert "Lena Orr" in str(LISTINGS.rows)
    assert met_entities(held_out) == {"amber cove"}
    assert SplitGuard([held_out, train]).violation(train) is None


@pytest.mark.parametrize("where", ["question", "argument", "answer", "list", "final"])
def test_a_name_that_is_asked_about_or_found_is_not(where: str) -> None:
    held_out = one(Split.HELDOUT, "Amber Cove")
    name = "amber  COVE"  # case and spaces do not matter
    step = price(1, "Pine Gate", 633)
    made = instance(step, entities=(name, "Pine Gate"))
    assert met_entities(made) == {"pine gate"}
    if where == "question":
        made = made.model_copy(update={"main_question": f"Is {name} it?"})
    elif where == "argument":
        assert step.operation is not None
        given = step.operation.model_copy(update={"arguments": {"listing": name}})
        made = made.model_copy(
            update={"sub_questions": (step.model_copy(update={"operation": given}),)}
        )
    elif where == "final":
        made = made.model_copy(update={"final_answer": answer("string", name)})
    else:
        found = answer("string", name) if where == "answer" else answer("list", [{"is": name}])
        made = made.model_copy(
            update={"sub_questions": (step.model_copy(update={"answer": found}),)}
        )
    violation = SplitGuard([held_out, made]).violation(made)
    assert violation is not None
    assert violation.reason == "split_entity"


def test_part_of_a_longer_name_is_no_mention() -> None:
    made = instance(price(1, "Amber Cove", 812), entities=("Amber Co", "Cove"))
    assert met_entities(made) == {"cove"}
