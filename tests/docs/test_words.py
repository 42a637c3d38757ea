"""Docstrings say their sentence from its beginning: who or what, then what it does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PREPOSITIONS = frozenset(
    "about above across after against among around as at before behind below beneath beside "
    "besides between beyond by despite during for from in inside into like of off on onto out "
    "outside over past per since through throughout till to toward towards under until up upon via "
    "with within without".split()
)
IRREGULAR = frozenset(
    "begun bound broken brought built bought chosen done drawn driven fed forgotten found given "
    "gone grown held hidden kept known laid led left lost made meant met paid said seen sent "
    "shown spent spoken taken taught thrown told understood won written".split()
)
IMPERATIVES = frozenset("cut let put run set split".split())
"""Verbs whose participle is also what an order begins with: "Put in one more." is a sentence."""
NOUNS = frozenset("anything everything nothing something string thing".split())
ADVERBS = frozenset("again also apart as beside even here not once only still then there".split())


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, those below fields and constants included."""
    for node in ast.walk(tree):
        for body in (getattr(node, "body", ()), getattr(node, "orelse", ())):
            for statement in body if isinstance(body, list) else ():
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    text = statement.value.value
                    if isinstance(text, str):
                        yield statement.lineno, text


def fault(text: str) -> str:
    """Why a docstring has no beginning, or an empty string: a preposition, or a participle with
    nothing that it belongs to ("Drawn from the table", "Kept, since ...")."""
    words = re.match(r"\s*([A-Za-z]+)(\W*)([A-Za-z]*)", text)
    if words is None or words[2] == "-":  # a name in backticks, or "Held-out arenas"
        return ""
    first, between, second = words[1].lower(), words[2].strip(), words[3].lower()
    if first in PREPOSITIONS:
        return f"starts with the preposition {words[1]!r}"
    participle = first in IRREGULAR or (first.endswith("ed") and len(first) > 4)
    follows = second in PREPOSITIONS or second in ADVERBS or between[:1] in {",", ";", ":", "."}
    gerund = first.endswith("ing") and len(first) > 5 and first not in NOUNS
    passive = first in IMPERATIVES and (second == "by" or between[:1] in {",", ";", ":"})
    if passive or ((participle or gerund) and (follows or not second)):
        return f"starts with the bare participle {words[1]!r}"
    return ""


def test_no_docstring_starts_with_a_preposition_or_a_bare_participle(root: Path) -> None:
    faults = [
        f"{path.relative_to(root)}:{line}: {why}: {text.strip().splitlines()[0]}"
        for folder in ("src/astra", "stages", "benchmarks", "examples")
        for path in sorted((root / folder).rglob("*.py"))
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if (why := fault(text))
    ]
    assert not faults, "\n".join(faults)


def test_beginnings_of_both_kinds() -> None:
    refused = ("Of this rank, for traces.", "Drawn from entry and attempt.", "Kept, since ...",
               "Per model.", "Sent again.", "Depending on the seed.",
               "Set by the caller.")  # fmt: skip
    meant = ("Send it again.", "Split a table.", "Put counts into the metrics.",
             "Drawn rows leave.", "None: off.", "Compared lines part.", "Read a file.",
             "String of a key.", "Everything of one run.", "Put in one more.",
             "Run until it ends.", "Held-out arenas.", "``compared`` with the others.")  # fmt: skip
    assert all(fault(text) for text in refused)
    assert not any(fault(text) for text in meant)
