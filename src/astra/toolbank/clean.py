"""Text clean-up of tool documents: names, descriptions, secrets, domains."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any

MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SECRETS = re.compile(
    r"(?:sk|pk|rk)[-_](?:live|test|proj)?[-_]?[A-Za-z0-9]{16,}"  # vendor keys
    r"|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|AKIA[0-9A-Z]{16}"
    r"|AIza[0-9A-Za-z_-]{30,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?"  # JSON web tokens
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
    r"|(?<=://)[^/\s:@]{1,64}:[^/\s:@]{3,64}(?=@)"  # user:password in a URL
)
_ASSIGNED = re.compile(
    r"(?i)((?:api[_-]?key|access[_-]?token|auth[_-]?token|client[_-]?secret|password|secret)"
    r"[\"']?\s*[=:]\s*[\"']?)([A-Za-z0-9_\-.~+/]{12,})"
)
REDACTED = "<redacted>"
_PLACEHOLDER = re.compile(
    r"(?i)^(?:(?:no |the )?description(?: is)?(?: not)?(?: available| provided)?|n/?a|none|null|"
    r"tbd|todo|test|undefined|-+|\.+|untitled|your description here)[.!]?$"
)
_DEBRIS = re.compile(r"(?i)\btry in playground\b|access and manage servers by signing in")
_DOMAINS = {
    "finance": "finance tax loan bank payment currency stock invoice price accounting crypto",
    "database": "sql database query table schema record",
    "office": "excel workbook spreadsheet document slide presentation pdf word",
    "health": "patient clinical medical health dose drug disease",
    "education": "course student problem lesson exam learn study school",
    "development": "git repository code commit build deploy docker kubernetes debug test",
    "travel": "flight hotel trip booking travel airport",
    "weather": "weather forecast temperature climate",
    "search": "search web crawl scrape page",
    "communication": "email message chat slack notification mail",
    "mathematics": "math calculate equation matrix statistics expression",
    "media": "image video audio music film song podcast",
    "maps": "map location address geocode route coordinates",
    "files": "file directory folder path",
}


def safe_name(original: str) -> str:
    """A name that chat APIs accept (``^[A-Za-z0-9_-]{1,64}$``), stable for one original."""
    if _NAME.fullmatch(original):
        return original
    plain = unicodedata.normalize("NFKD", original).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("_")
    digest = hashlib.sha256(original.encode("utf-8", "replace")).hexdigest()[:8]
    if not name:
        return f"tool_{digest}"
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}_{digest}"


def clean_description(text: Any) -> str:
    """One paragraph-preserving, trimmed text; empty for placeholders and page debris."""
    if not isinstance(text, str):
        return ""
    trimmed = re.sub(r"[ \t]+", " ", text.encode("utf-8", "replace").decode()).strip()
    if _PLACEHOLDER.match(trimmed) or _DEBRIS.search(trimmed):
        return ""
    return trimmed


def scrub(value: Any) -> tuple[Any, int]:
    """``value`` with credentials replaced by ``<redacted>``, and how many were found.

    By pattern only: a listing may still hold a secret that looks like ordinary text.
    """
    if isinstance(value, str):
        text, plain = _SECRETS.subn(REDACTED, value)
        text, assigned = _ASSIGNED.subn(lambda match: match.group(1) + REDACTED, text)
        return text, plain + assigned
    if isinstance(value, dict):
        pairs = {key: scrub(item) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, sum(n for _, n in pairs.values())
    if isinstance(value, list):
        items = [scrub(item) for item in value]
        return [item for item, _ in items], sum(n for _, n in items)
    return value, 0


def domain_of(stated: str, text: str) -> str:
    """The stated domain in lower case, else the one whose key words the text uses most."""
    if stated.strip():
        return " ".join(stated.lower().replace("_", " ").split())
    words = re.findall(r"[a-z]+", text.lower())
    scores = {
        domain: sum(words.count(key) for key in keys.split()) for domain, keys in _DOMAINS.items()
    }
    best = max(scores, key=lambda domain: scores[domain])
    return best if scores[best] else "other"
