"""What a thinking policy thinks, told apart from what it says."""

from __future__ import annotations

THINK, THINK_END = "<think>", "</think>"


def split_thought(text: str) -> tuple[str, str]:
    """What a thinking policy thinks before it speaks, closing tag included, and what it says.

    A call or an answer inside a thought is neither; a thought that never ends is all there is.
    """
    if not text.lstrip().startswith(THINK):
        return "", text
    end = text.find(THINK_END)
    end = len(text) if end < 0 else end + len(THINK_END)
    return text[:end], text[end:]
