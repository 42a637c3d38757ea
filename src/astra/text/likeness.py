"""Whether a tool's name repeats the words of a question."""

from __future__ import annotations

from astra.text.verbs import singular, words_of

_FUNCTION_WORDS = (
    "a an and are as at be by do does did for from had has have how if in into is it its me my of "
    "on or our out that the their them then there these this those to was we were what when where "
    "which who whom whose why will with you your"
)
_ANY_TOOL = (
    "all api call data fetch find get give info information item list look lookup obtain query "
    "read request result retrieve return search show tell tool value"
)
_EMPTY = frozenset(f"{_FUNCTION_WORDS} {_ANY_TOOL}".split())
"""Words that say nothing of what a tool is about."""


def shared_words(name: str, text: str) -> list[str]:
    """The words of a tool's name that say what it is about and stand in a text, in whatever
    regular form, without repeats."""
    said = [_forms(word) for word in _content(text)]
    return [
        word
        for word in dict.fromkeys(_content(name))
        if any(not _forms(word).isdisjoint(forms) for forms in said)
    ]


def _content(text: str) -> list[str]:
    return [word for word in words_of(text) if word not in _EMPTY]


def _forms(word: str) -> frozenset[str]:
    """What a word may be without its ending: ``price``, ``prices``, ``priced`` and ``pricing`` have
    one in common, ``state`` and ``stats`` none; rough, for regular English."""
    word = singular(word)
    for ending in ("ing", "ed"):
        trunk = word.removesuffix(ending)
        if trunk != word and len(trunk) > 2:
            trunk = trunk[:-1] if trunk[-1] == trunk[-2] and trunk[-1] not in "ls" else trunk
            return frozenset({trunk, f"{trunk}e"})  # the ending may have taken an e
    return frozenset({word})
