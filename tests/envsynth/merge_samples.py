"""Tools that only a teacher can merge: their questions state no operation, their data differ."""

from __future__ import annotations

from typing import Any

from env_samples import answer, instance, price

from astra.records.environment import Environment
from astra.records.qa import QAInstance
from astra.records.tool import Tool

PRICES = {"Amber Cove": 812, "Jade Mill": 455, "Pine Gate": 633, "Ruby Lake": 290,
          "Opal Dale": 501, "Onyx Pass": 378, "Teal Ford": 940, "Coral End": 267}  # fmt: skip


def price_tool(name: str = "get_asking_price", parameter: str = "listing") -> Tool:
    schema = {
        "type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter],
        "additionalProperties": False,
    }  # fmt: skip
    output = {"type": "number"}
    return Tool(
        name=name, description="Get an asking price.", parameters=schema, output_schema=output
    )


def price_code(*listings: str, parameter: str = "listing", name: str = "get_asking_price") -> str:
    """A look-up that knows some listings only."""
    rows = "".join(
        f'    {{"listing": "{listing}", "asking_price": {PRICES[listing]}}},\n'
        for listing in listings
    )
    return (
        f"ROWS = [\n{rows}]\n\n\ndef {name}({parameter}):\n    for row in ROWS:\n"
        f'        if row["listing"] == {parameter}:\n            return row["asking_price"]\n'
        f'    raise ValueError(f"no listing named {{{parameter}}}")\n'
    )


def environment(
    whole: QAInstance, number: int, listing: str, code: str, **named: str
) -> Environment:
    question = whole.sub_questions[number - 1]
    tool = price_tool(**named)
    (parameter,) = tool.parameters["properties"]
    return Environment(
        qa_id=whole.id, sub_question_id=number, tool=tool, code=code,
        arguments={parameter: listing}, answer=question.answer, checks={"gold_calls": 4},
    )  # fmt: skip


def free(*listings: str) -> QAInstance:
    """A question about the prices of listings that states no operation and has no table."""
    steps = [
        price(number, listing, PRICES[listing]).model_copy(
            update={"operation": None, "question": f"What does {listing} cost?"}
        )
        for number, listing in enumerate(listings, 1)
    ]
    final = answer("list", [PRICES[listing] for listing in listings])
    return instance(*steps, final=final, entities=listings).model_copy(update={"knowledge": ()})


def free_pair() -> tuple[QAInstance, list[Environment]]:
    """Two of them, of which each tool knows its own and two more."""
    whole = free("Amber Cove", "Jade Mill")
    first = price_code("Amber Cove", "Pine Gate", "Ruby Lake")
    second = price_code("Jade Mill", "Opal Dale", "Onyx Pass")
    made = [environment(whole, 1, "Amber Cove", first), environment(whole, 2, "Jade Mill", second)]
    return whole, made


class Asked:
    """Which templates a teacher was asked with; the replies are its own."""

    def __init__(self, teacher: Any) -> None:
        self.name = teacher.name
        self._teacher = teacher
        self.asks: list[Any] = []

    @property
    def templates(self) -> list[str]:
        return [ask.template.partition("/")[2] for ask in self.asks]

    async def ask(self, ask: Any) -> Any:
        self.asks.append(ask)
        return await self._teacher.ask(ask)
