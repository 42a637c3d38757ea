"""Queued experiments run beside each other, leave the workspace alone and can be taken over."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
import yaml
from versions_world import WAIT_S, Key, Repository, small_repository

pytestmark = pytest.mark.timeout(1800)  # of a machine that trains beside it; each wait is bounded
WALKS = {"few": 3, "more": 9}
WHERE = (
    "from astra.store.paths import repository_root; "
    'open("where", "w").write(str(repository_root()))'
)
"""A stage that says where it would keep caches, journals, runs and the MLflow store."""


@pytest.fixture(scope="module")
def queued(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Two experiments that two workers of the queue ran at once."""
    folder = tmp_path_factory.mktemp("queued")
    repository = small_repository(root, folder / "repo", folder / "home", Key("", ""))
    graph = yaml.safe_load((repository.folder / "dvc.yaml").read_text())
    graph["stages"]["where"] = {
        "cmd": f"python -c '{WHERE}'",
        "params": ["chains.walks"],
        "outs": [{"where": {"cache": False}}],
    }
    (repository.folder / "dvc.yaml").write_text(yaml.safe_dump(graph, sort_keys=False))
    repository.run("dvc", "repro", "-q")
    repository.commit("built")
    for name, walks in WALKS.items():
        repository.run("dvc", "exp", "run", "--queue", "-n", name, "-S", f"chains.walks={walks}")
    repository.run("dvc", "queue", "start", "--jobs", "2")
    try:
        deadline = time.monotonic() + WAIT_S
        while len(finished(repository)) < len(WALKS) and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        repository.run("dvc", "queue", "stop", "--kill")
    assert finished(repository) == set(WALKS), repository.run("dvc", "queue", "status")
    return repository


def finished(repository: Repository) -> set[str]:
    refs = repository.run("git", "for-each-ref", "--format=%(refname)", "refs/exps").splitlines()
    # refs/exps/<two characters>/<the rest of the commit>/<name>, beside others for the queue
    return {ref.split("/")[-1] for ref in refs} & set(WALKS)


def params(text: str) -> int:
    return yaml.safe_load(text)["chains"]["walks"]


def test_each_ran_with_its_own_parameters_and_the_workspace_was_left_alone(
    queued: Repository,
) -> None:
    assert not queued.run("git", "status", "--porcelain")
    tables = {queued.lock()["data/chains.parquet"]}
    shown = json.loads(queued.run("dvc", "exp", "show", "--json"))[1]["experiments"]
    entries = {one["revs"][0]["name"]: one["revs"][0]["data"] for one in shown}
    for name, walks in WALKS.items():  # there are more after other tests of this file
        values = entries[name]["params"]["params.yaml"]["data"]
        assert values["chains"]["walks"] == walks
        tables.add(entries[name]["outs"]["data/chains.parquet"]["hash"])
    assert len(tables) == 3


