"""What a chat template does with tools, calls and thoughts, found by rendering probes with it.

A template of somebody else's is not read but tried. What cannot be used is refused with the
reason, before anything is trained or scored with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from jinja2.exceptions import TemplateError

from astra.agent.thoughts import THINK, THINK_END, split_thought
from astra.agent.toolcalls import parse_assistant
from astra.rollout.errors import PolicyError

PROBE_NAME, _THOUGHT, _RESULT = "probe_tool", "probe_thought", "probe_result"
_NAMED = "set policy.template to hermes, qwen3 or llama3 (or compact for the tiny policy)"

Documents = list[dict[str, Any]]
Render = Callable[[Documents, Documents, bool], str]
"""Messages, tools and whether the next turn's header follows -> the conversation as text."""


class Thoughts(StrEnum):
    """The thoughts that a template writes into a conversation."""

    NEVER = "never"  # the policy does not think, or its thoughts are not kept
    CURRENT = "current"  # those since the user spoke last, as Qwen3's own template
    ALL = "all"  # of every turn that has one


_USER: dict[str, Any] = {"role": "user", "content": "u"}
_ARGUMENTS = '{"x": 1}'
_FUNCTION = {"name": PROBE_NAME, "arguments": json.loads(_ARGUMENTS)}
PROBE: Documents = [
    _USER,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_0", "type": "function", "function": _FUNCTION}],
    },
]
"""A user message and a turn that calls, after which what follows a turn is rendered."""
SPOKEN_PROBE: Documents = [_USER, {"role": "assistant", "content": PROBE_NAME}]
"""The same with a turn without calls, which the user answers."""
_TOOL = {
    "type": "function",
    "function": {
        "name": PROBE_NAME,
        "description": "d",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": []},
    },
}
_ANSWERED = {"role": "tool", "content": _RESULT, "tool_call_id": "call_0", "name": PROBE_NAME}


def examine(render: Render, eos: str, owner: str) -> Thoughts:
    """Whose thoughts a template of ``owner`` writes, where it can be used at all.

    Raises PolicyError for one that hides tools or results, writes calls in another form than is
    read here (agent/toolcalls.py), or does not end a turn with ``eos``.
    """

    def refuse(why: str) -> PolicyError:
        return PolicyError(f"the chat template of {owner} {why}; {_NAMED}")

    def tried(messages: Documents, tools: Documents, header: bool) -> str:
        try:
            return render(messages, tools, header)
        except (TemplateError, TypeError) as error:
            raise refuse(f"does not render a conversation with calls ({error})") from error

    header = tried([_USER], [], True)
    turn = tried(PROBE, [], False)
    if header.rstrip().endswith(THINK):
        raise refuse(f"opens a thought itself ({THINK} stands in the header of each turn)")
    if not turn.startswith(header) or len(turn) == len(header):
        raise refuse("does not go on with an assistant's turn where its prompt ends")
    if eos not in turn[len(header) :]:
        raise refuse(f"ends a turn with {turn[-12:]!r}, and the tokenizer's EOS is {eos!r}")
    written = turn[len(header) : turn.index(eos, len(header))]
    calls = parse_assistant(split_thought(written)[1]).tool_calls
    if [(one.name, one.arguments) for one in calls] != [(PROBE_NAME, _ARGUMENTS)]:
        raise refuse(f"writes a call as {written!r}, and only <tool_call> tags are read")
    if PROBE_NAME not in tried([_USER], [_TOOL], True):
        raise refuse("does not show the tools")
    if _RESULT not in tried([*PROBE, _ANSWERED], [], True):
        raise refuse("does not show the results of tools")
    return _thoughts(tried, hushed=header.rstrip().endswith(THINK_END))


def _thoughts(render: Render, hushed: bool) -> Thoughts:
    """``hushed``: the header of a turn closes an empty thought."""
    thinking: Documents = [PROBE[0], {**PROBE[1], "reasoning_content": _THOUGHT}, _ANSWERED]
    if hushed or _THOUGHT not in render(thinking, [], True):
        return Thoughts.NEVER
    answer = {"role": "assistant", "content": "a"}
    later = render([*thinking, answer, _USER], [], True)
    return Thoughts.ALL if _THOUGHT in later else Thoughts.CURRENT


def written_spans(
    render: Render, eos: str, messages: Documents, tools: Documents, first: int
) -> list[tuple[int, int]]:
    """The characters of the rendered conversation that the assistant wrote, ``eos`` included, from
    message ``first`` on.

    A turn begins where its prompt ends, as in a rollout. Raises PolicyError where the prompt of a
    turn is not how the whole conversation begins.
    """
    text = render(messages, tools, False)
    spans: list[tuple[int, int]] = []
    for at in range(first, len(messages)):
        if messages[at]["role"] != "assistant":
            continue
        prompt = render(messages[:at], tools, True)
        end = text.find(eos, len(prompt))
        if not text.startswith(prompt) or end < 0:
            raise PolicyError(
                f"the chat template writes the conversation before assistant message {at} in "
                "another way once the message is there, so what is trained would not be what is "
                f"rolled; {_NAMED}"
            )
        spans.append((len(prompt), end + len(eos)))
    return spans
