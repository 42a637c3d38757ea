from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from astra.llm.protocol import ParseError
from astra.llm.structured import instructions, opening_thought, parse_reply, response_format


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
