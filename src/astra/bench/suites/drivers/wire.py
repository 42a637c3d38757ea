"""The wire between caged drivers and their host: the request in, JSON lines out; no astra.

Drivers run in the bench environment, caged. They know the protocol of ``protocol.py`` by its
JSON alone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

OVERFLOW = "context_length_exceeded"
"""The relay's message holds this where a prompt outgrew the model's context."""
ENTRY_HEADER = "X-Suite-Entry"
"""Tells servers whose logs somebody reads which entry a completion is for."""
MAX_REASON = 600


class Wire:
    """Standard output belongs to replies; whatever a harness prints goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self.request: dict[str, Any] = json.load(sys.stdin)
        self.config: dict[str, Any] = self.request["config"]
        self.options: dict[str, Any] = self.config["options"]

    def say(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, **fields}, default=str)
        with self._lock:
            self._out.write(line + "\n")
            self._out.flush()

    def listing(
        self, entries: Iterable[tuple[str, str]], packages: Iterable[str], **more: str
    ) -> None:
        """``entries``: (id, category); ``more``: further versions, of data for example."""
        versions = {name: version(name) for name in packages} | more
        versions["python"] = ".".join(map(str, sys.version_info[:2]))
        self.say(
            "listing",
            entries=[{"id": entry, "category": category} for entry, category in entries],
            versions=versions,
        )
        self.say("end")

    def play(self, attempt: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """``attempt`` maps a job to the fields of ``Played``; what it raises is the harness's."""

        def one(job: dict[str, Any]) -> None:
            try:
                fields = attempt(job)
            except Exception as error:
                fields = lost(error)
            self.say("played", entry_id=job["entry_id"], attempt=job["attempt"], **fields)

        with ThreadPoolExecutor(self.config["concurrency"]) as pool:
            for done in [pool.submit(one, job) for job in self.request["jobs"]]:
                done.result()
        self.say("end")

    def decoding(self, job: dict[str, Any]) -> dict[str, Any]:
        """Fields of a request body; ``top_k`` and ``extra`` are no part of OpenAI's."""
        chosen = dict(self.config["decoding"])
        extra: dict[str, Any] = chosen.pop("extra")
        fields = {name: value for name, value in chosen.items() if value is not None}
        top_k = fields.pop("top_k", None)
        if top_k is not None:
            extra = {**extra, "top_k": top_k}
        fields["seed"] = job["seed"]
        if extra:
            fields["extra_body"] = extra
        return fields


def package_folder(name: str) -> Path:
    """A package's folder, found without its slow import. Raises ImportError without it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"the bench environment has no package {name}; run `make bench-env`")
    return Path(spec.submodule_search_locations[0])


def scored(value: float) -> dict[str, Any]:
    return {"kind": "scored", "value": float(value)}


def lost(error: BaseException) -> dict[str, Any]:
    """The fields of an attempt that harness or endpoint failed, not the model."""
    return {"outcome": "infra", "scores": {}, "reason": said(error)}


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_REASON]


def outgrown(error: BaseException) -> bool:
    return OVERFLOW in str(error)


def plain(message: Any) -> dict[str, Any]:
    """A chat message, object or dict, as a record's message."""
    fields: dict[str, Any] = message if isinstance(message, dict) else message.model_dump()
    calls = [
        {
            "id": str(call.get("id") or ""),
            "name": str(call["function"].get("name") or ""),
            "arguments": str(call["function"].get("arguments") or ""),
        }
        for call in fields.get("tool_calls") or []
    ]
    content = fields.get("content")
    record: dict[str, Any] = {
        "role": fields["role"],
        "content": content if isinstance(content, str) else "" if content is None else str(content),
        "tool_calls": calls,
    }
    if fields.get("tool_call_id"):
        record["tool_call_id"] = str(fields["tool_call_id"])
    return record
