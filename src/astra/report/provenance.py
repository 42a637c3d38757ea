"""Where the results come from: commit, hashes of the lock file, parameters, machine."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from typing import Any

import yaml

from astra.errors import AstraError
from astra.report.workspace import STAGES, Workspace
from astra.settings import PARAMS, RuntimeConfig, load
from astra.tracking.mlflow import EXPERIMENTS, OUTPUT, PARENT, tracking_uri
from astra.tracking.store import check_store, without_login

GIT_TIMEOUT_S = 30
SHOWN_TAGS = ("sandbox_tier", "torch_device", "device", "threads", "dvc_exp_name", "git_commit")


def commit(workspace: Workspace) -> dict[str, Any]:
    """The commit that is checked out, and the paths of tracked files that differ from it.

    A file that was renamed differs at both of its paths.
    """
    line = (_git(workspace, "log", "-1", "--format=%H %cs %s") or "").strip()
    if not line:
        workspace.lacks("no git commit: the folder is no repository or git is not installed")
        return {}
    revision, date, subject = [*line.split(" ", 2), ""][:3]
    # -z: paths as they are, with spaces and other letters, each followed by a zero byte.
    listed = _git(workspace, "diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD")
    changed = [path for path in (listed or "").split("\0") if path]
    return {"revision": revision, "date": date, "subject": subject, "changed": changed}


def _git(workspace: Workspace, *arguments: str) -> str | None:
    try:
        found = subprocess.run(
            ["git", "-C", str(workspace.root), *arguments],
            capture_output=True, text=True, errors="replace", check=False, timeout=GIT_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout if found.returncode == 0 else None


def stages(workspace: Workspace) -> list[dict[str, Any]]:
    """The stages of the lock file: outputs with hashes, parameters, and what differs now."""
    lock = _yaml(workspace, "dvc.lock", "no hashes of data and code; `dvc repro` writes it")
    params = _yaml(workspace, str(PARAMS), "no parameters; `make params` writes it")
    locked = lock.get("stages")
    if not isinstance(locked, Mapping):
        locked = {}
    rows: list[dict[str, Any]] = []
    for stage in STAGES:
        entry = locked.get(stage)
        if not isinstance(entry, Mapping):
            continue
        used = entry.get("params", {}).get(str(PARAMS), {})
        rows.append({
            "stage": stage,
            "outs": entry.get("outs", []),
            "inputs": [dep for dep in entry.get("deps", []) if not _is_code(dep["path"])],
            "code": sum(_is_code(dep["path"]) for dep in entry.get("deps", [])),
            "params": yaml.safe_dump(dict(used), allow_unicode=True, sort_keys=False),
            "stale": _differences(workspace, entry, used, params),
        })  # fmt: skip
    return rows


def _yaml(workspace: Workspace, name: str, lacking: str) -> dict[str, Any]:
    path = workspace.root / name
    if not path.is_file():
        workspace.lacks(f"{name}: {lacking}")
        return {}
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        workspace.lacks(f"{name} cannot be read: {error}")
        return {}
    return document if isinstance(document, dict) else {}


def _is_code(path: str) -> bool:
    return path.startswith(("src/", "stages/"))


def _differences(
    workspace: Workspace, entry: Mapping[str, Any], used: Mapping[str, Any], params: dict[str, Any]
) -> list[str]:
    """What differs from the lock file by now; `dvc status` compares data tables."""
    found = [
        f"parameters `{block}` differ"
        for block, value in used.items()
        if _at(params, block) != value
    ]
    for out in entry.get("outs", []):
        path = workspace.root / out["path"]
        if path.suffix != ".json":
            continue
        if not path.is_file():
            found.append(f"{out['path']} is missing")
        elif hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() != out.get("md5"):
            found.append(f"{out['path']} differs")
    return found


def _at(document: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def machine(workspace: Workspace) -> dict[str, Any]:
    """The facts of each stage's newest finished MLflow run.

    ``bench`` has one run for each checkpoint in the arenas, and one for each in the suites.
    """
    try:
        path = workspace.root / PARAMS
        runtime = load("runtime", RuntimeConfig, path) if path.is_file() else RuntimeConfig()
    except AstraError as error:
        workspace.lacks(f"MLflow was not asked: {error}")
        return {}
    uri = tracking_uri(runtime)
    shown = without_login(uri)
    try:
        check_store(uri)
        return {"uri": shown, "runs": _newest_runs(uri)}
    except FileNotFoundError:
        workspace.lacks(
            f"no MLflow store at {shown}: wall times, device, sandbox tier and library versions of "
            "the runs are not known here"
        )
    except Exception as error:  # stores raise what their drivers raise; all of it is said
        reason = without_login(str(error)[:300])
        workspace.lacks(f"MLflow store {shown} cannot be read: {reason}")
    return {}


def _newest_runs(uri: str) -> list[dict[str, Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    rows: list[dict[str, Any]] = []
    for experiment in client.search_experiments(filter_string=f"name LIKE '{EXPERIMENTS}/%'"):
        stage = experiment.name.removeprefix(f"{EXPERIMENTS}/")
        newest: dict[str, Any] = {}
        for run in client.search_runs(
            [experiment.experiment_id],
            filter_string="attributes.status = 'FINISHED'",
            order_by=["attributes.start_time DESC"],
            max_results=50,
        ):
            part = run.data.tags.get("checkpoint", "")
            newest.setdefault(f"{part}/suites" if "suites" in run.data.tags else part, run)
        rows += [_run_row(stage, part, newest[part]) for part in sorted(newest, key=_place)]
    order = {stage: place for place, stage in enumerate(STAGES)}
    return sorted(rows, key=lambda row: order.get(row["stage"], len(order)))


def _place(checkpoint: str) -> tuple[int, str]:
    return {"base": 0, "sft": 1, "rl": 2}.get(checkpoint, 3), checkpoint


def _run_row(stage: str, part: str, run: Any) -> dict[str, Any]:
    tags: dict[str, str] = run.data.tags
    return {
        "stage": stage,
        "part": part,
        "id": run.info.run_id,
        "name": run.info.run_name,
        "parent": tags.get(PARENT, ""),
        "wall_s": run.data.metrics.get("wall_s"),
        "tags": {name: tags[name] for name in SHOWN_TAGS if name in tags},
        "libraries": {n.removeprefix("lib."): v for n, v in tags.items() if n.startswith("lib.")},
        "made": {n.removeprefix(OUTPUT): v for n, v in tags.items() if n.startswith(OUTPUT)},
    }
