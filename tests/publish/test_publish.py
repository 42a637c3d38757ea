"""What `astra publish` writes is loaded by strangers' tools from an empty directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import cards
import pyarrow.parquet as pq
import pytest
import yaml
from mlflow import MlflowClient
from published_world import ARENAS, CONVERSATIONS, GOALS, TRAINED_CONVERSATIONS, git
from typer.testing import CliRunner

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.cli.main import commands
from astra.records.environment import Arena
from astra.tracking.mlflow import file_digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
BUCKET = "published"
TRAINED_BY = "output.models/rl"


def publish(*arguments: str) -> str:
    result = CliRunner().invoke(commands, ["publish", *arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A server that speaks S3, with one bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield url
        server.stop()


@pytest.fixture(scope="module")
def tracked_run(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """An MLflow store with the run that trained models/rl: its address and the run's id."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    run = client.create_run(client.create_experiment("astra/rl"))
    client.set_tag(run.info.run_id, TRAINED_BY, file_digest(built / "models/rl"))
    return uri, run.info.run_id


@pytest.fixture(scope="module")
def published(
    built: Path,
    store: str,
    tracked_run: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A copy of the build with all three things published, and what the commands said."""
    folder = tmp_path_factory.mktemp("published") / "repo"
    shutil.copytree(built, folder)
    said: dict[str, str] = {}
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", tracked_run[0])
        result = CliRunner().invoke(
            commands, ["remote", "set", f"s3://{BUCKET}/repo", "--endpoint", store]
        )
        assert result.exit_code == 0, result.exception
        said["rl"] = publish("policy", "--out", "published/rl", "--push", "--register")
        said["sft-set"] = publish("sft-set", "--out", "published/sft-set")
        said["conversations"] = publish("conversations", "--out", "published/conversations")
        said["arenas"] = publish("arenas", "--out", "published/arenas")
    (folder / "said.json").write_text(json.dumps(said))
    return folder


def said(published: Path, name: str) -> str:
    return json.loads((published / "said.json").read_text())[name]


def stranger(published: Path, place: Path, script: str) -> str:
    """Run a script in a directory (made here where it is not there), offline, where this project
    cannot be imported."""
    place.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys\nsys.modules['astra'] = None\n{script}"],
        cwd=place, text=True, capture_output=True, check=False,
        env=kept | {"HF_HOME": str(place.parent / "hub"), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    ("name", "least"), [("rl", 150), ("sft-set", 40), ("conversations", 40), ("arenas", 40)]
)
def test_every_number_of_a_card_is_in_the_file_that_it_names(
    published: Path, name: str, least: int
) -> None:
    folder = published / "published" / name
    assert cards.follow(folder) >= least
    assert cards.untraced(folder) == []
    build = {str(p.relative_to(folder)) for p in (folder / "build").rglob("*") if p.is_file()}
    assert cards.cited_files(folder) == build
    files = json.loads((folder / "build/files.json").read_text())
    everything = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert set(files) == everything - {"README.md", "build/files.json"}


def test_the_files_behind_a_card_are_those_of_the_commit_it_names(published: Path) -> None:
    folder = published / "published/rl"
    commit = git(published, "rev-parse", "HEAD")
    assert commit in cards.body(folder)
    for name in ("dvc.lock", "training.lock", "metrics/bench.json", "metrics/sft_set.json"):
        assert git(published, "show", f"{commit}:{name}") == (
            (folder / "build" / name).read_text().strip()
        )


def test_a_changed_number_is_noticed(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rl"
    shutil.copytree(published / "published/rl", folder)
    card = folder / "README.md"
    changed = card.read_text().replace("| rl | f1 | 0.", "| rl | f1 | 1.")
    assert changed != card.read_text()
    card.write_text(changed)
    with pytest.raises(AssertionError):
        cards.follow(folder)


def test_the_front_matter_holds_the_scores_and_the_licence(published: Path) -> None:
    folder = published / "published/rl"
    matter = cards.front_matter(folder)
    scores = json.loads((folder / "build/metrics/bench.json").read_text())
    mine = scores["checkpoints"]["rl"]["scores"]
    (result,) = matter["model-index"][0]["results"]
    metrics = result["metrics"]
    assert {m["type"]: m["value"] for m in metrics} == {
        name: mine[name]["mean"] for name in mine if name != "turns"
    }
    assert matter["license"] == "apache-2.0"
    assert matter["library_name"] == "transformers"
    assert cards.front_matter(published / "published/sft-set")["license"] == ["cc0-1.0", "mit"]


@pytest.mark.parametrize("name", ["rl", "sft-set", "arenas"])
def test_the_code_of_a_card_runs_as_it_stands(published: Path, tmp_path: Path, name: str) -> None:
    folder = published / "published" / name
    script = cards.code_block(folder, "python")
    assert stranger(published, folder, script).strip()
    elsewhere = script.replace('"."', repr(str(folder)))
    assert str(folder) in elsewhere
    assert stranger(published, tmp_path / "empty", elsewhere).strip()


def test_the_policy_is_the_checkpoint_that_was_scored(published: Path) -> None:
    for path in (published / "models/rl").iterdir():
        assert (published / "published/rl" / path.name).read_bytes() == path.read_bytes()
    assert "transformers loads it in a process of its own: 1,259,648" in said(published, "rl")
    assert "`astra serve` answers" in said(published, "rl")


TRAINING = """
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

rows = load_dataset({rows!r}, split="train")
tokenizer = AutoTokenizer.from_pretrained({policy!r})
model = AutoModelForCausalLM.from_pretrained({policy!r})
before = [p.detach().clone() for p in model.parameters()]
trainer = SFTTrainer(
    model=model, processing_class=tokenizer, train_dataset=rows,
    args=SFTConfig(
        output_dir="out", max_steps=1, per_device_train_batch_size=2, use_cpu=True,
        assistant_only_loss=True, report_to=[], save_strategy="no", bf16=False,
        learning_rate=0.01, gradient_checkpointing=False,
    ),
)
trainer.train()
moved = any(not torch.equal(a, b.cpu()) for a, b in zip(before, model.parameters()))
print(trainer.state.global_step, moved)
"""


def test_trl_trains_the_policy_on_the_set(published: Path, tmp_path: Path) -> None:
    rows, policy = (str(published / "published" / name) for name in ("sft-set", "rl"))
    script = TRAINING.format(rows=rows, policy=policy)
    assert stranger(published, tmp_path / "empty", script).splitlines()[-1] == "1 True"


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        path.stem: pq.read_table(path).to_pylist() for path in sorted((folder / "data").iterdir())
    }


def test_rows_of_unknown_or_other_licences_stay_behind_and_are_named(published: Path) -> None:
    folder = published / "published/sft-set"
    rows = rows_of(folder)
    everything = [row for split in rows.values() for row in split]
    licences = Counter(row["licence"] for row in everything)
    assert licences == {"CC0-1.0": 7, "MIT": 1, "CC0-1.0 AND MIT": 1}
    joint = next(row for row in everything if row["licence"] == "CC0-1.0 AND MIT")
    assert joint["sources"] == ["document:server0.yaml", "document:server1.yaml"]
    assert joint["kind"] == "irrelevant"
    lines = (folder / "build/left_out.jsonl").read_text().splitlines()
    named = Counter(json.loads(line)["licence"] for line in lines)
    assert named == {"unknown": 2, "GPL-3.0-only": 1}
    counts = json.loads((folder / "build/counts.json").read_text())
    assert counts["left_out"] == {"rows": 3, "licence": {"GPL-3.0-only": 1, "unknown": 2}}
    assert counts["split"] == {split: len(found) for split, found in rows.items()}
    assert counts["licence"] == dict(sorted(Counter(r["licence"] for r in everything).items()))
    assert "left out for their licence: 3" in said(published, "sft-set")


def test_arenas_come_back_as_records_without_tools_of_other_licences(published: Path) -> None:
    folder = published / "published/arenas"
    rows = {row["id"]: row for split in rows_of(folder).values() for row in split}
    first, second, third = ARENAS
    assert set(rows) == {first.id, second.id}
    back = Arena.model_validate_json(rows[first.id]["arena"])
    assert back.id == first.id
    assert back.tools == first.tools
    assert [o.tool.name for offers in back.irrelevant.values() for o in offers] == ["get_price0"]
    assert rows[first.id]["licence"] == "Apache-2.0 AND CC0-1.0"
    assert rows[second.id]["licence"] == "CC-BY-4.0 AND MIT"
    assert rows[second.id]["sources"] == ["document:server1.yaml", second.source]
    counts = json.loads((folder / "build/counts.json").read_text())
    assert counts["tools_left_out"] == {
        "tools": 2, "licence": {"GPL-3.0-only": 1, "unknown": 1}
    }  # fmt: skip
    (left,) = (folder / "build/left_out.jsonl").read_text().splitlines()
    assert json.loads(left) == {"id": third.id, "sources": ["texts:diary"], "licence": "unknown"}


def test_conversations_tell_what_was_wanted_and_who_spoke(published: Path) -> None:
    folder = published / "published/conversations"
    rows = {row["id"]: row for split in rows_of(folder).values() for row in split}
    first, taught, held_back, service, again = CONVERSATIONS
    assert set(rows) == {first.id, taught.id, held_back.id, again.id}
    row = rows[first.id]
    assert (row["kind"], row["traits"]) == ("write", ["multi", "choice"])
    assert (row["user"], row["agent"]) == ("rules", "offline:expert")
    assert rows[taught.id]["user"] == "openai:wordsmith"
    assert row["goal"] == rows[again.id]["goal"] == GOALS[0].id
    assert (row["sources"], row["licence"]) == (["worlds:library_loans"], "Apache-2.0")
    counts = json.loads((folder / "build/counts.json").read_text())
    assert counts["split"] == {"eval": 1, "train": 3}
    assert counts["traits"] == {"choice": 2, "multi": 3}
    assert counts["domain"] == {"gym_classes": 1, "library_loans": 3}
    assert counts["user"] == {"openai:wordsmith": 1, "rules": 3}
    (left,) = (folder / "build/left_out.jsonl").read_text().splitlines()
    assert json.loads(left) == {
        "id": service.id, "sources": ["service:repair_cafe"], "licence": "unknown"
    }  # fmt: skip
    card = cards.body(folder)
    assert "- `choice`: the words fit several rows" in card
    assert "| conversations | conversations in worlds | 35 |" in card


def test_a_policy_that_read_conversations_says_so(published: Path) -> None:
    licences = json.loads((published / "published/rl/build/licences.json").read_text())
    assert sum(licences["conversations"].values()) == TRAINED_CONVERSATIONS
    card = cards.body(published / "published/rl")
    itself = json.loads((published / "published/conversations/build/published.json").read_text())
    assert f"| sft | data/conversations.parquet | {itself['md5']} |" in card
    assert "| models/sft |" in cards.body(published / "published/conversations")


@pytest.mark.parametrize("name", ["rl", "sft-set", "conversations", "arenas"])
def test_every_source_has_its_licence_and_the_notices_that_it_asks_for(
    published: Path, name: str
) -> None:
    folder = published / "published" / name
    found = json.loads((folder / "build/sources.json").read_text())
    notice = (folder / "NOTICE").read_text()
    free = {"CC0-1.0", "Unlicense"}
    if name != "rl":
        everything = [row for split in rows_of(folder).values() for row in split]
        held = Counter(source for row in everything for source in row["sources"])
        assert {source: entry["rows"] for source, entry in found["sources"].items()} == held
    for source, entry in found["sources"].items():
        if name == "rl" and (entry["licence"] == "unknown" or "GPL" in entry["licence"]):
            continue  # a policy may be trained on what is not published; its card says so
        noticed = {found["works"][work]["licence"] for work in entry["works"]}
        assert entry["without_notice"] == [], source
        assert set(entry["licence"].split(" AND ")) <= noticed | free, source
        for one in entry["licence"].split(" AND "):
            assert (folder / "licences" / f"{one}.txt").read_text().strip()
    for work in found["works"].values():
        assert work["copyright"] in notice
        assert f"licences/{work['licence']}.txt" in notice
    assert ("Copyright (c) 2026 Server One" in notice) is (name != "conversations")


def test_the_round_trip_is_what_the_published_template_makes(
    published: Path, tmp_path: Path
) -> None:
    folder = published / "published/rl"
    script = (
        "import json\nfrom transformers import AutoTokenizer\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(folder)!r})\n"
        f"found = json.load(open({str(folder / 'build/round_trip.json')!r}))\n"
        "print(json.dumps(tokenizer.apply_chat_template(\n"
        "    found['messages'], tools=found['tools'], tokenize=False)))\n"
    )
    rendered = json.loads(stranger(published, tmp_path / "empty", script).splitlines()[-1])
    assert f"\n{rendered}\n" in cards.body(folder)
    assert AGENT_SYSTEM_PROMPT in rendered
    for part in ("<tool_call>", '"name": "get_price"', "812</tool_response>", "<answer>812</"):
        assert part in rendered


def test_the_three_cards_name_each_other(published: Path) -> None:
    lock = yaml.safe_load((published / "dvc.lock").read_text())["stages"]
    made = {out["path"]: out["md5"] for one in lock.values() for out in one["outs"]}
    policy = cards.body(published / "published/rl")
    for name, stage in (("sft-set", "sft"), ("arenas", "rl")):
        folder = published / "published" / name
        itself = json.loads((folder / "build/published.json").read_text())
        assert itself["md5"] in {dep["md5"] for dep in lock[stage]["deps"]}
        assert itself["md5"] in policy
        assert made["models/rl"] in cards.body(folder)
        assert "[rl](../rl/README.md)" in cards.body(folder)
    assert made["models/sft"] in cards.body(published / "published/sft-set")
    assert (
        lock["sft"]["outs"][0]["md5"]
        not in (
            cards.body(published / "published/arenas").split("## Policies")[1].split("\n## ")[0]
        )
    )


def test_tokens_of_the_set_are_those_left_out_and_those_trained_on(published: Path) -> None:
    found = json.loads((published / "published/rl/build/tokens.json").read_text())
    rows = pq.read_table(published / "data/sft_set.parquet").to_pylist()
    given = sum(row["split"] == "train" for row in rows) + TRAINED_CONVERSATIONS
    assert found["set"]["conversations"] == given
    for key in ("conversations", "tokens", "assistant_tokens"):
        assert found["set"][key] == found["kept"][key] + found["left_out"][key]
    assert 0 < found["kept"]["assistant_tokens"] < found["kept"]["tokens"]


def test_columns_are_typed(published: Path, tmp_path: Path) -> None:
    folders = [
        str(published / "published" / name) for name in ("sft-set", "conversations", "arenas")
    ]
    script = (
        "from datasets import load_dataset\n"
        f"for folder in {folders}:\n"
        "    print(load_dataset(folder)['train'].features)\n"
    )
    shown = stranger(published, tmp_path / "empty", script)
    for column in (
        "'messages': List(Json(decode=True))", "'mean_score': Value('float64')",
        "'traits': List(Value('string'))", "'arena': Json(decode=True)",
        "'hops': Value('int64')", "'hard': Value('bool')",
        "'sources': List(Value('string'))",
    ):  # fmt: skip
        assert column in shown


def test_what_was_pushed_is_had_from_the_remote(published: Path, tmp_path: Path) -> None:
    assert "objects sent to storage (s3://published/repo)" in said(published, "rl")
    clone = tmp_path / "clone"
    git(published, "add", "published", ".dvc/config")
    git(published, "commit", "-qm", "published")
    git(published, "clone", "-q", str(published), str(clone))
    dvc = Path(sys.executable).parent / "dvc"
    for place in ("published/rl.dvc", "models/rl"):  # of both at once dvc 3.67 pulls the first
        subprocess.run([dvc, "pull", "-q", place], cwd=clone, check=True)
    for place in ("published/rl", "models/rl"):
        assert file_digest(clone / place) == file_digest(published / place)


def test_the_version_of_the_model_leads_to_its_run(
    published: Path, tracked_run: tuple[str, str]
) -> None:
    uri, run = tracked_run
    client = MlflowClient(tracking_uri=uri)
    version = client.get_model_version_by_alias("astra-rl", "published")
    assert version.run_id == run
    tracked = yaml.safe_load((published / "published/rl.dvc").read_text())["outs"][0]["md5"]
    assert version.tags["dvc.md5"] == tracked
    assert version.source == f"s3://{BUCKET}/repo/files/md5/{tracked[:2]}/{tracked[2:]}"
    assert version.tags["sha256"] == file_digest(published / "models/rl")
    assert f"made by run {run}" in said(published, "rl")
