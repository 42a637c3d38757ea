"""params.yaml is what conf/ composes to, every combination composes, bad values are refused."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.utils.cli_parse import to_path_overrides
from dvc.utils.hydra import get_hydra_sweeps
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from astra.devtools import params
from astra.devtools.params_changes import changes
from astra.estimate.asks import online_models
from astra.llm.protocol import ModelsConfig
from astra.settings import ParamsError, load, validate

SCALES = ("test", "pilot", "smoke", "small", "full", "paper")
ROLES = ("teacher", "judge", "emulator", "user")


@pytest.fixture(autouse=True)
def _at_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_params_yaml_is_current(root: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "params.yaml"
    params.compose(fresh, [])
    assert fresh.read_text() == (root / "params.yaml").read_text(), "run `make params`"


def _options(root: Path, group: str) -> list[str]:
    return sorted(path.stem for path in (root / "conf" / group).glob("*.yaml"))


def test_every_combination_composes(root: Path, tmp_path: Path) -> None:
    teachers, policies = _options(root, "teacher"), _options(root, "policy")
    embeddings = _options(root, "embedding")
    assert {"offline", "openai"} <= set(teachers)
    for scale, teacher, policy, embedding in product(SCALES, teachers, policies, embeddings):
        overrides = [f"scale={scale}", f"policy={policy}", f"embedding={embedding}"]
        overrides += [f"{role}={teacher}" for role in ROLES]
        params.compose(tmp_path / "params.yaml", overrides)
        composed = yaml.load((tmp_path / "params.yaml").read_text(), yaml.CSafeLoader)
        assert composed["scale"] == scale
        assert (root / composed["policy_files"]).exists(), "a dependency of sft and bench"
        for block, model in params.BLOCKS.items():
            validate(block, composed[block], model)


def test_a_pilot_has_one_model_in_every_role_and_a_cap(tmp_path: Path) -> None:
    output = tmp_path / "params.yaml"
    params.compose(output, ["scale=pilot", "teacher.model=some/model"])
    composed = yaml.safe_load(output.read_text())
    assert [model.model for model in online_models(composed)] == ["some/model"]
    for role in ROLES:
        assert composed[role]["backend"] == "openai"
    assert composed["trajectories"]["agent"]["backend"] == "openai"
    assert composed["runtime"]["budget"]["run"]["requests"] > 0
    params.compose(output, ["scale=pilot", "judge.model=other", "emulator=offline"])
    composed = yaml.safe_load(output.read_text())
    assert composed["sft_set"]["judge"]["model"] == "other"
    assert composed["trajectories"]["emulator"]["backend"] == "offline"


def test_roles_of_several_models_take_any_list_of_model_blocks(tmp_path: Path) -> None:
    output = tmp_path / "params.yaml"
    params.compose(output, ["judge=openai", "judge.model=j", "back_translators=openai"])
    composed = yaml.safe_load(output.read_text())
    assert [model["model"] for model in composed["voters"]["models"]] == ["j"]
    names = [model["model"] for model in composed["back_translators"]["models"]]
    assert len(set(names)) == 3
    params.compose(output, ["voters.models=[${judge},{backend:offline,model:v2}]"])
    assert [m.model for m in load("voters", ModelsConfig, output).models] == ["v1", "v2"]
    for wrong in ("voters.models=[]", "voters.models=[{backend:offline}]"):
        with pytest.raises(Exception, match=r"voters\.models"):
            params.compose(output, [wrong])


def test_voters_and_back_translators_are_who_judges_chains(tmp_path: Path) -> None:
    output = tmp_path / "params.yaml"
    params.compose(output, ["scale=small", "voters=openai", "back_translators=openai"])
    composed = yaml.safe_load(output.read_text())
    for operator, group in (("vote", "voters"), ("back_translation", "back_translators")):
        judges = composed["chains"]["operators"][operator]["models"]
        assert judges == composed[group]["models"]
        assert len(judges) == 3


RUN_TIME = {
    "runtime": "tests/llm/test_limits.py::test_a_model_goes_to_the_endpoints_that_serve_it",
    "sandbox": "tests/sandbox/test_ray.py::test_without_ray_the_message_says_how_to_get_it",
}
"""Groups that act while a stage runs and change none of its parameters, with a test of that."""


def _composed(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(Path("conf").absolute()), version_base=None):
        return compose("config", list(overrides), return_hydra_config=True)


def _stages(*overrides: str) -> dict[str, Any]:
    """The block of each stage, not validated."""
    composed = _composed(*overrides)
    names = yaml.safe_load(Path("dvc.yaml").read_text())["stages"]
    return {name: OmegaConf.to_container(composed[name], resolve=True) for name in names}


def test_every_group_of_conf_changes_a_stage_or_acts_at_run_time(root: Path) -> None:
    chosen = {
        group: option
        for group, option in _composed().hydra.runtime.choices.items()
        if not group.startswith("hydra/")
    }
    assert {"voters", "back_translators", "policy", "rl/engine"} <= set(chosen)
    before = {scale: _stages(f"scale={scale}") for scale in ("smoke", "small")}

    def changes(group: str) -> bool:
        others = [option for option in _options(root, group) if option != chosen[group]]
        return any(
            _stages(f"scale={scale}", f"{group}={other}") != before[scale]
            for scale, other in product(before, others)
        )

    idle = {group for group in chosen if group not in RUN_TIME and not changes(group)}
    assert not idle, "no option of these groups changes any stage"
    for group, named in RUN_TIME.items():
        assert not changes(group)
        file, test = named.split("::")
        assert f"def {test}(" in (root / file).read_text()


def _mappings(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every empty mapping of a file of conf/ by its dotted key, as it is written."""
    for key, value in document.items() if isinstance(document, dict) else ():
        where = f"{path}.{key}"
        if value in ({}, EMPTY):
            yield where, value
        yield from _mappings(value, where)


