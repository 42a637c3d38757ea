"""``astra doctor``: checks of the machine and the set-up; each finding says how to repair it."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import yaml

from astra.errors import AstraError
from astra.sandbox.probe import NO_TIER, probe
from astra.sandbox.servers import CageRefused, try_cage
from astra.sandbox.zygote_process import TIERS
from astra.settings import PARAMS, Endpoint, RuntimeConfig, load
from astra.store.paths import cache_root
from astra.tracking.mlflow import tracking_uri
from astra.tracking.store import check_store, without_login

PYTHON = (3, 11)
DISK_GB = 5.0
FAULTS = (AstraError, OSError, yaml.YAMLError, configparser.Error, subprocess.SubprocessError)
"""What a check meets in a set-up that is broken: the finding, not the end of the doctor."""
REACH_S = 5.0


@dataclass(frozen=True)
class Finding:
    """What one check found. ``remedy`` is empty where nothing needs repair."""

    level: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.level:8}{self.what}" + (f"\n        -> {self.remedy}" if self.remedy else "")


def examine() -> list[Finding]:
    """Every check's findings; a check that fails is itself a finding."""
    findings: list[Finding] = []
    try:
        runtime = load("runtime", RuntimeConfig)
    except AstraError as error:
        findings.append(Finding("error", str(error), "make params"))
        runtime = RuntimeConfig()
    checks: tuple[Callable[[RuntimeConfig], Iterator[Finding]], ...] = (
        _python,
        _gpu,
        _disk,
        _sandbox,
        _live_servers,
        _endpoints,
        _mlflow,
        _git,
        _remote,
    )
    for check in checks:
        try:
            findings += check(runtime)
        except FAULTS as error:
            findings.append(Finding("error", f"{check.__name__.strip('_')}: {error}"))
    return findings


