"""Arenas as a package or file that another framework loads."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path

import pyarrow as pa
from jinja2 import Environment, StrictUndefined
from pyarrow import parquet

from astra.export.bundle import REQUIREMENTS, write_package
from astra.export.rows import (
    ROWS_FILE,
    ExportedArena,
    ExportError,
    worlds_file,
    write_rows,
)
from astra.export.tau2 import Tau2Domains, tau2_domains, write_tau2
from astra.records.environment import Arena

MARK = ".astra-export"
"""Marks a folder that an export wrote, and so may replace."""
_ALWAYS = ("pyproject.toml", "README.md")


class ExportFormat(StrEnum):
    """The frameworks that arenas can be written for, and plain JSON lines."""

    VERIFIERS = "verifiers"
    TRL = "trl"
    OPENENV = "openenv"
    VERL = "verl"
    TAU2 = "tau2"
    JSONL = "jsonl"


@dataclass(frozen=True)
class _Target:
    """What a framework's package consists of."""

    requirement: str
    """The framework, in the versions that were tried."""
    modules: Mapping[str, str]
    """The file of the package that each adapter becomes."""
    templates: tuple[str, ...] = ()
    """Files beside the package, besides those that every export has."""


TARGETS = {
    ExportFormat.VERIFIERS: _Target("verifiers>=0.4,<0.5", {"verifiers": "__init__.py"}),
    ExportFormat.TRL: _Target("trl>=1.16,<2", {"trl": "__init__.py"}),
    ExportFormat.OPENENV: _Target(
        "openenv>=0.10,<1",
        {
            "openenv_models": "models.py",
            "openenv_client": "client.py",
            "openenv_environment": "server/environment.py",
            "openenv_app": "server/app.py",
        },
        ("openenv.yaml", "Dockerfile"),
    ),
    ExportFormat.VERL: _Target("verl>=0.9,<1", {"verl": "agent_loop.py"}, ("agent_loops.yaml",)),
}


def write_export(
    rows: Sequence[ExportedArena], target: ExportFormat, out: Path, name: str = "astra_arenas"
) -> list[Path]:
    """Write ``out`` and return its files, sorted. ``name`` is the package's.

    ``out`` is a file for jsonl and a folder else. Of tau2, ``write_domains`` tells more. Raises
    ExportError for no rows, a name that is no identifier, or a folder that something else wrote.
    """
    if not rows:
        raise ExportError("no arena to export: look at --split and at the table")
    if target == ExportFormat.TAU2:
        return write_domains([row.arena for row in rows], out, name)[0]
    _check_name(name)
    if target == ExportFormat.JSONL:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_rows(rows, out)
        return [file for file in (out, worlds_file(out)) if file.is_file()]
    package = _cleared(out, target) / name
    package.mkdir(parents=True)
    write_rows(rows, package / ROWS_FILE)
    write_package(package, TARGETS[target].modules)
    (package / "__init__.py").touch()
    for template in (*_ALWAYS, *TARGETS[target].templates):
        _render(template, out / template, target, name, rows)
    if target == ExportFormat.VERL:
        _write_verl_tables(rows, out)
    return sorted(path for path in out.rglob("*") if path.is_file())


def write_domains(
    arenas: Sequence[Arena], out: Path, name: str = "astra_worlds"
) -> tuple[list[Path], Tau2Domains]:
    """Write the arenas that tau2 can play into folder ``out``, as the package ``name``: its files,
    and what was written and left out. Goals that need a user are among them: tau2 has users of its
    own. Raises ExportError as ``write_export`` does, and where tau2 can play none.
    """
    _check_name(name)
    domains = tau2_domains(arenas)
    return write_tau2(domains, _cleared(out, ExportFormat.TAU2), name), domains


def _check_name(name: str) -> None:
    if not name.isidentifier():
        raise ExportError(f"--name {name!r}: a package's name is letters, digits and underscores")


def _cleared(out: Path, target: ExportFormat) -> Path:
    """The folder, empty but for the mark."""
    if out.exists():
        if not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
            raise ExportError(f"{out} exists and no export wrote it; name another --out")
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARK).write_text(f"{target}\n", encoding="utf-8")
    return out


def _render(
    template: str, path: Path, target: ExportFormat, name: str, rows: Sequence[ExportedArena]
) -> None:
    source = resources.files("astra").joinpath("export", "templates", f"{template}.j2")
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    splits = sorted({row.split.value for row in rows})
    path.write_text(
        environment.from_string(source.read_text(encoding="utf-8")).render(
            target=target.value,
            package=name,
            distribution=name.replace("_", "-"),
            requirements=(TARGETS[target].requirement, *REQUIREMENTS),
            count=len(rows),
            splits=splits,
            options=rows[0].options,
        ),
        encoding="utf-8",
    )


def _write_verl_tables(rows: Sequence[ExportedArena], out: Path) -> None:
    for split in sorted({row.split.value for row in rows}):
        chosen = [row for row in rows if row.split.value == split]
        table = pa.Table.from_pylist([_verl_row(row, at) for at, row in enumerate(chosen)])
        parquet.write_table(table, out / f"{split}.parquet")


def _verl_row(row: ExportedArena, index: int) -> dict[str, object]:
    """verl's columns. The ground truth is not needed, since the agent loop scores itself."""
    return {
        "data_source": "astra_arenas",
        "agent_name": "astra_arena",
        "prompt": list(row.prompt),
        "ability": "tool_use",
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": index, "split": row.split.value, "arena_id": row.id},
    }
