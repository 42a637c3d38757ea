"""``astra train same`` and ``trained``: dvc.lock keeps policies that changed code still makes."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from dvc.utils.serialize import load_yaml
from typer.testing import CliRunner

from astra.cli.train import train_app
from astra.devtools.training_lock import TrainingLockError
from astra.devtools.training_probe import FEWER, Products, Side, difference, shorten
from astra.settings import ParamsError

TOY = '''
import json
from pathlib import Path

import yaml

RATE = 0.5


def train(stage, start, steps):
    """A weight that halves at each step."""
    weight, rows = start, ["step,loss"]
    for step in range(steps):
        rows.append(f"{step + 1},{weight}")
        weight *= RATE
    for folder in (f"models/{stage}", f"plots/{stage}", "metrics", "data"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    Path(f"models/{stage}/model.safetensors").write_text(str(weight))
    Path(f"plots/{stage}/loss.csv").write_text("\\n".join(rows))
    Path(f"metrics/{stage}.json").write_text(json.dumps({"steps": steps}))


def params(stage):
    return yaml.safe_load(Path("params.yaml").read_text())[stage]


def read(path):
    return float(Path(path).read_text())
'''
STAGES = {
    "sft": 'train("sft", read("data/sft_set.parquet"), params("sft")["max_steps"])',
    "rl": 'train("rl", read("models/sft/model.safetensors"), params("rl")["steps"])',
    "bench": """
arenas = params("bench")["arenas"]
scores = {name: {"scores": {"f1": {"mean": 1 - read(f"models/{name}/model.safetensors")}}}
          for name in ("sft", "rl")}
Path("metrics/bench.json").write_text(json.dumps({"arenas": arenas, "checkpoints": scores}))
Path("data/bench.parquet").write_text(json.dumps(scores))
""",
}
FLAT = {"steps": 5, "roc": "off", "least": 1e-6, "engine": "batched", "rows": 8, "kv": None}
GROUPED = {"steps": 5, "roc": "off", "least": 1e-6, "engine": {"type": "batched", "rows": 8}}
IMPORTS = "import json\nfrom pathlib import Path\nfrom astra.toy import params, read, train\n"


def pipeline() -> dict[str, Any]:
    inputs = {
        "sft": ["data/sft_set.parquet"],
        "rl": ["data/envs_merged.parquet", "models/sft"],
        "bench": ["data/envs_merged.parquet", "models/sft", "models/rl"],
    }
    products: dict[str, list[Any]] = {
        "sft": ["models/sft", {"plots/sft": {"cache": False}}],
        "rl": ["models/rl", {"plots/rl": {"cache": False}}],
        "bench": ["data/bench.parquet"],
    }
    return {
        "stages": {
            name: {
                "cmd": f"PYTHONPATH=src {sys.executable} stages/{name}.py",
                "deps": [f"stages/{name}.py", "src/astra", *inputs[name]],
                "params": [name],
                "outs": products[name],
                "metrics": [{f"metrics/{name}.json": {"cache": False}}],
            }
            for name in STAGES
        }
    }


def run(folder: Path, *command: str) -> str:
    environment = os.environ | {
        "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t",
        "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t",
    }  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert not done.returncode, done.stdout
    return done.stdout


def dvc(folder: Path, *command: str) -> str:
    return run(folder, sys.executable, "-m", "dvc", *command)


def save(folder: Path) -> str:
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-qm", "state")
    return run(folder, "git", "rev-parse", "HEAD").strip()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose three stages train a number, trained and committed."""
    folder = tmp_path_factory.mktemp("toy") / "repo"
    files = {
        "src/astra/__init__.py": "",
        "src/astra/toy.py": TOY,
        "src/astra/other.py": "UNREACHED = 1\n",
        "params.yaml": yaml.safe_dump(
            {"sft": {"max_steps": 60}, "rl": FLAT, "bench": {"arenas": 30}}
        ),
        "dvc.yaml": yaml.safe_dump(pipeline(), sort_keys=False),
        "data/sft_set.parquet": "8.0",
        "data/envs_merged.parquet": "arenas",
        ".gitignore": "__pycache__/\n/models/\n/data/bench.parquet\n/.dvc/tmp/\n/.dvc/cache/\n",
        ".dvcignore": "__pycache__/\n",
    }
    files |= {f"stages/{name}.py": f"{IMPORTS}\n{body}\n" for name, body in STAGES.items()}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    run(folder, "git", "init", "-q")
    dvc(folder, "init", "-q")
    dvc(folder, "repro", "-q")
    save(folder)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import dvc  # says what it does to the stderr of whoever imports it first, closed by then

    monkeypatch.setattr(logging.getLogger(dvc.__name__), "level", logging.ERROR)
    made = tmp_path / "repo"
    shutil.copytree(trained, made)
    monkeypatch.chdir(made)
    return made


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "src/astra/toy.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def command(*arguments: str) -> Result:
    return CliRunner().invoke(train_app, list(arguments))


