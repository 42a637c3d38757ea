"""The documentation site builds without a warning, and its reference pages are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

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
    assert "how many may fail to start before the stage fails" in text, "strings under fields"


def test_every_stage_record_and_command_is_there(made: dict[str, str], root: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text("utf-8"))["stages"]
    for name in stages:
        assert f"| `{name}` |" in made["stages"]
    for record in ("ToolServer", "Task", "Trajectory", "QAInstance", "Arena", "Rejection"):
        assert f"### {record}\n" in made["records"]
    assert "Identity: `server_id`, `tools`." in made["records"], "of a chain's verdicts"
    assert "## astra arena export\n" in made["commands"]
    assert "`--irrelevant`" in made["commands"]


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
