"""Chat completions as servers really send them: how replies are read and faults classified."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from astra.llm.budget import Tokens
from astra.llm.protocol import ProviderError
from astra.llm.servers import Server
from astra.records.message import reasoning_of

RETRIED = frozenset({408, 409, 429})  # and every 5xx
FATAL = frozenset({401, 402, 403, 404})
RETRY_AFTER_MAX_S = 300.0


class RefusedRequest(ProviderError):
    """The server refused this very request (400 or 422); sending it again is no use."""


@dataclass(frozen=True)
class ChatReply:
    """One completion. ``tool_calls`` are (name, argument text) as the server sent them."""

    content: str
    tool_calls: tuple[tuple[str, str], ...]
    truncated: bool
    reasoning: str = ""
    """The thoughts that the server gave apart from ``content``."""
    reasoning_key: str = ""
    """The field that held ``reasoning``; empty without any."""


def reported_tokens(document: Any) -> Tokens | None:
    """What the server says it used, or None where it does not say."""
    try:
        used = document["usage"]
        details = used.get("prompt_tokens_details") or {}
        return Tokens(
            int(used["prompt_tokens"]),
            int(used.get("completion_tokens") or 0),
            int(details.get("cached_tokens") or 0),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def read_reply(document: Any) -> ChatReply:
    """The completion in a response's JSON. Raises Retriable if there is none, or Refusal."""
    try:
        choice = document["choices"][0]
        message = choice["message"]
        calls = tuple(
            (_clean(call["function"]["name"]), _arguments(call["function"].get("arguments")))
            for call in message.get("tool_calls") or ()
        )
        content = _clean(_text(message.get("content")))
        thoughts, key = reasoning_of(message)
        refusal = message.get("refusal")
        finish = choice.get("finish_reason")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        problem = f"the response is no chat completion: {error!r}"
        raise Retriable(problem, "no_completion") from error
    if refusal or finish == "content_filter":
        raise Refusal(f"the model refused: {refusal or 'content filter'}", "refusal")
    return ChatReply(content, calls, finish == "length", _clean(thoughts), key)


def _text(content: Any) -> str:
    """Content as text; some servers send a list of parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""


def _arguments(given: Any) -> str:
    """Argument text as it came; an object becomes its JSON, and no text at all the empty object."""
    if isinstance(given, dict):
        return _clean(json.dumps(given, ensure_ascii=False))
    return _clean(given or "{}")


def _clean(text: str) -> str:
    """``text`` with U+FFFD for half a surrogate pair (a character cut in two), which is no text."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Fault(Exception):
    """A request without a usable reply; ``kind`` is what the run log counts it as."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind

    def outcome(self) -> Exception:
        return self


class Retriable(Fault):
    """A fault that another attempt may not meet."""

    def __init__(self, message: str, kind: str, retry_after_s: float | None = None) -> None:
        super().__init__(message, kind)
        self.retry_after_s = retry_after_s
        self.server: Server | None = None
        """The server that it was met at."""


class Fatal(Fault):
    """A fault that every request to this endpoint for this model would meet."""


class Refusal(Fault):
    """The model will not answer this ask."""

    def outcome(self) -> Exception:
        return ProviderError(str(self))


class BadRequest(Fault):
    def outcome(self) -> Exception:
        return RefusedRequest(str(self))


def classified(status: int, content: bytes, headers: Mapping[str, str]) -> Fault:
    """What an HTTP error means for the request, by its status and the error that it states."""
    text, code = _stated(content)
    message = f"HTTP {status}: {text[:300]}"
    kind = f"http_{status}"
    if status in FATAL or (status == 429 and code == "insufficient_quota"):
        return Fatal(message, kind)
    if status in RETRIED or status >= 500:
        wait = retry_after_s(headers)
        if wait is not None and wait > RETRY_AFTER_MAX_S:
            return Fatal(f"asks to wait {wait:.0f} s; run again later ({message})", kind)
        return Retriable(message, kind, wait)
    return BadRequest(message, kind)


def _stated(content: bytes) -> tuple[str, str]:
    """Message and code of an error body, or its text."""
    try:
        document = json.loads(content)
        error = document.get("error", document)
        return str(error.get("message", error)), str(error.get("code") or error.get("type") or "")
    except (AttributeError, ValueError):
        return content.decode(errors="replace").strip(), ""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait (number or HTTP date), or None."""
    text = headers.get("retry-after", "")
    try:
        return max(float(text), 0.0)
    except ValueError:
        parsed = email.utils.parsedate_to_datetime(text) if _is_date(text) else None
    return max(parsed.timestamp() - time.time(), 0.0) if parsed else None


def _is_date(text: str) -> bool:
    return email.utils.parsedate_tz(text) is not None