def _python(runtime: RuntimeConfig) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON:
        yield Finding("error", f"Python {version}", "use Python 3.11 or newer")
    else:
        yield Finding("ok", f"Python {version}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores and runtime.threads > cores:
        yield Finding(
            "warning",
            f"runtime.threads is {runtime.threads}, but this process has {cores} cores",
            "set runtime.threads in conf/runtime to at most the number of idle cores",
        )


def _gpu(runtime: RuntimeConfig) -> Iterator[Finding]:
    listed = shutil.which("nvidia-smi")
    names: list[str] = []
    if listed:
        query = [listed, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        listing = subprocess.run(
            query, capture_output=True, text=True, timeout=REACH_S, check=False
        )
        names = listing.stdout.strip().splitlines() if listing.returncode == 0 else []
    if names:
        yield Finding("ok", f"GPU: {'; '.join(names)}")
    elif runtime.device == "cuda":
        yield Finding(
            "error",
            "runtime.device is cuda, but no NVIDIA GPU is visible",
            "install the driver, or set runtime.device to auto in conf/runtime",
        )
    else:
        yield Finding("ok", "no GPU; the committed scales smoke and test need none")


def _disk(runtime: RuntimeConfig) -> Iterator[Finding]:
    for place in dict.fromkeys((Path.cwd(), cache_root())):
        free = shutil.disk_usage(place).free / 1e9
        text = f"{free:.0f} GB free at {place}"
        if free < DISK_GB:
            yield Finding("warning", text, f"free at least {DISK_GB:.0f} GB, or set ASTRA_CACHE")
        else:
            yield Finding("ok", text)


def _sandbox(runtime: RuntimeConfig) -> Iterator[Finding]:
    report = probe()
    wanted = runtime.sandbox_min_tier
    if report.tier != NO_TIER and TIERS.index(report.tier) <= TIERS.index(wanted):
        yield Finding("ok", f"sandbox tier {report.tier} (runtime.sandbox_min_tier: {wanted})")
        return
    why = "; ".join(f"{name}: {outcome}" for name, outcome in report.findings.items())
    yield Finding(
        "error",
        f"sandbox: best tier here is {report.tier}, {wanted} is required ({why})",
        "allow user namespaces or use a kernel with Landlock; `astra sandbox probe` has details",
    )


def _live_servers(runtime: RuntimeConfig) -> Iterator[Finding]:
    if runtime.live_servers == "uncaged":
        yield Finding(
            "warning",
            "live MCP servers run UNCAGED, with all your rights and network",
            "set live_servers: caged in conf/runtime/default.yaml, then `make params`",
        )
        return
    try:
        try_cage()
    except CageRefused as error:
        yield Finding("error", str(error), "as it says, or see docs/sandbox.md")
    else:
        yield Finding("ok", "live MCP servers run in a cage (runtime.live_servers: caged)")


def _endpoints(runtime: RuntimeConfig) -> Iterator[Finding]:
    online = _online_roles()
    if not online:
        yield Finding("ok", "every role is answered offline; no endpoint is needed")
    elif not runtime.endpoints:
        yield Finding(
            "error",
            f"no endpoint, but these blocks use backend openai: {', '.join(online)}",
            "add one under endpoints in conf/runtime/default.yaml, then `make params`",
        )
    embedding = (runtime.embedding_endpoint,) if runtime.embedding_endpoint else ()
    for endpoint in (*runtime.endpoints, *embedding):
        name = endpoint.api_key_env
        if not name or os.environ.get(name):
            yield _reached(endpoint, needed=bool(online))
        else:
            level = "error" if online else "warning"
            yield Finding(
                level, f"endpoint {endpoint.base_url}: {name} is not set", f"export {name}=..."
            )


def _reached(endpoint: Endpoint, needed: bool) -> Finding:
    """Whether anything answers there; `astra teacher check` looks closer."""
    place = f"endpoint {endpoint.base_url}, key in {endpoint.api_key_env or 'no variable'}"
    key = os.environ.get(endpoint.api_key_env, "none") if endpoint.api_key_env else "none"
    try:
        status = httpx2.get(
            f"{endpoint.base_url.rstrip('/')}/models",
            headers={"Authorization": f"Bearer {key}"},
            timeout=REACH_S,
        ).status_code
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        level = "error" if needed else "warning"
        problem = f"{place}: {error or type(error).__name__}"
        return Finding(level, problem, "start the server, or correct base_url in conf/runtime")
    if status in (401, 403):
        level = "error" if needed else "warning"
        return Finding(level, f"{place}: the key is refused (HTTP {status})", "export a valid key")
    return Finding("ok", f"{place}; `astra teacher check` tries it out")


def _online_roles() -> list[str]:
    """Where in params.yaml a model with backend openai is configured."""
    document: Any = yaml.safe_load(PARAMS.read_text(encoding="utf-8")) if PARAMS.is_file() else {}
    places: list[str] = []

    def visit(node: Any, place: str) -> None:
        if isinstance(node, dict):
            if node.get("backend") == "openai" and not place.endswith("embedding"):
                places.append(place)
            for key, value in node.items():
                visit(value, f"{place}.{key}" if place else str(key))
        elif isinstance(node, list):
            for index, value in enumerate(node):
                visit(value, f"{place}[{index}]")

    visit(document, "")
    return places


def _mlflow(runtime: RuntimeConfig) -> Iterator[Finding]:
    from mlflow import MlflowClient

    uri = tracking_uri(runtime)
    shown = without_login(uri)
    try:
        check_store(uri)
        count = len(MlflowClient(tracking_uri=uri).search_experiments())
    except FileNotFoundError:
        yield Finding("ok", f"MLflow store {shown} will be created by the first run")
        return
    except Exception as error:  # stores raise what their drivers raise; all of it is the finding
        yield Finding(
            "error",
            f"MLflow store {shown}: {without_login(str(error))[:200]}",
            "check runtime.tracking_uri or MLFLOW_TRACKING_URI; `mlflow db upgrade` for an old one",
        )
        return
    yield Finding("ok", f"MLflow store {shown}, {count} experiments")


def _git(runtime: RuntimeConfig) -> Iterator[Finding]:
    query = ["git", "var", "GIT_COMMITTER_IDENT"]
    identity = subprocess.run(query, capture_output=True, text=True, timeout=REACH_S, check=False)
    if identity.returncode:
        yield Finding(
            "warning",
            "git does not know who commits: commits and DVC experiments fail",
            "git config --global user.name NAME; git config --global user.email MAIL",
        )
    else:
        yield Finding("ok", f"git commits as {identity.stdout.rsplit(' ', 2)[0]}")


def _remote(runtime: RuntimeConfig) -> Iterator[Finding]:
    config = configparser.ConfigParser(interpolation=None)  # a URL may have a %20
    config.read([Path(".dvc/config"), Path(".dvc/config.local")])
    if not Path(".dvc").is_dir():
        yield Finding("error", "this folder is no DVC repository", "run it in the repository root")
        return
    name = config.get("core", "remote", fallback="")
    if name:
        url = config.get(f"'remote \"{name}\"'", "url", fallback="no url")
        local = Path(url).expanduser() if "://" not in url else None
        if local is not None and not (Path(".dvc") / local).parent.is_dir():
            yield Finding("error", f"DVC remote {name}: no folder {local.parent}", "create it")
        else:
            yield Finding("ok", f"DVC remote {name}: {url}")
    else:
        yield Finding(
            "warning",
            "no default DVC remote: results stay on this machine",
            "make remote URL=s3://BUCKET/PATH",
        )
