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


NAMED = {
    "context_length_exceeded": 400, "invalid_request_error": 400,
    "content_filter": 400, "content_policy_violation": 400,
    "invalid_api_key": 401, "authentication_error": 401, "permission_error": 403,
    "model_not_found": 404, "not_found_error": 404,
    "insufficient_quota": 429, "rate_limit_exceeded": 429, "rate_limit_error": 429,
    "server_error": 500, "api_error": 500, "overloaded_error": 503,
}  # fmt: skip
"""The HTTP status that belongs to an error's name."""
FILTERS = frozenset({"content_filter", "content_policy_violation"})
SHOWN_CHARS = 300
"""How much of a server's error text is told."""
SECRET_CHARS = 8
"""The least length of a key that is hidden in error texts; a shorter one stands in for none."""


class RefusedAsk(ProviderError):
    """A server that works will not answer this very ask; sending it again is no use."""


class RefusedRequest(RefusedAsk):
    """The server refused the request as it stands (400 or 422), perhaps for its schema."""


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
        return RefusedAsk(str(self))


class BadRequest(Fault):
    def outcome(self) -> Exception:
        return RefusedRequest(str(self))


def classified(status: int, content: bytes, headers: Mapping[str, str], key: str = "") -> Fault:
    """What an HTTP error means for the request, by its status and the error that it states.

    ``key``: the endpoint's, which servers quote in errors and which is told to nobody.
    """
    try:
        document = json.loads(content)
        error = document.get("error", document)
        error.get("message")
    except (AttributeError, ValueError):
        error = {"message": content.decode(errors="replace").strip()}
    return _fault(status, error, headers, key)


def error_instead(document: Any, headers: Mapping[str, str], key: str = "") -> Fault | None:
    """The fault that a response with status 200 states in place of a completion, or None.

    Servers answer so that find the fault while the model is at work. It means what it would with
    the HTTP status that its code gives or names; one with an unknown code may not come again.
    """
    if not isinstance(document, dict) or document.get("choices") or not document.get("error"):
        return None
    stated = document["error"]
    error = stated if isinstance(stated, dict) else {"message": stated}
    status = next(filter(None, map(_status, _names(error))), None)
    if status is not None:
        return _fault(status, error, headers, key)
    return Retriable(f"HTTP 200 with an error: {_told(error, key)}", "no_completion")


def _fault(status: int, error: Mapping[str, Any], headers: Mapping[str, str], key: str) -> Fault:
    message = f"HTTP {status}: {_told(error, key)}"
    kind = f"http_{status}"
    if status in (400, 403, 422) and _flagged(error):
        return Refusal(message, "refusal")
    if status in FATAL or (status == 429 and "insufficient_quota" in _names(error)):
        return Fatal(message, kind)
    if status in RETRIED or status >= 500:
        wait = retry_after_s(headers)
        if wait is not None and wait > RETRY_AFTER_MAX_S:
            return Fatal(f"asks to wait {wait:.0f} s; run again later ({message})", kind)
        return Retriable(message, kind, wait)
    return BadRequest(message, kind)


def _flagged(error: Mapping[str, Any]) -> bool:
    """Whether moderation stopped what was asked: that says nothing of the key."""
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and (metadata.get("reasons") or metadata.get("flagged_input")):
        return True
    return not FILTERS.isdisjoint(_names(error))


def _names(error: Mapping[str, Any]) -> list[str]:
    """What an error calls itself, the most telling first."""
    return [str(error[field]) for field in ("code", "type", "status") if error.get(field)]


def _status(name: str) -> int | None:
    """The HTTP status that a number or name of an error stands for, if it stands for one."""
    if name.isdecimal():
        return int(name) if 400 <= int(name) < 600 else None
    return NAMED.get(name)


def _told(error: Mapping[str, Any], key: str) -> str:
    text = str(error.get("message", error))
    if len(key) >= SECRET_CHARS:
        text = text.replace(key, "(key)")
    return text[:SHOWN_CHARS]


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
