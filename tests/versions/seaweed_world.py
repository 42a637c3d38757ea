"""SeaweedFS, an object store that people run, as one process; and a line to it that breaks."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError
from versions_world import BUCKET, WAIT_S, Key, Passage, Store, _client

WRITER = Key("WRITERKEYID", "secret-of-the-writer")
READER = Key("READERKEYID", "secret-of-the-reader")
RIGHTS = {WRITER: ["Admin", "Read", "List", "Tagging", "Write"], READER: ["Read", "List"]}
PORTS = ("master", "volume", "filer", "s3")
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER for a close that the other side sees as a broken connection."""


def weed(root: Path) -> str | None:
    """SeaweedFS's program, from `make seaweedfs` or the PATH."""
    made = Path(os.environ.get("ASTRA_S3_SERVER", root / ".venv-s3")) / "bin/weed"
    return str(made) if made.is_file() else shutil.which("weed")


@contextmanager
def running_seaweed(program: str, folder: Path) -> Iterator[Store]:
    """The server with one versioned bucket, a user who may do all and one who may only read."""
    identities = [
        {
            "name": key.id.lower(),
            "credentials": [{"accessKey": key.id, "secretKey": key.secret}],
            "actions": actions,
        }
        for key, actions in RIGHTS.items()
    ]
    (folder / "data").mkdir(parents=True)
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    ports = _free_ports(2 * len(PORTS))
    command = [
        program, "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-filer", "-s3",
        "-volume.max=0", f"-s3.config={folder / 's3.json'}", "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0", "-s3.port.lance=0",
        f"-s3.localSocket={folder / 's3.sock'}", f"-filer.localSocket={folder / 'filer.sock'}",
        "-master.telemetry=false",  # it would tell its makers of this cluster
        *(f"-{name}.port={port}" for name, port in zip(PORTS, ports[::2], strict=True)),
        *(f"-{name}.port.grpc={port}" for name, port in zip(PORTS, ports[1::2], strict=True)),
    ]  # fmt: skip
    log = folder / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        store = Store(f"http://127.0.0.1:{ports[2 * PORTS.index('s3')]}", WRITER, READER)
        _made_bucket(server, store, log)
        yield store
    finally:
        server.kill()  # asked politely it waits half a minute for its parts; nothing is kept
        server.wait(WAIT_S)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        listeners = [held.enter_context(closing(socket.socket())) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def _made_bucket(server: subprocess.Popen[bytes], store: Store, log: Path) -> None:
    client = _client("s3", store.url, WRITER)
    deadline = time.monotonic() + WAIT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            client.create_bucket(Bucket=BUCKET)
        except (BotoCoreError, ClientError):  # still starting: master, volumes, filer, gateway
            time.sleep(0.2)
        else:
            client.put_bucket_versioning(
                Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"}
            )
            return
    raise AssertionError(f"SeaweedFS did not start: {log.read_text()[-2000:]}")


class BrokenLine(Passage):
    """Passes connections on until ``allowed`` bytes went to the store; then it resets them all."""

    def __init__(self, url: str, allowed: int) -> None:
        self.broken = threading.Event()
        super().__init__(url, allowed)

    def _refused(self, near: socket.socket) -> bool:
        if self.broken.is_set():
            self._reset(near)
        return self.broken.is_set()

    def _pump(self, source: socket.socket, sink: socket.socket, upward: bool) -> None:
        with suppress(OSError):
            while (data := source.recv(1 << 16)) and not self.broken.is_set():
                if upward:
                    self._counted(len(data))
                sink.sendall(data)
        self._reset(source if upward else sink)
        (sink if upward else source).close()

    def _counted(self, size: int) -> None:
        with self._lock:
            self._left -= size
            if self._left < 0:
                self.broken.set()
                raise ConnectionResetError

    @staticmethod
    def _reset(near: socket.socket) -> None:
        with suppress(OSError):
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        near.close()
