"""dvc.yaml declares everything a stage's code reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from astra.devtools import closure, params

STAGES = (
    "tools graph chains tasks trajectories sft_set worlds goals conversations qa qa_valid "
    "envs envs_merged sft rl bench"
).split()


@pytest.fixture(autouse=True)
def _at_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_the_graph_has_the_stages_in_order(root: Path) -> None:
    document = yaml.safe_load((root / "dvc.yaml").read_text())
    assert list(document["stages"]) == STAGES
    assert sorted(path.stem for path in (root / "stages").glob("*.py")) == sorted(STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_every_file_in_the_import_closure_is_a_dependency(root: Path, stage: str) -> None:
    document = yaml.safe_load((root / "dvc.yaml").read_text())
    declared = [Path(dep) for dep in document["stages"][stage]["deps"]]
    reads = set(filter(closure.is_code, closure.closure(Path("stages") / f"{stage}.py")))
    undeclared = {
        str(path)
        for path in reads
        if not any(dep == path or dep in path.parents for dep in declared)
    }
    assert not undeclared, f"run `make deps`: {sorted(undeclared)}"


@pytest.mark.parametrize("stage", STAGES)
def test_declared_code_is_exactly_what_is_reached(root: Path, stage: str) -> None:
    document = yaml.safe_load((root / "dvc.yaml").read_text())
    declared = {
        dep for dep in document["stages"][stage]["deps"] if dep.startswith(("src/", "stages/"))
    }
    assert declared == set(closure.dependencies(Path("stages") / f"{stage}.py"))


@pytest.mark.parametrize("stage", STAGES)
def test_a_folder_is_declared_where_most_of_it_is_reached(root: Path, stage: str) -> None:
    document = yaml.safe_load((root / "dvc.yaml").read_text())
    reached = closure.closure(Path("stages") / f"{stage}.py")
    declared = [Path(dep) for dep in document["stages"][stage]["deps"] if dep.startswith("src/")]
    for folder in filter(Path.is_dir, declared):
        code = [
            path
            for path in folder.rglob("*")
            if path.suffix in (".py", ".j2", ".jinja") and closure.is_code(path)
        ]
        assert sum(path in reached for path in code) >= closure.FOLDER * len(code), folder


def test_every_data_stage_keeps_what_it_rejected(root: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    for name in STAGES[:-3]:
        assert {f"data/{name}.parquet", f"data/rejected/{name}.parquet"} <= set(
            stages[name]["outs"]
        )


def test_stage_tracks_exactly_its_own_block(root: Path) -> None:
    document = yaml.safe_load((root / "dvc.yaml").read_text())
    assert all(body["params"] == [name] for name, body in document["stages"].items())


@pytest.mark.parametrize(
    ("overrides", "dependency"),
    [
        ([], "data/envs_merged.parquet"),
        (["envs_merged.goals=alone"], "data/worlds.parquet"),
        (["envs_merged.goals=talking"], "data/worlds.parquet"),
    ],
)
def test_rl_and_bench_depend_on_worlds_where_goals_are_passed_on(
    root: Path, tmp_path: Path, overrides: list[str], dependency: str
) -> None:
    """A goal's prompt has its world's policy: rows beside ``envs_merged``."""
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    assert all("${arena_worlds}" in stages[name]["deps"] for name in ("rl", "bench"))
    params.compose(tmp_path / "params.yaml", overrides)
    composed = yaml.safe_load((tmp_path / "params.yaml").read_text())
    assert composed["arena_worlds"] == dependency


SEARCHES = {f"astra.plugins.{name}" for name in ("names", "find", "name_in", "options")}


def _searched(path: Path) -> set[str]:
    """The packages that a file gives to a function of ``astra.plugins``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    packages: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, *rest = ast.unparse(node.func).split(".")
            if ".".join([imported.get(first, ""), *rest]) in SEARCHES:
                packages.add(imported.get(ast.unparse(node.args[0]), f"unknown, in {path}"))
    return packages


def test_every_package_of_plug_ins_is_followed_whole(root: Path) -> None:
    searched = set[str]().union(*map(_searched, (root / "src").rglob("*.py")))
    assert searched == set(closure.PLUGINS)
    for stage, package in (
        ("tools", "toolbank/formats"),
        ("chains", "toolgraph/operators"),
        ("rl", "rollout/engines"),
        ("bench", "bench/suites"),
    ):
        reached = closure.closure(Path("stages") / f"{stage}.py")
        assert set((Path("src/astra") / package).rglob("*.py")) <= reached, stage


def test_closure_sees_lazy_imports_prompts_and_what_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "astra" / "one"
    (package / "prompts").mkdir(parents=True)
    (tmp_path / "src" / "astra" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("def f():\n    from astra.one import b\n    return b\n")
    (package / "b.py").write_text("import astra.one.c\n")
    (package / "c.py").write_text("import sys\nCOMMAND = [sys.executable, '-m', 'astra.one.d']\n")
    (package / "d.py").write_text("ENTRY = 'e.py'\n")
    (package / "e.py").touch()
    (package / "f.py").touch()
    (package / "prompts" / "ask.md.j2").write_text("hello")
    (tmp_path / "stage.py").write_text("from astra.one.a import f\n")
    monkeypatch.chdir(tmp_path)
    names = {path.name for path in closure.closure(Path("stage.py"))}
    assert {"stage.py", "a.py", "b.py", "ask.md.j2"} <= names
    assert {"d.py", "e.py"} <= names, "started as a module, and by its path"
    assert "f.py" not in names


def test_a_package_of_which_most_is_reached_is_one_dependency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "stages/one.py": "from astra.most import a, b, c\nfrom astra.few import d\n"
        "from astra.few.inner import e\n",
        **{f"src/astra/most/{name}.py": "A = 1\n" for name in "abcde"},
        **{f"src/astra/few/{name}.py": "A = 1\n" for name in "dxyz"},
        "src/astra/few/inner/e.py": "A = 1\n",
        "src/astra/few/inner/prompts/ask.md.j2": "hello",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for folder in ("", "most", "few", "few/inner"):
        (tmp_path / "src/astra" / folder / "__init__.py").write_text('"""No code."""\n')
    monkeypatch.chdir(tmp_path)
    named = ["stages/one.py", "src/astra/few/d.py", "src/astra/few/inner", "src/astra/most"]
    assert closure.dependencies(Path("stages/one.py")) == named
    (tmp_path / "src/astra/most/f.py").write_text("A = 1\n")
    assert closure.dependencies(Path("stages/one.py"))[-3:] == [
        f"src/astra/most/{name}.py" for name in "abc"
    ]


def test_what_a_package_says_of_itself_is_no_dependency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src/astra/few"
    package.mkdir(parents=True)
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/one.py").write_text("from astra.few import a\n")
    (tmp_path / "src/astra/__init__.py").write_text('"""Few."""\n')
    for name in "abcd":
        (package / f"{name}.py").write_text("A = 1\n")
    (package / "__init__.py").write_text('"""What the package holds."""\n')
    monkeypatch.chdir(tmp_path)
    named = ["stages/one.py", "src/astra/few/a.py"]
    assert closure.dependencies(Path("stages/one.py")) == named
    (package / "__init__.py").write_text('"""What it holds."""\nfrom astra.few.b import A\n')
    assert closure.dependencies(Path("stages/one.py")) == [
        "stages/one.py", "src/astra/few"
    ]  # fmt: skip


def test_training_reads_no_teacher() -> None:
    for stage in ("sft", "rl"):
        reached = {str(path) for path in closure.closure(Path("stages") / f"{stage}.py")}
        assert not any("/llm/" in path for path in reached)