EMPTY = "${oc.create:{}}"
"""How conf/config.yaml says that an empty mapping is written."""


def test_every_empty_mapping_of_conf_can_be_filled(root: Path, tmp_path: Path) -> None:
    tried = 0
    for file in sorted((root / "conf").rglob("*.yaml")):
        group, document = file.parent.name, yaml.safe_load(file.read_text())
        if not (group in params.BLOCKS or group in ROLES) or not document:
            continue
        for key, written in _mappings(document):
            assert written == EMPTY, f"{file}: write `{key[1:]}: {EMPTY}`, else -S cannot fill it"
            option = [] if file.stem in ("base", "default") else [f"{group}={file.stem}"]
            override = f"{group}{key}={{probe: {{x: 1}}}}"
            composed = _composed(*option, override)
            assert OmegaConf.select(composed, f"{group}{key}") == {"probe": {"x": 1}}
            tried += 1
    assert tried >= 10


def test_a_filled_mapping_reaches_params_yaml(tmp_path: Path) -> None:
    """By dvc's own parsing of ``-S``, and as ``python -m astra.devtools.params`` is given them."""
    given = [
        "tasks.languages={zh: 0.2}",
        "runtime.prices={some/model: {prompt: 0.6, completion: 2.2}}",
        "tools.domains.mapping={crypto: finance}",
        "qa.corpora={notes: {mode: base, path: notes.jsonl, hops: {min: 2, max: 2}}}",
    ]
    ((file, overrides),) = to_path_overrides(given).items()
    (sweep,) = get_hydra_sweeps({file: overrides})
    for arguments in (given, sweep[file]):
        params.compose(tmp_path / "params.yaml", list(arguments))
        composed = yaml.safe_load((tmp_path / "params.yaml").read_text())
        assert composed["tasks"]["languages"] == {"zh": 0.2}
        assert composed["runtime"]["prices"] == {"some/model": {"prompt": 0.6, "completion": 2.2}}
        assert composed["tools"]["domains"]["mapping"] == {"crypto": "finance"}
        assert composed["qa"]["corpora"]["notes"]["path"] == "notes.jsonl"


def test_a_policy_folder_of_ones_own_is_what_stages_depend_on(tmp_path: Path) -> None:
    params.compose(tmp_path / "params.yaml", ["policy.path=models/mine"])
    composed = yaml.safe_load((tmp_path / "params.yaml").read_text())
    assert composed["policy_files"] == composed["sft"]["policy"]["path"] == "models/mine"


def test_a_hub_policy_without_its_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="40 digits of a commit"):
        params.compose(tmp_path / "params.yaml", ["policy=qwen3", "policy.revision=main"])
    with pytest.raises(Exception, match="40 digits of a commit"):
        params.compose(tmp_path / "params.yaml", ["policy.path=someone/model"])