def refused(*arguments: str) -> str:
    """What a command that an error ends says."""
    found = command(*arguments)
    assert isinstance(found.exception, TrainingLockError | ParamsError), found.output
    return str(found.exception)


def lock(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "dvc.lock").read_text())["stages"]


def record(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "training.lock").read_text())


def test_code_that_trains_the_same_is_taken_without_training_or_models(folder: Path) -> None:
    before, head = lock(folder), run(folder, "git", "rev-parse", "HEAD").strip()
    edit(folder, "RATE = 0.5", "RATE = 1 / 2  # halves")
    shutil.rmtree(folder / "models")
    (folder / "data/bench.parquet").unlink()
    said = refused("same", "--check")
    assert all(f"{name}: dvc.lock is not of the code here" in said for name in STAGES)
    assert "training.lock is missing" in said

    done = command("same", "--commit")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "rl: the same since" in done.output
    after = lock(folder)
    for name in STAGES:
        assert after[name]["outs"] == before[name]["outs"]
        assert after[name]["params"] == before[name]["params"]
        changed = [dep["path"] for dep in after[name]["deps"] if dep not in before[name]["deps"]]
        assert changed == ["src/astra"]
    assert "Running stage" not in dvc(folder, "repro", "--dry", "--allow-missing")
    assert not (folder / "models").exists()

    written = record(folder)
    assert head.startswith(written["same"]["since"])
    assert len(written["same"]["losses"]["sft"]) == FEWER["sft"]["max_steps"]
    assert len(written["same"]["losses"]["rl"]) == FEWER["rl"]["steps"]
    outs = {out["path"]: out["md5"] for out in before["rl"]["outs"]}
    assert written["trained"]["rl"]["outputs"] == outs
    assert set(written["same"]["versions"]) == {"torch", "transformers", "trl"}
    assert command("same", "--check").exit_code == 0
    save(folder)
    run(folder, "git", "clone", "-q", ".", "clone")
    os.chdir("clone")
    assert command("same", "--check").exit_code == 0, "nothing that is not in git is needed"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("RATE = 0.5", "RATE = 0.25", "sft parts at step 2: loss was 4.0, is 2.0"),
        (
            "write_text(str(weight))",
            "write_text(str(weight + (stage == 'rl')))",
            "rl parts: its curves agree at every step, but models/rl/model.safetensors differ",
        ),
    ],
)
def test_code_that_trains_otherwise_is_refused_with_the_place(
    folder: Path, old: str, new: str, said: str
) -> None:
    before = (folder / "dvc.lock").read_bytes()
    edit(folder, old, new)
    done = command("same", "--commit")
    assert done.exit_code == 1
    assert said in done.output
    assert "dvc repro" in done.output
    assert (folder / "dvc.lock").read_bytes() == before
    assert not (folder / "training.lock").exists()


def test_a_stage_that_fails_in_the_probe_is_shown(folder: Path) -> None:
    edit(folder, "RATE = 0.5", "RATE = 1 / 0")
    said = refused("same")
    assert "the working directory: stage sft fails in the probe" in said
    assert "ZeroDivisionError" in said


