"""Which code trained the policies of dvc.lock: ``training.lock``, beside it in git.

dvc calls a training stage stale when a file it reads has changed, were it by a comment. Then the
stage is trained again, or ``astra train same`` shows that the code trains the same and dvc.lock
takes the new hashes. The record says which of the two it was, so that it can be checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from astra.devtools import closure
from astra.devtools.nested import leaves
from astra.errors import AstraError
from astra.settings import PARAMS

RECORD, LOCK = Path("training.lock"), Path("dvc.lock")
TRAINED = ("sft", "rl", "bench")
"""Stages whose outputs depend on the machine's floating-point kernels, in order."""
_HEADER = """\
# Which code trained the policies and scores of dvc.lock, written by `astra train`:
# `trained` by the code that ran, `same` by later code that a probe found to train the same.
"""


class TrainingLockError(AstraError):
    """dvc.lock, training.lock and the code do not agree; says where and what to do."""


class LockedStage(BaseModel):
    """A stage in dvc.lock, code aside: md5 of inputs and outputs by path, SHA-256 of parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    params: str
    inputs: dict[str, str]
    outputs: dict[str, str]


class Trained(LockedStage):
    """Such a stage, and the SHA-256 of the code that made its outputs."""

    code: str

    @property
    def entry(self) -> LockedStage:
        return LockedStage(params=self.params, inputs=self.inputs, outputs=self.outputs)


class Same(BaseModel):
    """Later code that trains the same, and what both made in the probe."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    since: str
    """The commit that the code was compared with."""
    code: dict[str, str]
    params: dict[str, str] = Field(default_factory=dict[str, str])
    """SHA-256 of parameters that say the same as the trained ones under other names."""
    regrouped: dict[str, list[str]] = Field(default_factory=dict[str, list[str]])
    """Those parameters as they were and as they are, a line for each value that moved."""
    losses: dict[str, list[float]]
    weights: dict[str, str]
    scores: dict[str, float]
    versions: dict[str, str]


