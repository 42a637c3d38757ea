"""The first messages of an episode: a system prompt that is drawn, the date, the question."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.records.base import content_id
from astra.records.message import Message, MessageRole
from astra.records.task import Task
from astra.text.words import has_cjk

STANDARD = "standard"
"""The word that stands for the standard system prompt in a list of them."""
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_CHINESE_DAYS = "一二三四五六日"


def opening_messages(task: Task, prompts: Sequence[str], key: str) -> tuple[Message, Message]:
    """The system prompt that the episode named ``key`` draws, told the date, and the question."""
    text = prompts[int(content_id(["prompt", key]), 16) % len(prompts)]
    prompt = AGENT_SYSTEM_PROMPT if text == STANDARD else text
    return (
        Message(role=MessageRole.SYSTEM, content=_dated(prompt, task.now)),
        Message(role=MessageRole.USER, content=task.question),
    )


def spoken(now: str) -> str:
    """A task's ``now`` with its weekday: ``Tuesday, 2026-03-10 14:05``; empty stays empty."""
    return f"{_WEEKDAYS[datetime.fromisoformat(now).weekday()]}, {now}" if now else ""


def _dated(prompt: str, now: str) -> str:
    if not now:
        return prompt
    if has_cjk(prompt):
        day = _CHINESE_DAYS[datetime.fromisoformat(now).weekday()]
        return f"{prompt}\n\n现在是 {now}，星期{day}。"
    return f"{prompt}\n\nIt is {spoken(now)}."
