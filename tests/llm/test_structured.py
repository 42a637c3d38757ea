from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from astra.llm.protocol import ParseError
from astra.llm.structured import (
    instructions,
    is_object,
    opening_thought,
    parse_reply,
    response_format,
)


class Verdict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    ok: bool
    score: float
    notes: list[str] = []


class Loose(BaseModel):
    value: int = 0


GOOD = '{"ok": true, "score": 1, "notes": ["a"]}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here it is:\n```\n{GOOD}\n```\nAnything else?",
        f"I judge {{so}} and so: {GOOD} because.",
        f'<think>maybe {{"ok": false, "score": 0}}?</think>\n{GOOD}',
        f'a draft {{"ok": false, "score": 0}} </think> {GOOD}',
        f"{GOOD}\n{GOOD}",
        f'{GOOD}\nNote: the placeholder {{"city"}} stays.',
        f'The paths {{"id"}} and {{ "a:b", "c" or "d" }} are used.\n{GOOD}',
        f'In Python: {{"it\\"s", "b",}}. {GOOD}',
        f'A call is due first:\n```json\n{{"tool": "x"}}\n```\n{GOOD}',
        f'{GOOD}\nIt stands for\n```json\n{{"tool": "x", "with": {{"score": 2}}}}\n```',
    ],
)
def test_accepts_what_models_write_around_the_object(text: str) -> None:
    assert parse_reply(text, Verdict) == Verdict(ok=True, score=1.0, notes=["a"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("no idea", "no complete JSON"),
        ("<think>" + GOOD, "empty"),
        ('{"ok": true, "score": 1, "notes": ["a"', "no complete JSON"),
        ('{"ok": "true", "score": 1}', "ok"),
        ('{"ok": true, "score": "0.0"}', "score"),
        ('{"ok": true, "score": NaN}', "no complete JSON"),
        ('{"ok": true, "ok": false, "score": 1}', "no complete JSON"),
        ('{"ok": true}', "score"),
        ('{"ok": true, "score": 1, "why": "x"}', "why"),
        ('{"ok": true, "score": 1} or {"ok": false, "score": 0}', "2 different objects"),
        ("[" + GOOD + ', {"ok": false, "score": 0}]', "2 different objects"),
        ("{" * 100_000, "no complete JSON"),
        ('{"a":' * 100_000, "no complete JSON"),
        (GOOD + '\n{"ok": false, "sc', "no complete JSON"),
        (GOOD + '\n{"ok": false, "score": 0,}', "no complete JSON"),
        ('{"ok": true, "score": 1,}\n{"ok": false, "score": 0}', "no complete JSON"),
        ('{"city"} stays, and the verdict is in {"ok": true, "sco', "no complete JSON"),
        ('{"ok"} is true', "no complete JSON"),
        (f'{{"ok", {GOOD}}}', "no complete JSON"),
        ('```json\n{"tool": "x"}\n```\n{"ok": true, "sco', "tool"),
        ('```json\n{"tool": "x"}\n```\nNothing else.', "tool"),
        ('```json\n{"ok": "yes", "score": 1}\n```\nnot {"ok": false, "score": 0}', "ok"),
        (
            '```json\n{"tool": "x"}\n```\n{"ok": true, "score": 1} {"ok": false, "score": 0}',
            "2 different objects",
        ),
        ('<think>I write {"ok": true, "score": 1, "notes": ["</think>"]}', "empty"),
    ],
)
def test_refuses_anything_else(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_reply(text, Verdict)


def test_never_takes_an_object_nested_in_a_broken_one() -> None:
    with pytest.raises(ParseError):
        parse_reply('{"items": [{"value": 3}, ', Loose)


def test_a_string_that_mentions_thinking_tags_survives() -> None:
    value = {"ok": True, "score": 1, "notes": ["<think>x</think>", "```json\n{}\n```"]}
    assert parse_reply(json.dumps(value), Verdict).notes == value["notes"]


@pytest.mark.parametrize("note", ["opens <think>", "ends with </think>", "<reasoning>x</think>"])
@pytest.mark.parametrize(
    "around",
    [
        "```json\n%s\n```",
        "Answer: %s",
        "<think>hm</think>%s",
        'a draft {"ok": false, "score": 0} </think> %s',
        '<think>or {"ok": false, "score": 0, "notes": ["</think>"]}?</think> %s',
    ],
)
def test_and_also_with_prose_a_fence_or_thinking_around_it(note: str, around: str) -> None:
    text = around % json.dumps({"ok": True, "score": 1, "notes": [note, "<\\\\think>"]})
    assert parse_reply(text, Verdict).notes == [note, "<\\\\think>"]
    assert is_object(text) == around.startswith(("<think>hm", "a draft", "<think>or"))


def test_a_valid_object_in_a_fence_goes_before_another_in_prose() -> None:
    text = f'```json\n{GOOD}\n```\nand not {{"ok": false, "score": 0}}'
    assert parse_reply(text, Verdict).ok


def test_a_long_reply_full_of_braces_is_read_in_time() -> None:
    started = time.monotonic()
    for braces in (' {"z"}', '{"a" ', ' {"a": 1}', '{"', '{"a": {'):
        with pytest.raises(ParseError):
            parse_reply("</think>" + braces * 5000, Verdict)
    assert time.monotonic() - started < 5


def test_strict_only_where_a_server_can_enforce_it() -> None:
    class Free(BaseModel):
        arguments: dict[str, Any]

    field, text, enforced = response_format(Verdict)
    assert json.loads(text) == field
    schema = field["json_schema"]
    assert enforced
    assert schema["strict"] is True
    assert schema["schema"]["required"] == ["ok", "score", "notes"]
    assert schema["schema"]["additionalProperties"] is False
    field, _, enforced = response_format(Free)
    assert not enforced
    assert field["json_schema"]["strict"] is False


def test_a_schema_keeps_the_order_of_the_fields_and_says_nothing_of_the_code() -> None:
    class Judged(BaseModel):
        """Reply to ``some/template``."""

        title: str
        reason: str
        ok: bool

    form, _, _ = response_format(Judged)
    schema = form["json_schema"]["schema"]
    assert list(schema["properties"]) == ["title", "reason", "ok"]
    assert schema["properties"]["title"] == {"type": "string"}
    assert not {"title", "description"} & schema.keys()
    shown = instructions(Judged)
    assert shown.index('"reason"') < shown.index('"ok"')
    assert "some/template" not in shown


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("<think>\nLook first.\n</think>\n\nDone.", "Look first."),
        ("  <reasoning>a</reasoning>b", "a"),
        ("Look first.\n</think>\n\nDone.", "Look first."),  # the template opened the block
        ("<think>a</think><think>b</think>c", "a"),
        ("<think>never closed", ""),
        ("Done: <think>late</think>", ""),
        ("Done.", ""),
        ("<think>\n\n</think>\n\nDone.", ""),
    ],
)
def test_a_thought_is_what_the_text_begins_with(text: str, thought: str) -> None:
    assert opening_thought(text) == thought
