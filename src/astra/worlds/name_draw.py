"""Names for what is called otherwise in a copy of a world: usual words, others, and made-up ones.

A policy copies tokens that it has met in such a place, and learns nothing of the others: one that
never met a name which begins with a vowel wrote ``shlete`` for ``athlete``. So names are of all
letters, in any order that words have, and of as many words as are given.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from keyword import iskeyword

from astra.worlds.composition import lexicon

KEPT = frozenset({"name", "email", "days", "page", "reason", "summary"})
"""Columns and arguments that every world calls so."""
_USUAL, _MADE_UP, _AS_GIVEN = 0.4, 0.3, 0.15
"""How often a name is one of the lexicon, made up, or a word as given; else such a word goes on as
made-up ones do. Without words given, what is not usual is made up."""
_SHORTEST = 4
"""Letters of a given word that is a name as it stands: not ``of`` or ``and``."""
_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sl sp st str sw t th "
    "tr v w wh y z"
).split()
_NUCLEI = "a e i o u a e i o u ai ea ee ie oa oo ou ue".split()
_CODAS = (
    "ck d ft ge l ld ll m mp n nd ng nk nt p r rd rk rm rt ss sh st t th x y y ly er ing al ity "
    "ment age ance ure"
).split()
_OPEN = 0.25
"""How often a made-up word begins with a vowel, as in ``athlete``."""
_CLOSES = "b c d f g l m n p r s t th x".split()
_CLOSED = 0.4
"""How often a consonant ends a syllable before the next begins, as ``th`` does there."""
_DOUBLES = frozenset("bcdfglmnprstz")
_DOUBLED = 0.5
"""How often the consonant between two syllables of a made-up word stands twice: copying ``pp`` has
to be learned on its own, since what follows the first ``p`` is not what follows the second."""


class NameDraw:
    """Draws names, from ``words`` as well."""

    def __init__(self, rng: random.Random, words: Sequence[str] = ()) -> None:
        self.rng, self._given = rng, words
        self._long = [one for one in words if len(one) >= _SHORTEST]

    def noun(self, used: set[str]) -> str:
        """A name for what rows are; its words become ``used``."""
        return self.word(used, _nouns())

    def column(self, used: set[str]) -> str:
        """A name for a cell; its words become ``used``."""
        return self.word(used, _columns())

    def word(self, used: set[str], usual: Sequence[str]) -> str:
        """A name that was not used, nor any word of it, and that code may have; two in five are of
        the usual."""
        while True:
            word = self._drawn(usual)
            if word not in KEPT and not iskeyword(word) and not used & {*word.split()}:
                used.update(word.split())
                return word

    def _drawn(self, usual: Sequence[str]) -> str:
        share = self.rng.random()
        if share < _USUAL:
            return self.rng.choice(usual)
        if share < _USUAL + _MADE_UP or not self._given:
            return self._ending("")
        if share < _USUAL + _MADE_UP + _AS_GIVEN and self._long:
            return self.rng.choice(self._long)
        return self._ending(self.rng.choice(self._given))

    def _ending(self, word: str) -> str:
        """The word with one or two syllables and an ending, of whatever letters words have."""
        rng = self.rng
        for _ in range(rng.choice((1, 2, 2)) - bool(word)):
            onset = rng.choice(_ONSETS)
            alone = onset[0] in _DOUBLES and onset[1:] in ("", "l", "r")
            if not word:
                onset = "" if rng.random() < _OPEN else onset
            elif rng.random() < _CLOSED:
                word += rng.choice(_CLOSES)
            elif alone and rng.random() < _DOUBLED:
                word += onset[0]
            word += onset + rng.choice(_NUCLEI)
        return word + rng.choice(_CODAS)


@cache
def _nouns() -> tuple[str, ...]:
    groups = lexicon()["nouns"].values()
    return tuple(word.partition("/")[0] for group in groups for word in group)


@cache
def _columns() -> tuple[str, ...]:
    groups = [group for of in lexicon()["columns"].values() for group in of.values()]
    return tuple(word for group in groups for word in group)
