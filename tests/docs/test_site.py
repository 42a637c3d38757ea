"""The documentation site builds without a warning, and its reference pages are complete."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from astra.devtools.code_map import Definition, anchor, definitions, docstring, layered
from astra.devtools.params import BLOCKS
from astra.devtools.reference import pages


@pytest.fixture(scope="module")
def made(root: Path) -> dict[str, str]:
    return pages(root)


def test_every_parameter_is_described(made: dict[str, str], root: Path) -> None:
    text = made["parameters"]
    for block, model in BLOCKS.items():
        section = text.split(f"\n## {block}\n")[1].split("\n## ")[0]
        missing = [name for name in model.model_fields if f"| `{name}` |" not in section]
        assert not missing, f"{block}: {missing}"
        for file in (root / "conf" / block).glob("*.yaml"):
            assert file.read_text("utf-8").strip() in section, file
    assert "share of the listed live servers that may fail to start" in text, "strings under fields"


def test_every_stage_record_and_command_is_there(made: dict[str, str], root: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text("utf-8"))["stages"]
    for name in stages:
        assert f"| `{name}` |" in made["stages"]
    for record in ("ToolServer", "Task", "Trajectory", "QAInstance", "Arena", "Rejection"):
        assert f"### {record}\n" in made["records"]
    assert "Identity: `server_id`, `tools`." in made["records"], "of a chain's verdicts"
    assert "## astra arena export\n" in made["commands"]
    assert "`--irrelevant`" in made["commands"]


def test_every_module_has_a_first_line_that_tells_what_it_holds(root: Path) -> None:
    files = [*(root / "src/astra").rglob("*.py"), *(root / "stages").glob("*.py")]
    first = {file: docstring(file).partition("\n")[0] for file in sorted(files)}
    vague = [
        f"{file.relative_to(root)}: {line!r}"
        for file, line in first.items()
        if len(line.split()) < 3 or len(line) > 100 or line[-1] not in ".?"
    ]
    assert not vague, "one sentence on one line:\n" + "\n".join(vague)
    times = Counter(first.values())
    repeated = [str(file.relative_to(root)) for file, line in first.items() if times[line] > 1]
    assert not repeated, f"the same first line twice: {repeated}"


def test_a_package_holds_its_docstring_and_nothing_else(root: Path) -> None:
    for file in (root / "src/astra").rglob("__init__.py"):
        body = ast.parse(file.read_text("utf-8")).body
        assert len(body) == 1, f"{file}: code belongs into a module"
        assert len(docstring(file).split(".")) > 2, f"{file}: what it holds, what to read first"
        for named in re.findall(r"``(\w+\.py)``", docstring(file)):
            assert (file.parent / named).is_file(), f"{file} names {named}"


def test_the_map_goes_down_the_layers_and_names_every_module(
    made: dict[str, str], root: Path
) -> None:
    text = made["modules"]
    for folder in ("src/astra", "stages", "examples"):
        base = root if folder != "src/astra" else root / folder
        for file in (root / folder).rglob("*.py"):
            if file.name != "__init__.py":
                assert f" {{#{anchor(file.relative_to(base))}}}\n" in text, file
    places = [text.index(f"\n## {name} ") for name in ("cli", "qa", "rollout", "arena", "llm")]
    assert places == sorted(places)
    assert set(layered(root)) == {
        path.stem for path in (root / "src/astra").iterdir() if path.stem.strip("_.") == path.stem
    }


def test_the_map_says_what_a_module_offers(tmp_path: Path) -> None:
    module = '''
LIMIT = 3
"""The most that is read. And more."""
_HIDDEN = 4
"""Not shown."""

class Reader:
    """Reads ``rows`` of a
    table. Slowly."""

    def read(self):
        """One row."""

    def close(self):
        pass

def plain(): ...
def _private(): ...
'''
    assert list(definitions(ast.parse(module).body)) == [
        Definition("LIMIT", "The most that is read."),
        Definition("Reader", "Reads ``rows`` of a table.", (Definition("read", "One row."),)),
        Definition("plain", ""),
    ]


def test_the_layers_are_written_down_as_they_are_checked(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one.get("containers") == ["astra"])
    text = (root / "CONTRIBUTING.md").read_text("utf-8")
    (block,) = re.findall(r"```text\n(cli .*?)```", text, re.DOTALL)
    assert block.splitlines() == [layer.replace(" : ", " | ") for layer in layers]


def test_tables_are_whole(made: dict[str, str]) -> None:
    """A cell with a bare bar or line break would end its row early."""
    for name, text in made.items():
        code = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
        width = 0
        for line in code.splitlines():
            cells = len(re.findall(r"(?<!\\)\|", line))
            if line.startswith("|"):
                width = width or cells
                assert cells == width, f"{name}: {line}"
            else:
                width = 0


def test_the_site_builds_strictly(root: Path, tmp_path: Path) -> None:
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: run `make docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stderr  # --strict: a warning is an error
    page = (tmp_path / "site/reference/parameters/index.html").read_text("utf-8")
    assert "max_failed_live_share" in page
