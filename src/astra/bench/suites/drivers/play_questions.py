"""Driver of single questions (AIME, GPQA): asks each once, and checks the last answer stated.

``math``: the last ``\\boxed{...}``, compared as numbers where it is plain, else by math-verify,
which given the whole text would take all boxes together. ``choice``: the last letter stated.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import wire
from openai import APIError, DefaultHttpxClient, OpenAI

PACKAGES = ("math-verify", "openai")
CONNECTIONS = DefaultHttpxClient(timeout=None, trust_env=False)
MOST_CHARS = 200
"""The longest box that is parsed; a longer one is no AIME answer."""
_CHOICES = (
    re.compile(
        r"answer(?:\s+is)?\s*[:=]?\s*\**\s*\(?\\?(?:boxed\{|text\{)*([ABCD])\b", re.IGNORECASE
    ),
    re.compile(r"\\boxed\{\s*(?:\\text\{)?\s*\(?([ABCD])\b"),
)


def last_box(text: str) -> str | None:
    """What is inside the last ``\\boxed{...}`` that closes."""
    start = text.rfind("\\boxed{")
    while start >= 0:
        depth, begin = 0, start + len("\\boxed")
        for at in range(begin, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                return text[begin + 1 : at]
        start = text.rfind("\\boxed{", 0, start)
    return None


def same_number(gold: str, box: str) -> bool:
    plain = box.strip().strip("$ ").replace(",", "").replace("\\!", "")
    if plain.isascii() and plain.isdecimal():
        return int(plain) == int(gold)
    if len(box) > MOST_CHARS:
        return False
    from math_verify import LatexExtractionConfig, parse, verify

    # Without time limits: they use signals, which threads do not have; the box is short.
    found = parse(f"$\\boxed{{{box}}}$", [LatexExtractionConfig()], parsing_timeout=None)
    wanted = parse(f"${gold}$", parsing_timeout=None)
    return bool(found) and bool(verify(wanted, found, timeout_seconds=None))


def last_choice(text: str) -> str | None:
    found = [match for pattern in _CHOICES for match in pattern.finditer(text)]
    return max(found, key=lambda one: one.start(1)).group(1).upper() if found else None


def judge(question: dict[str, Any], text: str) -> tuple[bool, str]:
    """Whether the answer is right, and what there is to say where it is not."""
    if question["kind"] == "choice":
        letter = last_choice(text)
        return letter == question["gold"], "" if letter else "no letter stated"
    box = last_box(text)
    if box is None:
        return False, "no box"
    return same_number(question["gold"], box), ""


def attempt(
    main: wire.Wire, questions: dict[str, dict[str, Any]], job: dict[str, Any]
) -> dict[str, Any]:
    endpoint = main.request["endpoints"]["model"]
    client: Any = OpenAI(
        base_url=endpoint["base_url"], api_key="none", max_retries=0, http_client=CONNECTIONS,
        default_headers={wire.ENTRY_HEADER: job["entry_id"].encode("ascii", "replace").decode()},
    )  # fmt: skip
    question = questions[job["entry_id"]]
    asked = [{"role": "user", "content": question["prompt"]}]
    try:
        reply = client.chat.completions.create(
            model=endpoint["model"], messages=asked, **main.decoding(job)
        )
    except APIError as error:
        if not wire.outgrown(error):
            raise
        scores = {"accuracy": wire.scored(0)}
        return {"outcome": "overflow", "scores": scores, "reason": wire.said(error), "steps": 1}
    choice = reply.choices[0]
    text = choice.message.content or ""
    right, reason = judge(question, text)
    if choice.finish_reason == "length":
        reason = f"cut off at the token limit; {reason}".rstrip("; ")
    return {
        "outcome": "scored",
        "scores": {"accuracy": wire.scored(right)},
        "reason": "" if right else reason,
        "steps": 1,
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
        # The problem itself stays where it came from: episodes are shown and pushed.
        "messages": [{"role": "assistant", "content": text}],
    }


def main() -> None:
    channel = wire.Wire()
    raw = Path(os.environ["QUESTIONS"]).read_bytes()
    rows = [json.loads(line) for line in raw.decode().splitlines() if line.strip()]
    questions = {row["id"]: row for row in rows}
    if len(questions) < len(rows):
        raise ValueError("two problems share an id")
    if channel.request["task"] == "list":
        listed = [(row["id"], row["category"]) for row in rows]
        channel.listing(listed, PACKAGES, data=hashlib.sha256(raw).hexdigest()[:16])
        return
    channel.play(lambda job: attempt(channel, questions, job))


if __name__ == "__main__":
    main()
