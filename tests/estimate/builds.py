"""Builds at scale test whose asks are overheard: what estimates are held against."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from astra.devtools import params
from astra.estimate.asks import ExpectedAsks
from astra.llm.budget import BYTES_PER_TOKEN
from astra.llm.build import teachers_from
from astra.llm.offline import OfflineTeacher
from astra.llm.protocol import Ask, ModelConfig, OfflineHandlers, Reply
from astra.llm.structured import response_format
from astra.prompting import render

LINKED = ("sources", "policies", "conf", "contamination", "problems")
FACTOR = 1.6
"""How far an estimate may be off: asks of a template, and the bytes of one of its prompts."""
FEW = 8
"""Fewer asks of one template may be off by as many."""


@dataclass
class Overheard:
    """The asks of one stage: by template, the bytes of each request."""

    sizes: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def count(self, template: str) -> int:
        return len(self.sizes[template])

    def bytes(self, template: str) -> float:
        return sum(self.sizes[template]) / max(1, self.count(template))


@dataclass
class Build:
    """A workspace whose stages have run."""

    folder: Path
    heard: dict[str, Overheard] = field(default_factory=dict)
    logged: dict[str, list[str]] = field(default_factory=dict)

    def table(self, stage: str) -> Path:
        return self.folder / "data" / f"{stage}.parquet"


class Listener:
    """The offline rules, whose every ask is noted."""

    def __init__(self, config: ModelConfig, handlers: OfflineHandlers, heard: Overheard) -> None:
        self._offline = OfflineTeacher(config, handlers)
        self._heard = heard
        self.name = self._offline.name

    async def ask(self, ask: Ask[Reply]) -> Reply:
        schema, _, _ = response_format(ask.response)
        size = len(render(ask.template, ask.shown).encode()) + len(json.dumps(schema).encode())
        self._heard.sizes[ask.template].append(size)
        return await self._offline.ask(ask)


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def made(
    folder: Path,
    root: Path,
    overrides: Sequence[str],
    stages: Sequence[str],
    more: Callable[[Path], None],
) -> Iterator[Build]:
    """A workspace with the root's inputs and those of ``more``, in which the stages have run.

    Roles are models by its parameters; rules answer in their place.
    """
    build = Build(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        (folder / "data").mkdir()
        for name in LINKED:
            (folder / name).symlink_to(root / name)
        params.compose(folder / "params.yaml", list(overrides))
        patch.chdir(folder)
        patch.setenv("ASTRA_CACHE", str(folder / "cache"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.delenv("DVC_ROOT", raising=False)
        more(folder)
        for stage in stages:
            build.heard[stage], build.logged[stage] = run(root / f"stages/{stage}.py")
    yield build


def run(file: Path) -> tuple[Overheard, list[str]]:
    """The stage file's ``main`` in the working directory: what it asked, and what it logged."""
    heard, lines = Overheard(), Lines()

    def factory(config: ModelConfig, handlers: OfflineHandlers) -> Any:
        return Listener(config, handlers, heard)

    spec = importlib.util.spec_from_file_location(f"stage_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    log = logging.getLogger("astra")
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(lines)
    try:
        with teachers_from(factory):
            module.main()
    finally:
        log.removeHandler(lines)
        log.setLevel(before)
    return heard, lines.lines


def close(asked: Iterable[ExpectedAsks], heard: Overheard, factor: float = FACTOR) -> None:
    """Each template's asks and prompts are as expected, within ``factor``; none is forgotten."""
    off: list[str] = []
    kinds: set[str] = set()
    most = 0.5
    for one in asked:
        kinds.add(one.kind)
        most += one.asks.most
        asks, size = heard.count(one.kind), heard.bytes(one.kind)
        near = asks / factor <= one.asks.about <= asks * factor
        if not near and abs(asks - one.asks.about) > FEW:
            off.append(f"{one.kind}: {asks} asks, expected {one.asks.about:.1f}")
        expected = one.prompt_tokens * BYTES_PER_TOKEN
        if asks and not size / factor <= expected <= size * factor:
            off.append(f"{one.kind}: {size:.0f} bytes, expected {expected:.0f}")
    everything = sum(map(len, heard.sizes.values()))
    if everything > most:
        off.append(f"{everything} asks, expected at most {most:.0f}")
    off += [f"{kind}: not expected" for kind in sorted(set(heard.sizes) - kinds)]
    assert not off, "\n".join(off)
