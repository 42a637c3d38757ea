"""The licences of what published rows come from, and which rows may go out."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
UNKNOWN = "unknown"
_VERSION = re.compile(r"==[^+]*")


class LicenceBook(StageConfig):
    """The content of ``conf/licences.yaml``."""

    sources: dict[str, str]
    """Name of a source, or a pattern of names -> SPDX expression."""
    published: tuple[str, ...]
    """Licences under which rows may be published."""

    @classmethod
    def read(cls, path: Path = BOOK) -> Self:
        """The book of the repository. Raises PublishError saying what is wrong with it."""
        try:
            book = cls.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
            for expression in (*book.sources.values(), *book.published):
                canonicalize_license_expression(expression)
        except (OSError, yaml.YAMLError, ValidationError, InvalidLicenseExpression) as error:
            said = f"{path} cannot be used: {error}; correct it, or take it from git"
            raise PublishError(said) from None
        return book

    def of(self, source: str) -> str:
        """The licence of a knowledge source or base policy; UNKNOWN where there is no entry.

        A source of several packages, ``pypi:a==1+b==2``, has all their licences.
        """
        kind, _, names = _VERSION.sub("", source).rpartition(":")
        if kind != "pypi":
            return self._entry(source)
        return joined(self._entry(f"{kind}:{name}") for name in names.split("+"))

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


@dataclass(frozen=True)
class RowOrigin:
    """Where a row or a part of it comes from, and under which licence."""

    source: str
    licence: str


def stated(licence: str) -> str:
    """A licence as a document states it; UNKNOWN for none."""
    return licence.strip() or UNKNOWN


def joined(licences: Iterable[str]) -> str:
    """All of several licences as one expression, each once; UNKNOWN where one of them is."""
    every = sorted({one for licence in licences for one in licence.split(" AND ")})
    return UNKNOWN if UNKNOWN in every or not every else " AND ".join(every)
