"""``astra train same`` and ``trained``: may dvc.lock keep policies that older code trained?

Both write ``training.lock``; nothing here trains more than a few steps.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import chdir
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from astra.devtools.training_lock import (
    LOCK,
    RECORD,
    TRAINED,
    LockedStage,
    LockedStages,
    Same,
    Trained,
    TrainingLockError,
    TrainingRecord,
    code_of,
    entries,
    misfits,
    read_entries,
    regrouping,
)
from astra.devtools.training_probe import Products, Side, committed, difference, snapshot

LIBRARIES = ("torch", "transformers", "trl")
TRAIN = "the stages have to be trained (dvc repro), and their scores committed"


def same(
    since: Annotated[
        str, typer.Option(help="The commit to compare with; default: one that the record fits.")
    ] = "",
    commit: Annotated[
        bool, typer.Option("--commit", help="Then let dvc.lock take the code, untrained.")
    ] = False,
    regrouped: Annotated[
        bool, typer.Option("--regrouped", help="Parameters got other names or groups, no value.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether record, dvc.lock and code agree.")
    ] = False,
) -> None:
    """Does the code here train as before? A few steps of sft, rl and bench, by both codes.

    Where both make the same bytes training.lock says so. Exit 1 where they part. With
    ``--regrouped`` the parameters may stand under other names: each value must stay, and the
    record lists what moved.
    """
    with LockedStages() as stages:
        if check:
            refuse_unrecorded(stages)
            typer.echo(f"{RECORD}, {LOCK} and the code agree")
            return
        _refuse_other_inputs(stages, regrouped)
        record, locked = TrainingRecord.read(), read_entries()
        _refuse_other_training(record, locked)
        moved = {name: regrouping(name) for name in stages.changed_params()}
        if record is not None and record.code == code_of(Path()) and not moved:
            typer.echo(f"no code that training reaches differs from what {RECORD} names")
        else:
            _with_params(_probed(record, locked, since, stages.inputs()), record, moved).write()
            typer.echo(f"the code trains as before; {RECORD} says so")
        if commit:
            stages.accept()
            typer.echo(f"{LOCK} has taken the code of {', '.join(TRAINED)}; commit both")


def trained() -> None:
    """Note in training.lock which code the new policies come from, once `dvc repro` has trained."""
    with LockedStages() as stages:
        stale = stages.stale_code() + stages.changed(inputs_needed=True)
    if stale:
        raise TrainingLockError(f"{LOCK} is not of what is here ({'; '.join(stale)}): `dvc repro`")
    record, locked, code = TrainingRecord.read(), read_entries(), code_of(Path())
    before = record.trained if record else {}
    unproven = [
        name
        for name in before
        if record and code[name] != record.code[name] and record.entry(name) == locked[name]
    ]
    if unproven:
        raise TrainingLockError(
            f"nothing of {', '.join(unproven)} differs from before, so that nothing shows "
            "that the new code ran: `astra train same` compares the two"
        )
    kept = {
        name: digest
        for name, digest in (record.same.code if record and record.same else {}).items()
        if record and digest == code[name] and record.entry(name) == locked[name]
    }
    stages_now = {
        name: before[name] if name in kept else _trained(locked[name], code[name])
        for name in TRAINED
    }
    later = None
    if record and record.same:
        params = {name: held for name, held in record.same.params.items() if name in kept}
        lines = {name: held for name, held in record.same.regrouped.items() if name in kept}
        change = {"code": kept, "params": params, "regrouped": lines}
        later = record.same.model_copy(update=change)
    TrainingRecord(trained=stages_now, same=later if kept else None).write()
    typer.echo(f"{RECORD} names the code that trained; commit it with {LOCK}")


def _trained(entry: LockedStage, code: str) -> Trained:
    return Trained(**entry.model_dump(), code=code)


def refuse_unrecorded(stages: LockedStages) -> None:
    """Raise TrainingLockError unless training.lock, dvc.lock, the code and what lies here agree."""
    found = [f"{name}: {LOCK} is not of the code here" for name in stages.stale_code()]
    found += [f"{line} is not what {LOCK} holds" for line in stages.changed(inputs_needed=False)]
    found += misfits(TrainingRecord.read(), read_entries())
    if found:
        raise TrainingLockError(
            "the committed policies are not known to be what this code trains:\n  "
            + "\n  ".join(found)
            + "\ntrain (dvc repro, then `astra train trained`), or show that nothing changed: "
            "`astra train same --commit`"
        )


def _with_params(
    compared: TrainingRecord,
    before: TrainingRecord | None,
    moved: Mapping[str, tuple[list[str], str]],
) -> TrainingRecord:
    """``compared`` with the parameters that moved now, or had moved ``before``."""
    assert compared.same is not None
    earlier = before.same if before else None
    params = dict(earlier.params) if earlier else {}
    lines = dict(earlier.regrouped) if earlier else {}
    for name, (moves, digest) in moved.items():
        lines[name], params[name] = [*lines.get(name, []), *moves], digest
    same = compared.same.model_copy(update={"params": params, "regrouped": lines})
    return compared.model_copy(update={"same": same})


def _refuse_other_inputs(stages: LockedStages, regrouped: bool) -> None:
    if changed := stages.changed(inputs_needed=True, params=not regrouped):
        raise TrainingLockError(
            f"not what {LOCK} holds: {'; '.join(changed)}. Data that are absent or old come by "
            "`dvc checkout`, `dvc pull` or `dvc repro sft_set envs_merged`; where data, "
            f"parameters or commands are meant to change, {TRAIN}; parameters that only got "
            "other names or groups: `astra train same --regrouped`"
        )


def _refuse_other_training(
    record: TrainingRecord | None, locked: Mapping[str, LockedStage]
) -> None:
    """The policies that the record names must be the locked ones."""
    for name in record.trained if record else ():
        if record and record.entry(name) != locked[name]:
            raise TrainingLockError(
                f"{LOCK} holds another training of {name} than {RECORD} names; "
                "`astra train trained` notes a new one"
            )


def _probed(
    record: TrainingRecord | None, locked: Mapping[str, LockedStage], since: str, inputs: list[str]
) -> TrainingRecord:
    """Compare the code here with a commit's; the record with what came of it."""
    start = time.monotonic()
    with TemporaryDirectory(prefix="astra-same-") as place:
        old, code = _known(record, locked, since, Path(place))
        new = snapshot(Path(place) / "new")
        here = code_of(new.folder)
        products = _compare(old, new, locked, inputs)
        found = Same(
            since=old.name,
            code=here,
            losses={name: products[name].losses() for name in ("sft", "rl")},
            weights={name: new.weights(name) for name in ("sft", "rl")},
            scores=new.scores(),
            versions={library: metadata.version(library) for library in LIBRARIES},
        )
    typer.echo(f"compared in {time.monotonic() - start:.0f} s")
    first = {name: _trained(locked[name], code[name]) for name in TRAINED}
    return TrainingRecord(trained=record.trained if record else first, same=found)


