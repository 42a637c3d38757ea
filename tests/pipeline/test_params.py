"""params.yaml is what conf/ composes to, every combination composes, bad values are refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import yaml

from astra.devtools import params
from astra.llm.protocol import ModelsConfig
from astra.settings import ParamsError, load, validate

SCALES = ("test", "smoke", "small", "full")


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
        overrides += [f"{role}={teacher}" for role in ("teacher", "judge", "emulator", "user")]
        params.compose(tmp_path / "params.yaml", overrides)
        composed = yaml.load((tmp_path / "params.yaml").read_text(), yaml.CSafeLoader)
        assert composed["scale"] == scale
        assert (root / composed["policy_files"]).exists(), "a dependency of sft and bench"
        for block, model in params.BLOCKS.items():
            validate(block, composed[block], model)


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