def test_a_probe_that_makes_nothing_proves_nothing(folder: Path) -> None:
    with pytest.raises(TrainingLockError, match="here: stage sft makes nothing in the probe"):
        Side("here", folder).run("sft", ["models/elsewhere"])


def test_other_inputs_parameters_or_commands_than_the_locked_are_refused(folder: Path) -> None:
    edit(folder, "RATE = 0.5", "RATE = 1 / 2")
    data = folder / "data/sft_set.parquet"
    data.write_text("9.0")
    said = refused("same", "--commit")
    assert "sft: data/sft_set.parquet" in said
    assert "dvc checkout" in said
    data.unlink()
    assert "sft: data/sft_set.parquet" in refused("same")
    data.write_text("8.0")
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("steps: 5", "steps: 6"))
    assert "rl: its parameters" in refused("same")
    assert "rl: its parameters" in refused("same", "--check")
    params.write_text(params.read_text().replace("steps: 6", "steps: 5"))
    graph = folder / "dvc.yaml"
    graph.write_text(
        graph.read_text().replace("stages/bench.py\n    deps", "stages/bench.py -v\n    deps")
    )
    assert "bench: its command" in refused("same")


def test_parameters_under_other_names_are_taken_with_the_list_of_what_moved(folder: Path) -> None:
    def write(rl: dict[str, Any]) -> None:
        document = yaml.safe_load((folder / "params.yaml").read_text()) | {"rl": rl}
        (folder / "params.yaml").write_text(yaml.safe_dump(document))

    edit(folder, "RATE = 0.5", "RATE = 1 / 2")
    write(GROUPED)
    assert "--regrouped" in refused("same", "--commit")
    for other in (GROUPED | {"steps": 6}, GROUPED | {"engine": {"type": "batched", "rows": 9}}):
        write(other)
        assert "rl: its parameters say something else" in refused("same", "--regrouped")
    write(GROUPED)
    done = command("same", "--regrouped", "--commit")
    assert done.exit_code == 0, (done.output, done.exception)
    noted = record(folder)["same"]["regrouped"]
    assert noted == {
        "rl": [
            '- engine: "batched"', "- kv: null", "- rows: 8",
            '+ engine.rows: 8', '+ engine.type: "batched"',
        ]
    }  # fmt: skip
    held = load_yaml(str(folder / "dvc.lock"))["stages"]["rl"]["params"]
    assert held == {"params.yaml": {"rl": GROUPED}}
    assert command("same", "--check").exit_code == 0
    assert "Running stage" not in dvc(folder, "repro", "--dry", "--allow-missing")

    save(folder)
    edit(folder, "RATE = 1 / 2", "RATE = 2 / 4")
    assert command("same", "--commit").exit_code == 0, "the parameters are those of the record"
    assert record(folder)["same"]["regrouped"] == noted
    assert command("same", "--check").exit_code == 0
    edit(folder, "RATE = 2 / 4", "RATE = 0.25")
    dvc(folder, "repro", "-q")
    assert command("trained").exit_code == 0
    assert "same" not in record(folder)
    assert command("same", "--check").exit_code == 0


def test_later_code_is_compared_with_code_that_the_record_names(folder: Path) -> None:
    edit(folder, "RATE = 0.5", "RATE = 1 / 2")
    assert command("same", "--commit").exit_code == 0
    first = save(folder)
    edit(folder, "RATE = 1 / 2", "RATE = 2 / 4")
    unproven = save(folder)
    assert "its code is not what training.lock names" in refused("same", "--check")
    edit(folder, "RATE = 2 / 4", "RATE = 3 / 6")
    said = refused("same", "--since", unproven)
    assert "has not the code that training.lock names" in said
    done = command("same", "--commit")
    assert done.exit_code == 0, (done.output, done.exception)
    assert f"since {first[:12]}" in done.output, "not HEAD, whose code nothing is known of"
    assert command("same", "--check").exit_code == 0


