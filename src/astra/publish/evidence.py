"""The files behind a card: each number of it is read from one of them by a path that it names.

They travel in the published folder, below ``build/``. A table of a card is made of places in these
files and of nothing else; its last column says where its row stands, as a JSON pointer (RFC 6901).
The other columns are keys there, or, where the place holds a single value, ``value``. A number
within a sentence is a link to its place.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.publish.record import PublishError

BUILD = "build"
FILES = f"{BUILD}/files.json"
"""Sizes and SHA-256 of every published file but the card; also marks a folder as published."""
VALUE = "value"
SOURCE = "source"


@dataclass(frozen=True)
class CitedRow:
    """A row of a card: what a person calls it, and the place that holds its values."""

    labels: tuple[str, ...]
    file: str
    keys: tuple[str | int, ...]


class CardEvidence:
    """The files of one published folder, by the path that they have in the repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._documents: dict[str, Any] = {}

    def take(self, path: Path) -> None:
        """Copy a JSON or YAML file of the repository."""
        if not path.is_file():
            raise PublishError(f"{path} is not here, and the card needs it: `git checkout {path}`")
        target = self._folder / BUILD / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        self._documents[str(path)] = read_document(target)

    def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Write what was counted or found out while publishing, as JSON."""
        target = self._folder / BUILD / name
        target.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=2, ensure_ascii=False)
        target.write_text(text + "\n", encoding="utf-8")
        self._documents[name] = json.loads(text)

    def at(self, file: str, *keys: str | int) -> Any:
        """The value at a place. Raises PublishError where the file does not have it."""
        found = self._documents[file]
        for key in keys:
            try:
                found = found[key]
            except (LookupError, TypeError):
                said = f"{file} has no {pointer(keys)}; is it of this version?"
                raise PublishError(said) from None
        return found

    def has(self, file: str, *keys: str | int) -> bool:
        """Whether the file was taken and has the place."""
        try:
            self.at(file, *keys)
        except (KeyError, PublishError):
            return False
        return True

    def table(
        self,
        labels: Sequence[str],
        columns: Sequence[str],
        rows: Iterable[CitedRow],
        exact: bool = True,
    ) -> str:
        """A Markdown table. ``exact`` shows fractions as they stand, else with three decimals."""
        lines = [_line([*labels, *columns, SOURCE])]
        lines.append("|" + "---|" * len(labels) + "---:|" * len(columns) + "---|")
        for row in rows:
            found = self.at(row.file, *row.keys)
            values = [found] if list(columns) == [VALUE] else [found.get(key) for key in columns]
            where = f"`{BUILD}/{row.file}#{pointer(row.keys)}`"
            lines.append(_line([*row.labels, *(shown(v, exact) for v in values), where]))
        return "\n".join(lines)

    def cited(self, file: str, *keys: str | int, share: bool = False) -> str:
        """A value within a sentence, linked to its place; ``share`` shows it in percent."""
        found = self.at(file, *keys)
        text = shown_share(found) if share else shown(found, True)
        return f"[{text}]({BUILD}/{file}#{pointer(keys)})"

    def quoted(self, file: str, *keys: str | int) -> str:
        """A text as a block, below the place that it stands at."""
        text = str(self.at(file, *keys))
        runs = re.findall(r"`{3,}", text)
        fence = "`" * (1 + max(map(len, runs), default=2))
        return f"`{BUILD}/{file}#{pointer(keys)}`:\n\n{fence}text\n{text}\n{fence}"

    def files_table(self) -> str:
        """The files below ``build/`` with their hashes, and what each is in the repository."""
        lines = [_line(["file", "SHA-256"]), "|---|---|"]
        for path in sorted((self._folder / BUILD).rglob("*")):
            if path.is_file():
                name = path.relative_to(self._folder)
                lines.append(_line([f"`{name}`", f"`{sha256(path)}`"]))
        return "\n".join(lines)

    def write_list(self) -> None:
        """Write ``build/files.json``: every file that lies in the folder by now, the card aside."""
        files = {
            str(path.relative_to(self._folder)): {
                "bytes": path.stat().st_size, "sha256": sha256(path)
            }
            for path in sorted(self._folder.rglob("*"))
            if path.is_file() and path != self._folder / "README.md"
        }  # fmt: skip
        self.put(Path(FILES).name, files)


def read_document(path: Path) -> Any:
    """A JSON file, or a YAML one by the rules of dvc (YAML 1.2, where ``off`` is text)."""
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    from dvc.utils.serialize import load_yaml

    return load_yaml(str(path))


def pointer(keys: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def shown(value: Any, exact: bool) -> str:
    """A value as a card has it: thousands with commas, fractions whole or with three decimals."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return repr(value) if exact else f"{value:.3f}"
    return value or '""'


def shown_share(value: float) -> str:
    """A share as a sentence has it, in percent."""
    return f"{100 * value:.1f} %"


def sha256(path: Path) -> str:
    """The hash of a file, in hexadecimal digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
