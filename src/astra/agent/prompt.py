"""The standard system prompt, and the form of a final answer.

Arenas and benchmarks show it to every policy, trajectories to a share of the agents. What a final
message is held to is said here and nowhere else.
"""

import re
from collections.abc import Sequence

NO_TOOL = "no tool"
"""The answer where no offered tool can help."""
MISSING_VALUE = "missing value"
"""The answer where a tool's required value was not given."""
NOT_FOUND = "not found"
"""The answer where the tools report that there is none."""

AGENT_SYSTEM_PROMPT = (
    "You are an assistant with tools. Call a tool when it is needed, copy values exactly, and "
    "use results of earlier calls in later ones; independent calls may go out in one turn. Where "
    "it is open whether a call that changes something went through, look before you send it "
    "again. If no tool can help or a value is missing, say so. End with the final answer inside "
    "<answer> and </answer>: only the values asked for, as short as they come, several ones "
    "separated by '; '; for an action, what was done; "
    f"'{NO_TOOL}' if nothing offered can help, '{MISSING_VALUE}' if a value that a tool needs was "
    f"not given, '{NOT_FOUND}' if the tools report that there is none."
)

_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


def final_message(lead: str, answers: Sequence[str]) -> str:
    """A final message: a short lead, then the answers between the tags."""
    return f"{lead} <answer>{'; '.join(answers)}</answer>"


def extract_answer(text: str) -> str | None:
    """What stands in the last pair of answer tags, stripped; None if there is no pair.

    An opening tag belongs to no pair where another one follows before the closing tag.
    """
    answers = _ANSWER.findall(text)
    return answers[-1].strip() if answers else None


def untagged(text: str) -> str:
    """A message as people read it: the answer without its tags."""
    return _ANSWER.sub(r"\1", text)