def test_the_first_comparison_is_with_code_that_trained(folder: Path) -> None:
    first = run(folder, "git", "rev-parse", "HEAD").strip()
    edit(folder, "RATE = 0.5", "RATE = 1 / 2")
    untrained = save(folder)
    edit(folder, "RATE = 1 / 2", "RATE = 2 / 4")
    assert "has not the code that trained" in refused("same", "--since", untrained)
    assert "unknown" in refused("same", "--since", "unknown")
    done = command("same")
    assert done.exit_code == 0, (done.output, done.exception)
    assert record(folder)["same"]["since"] == first[:12], "not HEAD, whose dvc.lock is not its own"
    assert "dvc.lock is not of the code here" in refused("same", "--check"), "without --commit"


def test_a_change_that_training_does_not_reach_needs_no_probe(folder: Path) -> None:
    edit(folder, "RATE = 0.5", "RATE = 1 / 2")
    assert command("same", "--commit").exit_code == 0
    before = (folder / "training.lock").read_bytes()
    (folder / "src/astra/other.py").write_text("UNREACHED = 2\n")
    assert "dvc.lock is not of the code here" in refused("same", "--check")
    done = command("same", "--commit")
    assert "no code that training reaches differs" in done.output
    assert (folder / "training.lock").read_bytes() == before
    assert command("same", "--check").exit_code == 0


def test_hashes_that_were_committed_without_proof_are_found(folder: Path) -> None:
    edit(folder, "RATE = 0.5", "RATE = 1 / 2")
    assert command("same", "--commit").exit_code == 0
    edit(folder, "RATE = 1 / 2", "RATE = 0.25")
    dvc(folder, "commit", "-q", "-f", *STAGES)
    assert "sft: its code is not what training.lock names" in refused("same", "--check")
    said = refused("trained")
    assert "nothing of sft, rl, bench differs from before" in said


def test_a_new_training_is_noted_for_the_stages_that_trained(folder: Path) -> None:
    assert command("trained").exit_code == 0
    edit(folder, "RATE = 0.5", "RATE = 0.25")
    assert "dvc repro" in refused("trained"), "not trained yet"
    dvc(folder, "repro", "-q")
    assert "another training of sft" in refused("same")
    assert "outputs in dvc.lock are not those that training.lock names" in refused(
        "same", "--check"
    )
    assert command("trained").exit_code == 0
    assert command("same", "--check").exit_code == 0
    save(folder)

    edit(folder, "RATE = 0.25", "RATE = 1 / 4")
    assert command("same", "--commit").exit_code == 0
    before = record(folder)
    bench = folder / "stages/bench.py"
    bench.write_text(bench.read_text().replace("1 - read", "2 - read"))
    dvc(folder, "repro", "-q")
    assert command("trained").exit_code == 0
    after = record(folder)
    assert after["trained"]["rl"] == before["trained"]["rl"]
    assert after["same"]["code"] == {name: before["same"]["code"][name] for name in ("sft", "rl")}
    assert after["trained"]["bench"]["code"] != before["trained"]["bench"]["code"]
    assert command("same", "--check").exit_code == 0


def test_a_record_that_cannot_be_read_says_how_to_get_one(folder: Path) -> None:
    (folder / "training.lock").write_text("trained: 3\n")
    assert "training.lock cannot be read" in refused("same", "--check")


def test_a_probe_only_ever_takes_less() -> None:
    block = {"max_steps": 8, "eval_steps": 100, "save_steps": 200, "seed": 3}
    shorten(block, FEWER["sft"])
    assert block == {"max_steps": 8, "eval_steps": 40, "save_steps": 40, "seed": 3}
    block = {"steps": 90, "schedule": [{"steps": 30}]}
    shorten(block, FEWER["rl"])
    assert block == {"steps": 2, "schedule": []}, "parameters that older code lacks stay away"


def test_the_first_step_that_differs_is_named() -> None:
    def side(*losses: str) -> Products:
        return Products({"w": "".join(losses)}, {"loss": dict(enumerate(losses, 1))})

    assert difference("sft", side("3", "2"), side("3", "2")) == ""
    assert "at step 2: loss was 2, is 1" in difference("sft", side("3", "2"), side("3", "1"))
    assert "at step 2: loss was 2, is nothing" in difference("sft", side("3", "2"), side("3"))
