"""Data sets, paid answers and past runs travel through a store that speaks S3, or fail loudly."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from versions_world import (
    BUCKET,
    WAIT_S,
    Gate,
    Repository,
    Store,
    running_store,
    small_repository,
    tampered,
)

from astra.llm.build import Teachers
from astra.llm.protocol import Ask, ModelConfig, Teacher
from chat_server import KEY, Answer, ChatServer, runtime

pytestmark = pytest.mark.timeout(1800)  # of a machine that trains beside it; each wait is bounded
PREFIX = "project"
RUNNING = "Running stage"
CHAINS = "data/chains.parquet"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with running_store(tmp_path_factory.mktemp("store") / "log") as running:
        yield running


class Groups(BaseModel):
    groups: list[list[int]]


def ask(repository: Repository, url: str) -> None:
    """One ask of a paid model, with the cache that the repository's stages would use."""

    async def asking(teacher: Teacher) -> Groups:
        members = [
            {"id": number, "question": f"the price of {name}", "tool": {}, "arguments": {}}
            for number, name in enumerate(("Amber Cove", "Gold Hollow"))
        ]
        return await teacher.ask(Ask("envsynth/cluster", {"members": members}, Groups))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASTRA_CACHE", repository.env["ASTRA_CACHE"])
        patch.setenv("ASTRA_TEST_KEY", KEY)
        with Teachers(runtime(url)) as teachers:
            teacher = teachers.teacher(ModelConfig(backend="openai", model="m"), {})
            assert asyncio.run(asking(teacher)) == Groups(groups=[[0, 1]])


