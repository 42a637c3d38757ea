"""``astra remote`` without a server; tests/versions has one."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from astra.cli.remote import RemoteError, remote_app

SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The committed configuration of a DVC repository without git; the working folder is there."""
    path = tmp_path / ".dvc" / "config"
    path.parent.mkdir()
    path.write_text("[core]\n    no_scm = true\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    return path


def refusal(*arguments: str) -> str:
    done = CliRunner().invoke(remote_app, list(arguments))
    assert isinstance(done.exception, RemoteError), done.output
    return str(done.exception)


@pytest.mark.parametrize(
    "where",
    [
        (f"s3://ID:{SECRET}@bucket/path",),
        (f"s3://bucket/path?secret={SECRET}",),
        ("s3://bucket/path", "--endpoint", f"https://ID:{SECRET}@host"),
    ],
)
def test_a_key_in_a_url_is_refused(config: Path, where: tuple[str, ...]) -> None:
    before = config.read_text()
    message = refusal("set", *where)
    assert "must hold no key" in message
    assert SECRET not in message
    assert config.read_text() == before


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (("s3://[b/p",), "the URL"),
        ((f"s3://ID:{SECRET}@[b/p",), "the URL"),
        (("s3://bucket/path", "--endpoint", f"https://ID:{SECRET}@[host"), "--endpoint"),
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(
    config: Path, where: tuple[str, ...], named: str
) -> None:
    before = config.read_text()
    message = refusal("set", *where)
    assert f"{named} cannot be read" in message
    assert SECRET not in message
    assert config.read_text() == before


def test_only_buckets_are_set(config: Path) -> None:
    assert "is no s3://BUCKET/PATH" in refusal("set", "/somewhere")
    assert "is no s3://BUCKET/PATH" in refusal("set", "s3:///path")
    assert SECRET not in refusal("set", f"https://ID:{SECRET}@host/path")


def test_a_key_in_the_committed_configuration_is_refused(config: Path) -> None:
    config.write_text(
        "[core]\n    remote = storage\n['remote \"storage\"']\n    url = s3://bucket\n"
        f"    secret_access_key = {SECRET}\n"
    )
    message = refusal("check")
    assert "secret_access_key" in message
    assert SECRET not in message


def test_any_remote_is_checked_and_left_as_it_was(config: Path, tmp_path: Path) -> None:
    assert "make remote" in refusal("check")
    place = tmp_path / "elsewhere"
    config.write_text(
        f"[core]\n    no_scm = true\n    remote = disk\n['remote \"disk\"']\n    url = {place}\n"
    )
    done = CliRunner().invoke(remote_app, ["check"])
    assert done.exit_code == 0, done.output
    assert "disk" in done.output
    assert "may be read and written" in done.output
    assert list(place.iterdir()) == []


def test_outside_a_repository_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "repository" in refusal("check")