def _known(
    record: TrainingRecord | None, locked: Mapping[str, LockedStage], since: str, place: Path
) -> tuple[Side, dict[str, str]]:
    """The side to compare with, and its code: a commit that makes what dvc.lock holds.

    That is one whose code the record names; where there is none, one with the same dvc.lock that
    is of its own code, so that its code trained.
    """
    revisions = [_commit(since)] if since else _candidates(record)
    for at, revision in enumerate(revisions):
        side = committed(revision, place / f"old{at}")
        code = code_of(side.folder)
        if record is None:
            text = (side.folder / LOCK).read_text(encoding="utf-8")
            if entries(text) == locked and not _stale(side.folder):
                return side, code
        elif code in ({n: t.code for n, t in record.trained.items()}, record.code):
            return side, code
    names = ", ".join(revision[:12] for revision in revisions)
    what = f"the code that {RECORD} names" if record else f"the code that trained for {LOCK}"
    raise TrainingLockError(
        f"{names} has not {what}; name a commit that has by --since, or {TRAIN}"
    )


def _stale(tree: Path) -> list[str]:
    with chdir(tree), LockedStages() as stages:
        return stages.stale_code()


def _candidates(record: TrainingRecord | None) -> list[str]:
    head = _commit("HEAD")
    noted = _git("log", "-1", "--format=%H", "--", str(RECORD if record else LOCK)).strip()
    return [head, noted] if noted not in ("", head) else [head]


def _compare(
    old: Side, new: Side, locked: Mapping[str, LockedStage], inputs: list[str]
) -> dict[str, Products]:
    """Both sides, a stage at a time. Ends with exit 1 at the first stage that parts."""
    for side in (old, new):
        side.link(inputs)
    made: dict[str, Products] = {}
    for name in TRAINED:
        start = time.monotonic()
        before, made[name] = (side.run(name, locked[name].outputs) for side in (old, new))
        if parted := difference(name, before, made[name]):
            typer.echo(f"{parted} (since {old.name})", err=True)
            typer.echo(TRAIN, err=True)
            raise typer.Exit(1)
        typer.echo(f"{name}: the same since {old.name} ({time.monotonic() - start:.0f} s)")
    return made


def _commit(revision: str) -> str:
    return _git("rev-parse", "--verify", f"{revision}^{{commit}}").strip()


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise TrainingLockError(f"git {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
