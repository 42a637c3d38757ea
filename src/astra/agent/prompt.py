"""The system prompt of all agents, and the form of a final answer.

Trajectories, arenas and benchmarks show the policy the same text.
"""

import re
from collections.abc import Sequence

AGENT_SYSTEM_PROMPT = (
    "You are an assistant with tools. Call a tool when it is needed, copy values exactly, and "
    "use results of earlier calls in later ones. If no tool can help or a value is missing, say "
    "so. End with the final answer inside <answer> and </answer>; separate several answers "
    "with '; '."
)

NO_TOOL = "no tool"
"""The answer where no offered tool can help."""
MISSING_VALUE = "missing value"
"""The answer where a tool's required value was not given."""
NOT_FOUND = "not found"
"""The answer where the tools report that there is none."""

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def final_message(lead: str, answers: Sequence[str]) -> str:
    """A final message: a short lead, then the answers between the tags."""
    return f"{lead} <answer>{'; '.join(answers)}</answer>"


def extract_answer(text: str) -> str | None:
    """What stands in the last pair of answer tags, stripped; None if there is no pair."""
    answers = _ANSWER.findall(text)
    return answers[-1].strip() if answers else None
