"""Environments of live servers: pinned requirements, installed once and shared."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from astra.errors import AstraError
from astra.records.base import content_id
from astra.store.paths import cache_root

PINS = Path("sources/environments.yaml")
NPM = "npm:"
"""How a pinned package of npm begins; other pins are pip's."""
BUILD_TIMEOUT_S = 600.0


class ServerError(AstraError):
    """A server's environment cannot be built, or the server does not start or answer."""


class ServerEnvironments:
    """Virtual environments of pinned servers, built once and shared by stages and processes.

    ``pins`` maps an environment's name to its list of pinned requirements: those of pip, or of
    npm where they begin with ``npm:``. An environment lies in ``<root>/<hash of interpreter,
    platform and requirements>``; it counts only once its marker file is written, so a build that
    was killed is started afresh.
    """

    def __init__(
        self, root: Path | None = None, pins: Mapping[str, list[str]] | Path = PINS
    ) -> None:
        self._root = (root or cache_root() / "servers").resolve()
        self._pins = _read_pins(pins) if isinstance(pins, Path) else dict(pins)
        self._failed: dict[str, str] = {}

    def requirements(self, name: str) -> tuple[str, ...]:
        """The pinned requirements of an environment. Raises ServerError for an unknown one."""
        if name not in self._pins:
            known = ", ".join(sorted(self._pins))
            raise ServerError(f"server environment {name!r} is not pinned (known: {known})")
        return tuple(self._pins[name])

    def ensure(self, name: str) -> Path:
        """The environment's ``bin`` folder; builds it if needed. Raises ServerError."""
        requirements = self.requirements(name)
        interpreter = [*sys.version_info[:3], sys.platform, platform.machine()]
        folder = self._root / content_id([interpreter, list(requirements)])
        if (folder / ".complete").is_file():
            return folder / "bin"
        if name in self._failed:
            raise ServerError(self._failed[name])
        self._root.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not (folder / ".complete").is_file():
                try:
                    _build(folder, requirements)
                except (OSError, subprocess.SubprocessError) as error:
                    self._failed[name] = _explain_build(name, requirements, error)
                    raise ServerError(self._failed[name]) from error
        return folder / "bin"

    def reads(self, name: str) -> tuple[Path, ...]:
        """What an environment's programs need to read: it, and the Python or node that runs them.

        Raises ServerError as ``ensure`` does, and where that Python is not apart from a user's
        files.
        """
        folder = self.ensure(name).parent
        marker = folder / "pyvenv.cfg"
        if not marker.is_file():
            node = shutil.which("node")
            return (folder, Path(node).resolve()) if node else (folder,)
        # `home` of pyvenv.cfg may be a user's ~/bin with a link to the program, so links are
        # followed to where that lies; those on the way are shown one by one.
        program = folder / "bin" / "python"
        prefix = program.resolve().parent.parent
        if _holds_a_home(prefix):
            raise ServerError(
                f"the Python of server environment {name!r} lies in {prefix}, which holds a user's "
                "files: a server would read them all; run with a Python in a folder of its own"
            )
        shown = (folder, prefix)
        way = [one for one in _way_from(program) if not any(map(one.is_relative_to, shown))]
        return (folder, *way, prefix)


def _way_from(link: Path) -> Iterator[Path]:
    """A link, those that it leads to, and the file at their end, as the links spell them."""
    yield link
    while link.is_symlink():
        link = link.parent / link.readlink()
        yield link


def _holds_a_home(place: Path) -> bool:
    """Whether a place is the root, a user's home, or above one."""
    homes = (Path.home().resolve(), Path("/root"), Path("/home/any"))
    return place.parent in (Path("/home"), place) or any(
        home.is_relative_to(place) for home in homes
    )


def _read_pins(path: Path) -> dict[str, list[str]]:
    if not path.is_file():
        raise ServerError(f"{path} not found in {Path.cwd()}; it lists each server's requirements")
    document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    usable = isinstance(document, dict) and all(
        isinstance(pins, list) and all(isinstance(pin, str) for pin in pins)
        for pins in document.values()
    )
    if not usable:
        raise ServerError(f"{path} must map each environment's name to a list of requirements")
    return document


def _build(folder: Path, requirements: tuple[str, ...]) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    packages = [pin.removeprefix(NPM) for pin in requirements if pin.startswith(NPM)]
    if packages:
        _build_npm(folder, packages, requirements)
    else:
        _build_venv(folder, requirements)
    (folder / ".complete").write_text("\n".join(requirements) + "\n", encoding="utf-8")


def _build_npm(folder: Path, packages: list[str], requirements: tuple[str, ...]) -> None:
    """Install pins like ``npm:name@1.2.3``; their commands come to lie in ``bin``."""
    if len(packages) < len(requirements):
        raise OSError(f"an environment holds `{NPM}` pins or others, not both")
    if shutil.which("npm") is None:
        raise OSError("npm is not installed, node runs this server")
    folder.mkdir(parents=True)
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    _run(["npm", "install", "--global", "--prefix", str(folder), *quiet, *packages])


def _build_venv(folder: Path, requirements: tuple[str, ...]) -> None:
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    _run([*pip, "install", "--quiet", "--only-binary", ":all:", *requirements])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)


def _explain_build(name: str, requirements: tuple[str, ...], error: Exception) -> str:
    output = getattr(error, "stderr", None) or str(error)
    lines = [line for line in str(output).strip().splitlines() if line.strip()]
    return (
        f"server environment {name!r} cannot be built of {' '.join(requirements)}: "
        f"{lines[-1] if lines else error}; check the network or the pins in {PINS}"
    )
