"""The notices and licence texts that travel in a published folder."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from astra.publish.evidence import BUILD
from astra.publish.licences import TEXTS, UNKNOWN, LicenceBook, Notice, RowOrigin
from astra.publish.record import PublishError
from astra.publish.sections import SOURCES, rendered

NOTICE, LICENCES = Path("NOTICE"), Path("licences")


class SourceTally:
    """Counts rows by the sources that they come from and by the works whose parts these hold."""

    def __init__(self, book: LicenceBook) -> None:
        self.book = book
        self.origins = Counter[RowOrigin]()
        self.works = Counter[Notice]()

    def add(self, origins: Iterable[RowOrigin], rows: int = 1) -> None:
        """Count a row once for each of its sources and works; 0 rows name them alone."""
        every = set(origins)
        self.origins.update(dict.fromkeys(every, rows))
        found = (notice for origin in every for notice in self._needed(origin))
        self.works.update(dict.fromkeys(found, rows))

    def document(self) -> dict[str, Any]:
        """The content of ``build/sources.json``."""
        works = {
            _key(notice): {**notice.model_dump(exclude={"sources"}), "rows": self.works[notice]}
            for notice in self.ordered()
        }
        sources = {
            origin.source: {
                "licence": origin.licence,
                "works": sorted(map(_key, self._needed(origin))),
                "without_notice": self.book.unnoticed(origin.source, origin.licence),
                "rows": count,
            }
            for origin, count in sorted(self.origins.items(), key=lambda item: item[0].source)
        }
        return {"works": works, "sources": sources}

    def ordered(self) -> list[Notice]:
        """The notices that what was counted needs, by the names of the works."""
        return sorted(self.works, key=_key)

    def licences(self) -> list[str]:
        """Names of the licences of what was counted; UNKNOWN is none."""
        named = {one for origin in self.origins for one in origin.licence.split(" AND ")}
        return sorted(named - {UNKNOWN})

    def _needed(self, origin: RowOrigin) -> list[Notice]:
        """Its notices, but those of licences that do not hold for what came from there."""
        held = origin.licence.split(" AND ")
        return [one for one in self.book.notices_of(origin.source) if one.licence in held]


def write_notices(folder: Path, tally: SourceTally, holds: str) -> None:
    """Write ``NOTICE`` and the texts of the licences to a published folder.

    ``holds`` tells readers of the notice what the folder is. Raises PublishError where the text of
    a licence is missing.
    """
    texts = _copy_texts(folder, tally.licences(), tally.book)
    text = rendered(
        "NOTICE.j2", holds=holds, works=tally.ordered(), texts=texts, sources=f"{BUILD}/{SOURCES}"
    )
    (folder / NOTICE).write_text(text, encoding="utf-8")


def _key(notice: Notice) -> str:
    return f"{notice.work} ({notice.licence})"


def _copy_texts(folder: Path, names: Iterable[str], book: LicenceBook) -> list[str]:
    """The licences whose texts lie in the folder now; others that may not be published have none.

    Training data may be under such; rows of data sets are not.
    """
    (folder / LICENCES).mkdir()
    copied: list[str] = []
    for name in sorted(names):
        text = TEXTS / f"{name}.txt"
        if text.is_file():
            shutil.copyfile(text, folder / LICENCES / text.name)
            copied.append(name)
        elif book.admits(name):
            raise PublishError(
                f"{text} is not here, and what is published under {name} has to carry it: write "
                "the text of the licence there, or the lines that it wants in its place"
            )
    return copied