def test_the_table_has_what_was_changed_and_little_else(queued: Repository) -> None:
    """What `make experiments` prints."""
    head, _, *lines = queued.run("astra", "experiments", "--md").splitlines()
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert columns == ["Experiment", "Created", "State", "chains.walks"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    walks = {row[0]: row[-1] for row in rows}
    assert {name: walks[name] for name in WALKS} == {n: str(w) for n, w in WALKS.items()}
    assert list(walks)[:2] == ["workspace", "main"]


BACK = (sys.executable, "-m", "astra.devtools.back")  # what `make back` runs


def test_going_back_leaves_the_committed_build(queued: Repository) -> None:
    """After an experiment that also wrote a file of plots which the committed build lacks."""
    chains = queued.folder / "data/chains.parquet"
    before = chains.read_bytes()
    queued.run("dvc", "exp", "run", "-n", "left", "-S", "chains.walks=7")
    assert queued.run("git", "status", "--porcelain", "metrics", "plots", "params.yaml")
    assert chains.read_bytes() != before
    (queued.folder / "plots/chains/of_the_experiment.csv").write_text("count,value\n")
    assert "this is the committed build" in queued.run(*BACK)
    assert not queued.run("git", "status", "--porcelain")
    assert chains.read_bytes() == before
    assert "up to date" in queued.run("dvc", "status")


def test_going_back_restores_what_git_takes_for_unchanged(queued: Repository) -> None:
    """As after a dvc command that failed midway: other bytes, but size and time as in the index."""
    metrics = queued.folder / "metrics/chains.json"
    before, times = metrics.read_bytes(), metrics.stat()
    queued.run("git", "config", "core.trustctime", "false")
    queued.run("git", "update-index", "--refresh")
    metrics.write_bytes(before[::-1])
    os.utime(metrics, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not queued.run("git", "status", "--porcelain"), "git does not see it"
    queued.run(*BACK)
    assert metrics.read_bytes() == before


def test_going_back_to_what_the_cache_lacks_changes_nothing(queued: Repository) -> None:
    digest = queued.lock()["data/graph.parquet"]
    held = queued.folder / ".dvc/cache/files/md5" / digest[:2] / digest[2:]
    away = held.rename(queued.home / "away")
    try:
        queued.params("chains.walks=8")
        assert "the cache lacks data/graph.parquet" in queued.run(*BACK, fails=True)
        assert params((queued.folder / "params.yaml").read_text()) == 8
        (queued.folder / "data/graph.parquet").unlink()  # never built here: nothing can be lost
        assert "not built here, as before: data/graph.parquet" in queued.run(*BACK)
        assert not queued.run("git", "status", "--porcelain")
    finally:
        away.rename(held)
        queued.run("git", "checkout", "-q", "params.yaml")
        queued.run("dvc", "checkout", "-q")


def test_an_experiment_is_applied_branched_and_saved(queued: Repository) -> None:
    queued.run("dvc", "exp", "branch", "few", "fewer-walks")
    assert params(queued.run("git", "show", "fewer-walks:params.yaml")) == WALKS["few"]
    queued.run("dvc", "exp", "apply", "more")
    try:
        assert params((queued.folder / "params.yaml").read_text()) == WALKS["more"]
        assert "up to date" in queued.run("dvc", "repro"), "its outputs came along"
        queued.run("dvc", "exp", "save", "-n", "by-hand")
    finally:
        queued.run("git", "reset", "-q", "--hard")
    assert "by-hand" in queued.run("dvc", "exp", "list", "--name-only")


def test_one_aside_needs_no_queue_and_leaves_the_workspace_alone(queued: Repository) -> None:
    before = {file: file.read_bytes() for file in (queued.folder / "data").glob("*.parquet")}
    assert len(before) == 4
    queued.run("dvc", "exp", "run", "--temp", "-n", "aside", "-S", "chains.walks=5")
    assert not queued.run("git", "status", "--porcelain")
    assert {file: file.read_bytes() for file in before} == before
    assert not list((queued.folder / ".dvc/tmp").rglob("dvc.yaml")), "its copy is gone"
    assert "aside" in queued.run("dvc", "exp", "list", "--name-only")
    queued.run("dvc", "exp", "apply", "aside")
    try:
        assert params((queued.folder / "params.yaml").read_text()) == 5
        assert "up to date" in queued.run("dvc", "repro")
        assert (queued.folder / "where").read_text() == str(queued.folder), "not in its copy"
        chains = queued.folder / "data/chains.parquet"
        assert chains.read_bytes() != before[chains]
    finally:
        queued.run("git", "reset", "-q", "--hard")
        queued.run("dvc", "checkout", "-q")


def test_a_bad_value_queues_nothing(queued: Repository) -> None:
    wrong = queued.run("dvc", "exp", "run", "--queue", "-S", "chains.walks=many", fails=True)
    assert "chains.walks" in wrong
    assert "Queued" not in queued.run("dvc", "queue", "status")
