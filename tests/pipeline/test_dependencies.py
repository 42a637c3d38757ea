"""dvc.yaml declares everything a stage's code reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from astra.devtools import closure

STAGES = (
    "tools graph chains tasks trajectories sft_set qa qa_valid envs envs_merged sft rl bench"
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
    reads = {
        path for path in closure.closure(Path("stages") / f"{stage}.py") if path.stat().st_size
    }
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
            if path.suffix in (".py", ".j2", ".jinja") and path.stat().st_size
        ]
        assert sum(path in reached for path in code) >= 0.6 * len(code), folder


def test_every_data_stage_keeps_what_it_rejected(root: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    for name in STAGES[:10]:
        assert {f"data/{name}.parquet", f"data/rejected/{name}.parquet"} <= set(
            stages[name]["outs"]
        )


def test_stage_tracks_exactly_its_own_block(root: Path) -> None:
    document = yaml.safe_load((root / "dvc.yaml").read_text())
    assert all(body["params"] == [name] for name, body in document["stages"].items())


def test_every_package_of_choices_is_followed_whole(root: Path) -> None:
    source = root / "src"
    found = {
        ".".join(file.parent.relative_to(source).parts)
        for file in source.rglob("known/__init__.py")
    }
    assert found == set(closure.PLUGINS)
    for stage, package in (("tools", "toolbank"), ("chains", "toolgraph"), ("rl", "rollout")):
        reached = closure.closure(Path("stages") / f"{stage}.py")
        assert Path("src/astra") / package / "known/__init__.py" in reached


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
        (tmp_path / "src/astra" / folder / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    named = ["stages/one.py", "src/astra/few/d.py", "src/astra/few/inner", "src/astra/most"]
    assert closure.dependencies(Path("stages/one.py")) == named
    (tmp_path / "src/astra/most/f.py").write_text("A = 1\n")
    assert closure.dependencies(Path("stages/one.py"))[-3:] == [
        f"src/astra/most/{name}.py" for name in "abc"
    ]


def test_training_reads_no_teacher() -> None:
    for stage in ("sft", "rl"):
        reached = {str(path) for path in closure.closure(Path("stages") / f"{stage}.py")}
        assert not any("/llm/" in path for path in reached)
