"""What docs/versions.md promises of a bucket holds with SeaweedFS, a server that people run."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from seaweed_world import BrokenLine, running_seaweed, weed
from versions_world import BUCKET, Repository, Store, small_repository, tampered

pytestmark = pytest.mark.timeout(1800)  # of a machine that trains beside it; each wait is bounded
PREFIX = "project"
CHAINS = "data/chains.parquet"
LARGE = 120 * 2**20
"""Bytes of the large file; s3fs uploads 50 MiB a part where there are at least two."""
ONE_TRY = {"AWS_MAX_ATTEMPTS": "1"}


@pytest.fixture(scope="module")
def store(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    program = weed(root)
    if program is None:
        pytest.skip("NOT TESTED: SeaweedFS is not installed; `make seaweedfs` installs it")
    with running_seaweed(program, tmp_path_factory.mktemp("seaweed")) as running:
        yield running


@pytest.fixture(scope="module")
def origin(store: Store, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Two tagged versions of the chains, both pushed."""
    folder = tmp_path_factory.mktemp("origin")
    repository = small_repository(root, folder / "repo", folder / "home", store.writer)
    where = (f"s3://{BUCKET}/{PREFIX}", "--endpoint", store.url)
    assert "may be read and written" in repository.run("astra", "remote", "set", *where)
    for tag, walks in (("first", "9"), ("second", "3")):
        repository.params(f"chains.walks={walks}")
        repository.run("dvc", "repro", "-q")
        repository.commit(tag)
        repository.run("git", "tag", tag)
        repository.run("dvc", "push")
    return repository


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def key_of(digest: str) -> str:
    return f"{PREFIX}/files/md5/{digest[:2]}/{digest[2:]}"


def test_a_clone_pulls_the_data_set_and_has_nothing_to_do(
    origin: Repository, tmp_path: Path
) -> None:
    copy = origin.clone(tmp_path / "repo")
    copy.run("dvc", "pull")
    assert {path: md5(copy.folder / path) for path in copy.lock()} == origin.lock()
    assert "Running stage" not in copy.run("dvc", "repro")


def test_what_gc_deletes_comes_back_in_a_versioned_bucket(
    origin: Repository, store: Store, tmp_path: Path
) -> None:
    old = origin.clone(tmp_path / "repo")
    old.run("git", "checkout", "-q", "first")
    digest = old.lock()[CHAINS]
    kept = {key_of(digest) for digest in origin.lock().values()}
    assert key_of(digest) in store.objects(PREFIX)
    origin.run("dvc", "gc", "--workspace", "--cloud", "--force")
    assert set(store.objects(PREFIX)) == kept, "gc keeps what this workspace names, nothing else"
    assert CHAINS in old.run("dvc", "pull", fails=True)
    listed = store.client().list_object_versions(Bucket=BUCKET, Prefix=PREFIX)
    for marker in listed["DeleteMarkers"]:
        store.client().delete_object(
            Bucket=BUCKET, Key=marker["Key"], VersionId=marker["VersionId"]
        )
    old.run("dvc", "pull")
    assert md5(old.folder / CHAINS) == digest


def test_a_large_upload_that_breaks_leaves_nothing_and_is_sent_again(
    origin: Repository, store: Store, tmp_path: Path
) -> None:
    large = origin.folder / "large.bin"
    large.write_bytes(random.Random(0).randbytes(LARGE))
    origin.run("dvc", "add", "-q", "large.bin")
    origin.commit("large")
    key = key_of(md5(large))
    line = BrokenLine(store.url, allowed=LARGE // 2)
    config = origin.folder / ".dvc" / "config.local"
    config.write_text(f"['remote \"storage\"']\n endpointurl = {line.url}\n")
    try:
        said = origin.run("dvc", "push", "large.bin", fails=True, env=ONE_TRY)
    finally:
        line.close()
        config.unlink()
    assert line.broken.is_set()
    assert "large.bin" in said or "failed to push" in said
    assert "Traceback" not in said
    with pytest.raises(ClientError, match="404"):
        store.client().head_object(Bucket=BUCKET, Key=key)
    parts = store.client().list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert [part["Key"] for part in parts] == [key], "they wait for a lifecycle rule"
    assert "1 file pushed" in origin.run("dvc", "push", "large.bin")
    arrived = store.client().head_object(Bucket=BUCKET, Key=key)
    assert arrived["ContentLength"] == LARGE
    assert arrived["ETag"].strip('"').endswith("-3"), "it was sent in parts"
    copy = origin.clone(tmp_path / "repo")
    copy.run("dvc", "pull", "large.bin")
    assert md5(copy.folder / "large.bin") == md5(large)


def test_an_object_that_was_tampered_with_is_not_taken(
    origin: Repository, store: Store, tmp_path: Path
) -> None:
    path = "data/graph.parquet"
    key = key_of(origin.lock()[path])
    copy = origin.clone(tmp_path / "repo")
    with tampered(store, key):
        assert path in copy.run("dvc", "pull", path, fails=True)
        assert not (copy.folder / path).exists()


def test_wrong_keys_a_missing_bucket_and_a_dead_server_are_one_clear_error(
    origin: Repository, store: Store
) -> None:
    check = ("astra", "remote", "check")
    secret = origin.run(*check, fails=True, env={"AWS_SECRET_ACCESS_KEY": "wrong"})
    key = origin.run(*check, fails=True, env={"AWS_ACCESS_KEY_ID": "wrong"})
    assert all(
        "access was refused" in said and "AWS_ACCESS_KEY_ID" in said for said in (key, secret)
    )
    assert "may be read (dvc pull), not written" in origin.run(*check, env=store.reader.env)
    config = origin.folder / ".dvc" / "config.local"
    try:
        config.write_text("['remote \"storage\"']\n url = s3://nowhere/data\n")
        bucket = origin.run(*check, fails=True)
        assert "create the bucket, or correct the URL" in bucket
        config.write_text("['remote \"storage\"']\n endpointurl = http://127.0.0.1:1\n")
        dead = origin.run(*check, fails=True, env=ONE_TRY)
        assert "is the server up, and --endpoint right?" in dead
    finally:
        config.unlink()
    assert all("Traceback" not in said for said in (secret, key, bucket, dead))
