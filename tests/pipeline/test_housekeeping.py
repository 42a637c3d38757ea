"""Files around the code that say what it is and what a change has to pass."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml


def project_of(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_workflow_runs_what_ci_runs(root: Path) -> None:
    text = (root / ".github/workflows/ci.yml").read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    run = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert run[-1] == ".ci/run"
    assert (root / ".ci/run").stat().st_mode & 0o111
    assert "make docs" in [step.get("run") for step in jobs["docs"]["steps"]]
    floor = project_of(root)["requires-python"]
    versions = set(re.findall(r'python-version: "([\d.]+)"', text))
    assert versions == {floor.removeprefix(">=")}


def test_ci_rebuilds_data_and_trains_nothing_at_scale_smoke(root: Path) -> None:
    commands = (root / ".ci/run").read_text("utf-8").split("pipefail\n")[1].splitlines()[1:]
    assert commands == [
        "make record", "make test", "make data", ".venv/bin/python -m astra.train.tiny.overlap"
    ]  # fmt: skip
    recipes = made(root, "record", "test", "data")
    (rebuild,) = re.findall(r"dvc repro .*", recipes)
    assert rebuild == "dvc repro --force --no-run-cache sft_set conversations envs_merged"
    assert recipes.index(rebuild) < recipes.index("astra.devtools.reproduced")
    assert "astra train same --check" in recipes
    job = yaml.safe_load((root / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]["build"]
    assert job["timeout-minutes"] <= 90


def test_each_target_installs_what_it_needs_and_no_more(root: Path, tmp_path: Path) -> None:
    project = project_of(root)["optional-dependencies"]
    fresh = f"VENV={tmp_path / 'venv'}"
    sets = {
        target: set(re.findall(r"'\.\[([\w,]+)\]'", made(root, target, fresh)))
        for target in ("install", "demo", "test", "docs")
    }
    graph = "train,lora,s3,bench"
    assert sets == {
        "install": {graph}, "demo": {graph}, "test": {graph, "dev", "docs"}, "docs": {graph, "docs"}
    }  # fmt: skip
    assert {*graph.split(","), "dev", "docs"} <= set(project)


def made(root: Path, *targets: str) -> str:
    """The commands of make targets, not run."""
    return subprocess.run(
        ["make", "--dry-run", *targets], cwd=root, capture_output=True, text=True, check=True
    ).stdout


def test_licence_and_version(root: Path) -> None:
    project = project_of(root)
    assert project["license"] == "Apache-2.0"
    licence = (root / "LICENSE").read_text("utf-8")
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert "[yyyy]" not in licence
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## (\d+\.\d+\.\d+) ", changes, re.MULTILINE)
    assert "## Unreleased" in changes
    assert not released or released[0] == project["version"]


def test_hooks_run_tools_that_are_installed(root: Path) -> None:
    document = yaml.safe_load((root / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = [hook for repo in document["repos"] for hook in repo["hooks"]]
    dev = project_of(root)["optional-dependencies"]["dev"]
    names = [re.split(r"[\[>=]", one)[0] for one in dev]
    for hook in hooks:
        assert {"id", "name", "entry", "language"} <= hook.keys()
        if hook["language"] == "system":
            program = re.findall(r"\.venv/bin/([\w-]+)", hook["entry"])[0]
            known = {"ruff": "ruff", "lint-imports": "import-linter", "python": "ruff"}
            assert known[program] in names
    (refused,) = (hook for hook in hooks if hook["language"] == "fail")
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    bad = [
        name
        for name in tracked
        if re.search(refused["files"], name) and not re.search(refused["exclude"], name)
    ]
    assert not bad


def test_issue_forms_ask_for_what_their_text_says(root: Path) -> None:
    for path in (root / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text("utf-8"))
        if path.name == "config.yml":
            continue
        assert {"name", "description", "body"} <= form.keys(), path
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids)), path
        assert all(field["attributes"]["label"] for field in form["body"]), path
