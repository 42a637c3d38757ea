"""Text clean-up of tool documents: names, descriptions, secrets, domains."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import Any

MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SECRETS = re.compile(
    # Published prefixes of vendors' keys; inside a word they mean nothing ("task_...").
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?:ant|proj|or)-[A-Za-z0-9_-]{20,}"
    r"|(?:sk|pk|rk)[-_](?:live|test|proj)?[-_]?[A-Za-z0-9]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|AIza[0-9A-Za-z_-]{30,}"
    r"|(?:hf|npm)_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{50,}"
    r"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}"
    r"|(?:do[opr]_v1|shp(?:at|ca|pa|ss))_[a-f0-9]{32,}"
    r"|SK[a-f0-9]{32}(?![A-Za-z0-9])|[a-f0-9]{32}-us[0-9]{1,2}(?![A-Za-z0-9])"
    r"|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9])"
    r"|[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}(?![A-Za-z0-9])"
    r"|secret_[A-Za-z0-9]{40,})"
    r"|(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}"
    r"|(?<=AccountKey=)[A-Za-z0-9+/=]{40,}"
    r"|(?<=[Bb]earer )(?=[A-Za-z_.~+/-]*[0-9])[A-Za-z0-9_.~+/-]{20,}"
    # JSON web tokens; looking behind keeps the scan of one long run linear
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
    # user:password in a URL, unless it says just that
    r"|(?<=://)(?!user(?:name)?:pass(?:word)?@)[^/\s:@]{1,64}:[^/\s:@]{3,64}(?=@)"
)
_ASSIGNED = re.compile(
    r"(?i)((?:api[_-]?key|access[_-]?token|auth[_-]?token|client[_-]?secret|password|secret)"
    r"[\"']?\s*[=:]\s*[\"']?)((?!your|xxx|example)[A-Za-z0-9_\-.~+/]{12,})"
)
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(?:api[_-]?key|(?:access|auth|bearer|refresh)?[_-]?token|secret|password)$"
)
_TOKEN = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_\-.~+/=]{12,}")
REDACTED = "<redacted>"
_VALUES = ("default", "const", "enum", "examples", "example")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
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


def storable(text: str) -> str:
    """``text`` without halves of characters, which JSON can hold and no table takes."""
    return text.encode("utf-8", "replace").decode()


def clean_description(text: Any) -> str:
    """One paragraph-preserving, trimmed text; empty for placeholders and page debris."""
    if not isinstance(text, str):
        return ""
    trimmed = re.sub(r"[ \t]+", " ", storable(text)).strip()
    if _PLACEHOLDER.match(trimmed) or _DEBRIS.search(trimmed):
        return ""
    return trimmed


def described_length(text: str) -> int:
    """Characters of a description, where a Chinese or Japanese one says as much as three Latin."""
    if text.isascii():
        return len(text)
    return len(text) + 2 * len(_IDEOGRAPHS.findall(text))


def scrub(value: Any) -> tuple[Any, int]:
    """``value`` with credentials replaced by ``<redacted>``, and how many were found.

    By pattern and by the names of keys only: a listing may still hold a secret that looks like
    ordinary text.
    """
    texts: list[str] = []
    _texts(value, texts)
    joined = "\n".join(texts)
    if not (_SECRETS.search(joined) or _ASSIGNED.search(joined) or "\0" in joined):
        return value, 0
    return _scrubbed(value)


def _texts(value: Any, found: list[str]) -> None:
    """Every text in ``value``; a key that names a secret adds a mark."""
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            if _SECRET_NAME.search(key):
                found.append("\0")
            _texts(item, found)
    elif isinstance(value, list):
        for item in value:
            _texts(item, found)


def _scrubbed(value: Any, secret: bool = False) -> tuple[Any, int]:
    if isinstance(value, str):
        if secret and _TOKEN.fullmatch(value):
            return REDACTED, 1
        text, plain = _SECRETS.subn(REDACTED, value)
        text, assigned = _ASSIGNED.subn(lambda match: match.group(1) + REDACTED, text)
        return text, plain + assigned
    if isinstance(value, dict):
        # `type` and `format` of a property named `token` are words, its examples are values.
        pairs = {
            key: _scrubbed(item, bool(_SECRET_NAME.search(key)) or (secret and key in _VALUES))
            for key, item in value.items()
        }
        return {key: item for key, (item, _) in pairs.items()}, sum(n for _, n in pairs.values())
    if isinstance(value, list):
        items = [_scrubbed(item, secret) for item in value]
        return [item for item, _ in items], sum(n for _, n in items)
    return value, 0


def domain_of(stated: str, text: str, mapping: Mapping[str, str]) -> str:
    """The stated domain in lower case, else the one whose key words the text uses most.

    ``mapping`` renames stated domains to the labels that are wanted.
    """
    if stated.strip():
        label = " ".join(stated.lower().replace("_", " ").split())
        return mapping.get(label, label)
    counts = Counter(re.findall(r"[a-z]+", text.lower()))
    scores = {domain: sum(counts[key] for key in keys.split()) for domain, keys in _DOMAINS.items()}
    best = max(scores, key=lambda domain: scores[domain])
    return best if scores[best] else "other"
