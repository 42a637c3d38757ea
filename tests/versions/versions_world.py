"""A store that speaks S3 in a process of its own, a gate before it, and small repositories."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import yaml

BUCKET = "astra"
WAIT_S = 600.0
"""Longest wait for anything, seconds; on an idle machine none takes ten."""
STAGES = ("tools", "graph", "chains")
POLICY = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "%s", "Action": "%s", "Resource": "*"}]}'
)


@dataclass(frozen=True)
class Key:
    """Of a user of the store."""

    id: str
    secret: str

    @property
    def env(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": self.id, "AWS_SECRET_ACCESS_KEY": self.secret}


@dataclass(frozen=True)
class Store:
    """A bucket behind HTTP; requests must be signed with the key of a user of it."""

    url: str
    writer: Key
    reader: Key

    def client(self, service: str = "s3") -> Any:
        return _client(service, self.url, self.writer)

    def objects(self, prefix: str) -> dict[str, bytes]:
        found = self.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        keys = [item["Key"] for item in found]
        return {
            key: self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys
        }


def _client(service: str, url: str, key: Key) -> Any:
    return boto3.client(
        service, endpoint_url=url, region_name="us-east-1",
        aws_access_key_id=key.id, aws_secret_access_key=key.secret,
    )  # fmt: skip


def _free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def running_store(log: Path) -> Iterator[Store]:
    """The server process with one bucket, one user who may do all and one who may only read."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        url = f"http://127.0.0.1:{port}"
        _listening(server, port, log)
        anybody = Key("anybody", "anything")
        _client("s3", url, anybody).create_bucket(Bucket=BUCKET)
        iam = _client("iam", url, anybody)
        writer = _user(iam, "writer", [("Allow", "s3:*")])
        reader = _user(iam, "reader", [("Allow", "s3:Get*"), ("Allow", "s3:List*")])
        _check_signatures(url)
        yield Store(url, writer, reader)
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def _listening(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the store did not start: {log.read_text()[-2000:]}")


def _user(iam: Any, name: str, rights: Sequence[tuple[str, str]]) -> Key:
    iam.create_user(UserName=name)
    for number, right in enumerate(rights):
        iam.put_user_policy(
            UserName=name, PolicyName=f"right-{number}", PolicyDocument=POLICY % right
        )
    made = iam.create_access_key(UserName=name)["AccessKey"]
    return Key(made["AccessKeyId"], made["SecretAccessKey"])


def _check_signatures(url: str) -> None:
    """From now on the server refuses a request that no user of it signed."""
    request = urllib.request.Request(
        f"{url}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
    )
    with urllib.request.urlopen(request, timeout=WAIT_S):
        pass


class Passage(ABC):
    """Passes connections on to the store; what becomes of their bytes is for ``_pump`` to say."""

    def __init__(self, url: str, allowed: int) -> None:
        self._target = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        self._left = allowed
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._refused(near):
                continue
            far = socket.create_connection(self._target, timeout=WAIT_S)
            threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()

    def _refused(self, near: socket.socket) -> bool:
        return False

    @abstractmethod
    def _pump(self, source: socket.socket, sink: socket.socket, upward: bool) -> None:
        """Pass bytes on until the source ends; ``upward`` is towards the store."""


class Gate(Passage):
    """Passes connections on to the store until ``allowed`` objects were uploaded, then stalls."""

    def __init__(self, url: str, allowed: int) -> None:
        self.stalled = threading.Event()
        self._closed = threading.Event()
        super().__init__(url, allowed)

    def close(self) -> None:
        self._closed.set()
        super().close()

    def _pump(self, source: socket.socket, sink: socket.socket, upward: bool) -> None:
        with closing(source), closing(sink):
            try:
                while data := source.recv(1 << 16):
                    # A request starts a segment, and the client waits for the answer to it.
                    if upward and data.startswith(b"PUT ") and not self._admitted():
                        self.stalled.set()
                        self._closed.wait(WAIT_S)
                        return
                    sink.sendall(data)
            except OSError:
                return

    def _admitted(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0


@contextmanager
def tampered(store: Store, key: str) -> Iterator[None]:
    """Another object of the same length under ``key``, for as long as the context lasts."""
    whole = store.client().get_object(Bucket=BUCKET, Key=key)["Body"].read()
    store.client().put_object(Bucket=BUCKET, Key=key, Body=whole[:-9] + b"ATTACKER!")
    try:
        yield
    finally:
        store.client().put_object(Bucket=BUCKET, Key=key, Body=whole)


class Repository:
    """A working copy, and commands in it as a user of the store gives them."""

    def __init__(self, folder: Path, home: Path, key: Key) -> None:
        self.folder, self.home, self.key = folder, home, key
        home.mkdir(exist_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "DVC_", "ASTRA_", "MLFLOW_", "GIT_"))
        }
        bins = str(Path(sys.executable).parent)
        self.env = {
            **inherited,
            **key.env,
            "PATH": f"{bins}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": "src",
            "HOME": str(home),  # neither ~/.aws nor a global configuration of git and dvc
            "AWS_EC2_METADATA_DISABLED": "true",
            "DVC_SITE_CACHE_DIR": str(home / "site"),
            "ASTRA_CACHE": str(folder.with_suffix(".cache")),
            "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t",
            "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t",
        }  # fmt: skip

    def run(self, *command: str, fails: bool = False, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            self._words(command), cwd=self.folder, env={**self.env, **(env or {})},
            capture_output=True, text=True, check=False, timeout=WAIT_S,
        )  # fmt: skip
        output = done.stdout + done.stderr
        assert bool(done.returncode) == fails, f"{command}: {done.returncode}\n{output[-4000:]}"
        return output

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._words(command), cwd=self.folder, env=self.env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @staticmethod
    def _words(command: Sequence[str]) -> list[str]:
        if command[0] == "astra":
            code = "from astra.cli.main import app; app()"
            return [sys.executable, "-c", code, *command[1:]]
        return list(command)

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", message)

    def lock(self) -> dict[str, str]:
        """Table -> hash."""
        stages = yaml.safe_load((self.folder / "dvc.lock").read_text())["stages"]
        outs = [out for stage in stages.values() for out in stage["outs"]]
        return {out["path"]: out["md5"] for out in outs if out["path"].startswith("data/")}

    def params(self, *overrides: str) -> None:
        """Compose params.yaml as `make params` does, with overrides."""
        self.run(sys.executable, "-m", "astra.devtools.params", *overrides)

    def clone(self, folder: Path) -> Repository:
        """What somebody else has after `git clone`: another cache, the same key."""
        self.run("git", "clone", "-q", ".", str(folder))
        return Repository(folder, self.home, self.key)


