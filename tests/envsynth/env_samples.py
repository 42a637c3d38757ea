"""A little estate office, and questions about it, for the tests of environment synthesis."""

from __future__ import annotations

from typing import Any

from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.records.qa import (
    Answer,
    Operation,
    QAInstance,
    QuestionKind,
    Scenario,
    Split,
    SubQuestion,
    Table,
)
from configs import code_config, embedding_config

OFFLINE = {"backend": "offline", "model": "rules-1"}
ENVS = EnvsConfig.model_validate(
    {
        "teacher": OFFLINE, "nodes": "needed", "outer_attempts": 1, "inner_attempts": 1,
        "unlike_names": 0.0, "formats": 0.0, "other_keys": 3, "max_asks": 48, "verify_batch": 8,
        "sandbox": {"call_timeout_s": 0.5},
    }
)  # fmt: skip
MERGED = EnvsMergedConfig.model_validate(
    {
        "teacher": OFFLINE, "nodes": "needed", "merge_attempts": 1, "per_band": 2,
        "max_asks": 10, "verify_batch": 8,
        "embedding": embedding_config(), "code": code_config(),
        "sandbox": {"call_timeout_s": 0.5}, "goals": "none",
    }
)  # fmt: skip

LISTINGS = Table(
    name="listings",
    columns=("listing", "agent", "district", "asking_price", "rooms", "listed_date"),
    rows=(
        ("Amber Cove", "Nora Holt", "Sage Park", 812, 3, "2024-01-08"),
        ("Jade Mill", "Nora Holt", "Gold Rock", 455, 2, "2024-07-23"),
        ("Pine Gate", "Lena Orr", "Sage Park", 633, 3, "2024-11-09"),
        ("Ruby Lake", "Lena Orr", "Gold Rock", 290, 4, "2024-06-19"),
        ("Opal Dale", "Hugo Penn", "Calm Bay", 501, 5, "2024-03-02"),
        ("Onyx Pass", "Hugo Penn", "Sage Park", 378, 2, "2024-09-30"),
    ),
)
AGENTS = Table(
    name="agents",
    columns=("agent", "office", "fee"),
    rows=(("Nora Holt", "Iron Tower", 2.5), ("Lena Orr", "Teal Plaza", 4),
          ("Hugo Penn", "Iron Tower", 3)),
)  # fmt: skip
RATES = Table(
    name="rates", columns=("currency", "rate"), rows=(("crowns", 2.5), ("pesos", 4), ("francs", 3))
)


def answer(kind: str, value: Any, **extra: Any) -> Answer:
    return Answer.model_validate({"type": kind, "value": value, **extra})


def asked(
    number: int, op: str, relation: str, table: str, arguments: dict[str, Any], select: str,
    gold: Answer, dependencies: tuple[int, ...] = (), hop: int = 1, tool: bool | None = True,
) -> SubQuestion:  # fmt: skip
    return SubQuestion(
        id=number, hop_level=hop, question=f"{op} {relation} of {arguments}?", answer=gold,
        dependencies=dependencies, tool_necessity=tool,
        operation=Operation(
            op=op, relation=relation, table=table, arguments=arguments, select=select
        ),
    )  # fmt: skip


def price(number: int, listing: str, value: int) -> SubQuestion:
    gold = answer("number", value)
    arguments = {"listing": listing}
    return asked(
        number, "lookup", "listing.asking_price", "listings", arguments, "asking_price", gold
    )


def instance(
    *questions: SubQuestion,
    split: Split = Split.TRAIN,
    domain: str = "real_estate",
    final: Answer | None = None,
    entities: tuple[str, ...] = ("Amber Cove", "Jade Mill"),
    composition: str = "",
) -> QAInstance:
    return QAInstance(
        split=split, domain=domain, language="en", source="test",
        kind=QuestionKind.READ_ONLY, scenario=Scenario.PARALLEL_SINGLE_HOP,
        main_question=" And ".join(question.question for question in questions),
        final_answer=final or questions[-1].answer, sub_questions=questions,
        knowledge=(LISTINGS, AGENTS, RATES), entities=entities,
        composition=composition or f"{split}:{domain}",
    )  # fmt: skip


EVERY_OP = (
    price(1, "Amber Cove", 812),
    asked(2, "lookup", "listing.agent", "listings", {"listing": "Amber Cove"}, "agent",
          answer("string", "Nora Holt")),
    asked(3, "lookup", "agent.office", "agents", {"agent": {"from": 2}}, "office",
          answer("string", "Iron Tower", domain_size=2), (2,), 2),
    asked(4, "list", "agent.listings", "listings", {"agent": "Lena Orr"}, "listing",
          answer("list", ["Pine Gate", "Ruby Lake"])),
    asked(5, "count", "district.listings", "listings", {"district": "Sage Park"}, "",
          answer("number", 3, domain_size=6)),
    asked(6, "count", "district.listings", "listings", {"district": "Sage Park", "rooms": 3}, "",
          answer("number", 2, domain_size=6)),
    asked(7, "sum", "agent.total_asking_price", "listings", {"agent": "Nora Holt"},
          "asking_price", answer("number", 1267)),
    asked(8, "mean", "office.average_fee", "agents", {"office": "Iron Tower"}, "fee",
          answer("number", 2.75, tolerance=0.01)),
    asked(9, "max", "district.highest_asking_price", "listings", {"district": "Gold Rock"},
          "asking_price", answer("number", 455)),
    asked(10, "min", "district.lowest_asking_price", "listings", {"district": "Gold Rock"},
          "asking_price", answer("number", 290)),
    asked(11, "argmax", "agent.dearest_listing", "listings", {"agent": "Hugo Penn"},
          "listing:asking_price", answer("string", "Opal Dale")),
    asked(12, "argmin", "agent.cheapest_listing", "listings", {"agent": "Hugo Penn"},
          "listing:asking_price", answer("string", "Onyx Pass")),
    asked(13, "convert", "amount.convert_price", "rates", {"amount": {"from": 1},
          "currency": "crowns"}, "rate", answer("number", 2030), (1,), 2),
    asked(14, "lookup", "listing.listed_date", "listings", {"listing": "Amber Cove"},
          "listed_date", answer("date", "2024-01-08")),
    asked(15, "add_days", "date.add_days", "", {"date": {"from": 14}, "days": 14}, "",
          answer("date", "2024-01-22"), (14,), 2),
    asked(16, "days_between", "date.days_between", "", {"start": {"from": 14},
          "end": {"from": 15}}, "", answer("number", 14, domain_size=400), (14, 15), 3),
    asked(17, "greater", "compare.greater", "", {"names": ["Amber Cove", "Jade Mill"],
          "values": [812, 455]}, "", answer("string", "Amber Cove"), (), 1, False),
)  # fmt: skip
