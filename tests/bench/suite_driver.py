"""A driver for tests: plays a suite of made-up entries over the wire, one by one.

An entry's id says what becomes of it: the completion it asks for is its score ("1" or "0").
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any

ENTRIES = [(f"{category}_{index}", category) for category in ("a", "b") for index in range(10)]


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def ask(endpoint: dict[str, str], entry: str) -> tuple[int, dict[str, Any]]:
    body = {"model": endpoint["model"], "messages": [{"role": "user", "content": entry}]}
    request = urllib.request.Request(
        endpoint["base_url"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "X-Suite-Entry": entry},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def play(job: dict[str, Any], endpoint: dict[str, str]) -> dict[str, Any]:
    status, reply = ask(endpoint, job["entry_id"])
    fields = {"entry_id": job["entry_id"], "attempt": job["attempt"]}
    if status == 200:
        text = reply["choices"][0]["message"]["content"]
        score = {"kind": "scored", "value": float(text)}
        usage = reply["usage"]
        return {
            **fields, "outcome": "scored", "scores": {"accuracy": score}, "steps": 1,
            "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"],
            "messages": [{"role": "assistant", "content": text}],
        }  # fmt: skip
    if reply["error"].get("code") == "context_length_exceeded":
        zero = {"kind": "scored", "value": 0.0}
        return {**fields, "outcome": "overflow", "scores": {"accuracy": zero}}
    return {**fields, "outcome": "infra", "scores": {}, "reason": reply["error"]["message"]}


def main(behaviour: str) -> None:
    request = json.load(sys.stdin)
    if request["task"] == "list":
        entries = [{"id": entry, "category": category} for entry, category in ENTRIES]
        say(kind="listing", entries=entries, versions={"made_up": "1"})
        say(kind="end")
        return
    for number, job in enumerate(request["jobs"]):
        reply = play(job, request["endpoints"]["model"])
        if behaviour == "leaky":
            reply["reason"] = f"{dict(os.environ)} {json.dumps(request)}"
        say(kind="played", **reply)
        if behaviour == "twice":
            say(kind="played", **reply)
        elif behaviour == "dies" and number == 3:
            print("a simulator broke", file=sys.stderr, flush=True)
            os.close(1)
            time.sleep(0.3)  # its output ends before it does
            os._exit(3)
        elif behaviour == "silent" and number == 3:
            time.sleep(60)
        elif behaviour == "chatty":
            print("hello from a library", flush=True)
        elif behaviour == "invents":
            say(kind="played", **{**reply, "entry_id": "c_0"})
    if behaviour != "cut":
        say(kind="end")


if __name__ == "__main__":
    main(sys.argv[1])
