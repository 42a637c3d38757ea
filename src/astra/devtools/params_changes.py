"""Keys that a composition of ``conf/`` changed, and edits of a ``base.yaml`` without effect."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir

from astra.devtools.nested import leaves

CONF = Path("conf")
MAX_CHARS = 120
"""A longer value is cut where a change is told."""
ABSENT = "(absent)"


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line per key whose value differs, ``key: old -> new``, in the order of ``new``."""
    before, after = leaves(old), leaves(new)
    return [
        f"{key}: {_shown(before, key)} -> {_shown(after, key)}"
        for key in [*after, *(key for key in before if key not in after)]
        if _differ(before, after, key)
    ]


def _differ(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> bool:
    """Whether two mappings hold other values, however long, under a key."""
    return _shown(before, key, None) != _shown(after, key, None)


def _shown(values: Mapping[str, Any], key: str, most: int | None = MAX_CHARS) -> str:
    if key not in values:
        return ABSENT
    text = json.dumps(values[key], ensure_ascii=False, default=str)  # YAML has dates
    return text if most is None or len(text) <= most else f"{text[:most]}..."


def overridden_edits(overrides: list[str]) -> Iterator[str]:
    """A warning per value that was edited in a ``base.yaml`` and that the chosen file overrides.

    Edits are what differs from the last commit; without git there are none.
    """
    bases = _edited_bases()
    chosen = _choices(overrides) if bases else {}
    for base in bases:
        block = base.parent.name
        committed = leaves(yaml.safe_load(_git("show", f"HEAD:./{base}") or ""))
        present = leaves(_document(base))
        edited = [key for key in present if _differ(committed, present, key)]
        for file in _above_base(CONF / block, chosen.get(block, "base")):
            settled = leaves(_document(file))
            for key in edited:
                if any(_overlap(key, other) for other in settled):
                    yield f"{block}.{key} was edited in {base}, but {file} sets it: edit it there"


def _overlap(key: str, other: str) -> bool:
    """Whether two dotted keys are one, or one of them lies inside the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def _edited_bases() -> list[Path]:
    listed = _git("diff", "--name-only", "--relative", "HEAD", "--", f"{CONF}/*/base.yaml")
    return [Path(name) for name in (listed or "").splitlines() if Path(name).is_file()]


def _git(*arguments: str) -> str | None:
    """What git prints; None where it fails or is not installed."""
    try:
        ended = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if ended.returncode else ended.stdout


def _choices(overrides: list[str]) -> Mapping[str, str]:
    """Group of ``conf/`` -> its chosen option."""
    with initialize_config_dir(str(CONF.absolute()), version_base=None):
        composed = compose("config", overrides, return_hydra_config=True)
    return composed.hydra.runtime.choices


def _above_base(folder: Path, option: str) -> Iterator[Path]:
    """The file of an option and those that it starts from, ``base.yaml`` left out."""
    if option == "base":
        return
    file = folder / f"{option}.yaml"
    yield file
    for name in _document(file).get("defaults", []):
        if isinstance(name, str) and name != "_self_":
            yield from _above_base(folder, name)


def _document(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}
