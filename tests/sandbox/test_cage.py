"""The cage, attacked from inside by code that a model could have written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cage_attacks import ATTACKS, HARMLESS

from astra.sandbox.cage import Cage
from astra.sandbox.protocol import SandboxUnavailable

SECRET = "sk-secret-of-the-host"
PYTHON = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")


@pytest.fixture(scope="module", autouse=True)
def _cages() -> None:
    try:
        Cage([]).close()
    except SandboxUnavailable as error:
        if subprocess.run(["unshare", "--user", "true"], check=False).returncode == 0:
            raise  # nothing but namespaces may be missing
        pytest.skip(f"NOT TESTED: this machine builds no cage: {error}")


@pytest.fixture
def cage() -> Iterator[Cage]:
    os.environ["CAGE_TEST_SECRET"] = SECRET
    opened = Cage([Path(sys.base_prefix)])
    try:
        yield opened
    finally:
        opened.close()
        del os.environ["CAGE_TEST_SECRET"]


def inside(cage: Cage, code: str, *arguments: str) -> str:
    cage.start([PYTHON, "-I", "-B", "-c", code, *arguments], {})
    out, err = cage.process.communicate(b"", timeout=60)
    assert not err, err.decode()
    return out.decode()


def attacks(folder: Path, port: int, only: tuple[str, ...] = ()) -> str:
    (folder / "key").write_text(SECRET, encoding="utf-8")
    code = ATTACKS.format(
        port=port, planted=folder / "planted", key=folder / "key", host=os.getpid(),
        source=Path(__file__), only=only,
    )  # fmt: skip
    return code + "\nprint(json.dumps(found))"


def test_the_attacks_work_where_there_is_no_cage(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        code = attacks(tmp_path, elsewhere.getsockname()[1], HARMLESS)
        ran = subprocess.run(
            [PYTHON, "-I", "-c", code], env={"KEY": SECRET}, capture_output=True, check=True,
            timeout=60,
        )  # fmt: skip
    found = json.loads(ran.stdout)
    assert set(found) == set(HARMLESS)
    assert not [said for said in found.values() if said.startswith("denied")]


def test_every_attack_from_inside_is_denied(cage: Cage, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:  # another service of this machine
        code = attacks(tmp_path, elsewhere.getsockname()[1])
        found = json.loads(inside(cage, code))
        elsewhere.settimeout(0.1)
        with pytest.raises(TimeoutError):
            elsewhere.accept()
    open_doors = {name: said for name, said in found.items() if not said.startswith("denied")}
    assert not open_doors
    assert len(found) >= 15
    assert not planted.exists()
    assert SECRET not in json.dumps(found)


def test_the_listener_is_reached_and_the_one_writable_place_is_bounded(cage: Cage) -> None:
    def answer() -> None:
        connection, _ = cage.listener.accept()
        with connection:
            connection.sendall(connection.recv(16).upper())

    threading.Thread(target=answer, daemon=True).start()
    code = """
import os, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as s:
    s.sendall(b"hello")
    print(s.recv(16).decode())
open(os.environ["HOME"] + "/note", "w").write("mine")
try:
    with open(os.environ["HOME"] + "/big", "wb") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
except OSError as error:
    print(error.errno)
"""
    assert inside(cage, code, str(cage.port)).split() == ["HELLO", "28"]


def test_closing_ends_what_runs_inside_and_what_it_left_behind(cage: Cage) -> None:
    code = "import os, time\nif os.fork(): print('up', flush=True)\ntime.sleep(600)"
    cage.start([PYTHON, "-I", "-c", code], {})
    assert cage.process.stdout is not None
    assert cage.process.stdout.readline() == b"up\n"
    started = time.monotonic()
    cage.close()
    assert cage.process.poll() is not None
    assert cage.process.stdout.read() == b""  # every writer is gone
    assert time.monotonic() - started < 30


def test_how_a_command_ended_is_told(cage: Cage) -> None:
    cage.start([PYTHON, "-I", "-c", "raise SystemExit(7)"], {})
    assert cage.exit_code(30.0) == 7


def test_a_command_that_is_not_there_says_so(cage: Cage) -> None:
    cage.start(["/nowhere/python"], {})
    _, err = cage.process.communicate(b"", timeout=60)
    assert b"cannot start /nowhere/python" in err
    assert cage.exit_code() == 127


def test_a_cage_that_cannot_be_built_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SandboxUnavailable, match=r"no cage can be built: .*user namespaces"):
        Cage([])
