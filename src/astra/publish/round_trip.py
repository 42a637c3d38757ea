"""One request with a tool, from the system prompt to the answer, which a policy's card shows.

The messages are what a whole exchange looks like; ``probes/load_policy.py`` renders them by the
template that is published and lets the policy write its two turns.
"""

from __future__ import annotations

from typing import Any

from astra.agent.prompt import AGENT_SYSTEM_PROMPT, final_message
from astra.records.message import MessageRole

FILE = "round_trip.json"
QUESTION = "What is the price of Amber Cove?"
RESULT = "812"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_price",
        "description": "The price of a listing.",
        "parameters": {
            "type": "object",
            "properties": {"listing": {"type": "string"}},
            "required": ["listing"],
        },
    },
}


def example() -> dict[str, Any]:
    """The messages and the tool's document, in OpenAI's form."""
    call = {"name": "get_price", "arguments": {"listing": "Amber Cove"}}
    messages = [
        {"role": MessageRole.SYSTEM.value, "content": AGENT_SYSTEM_PROMPT},
        {"role": MessageRole.USER.value, "content": QUESTION},
        {
            "role": MessageRole.ASSISTANT.value,
            "content": "",
            "tool_calls": [{"id": "call_0", "type": "function", "function": call}],
        },
        {
            "role": MessageRole.TOOL.value, "name": "get_price", "tool_call_id": "call_0",
            "content": RESULT,
        },
        {"role": MessageRole.ASSISTANT.value, "content": final_message("The price is", [RESULT])},
    ]  # fmt: skip
    return {"messages": messages, "tools": [TOOL]}
