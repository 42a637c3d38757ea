"""The licences of what published rows come from, and which rows may go out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Self

import yaml
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import ValidationError

from astra.publish.record import PublishError
from astra.settings import StageConfig

BOOK = Path("conf/licences.yaml")
TEXTS = Path("conf/licences")
"""Holds the text of each licence of ``published`` as ``<SPDX name>.txt``."""
UNKNOWN = "unknown"
_VERSION = re.compile(r"==[^+]*")


class Notice(StageConfig):
    """What a licence wants to be said of a work wherever parts of it go."""

    sources: tuple[str, ...]
    """Names of the sources that hold parts of it, or patterns of names."""
    work: str
    licence: str
    copyright: str
    """Whose it is, in the words of its licence file."""
    url: str = ""


class LicenceBook(StageConfig):
    """The content of ``conf/licences.yaml``."""

    sources: dict[str, str]
    """Name of a source, or a pattern of names -> SPDX expression."""
    published: tuple[str, ...]
    """Licences under which rows may be published."""
    free_of_notices: tuple[str, ...]
    """Licences that ask for no notice."""
    notices: tuple[Notice, ...]

    @classmethod
    def read(cls, path: Path = BOOK) -> Self:
        """The book of the repository. Raises PublishError saying what is wrong with it."""
        try:
            book = cls.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
            named = (notice.licence for notice in book.notices)
            for expression in (*book.sources.values(), *book.published, *named):
                canonicalize_license_expression(expression)
        except (OSError, yaml.YAMLError, ValidationError, InvalidLicenseExpression) as error:
            said = f"{path} cannot be used: {error}; correct it, or take it from git"
            raise PublishError(said) from None
        return book

    def notices_of(self, source: str) -> tuple[Notice, ...]:
        """The notices of the works that a source holds parts of."""
        if source not in self._found:
            self._found[source] = tuple(self._search(source))
        return self._found[source]

    def _search(self, source: str) -> Iterator[Notice]:
        parts = _parts(source)
        for notice in self.notices:
            if any(fnmatchcase(part, pattern) for part in parts for pattern in notice.sources):
                yield notice

    def unnoticed(self, source: str, licence: str) -> list[str]:
        """Those of a source's licences that ask for a notice which the book does not have.

        Of several packages each that is under a licence needs its own.
        """
        asked = [one for one in licence.split(" AND ") if one not in self.free_of_notices]
        return [one for one in asked if not self._noticed(source, one)]

    def _noticed(self, source: str, licence: str) -> bool:
        parts = _parts(source)
        under = [part for part in parts if licence in self._entry(part).split(" AND ")]
        return all(
            any(notice.licence == licence for notice in self.notices_of(part))
            for part in under or parts
        )

    def admits_origin(self, origin: RowOrigin) -> bool:
        """Whether what comes from there may be published: licence admitted, notices known."""
        return self.admits(origin.licence) and not self.unnoticed(origin.source, origin.licence)

    def of(self, source: str) -> str:
        """The licence of a knowledge source or base policy; UNKNOWN where there is no entry.

        A source of several packages, ``pypi:a==1+b==2``, has all their licences.
        """
        return joined(map(self._entry, _parts(source)))

    def _entry(self, source: str) -> str:
        if source in self.sources:
            return self.sources[source]
        found = (held for name, held in self.sources.items() if fnmatchcase(source, name))
        return next(found, UNKNOWN)

    def admits(self, licence: str) -> bool:
        """Whether rows under a licence may be published; UNKNOWN never."""
        return all(one in self._admitted for one in licence.split(" AND "))

    @cached_property
    def _admitted(self) -> frozenset[str]:
        return frozenset(self.published)

    @cached_property
    def _found(self) -> dict[str, tuple[Notice, ...]]:
        return {}


@dataclass(frozen=True)
class RowOrigin:
    """Where a row or a part of it comes from, and under which licence."""

    source: str
    licence: str


def _parts(source: str) -> list[str]:
    """The packages of a source ``pypi:a==1+b==2``, without versions; of others, the source."""
    kind, _, names = _VERSION.sub("", source).rpartition(":")
    return [f"pypi:{name}" for name in names.split("+")] if kind == "pypi" else [source]


def stated(licence: str) -> str:
    """A licence as a document states it; UNKNOWN for none."""
    return licence.strip() or UNKNOWN


def joined(licences: Iterable[str]) -> str:
    """All of several licences as one expression, each once; UNKNOWN where one of them is."""
    every = sorted({one for licence in licences for one in licence.split(" AND ")})
    return UNKNOWN if UNKNOWN in every or not every else " AND ".join(every)
