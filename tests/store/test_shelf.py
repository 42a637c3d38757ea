"""Records put aside on disk, against a plain dictionary of lists."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from astra.records.base import Record
from astra.store.shelf import Shelf


class Note(Record):
    identity: ClassVar[tuple[str, ...]] = ("topic", "number")
    topic: str
    number: int = 0
    share: float = 0.0
    extra: dict[str, Any] = Field(default_factory=dict)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
notes = st.builds(
    Note,
    topic=st.sampled_from(["a", "b", "", "ü"]) | text,
    number=st.integers(0, 3),
    share=st.floats(allow_nan=False, allow_infinity=False),
    extra=st.dictionaries(text, st.none() | st.booleans() | st.integers() | text, max_size=2),
)


def topic(note: Note) -> str:
    return note.topic


@settings(max_examples=80)
@given(st.lists(notes, max_size=12), st.lists(notes, max_size=6))
def test_a_shelf_finds_what_a_dictionary_of_lists_would(
    first: list[Note], later: list[Note]
) -> None:
    with Shelf(Note, topic, first) as shelf:
        plain: dict[str, list[Note]] = {}
        for note in first:
            plain.setdefault(note.topic, []).append(note)
        for note in later:
            key = note.topic
            assert shelf.of(key) == tuple(plain.get(key, ()))  # remembered, then added to
            shelf.add(note)
            plain.setdefault(key, []).append(note)
        assert len(shelf) == len(first) + len(later)
        assert list(shelf) == first + later
        for key in [*plain, "nowhere"]:
            assert shelf.of(key) == tuple(plain.get(key, ()))
            assert shelf.one(key) == next(iter(plain.get(key, ())), None)


def test_one_thread_after_another_may_use_it() -> None:
    found: list[tuple[Note, ...]] = []
    with Shelf(Note, topic, [Note(topic="a")]) as shelf:
        other = threading.Thread(target=lambda: found.append(shelf.of("a")))
        other.start()
        other.join()
    assert found == [(Note(topic="a"),)]


MEMORY = """
import random
import sys
from pathlib import Path
from astra.records.score import Rejection
from astra.store.shelf import Shelf
from astra.store.tables import TableWriter
from astra.text.similarity import NearDuplicates

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

made = (Rejection(item=f"i{n}", reason="r", detail="x" * 3000) for n in range(12_000))
words = [f"w{n}" for n in range(500)]
with (
    Shelf(Rejection, lambda one: one.item) as shelf,
    TableWriter(Path(sys.argv[1]), Rejection) as writer,
    NearDuplicates(0.9) as known,
):
    for n, one in enumerate(made):
        if n == 2000:
            before = resident()
        shelf.add(one)
        writer.add(one)
        if n % 6 == 0:
            assert known.add(" ".join(random.Random(n).choices(words, k=40)))
    print(resident() - before)
"""


def test_what_is_put_aside_does_not_stay_in_memory(root: Path, tmp_path: Path) -> None:
    """Six times the rows of 3 kB each, on a shelf, in a table and in an index: 60 MB more."""
    made = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path / "x.parquet"],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(root / "src")},
    )  # fmt: skip
    assert int(made.stdout) < 15e6
    assert list(tmp_path.iterdir()) == []