def test_a_bad_reward_is_refused_with_the_allowed_values(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="f1") as refused:
        params.compose(tmp_path / "params.yaml", ["rl.reward=f3"])
    message = str(refused.value)
    assert "rl.reward" in message
    assert all(name in message for name in ("recall", "precision", "answer", "f3"))
    assert not (tmp_path / "params.yaml").exists()


@pytest.mark.parametrize("override", ["+rl.rewrad=f1", "+tools.nonsense=1", "qa.seed=many"])
def test_unknown_and_ill_typed_parameters_are_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(Exception, match=override.lstrip("+").split("=")[0].split(".")[1]):
        params.compose(tmp_path / "params.yaml", [override])


def test_missing_params_file_names_the_repair(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="make params"):
        load("rl", params.BLOCKS["rl"], tmp_path / "params.yaml")


def test_a_stage_block_holds_no_endpoint(root: Path) -> None:
    """Where an endpoint is must not be a stage's parameter: it would rerun paid work."""
    document = yaml.safe_load((root / "params.yaml").read_text())
    for block, values in document.items():
        if block != "runtime":
            assert "base_url" not in yaml.safe_dump(values)


def test_changes_are_told_by_key() -> None:
    old = {"rl": {"steps": 2, "gone": 1, "same": {"a": 1}}, "qa": {"corpora": {}}}
    new = {"rl": {"steps": 3, "same": {"a": 1}}, "qa": {"corpora": {"mine": {"path": "x" * 200}}}}
    assert changes(old, new) == [
        "rl.steps: 2 -> 3",
        f'qa.corpora.mine.path: (absent) -> "{"x" * 119}...',
        "rl.gone: 1 -> (absent)",
        "qa.corpora: {} -> (absent)",
    ]
    assert changes(new, new) == []


@pytest.fixture
def workspace(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with conf/ as its one commit, and params.yaml beside it."""
    shutil.copytree(root / "conf", tmp_path / "conf")
    shutil.copytree(root / "policies/tiny", tmp_path / "policies/tiny")
    monkeypatch.chdir(tmp_path)
    for command in ("init -q", "add conf", "-c user.name=a -c user.email=a@b commit -qm conf"):
        subprocess.run(["git", *command.split()], check=True)
    params.compose(Path("params.yaml"), [])
    return tmp_path


def _told(caplog: pytest.LogCaptureFixture, *overrides: str) -> list[str]:
    caplog.clear()
    caplog.set_level(logging.INFO, "astra")
    params.rewrite(list(overrides))
    return [f"{record.levelname.lower()}: {record.message}" for record in caplog.records]


def _edit(file: str, old: str, new: str) -> None:
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


@pytest.mark.usefixtures("workspace")
def test_what_changed_is_told_and_an_edit_without_effect_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _told(caplog) == ["info: nothing changed"]
    _edit("conf/tools/base.yaml", "max_tools: ", "max_tools: 1")
    (changed,) = _told(caplog)
    assert changed.startswith("info: tools.filters.max_tools: ")
    _edit("conf/tools/base.yaml", "sources/live.yaml", "sources/mine.yaml")
    assert _told(caplog) == [
        "info: nothing changed",
        "warning: tools.sources was edited in conf/tools/base.yaml, but conf/tools/smoke.yaml sets "
        "it: edit it there",
    ]
    assert "conf/tools/test.yaml sets it" in _told(caplog, "scale=test")[-1]
    params.rewrite([])
    monkeypatch.setenv("PATH", "")
    assert _told(caplog) == ["info: nothing changed"], "no git: no warning"


@pytest.mark.usefixtures("workspace")
def test_an_edit_at_the_end_of_a_long_value_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with Path("conf/tools/smoke.yaml").open("a") as handle:
        handle.write("domains: {labels: [other]}\n")
    _edit("conf/tools/base.yaml", "web search, other]", "web search, sundry, other]")
    assert _told(caplog)[-1] == (
        "warning: tools.domains.labels was edited in conf/tools/base.yaml, but "
        "conf/tools/smoke.yaml sets it: edit it there"
    )


def test_without_a_repository_nothing_is_warned_of(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(workspace / ".git")
    _edit("conf/tools/base.yaml", "sources/live.yaml", "sources/mine.yaml")
    assert _told(caplog) == ["info: nothing changed"]
    Path("params.yaml").write_text("tools: [\n<<<<<<< HEAD\n")
    assert any(line.startswith("info: tools.sources: (absent) -> ") for line in _told(caplog))
