"""The isolated environment of the harnesses (``make bench-env``), and caged drivers in it."""

from __future__ import annotations

import os
from pathlib import Path

from astra.bench import suites
from astra.bench.harness.protocol import DriverProcess, SuiteError
from astra.store.paths import repository_root

VARIABLE = "ASTRA_BENCH_ENV"
DEFAULT = ".venv-bench"
DRIVERS = Path(suites.__path__[0]) / "drivers"


def bench_environment() -> Path:
    """The environment's folder. Raises SuiteError if it was not built."""
    configured = os.environ.get(VARIABLE)
    folder = Path(configured) if configured else repository_root() / DEFAULT
    if not (folder / "bin" / "python").exists():
        raise SuiteError(
            f"{folder} is no environment of the benchmark harnesses; build it with `make "
            f"bench-env`, or point {VARIABLE} to one"
        )
    return folder.absolute()


def caged_driver(name: str, **environment: str) -> DriverProcess:
    """``drivers/play_<name>.py`` in the bench environment, caged."""
    folder = bench_environment()
    return DriverProcess(
        command=(str(folder / "bin" / "python"), "-B", str(DRIVERS / f"play_{name}.py")),
        caged=True,
        reads=(folder, _base(folder), DRIVERS.resolve()),
        environment={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", **environment},
    )


def _base(folder: Path) -> Path:
    """The installation that a virtual environment was made from."""
    for line in (folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return Path(value.strip()).resolve().parent
    raise SuiteError(f"{folder}/pyvenv.cfg names no home; build it anew with `make bench-env`")