def small_repository(root: Path, folder: Path, home: Path, key: Key) -> Repository:
    """The project at scale test, cut to tools, graph and chains of documents; nothing built."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--",
         "src", "stages", "conf", "sources", "dvc.yaml", ".dvc", ".gitignore", ".dvcignore",
         "contamination", "policies/tiny/config.json", "problems"],
        cwd=root, capture_output=True, text=True, check=True, timeout=WAIT_S,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (root / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target)
    graph = yaml.safe_load((folder / "dvc.yaml").read_text())
    small = {
        "stages": {name: graph["stages"][name] for name in STAGES},
        "artifacts": {"tools": graph["artifacts"]["tools"]},
    }
    small["artifacts"]["chains"] = {"path": "data/chains.parquet", "type": "dataset"}
    (folder / "dvc.yaml").write_text(yaml.safe_dump(small, sort_keys=False))
    sources = yaml.safe_load((folder / "sources" / "test.yaml").read_text())
    (folder / "sources" / "test.yaml").write_text(
        yaml.safe_dump({"documents": sources["documents"]})
    )
    config = folder / "conf" / "config.yaml"
    config.write_text(config.read_text().replace("- scale: smoke", "- scale: test"))
    repository = Repository(folder, home, key)
    repository.run("git", "init", "-q", "-b", "main")
    repository.params()
    return repository