class TrainingRecord(BaseModel):
    """The content of ``training.lock``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    trained: dict[str, Trained]
    same: Same | None = None

    @property
    def code(self) -> dict[str, str]:
        """The newest code of each stage that is known to make what dvc.lock holds."""
        later = self.same.code if self.same else {}
        return {name: stage.code for name, stage in self.trained.items()} | later

    def entry(self, name: str) -> LockedStage:
        """What dvc.lock should hold of a stage: as it trained, its parameters as they are now."""
        params = self.same.params.get(name) if self.same else None
        entry = self.trained[name].entry
        return entry.model_copy(update={"params": params}) if params else entry

    @classmethod
    def read(cls) -> Self | None:
        """The record of the working directory, None where there is none yet."""
        if not RECORD.is_file():
            return None
        try:
            return cls.model_validate(yaml.safe_load(RECORD.read_text(encoding="utf-8")))
        except (yaml.YAMLError, ValidationError) as error:
            raise TrainingLockError(
                f"{RECORD} cannot be read ({error}); take it from git, or delete it and run "
                "`astra train same --since COMMIT` with the commit that trained"
            ) from None

    def write(self) -> None:
        document = self.model_dump(exclude_defaults=True)
        text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100)
        RECORD.write_text(_HEADER + text, encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """Lists in lines of text, not a line for each number."""


_Dumper.add_representer(
    list, lambda dumper, values: dumper.represent_sequence("tag:yaml.org,2002:seq", values, True)
)


def code_of(tree: Path) -> dict[str, str]:
    """SHA-256 of the import closure of each training stage of a source tree, files by name."""
    with chdir(tree):
        return {name: _digest(closure.closure(Path("stages") / f"{name}.py")) for name in TRAINED}


def _digest(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(f"{file}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def is_code(path: str) -> bool:
    return path.startswith(("src/", "stages/"))


def entries(lock_text: str) -> dict[str, LockedStage]:
    """The training stages of a dvc.lock. TrainingLockError where one was never run."""
    stages = (yaml.safe_load(lock_text) or {}).get("stages", {})
    missing = [name for name in TRAINED if name not in stages]
    if missing:
        raise TrainingLockError(f"{LOCK} holds no stage {', '.join(missing)}: run `dvc repro`")
    return {name: _entry(stages[name]) for name in TRAINED}


def _entry(stage: Mapping[str, Any]) -> LockedStage:
    deps = {dep["path"]: dep["md5"] for dep in stage["deps"] if not is_code(dep["path"])}
    outs = {out["path"]: out["md5"] for out in stage["outs"]}
    return LockedStage(params=_params_digest(stage.get("params", {})), inputs=deps, outputs=outs)


def _params_digest(params: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()


def regrouping(name: str) -> tuple[list[str], str]:
    """How a stage's parameters moved since dvc.lock, a line for each value, and their new hash.

    A value may get another name or group; it must not change, appear or vanish (null may).
    TrainingLockError where one does: that is another training.
    """
    # dvc writes and reads YAML 1.2, in which `off` is text and `1e-06` a number.
    from dvc.utils.serialize import dumps_yaml, load_yaml

    locked = load_yaml(str(LOCK))["stages"][name]["params"][str(PARAMS)]
    here = {name: load_yaml(str(PARAMS))[name]}
    old, new = (
        {key: json.dumps(value, sort_keys=True) for key, value in leaves(block[name]).items()}
        for block in (locked, here)
    )
    gone = {path: value for path, value in old.items() if new.get(path) != value}
    come = {path: value for path, value in new.items() if old.get(path) != value}
    lines = [f"- {path}: {value}" for path, value in gone.items()]
    lines += [f"+ {path}: {value}" for path, value in come.items()]
    values = [sorted(v for v in side.values() if v != "null") for side in (gone, come)]
    if gone.keys() & come.keys() or values[0] != values[1]:
        raise TrainingLockError(
            f"{name}: its parameters say something else than {LOCK} holds, so it has to be "
            "trained:\n  " + "\n  ".join(lines)
        )
    return lines, _params_digest(yaml.safe_load(dumps_yaml({str(PARAMS): here})))


def read_entries() -> dict[str, LockedStage]:
    """``entries`` of the working directory."""
    if not LOCK.is_file():
        raise TrainingLockError(f"{LOCK} not found; run in the repository root")
    return entries(LOCK.read_text(encoding="utf-8"))


def misfits(record: TrainingRecord | None, locked: Mapping[str, LockedStage]) -> list[str]:
    """What the record says of dvc.lock or of the code here that is not so; a line each."""
    if record is None:
        return [f"{RECORD} is missing"]
    code, found = code_of(Path()), list[str]()
    for name in TRAINED:
        if name not in record.trained:
            found.append(f"{name}: {RECORD} does not name it")
            continue
        entry = record.entry(name)
        for field in ("params", "inputs", "outputs"):
            if getattr(entry, field) != getattr(locked[name], field):
                found.append(f"{name}: {field} in {LOCK} are not those that {RECORD} names")
        if record.code[name] != code[name]:
            found.append(f"{name}: its code is not what {RECORD} names")
    return found


class LockedStages:
    """The training stages as dvc sees them: what the working directory changed since dvc.lock.

    Nothing here needs the outputs: in a fresh clone models/ is absent. ``folder`` is the root of
    a repository, with or without git.
    """

    def __init__(self, folder: Path = Path()) -> None:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo

        try:
            self._repo = Repo(str(folder.absolute()))
            self._stages: dict[str, Any] = {
                name: self._repo.stage.load_one(name=name) for name in TRAINED
            }
        except DvcException as error:
            raise TrainingLockError(f"{folder.absolute()}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._repo.close()

    def inputs(self) -> list[str]:
        """Paths that the stages read and none of them makes, code aside."""
        made = {str(out) for stage in self._stages.values() for out in stage.outs}
        read = {str(dep) for stage in self._stages.values() for dep in stage.deps}
        params = {str(dep) for stage in self._stages.values() for dep in stage.deps if _params(dep)}
        return sorted(path for path in read - made - params if not is_code(path))

    def stale_code(self) -> list[str]:
        """Stages whose code, as dvc.yaml lists it, is not that of dvc.lock."""
        return [
            name
            for name, stage in self._stages.items()
            if any(is_code(str(dep)) and dep.workspace_status() for dep in stage.deps)
        ]

    def changed_params(self) -> list[str]:
        """Stages whose parameters are not those of dvc.lock."""
        return [
            name
            for name, stage in self._stages.items()
            if any(_params(dep) and dep.workspace_status() for dep in stage.deps)
        ]

    def changed(self, inputs_needed: bool, params: bool = True) -> list[str]:
        """What dvc.lock holds of the stages and is not so here, code aside; a line each.

        Absent outputs are no change, nor are absent inputs unless ``inputs_needed``. Without
        ``params`` those are left out.
        """
        needed = set(self.inputs()) if inputs_needed else set[str]()
        found: list[str] = []
        for name, stage in self._stages.items():
            if stage.cmd_changed:
                found.append(f"{name}: its command")
            for item in (*stage.deps, *stage.outs):
                path = str(item)
                if is_code(path) or (item.hash_info and not item.exists and path not in needed):
                    continue
                if _params(item) and not params:
                    continue
                if not item.hash_info or item.workspace_status():
                    found.append(f"{name}: {'its parameters' if _params(item) else path}")
        return found

    def accept(self) -> None:
        """Put the hashes of the code and the parameters here into dvc.lock, and no others."""
        with self._repo.lock:
            for stage in self._stages.values():
                for dep in stage.deps:
                    if is_code(str(dep)) or _params(dep):
                        dep.save()
            dvcfile = next(iter(self._stages.values())).dvcfile
            dvcfile.dump_stages(list(self._stages.values()), update_pipeline=False)


def _params(item: Any) -> bool:
    from dvc.dependency.param import ParamsDependency

    return isinstance(item, ParamsDependency)
