"""Small tools that arena tests share."""

from __future__ import annotations

from astra.records.environment import ArenaTool
from astra.records.tool import Tool

PRICE_CODE = """
PRICES = {"Amber Cove": 812, "Jade Mill": 455}


def get_price(listing):
    if listing not in PRICES:
        raise ValueError(f"no listing named {listing}")
    return PRICES[listing]
"""
ROOMS_CODE = """
def count_rooms(listing):
    return {"Amber Cove": 3, "Jade Mill": 3}[listing]
"""


def one_parameter_tool(name: str, code: str, parameter: str = "listing") -> ArenaTool:
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
        "additionalProperties": False,
    }
    return ArenaTool(tool=Tool(name=name, description="A tool.", parameters=schema), code=code)