@pytest.fixture(scope="module")
def origin(store: Store, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Two versions of the chains, and an answer that was paid for; all of it pushed."""
    folder = tmp_path_factory.mktemp("origin")
    repository = small_repository(root, folder / "repo", folder / "home", store.writer)
    where = (f"s3://{BUCKET}/{PREFIX}", "--endpoint", store.url)
    assert "may be read and written" in repository.run("astra", "remote", "set", *where)
    repository.run("dvc", "repro", "-q")
    repository.commit("first")
    repository.run("gto", "register", "chains", "--version", "v1.0.0")
    repository.run("dvc", "push")
    repository.params("chains.walks=3")
    repository.run("dvc", "repro", "-q")
    with ChatServer(Answer(json.dumps({"groups": [[0, 1]]}))) as server:
        ask(repository, server.url)
    repository.run("astra", "cache", "export", "answers.jsonl.gz")
    repository.run("dvc", "add", "-q", "answers.jsonl.gz")
    repository.commit("second")
    repository.run("gto", "register", "chains", "--version", "v1.1.0")
    repository.run("dvc", "push")
    return repository


@pytest.fixture(scope="module")
def clone(origin: Repository, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Another person's working copy: what git and the store hold, nothing else."""
    copy = origin.clone(tmp_path_factory.mktemp("clone") / "repo")
    copy.run("dvc", "pull")
    return copy


def version(repository: Repository, revision: str) -> str:
    """The hash of the chains that a revision's lock file holds."""
    lock = yaml.safe_load(repository.run("git", "show", f"{revision}:dvc.lock"))
    return next(out["md5"] for out in lock["stages"]["chains"]["outs"] if out["path"] == CHAINS)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def key_of(digest: str, prefix: str = PREFIX) -> str:
    return f"{prefix}/files/md5/{digest[:2]}/{digest[2:]}"


def test_a_fresh_clone_pulls_and_has_nothing_to_do(origin: Repository, clone: Repository) -> None:
    assert {path: md5(clone.folder / path) for path in clone.lock()} == origin.lock()
    output = clone.run("dvc", "repro")
    assert RUNNING not in output
    assert "up to date" in output
    assert not clone.run("git", "status", "--porcelain")


def test_a_run_that_somebody_else_made_is_made_again_to_the_same_bytes(clone: Repository) -> None:
    clone.params()
    try:
        output = clone.run("dvc", "repro", "--pull")
        assert f"{RUNNING} 'chains'" in output
        assert clone.lock()[CHAINS] == version(clone, "chains@v1.0.0")
    finally:
        clone.run("git", "checkout", "-q", ".")
        clone.run("dvc", "checkout", "-q")


def test_paid_answers_travel(clone: Repository) -> None:
    assert "1 answers added" in clone.run("astra", "cache", "import", "answers.jsonl.gz")
    with ChatServer() as server:  # answers nothing
        ask(clone, server.url)
        assert not server.requests


def test_versions_are_had_by_name(origin: Repository, tmp_path: Path) -> None:
    hub = origin.folder.with_suffix(".git")
    origin.run("git", "clone", "-q", "--bare", ".", str(hub))
    other = Repository(tmp_path, origin.home, origin.key)
    first, second = (version(origin, f"chains@v1.{minor}.0") for minor in (0, 1))
    assert first != second
    other.run("dvc", "artifacts", "get", f"file://{hub}", "chains", "-o", "newest.parquet")
    assert md5(tmp_path / "newest.parquet") == second
    other.run("git", "init", "-q")
    other.run("dvc", "init", "-q")
    other.run("dvc", "import", f"file://{hub}", CHAINS, "--rev", "chains@v1.0.0")
    assert md5(tmp_path / "chains.parquet") == first
    other.run("dvc", "update", "--rev", "chains@v1.1.0", "chains.parquet.dvc")
    assert md5(tmp_path / "chains.parquet") == second


def test_an_object_that_was_tampered_with_is_not_taken(
    origin: Repository, store: Store, tmp_path: Path
) -> None:
    path = "data/graph.parquet"
    key = key_of(origin.lock()[path])
    copy = origin.clone(tmp_path / "repo")
    with tampered(store, key):
        assert path in copy.run("dvc", "pull", fails=True)
        assert not (copy.folder / path).exists()
    copy.run("dvc", "pull")
    assert md5(copy.folder / path) == origin.lock()[path]


def test_an_interrupted_push_goes_on_where_it_was(origin: Repository, store: Store) -> None:
    prefix = "interrupted"
    config = origin.folder / ".dvc" / "config.local"
    gate = Gate(store.url, allowed=2)
    try:
        config.write_text(
            f"['remote \"storage\"']\n url = s3://{BUCKET}/{prefix}\n endpointurl = {gate.url}\n"
        )
        pushing = origin.start("dvc", "push", "--jobs", "1")
        try:
            assert gate.stalled.wait(WAIT_S)
        finally:
            pushing.kill()
            pushing.wait(WAIT_S)
        gate.close()
        arrived = store.objects(prefix)
        assert len(arrived) == 2
        config.write_text(config.read_text().replace(gate.url, store.url))
        said = origin.run("dvc", "push")
    finally:
        gate.close()
        config.unlink()
    wanted = {*origin.lock().values(), md5(origin.folder / "answers.jsonl.gz")}
    assert f"{len(wanted) - 2} files pushed" in said, "what had arrived was not sent again"
    stored = store.objects(prefix)
    assert set(stored) == {key_of(digest, prefix) for digest in wanted}
    assert all(key == key_of(hashlib.md5(body).hexdigest(), prefix) for key, body in stored.items())


def test_wrong_keys_are_one_clear_error(origin: Repository, store: Store) -> None:
    check = ("astra", "remote", "check")
    wrong = origin.run(*check, fails=True, env={"AWS_SECRET_ACCESS_KEY": "wrong"})
    assert "access was refused" in wrong
    assert "AWS_SECRET_ACCESS_KEY" in wrong
    none = origin.run(
        *check, fails=True, env={"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    )
    assert "no credentials were found" in none
    assert "may be read (dvc pull), not written" in origin.run(*check, env=store.reader.env)
    pushed = origin.run("dvc", "push", fails=True, env={"AWS_ACCESS_KEY_ID": "wrong"})
    assert "Access Key Id you provided does not exist" in pushed
    assert all("Traceback" not in said for said in (wrong, none, pushed))


def test_no_key_is_written_anywhere(origin: Repository, clone: Repository, store: Store) -> None:
    for repository in (origin, clone):
        for path in repository.folder.rglob("*"):
            if path.is_file():
                assert store.writer.secret.encode() not in path.read_bytes(), path
                assert store.writer.id.encode() not in path.read_bytes(), path
