"""The exported set in the libraries it is for: `datasets` and TRL's SFTTrainer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from test_scoring import AGENT, FAR, GOOD, OFFICE, PRICE, QUESTION, trajectory

from astra.records.message import ToolCall
from astra.records.score import Scored
from astra.records.trajectory import SFTSample, Trajectory
from astra.scoring.export import write_openai


def sample(one: Trajectory, split: str = "train") -> SFTSample:
    return SFTSample(
        trajectory_id=one.id, split=split, language="en", domain="d", tools=one.tools,
        messages=one.messages, scores={"tool_status": Scored(value=1.0)}, mean_score=1.0,
    )  # fmt: skip


CHAINED = trajectory(FAR, [AGENT], [OFFICE], answer="The office is <answer>Pine Dock</answer>")
SAMPLES = [
    sample(trajectory(QUESTION, [PRICE], answer=GOOD)),
    sample(CHAINED),
    sample(trajectory("No tool for this?", answer="No. <answer>no tool</answer>")),
    sample(trajectory("Held out?", [PRICE], answer=GOOD), "eval"),
]


def loaded(folder: Path, split: str) -> Any:
    return datasets.load_dataset(
        "parquet", data_files=str(folder / f"{split}.parquet"), cache_dir=str(folder / "cache")
    )["train"]


def test_datasets_loads_lists_of_dicts_with_no_key_of_another_row(tmp_path: Path) -> None:
    assert write_openai(SAMPLES, tmp_path) == {"train": 3, "eval": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["eval.parquet", "train.parquet"]
    rows = list(loaded(tmp_path, "train"))
    for row, made in zip(rows, SAMPLES, strict=False):
        assert row["tools"] == [tool.openai() for tool in made.tools]
        assert [m["role"] for m in row["messages"]] == [m.role.value for m in made.messages]
    assert rows[0]["messages"][1] == {"role": "user", "content": QUESTION}
    call = rows[1]["messages"][2]["tool_calls"][0]
    assert call["function"] == {"name": "find_agent", "arguments": {"listing": "Amber Cove"}}
    assert "tool_calls" not in rows[2]["messages"][-1]


def test_arguments_that_are_no_object_stay_text(tmp_path: Path) -> None:
    message = CHAINED.messages[2]
    broken = message.model_copy(
        update={"tool_calls": (ToolCall(id="call_0", name="find_agent", arguments='{"listing": '),)}
    )
    one = CHAINED.model_copy(update={"messages": (*CHAINED.messages[:2], broken)})
    write_openai([sample(one)], tmp_path)
    call = loaded(tmp_path, "train")[0]["messages"][2]["tool_calls"][0]
    assert call["function"]["arguments"] == '{"listing": '


@pytest.mark.parametrize(
    "written",
    ['{"listing": NaN}', '{"listing": "a", "listing": "b"}', '{"listing": "\\ud83d home"}', "[1]"],
)
def test_arguments_that_json_does_not_know_stay_as_written(tmp_path: Path, written: str) -> None:
    call = ToolCall(id="call_0", name="find_agent", arguments=written)
    message = CHAINED.messages[2].model_copy(update={"tool_calls": (call,)})
    one = CHAINED.model_copy(update={"messages": (*CHAINED.messages[:2], message)})
    write_openai([sample(one)], tmp_path)
    exported = loaded(tmp_path, "train")[0]["messages"][2]["tool_calls"][0]
    assert exported["function"]["arguments"] == written


def test_an_export_that_fails_leaves_the_last_one_and_nothing_else(tmp_path: Path) -> None:
    write_openai(SAMPLES, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def cut_short() -> Iterator[SFTSample]:
        yield from SAMPLES[:1]
        raise OSError("the table is cut short")

    with pytest.raises(OSError, match="cut short"):
        write_openai(cut_short(), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_openai(SAMPLES, tmp_path / name)
    assert (tmp_path / "a/train.parquet").read_bytes() == (
        tmp_path / "b/train.parquet"
    ).read_bytes()


def test_trl_trains_on_it_with_the_tokens_of_our_own_stage(root: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    from astra.rollout.chat import PolicyConfig, load_codec

    policy = str(root / "policies" / "tiny")
    write_openai(SAMPLES, tmp_path)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(policy),
        args=SFTConfig(
            output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=1,
            max_length=None, assistant_only_loss=True, report_to=[], use_cpu=True, bf16=False,
            gradient_checkpointing=False, save_strategy="no",
        ),
        train_dataset=loaded(tmp_path, "train"),
        processing_class=AutoTokenizer.from_pretrained(policy),
    )  # fmt: skip
    codec = load_codec(PolicyConfig.saved(policy, "float32"))
    for row, made in zip(trainer.train_dataset, SAMPLES, strict=False):
        ids, mask = codec.encode_conversation(made.messages, made.tools)
        assert row["input_ids"] == ids
        assert row["labels"] == [i if m else -100 for i, m in zip(ids, mask, strict=True)]
    assert trainer.train().training_loss > 0


def test_the_schema_of_a_tool_survives_unmerged(tmp_path: Path) -> None:
    odd = CHAINED.tools[0].model_copy(
        update={"parameters": {"type": "object", "properties": {"a": {"anyOf": [{"const": 1}]}}}}
    )
    write_openai([SAMPLES[0], sample(CHAINED.model_copy(update={"tools": (odd,)}))], tmp_path)
    rows = loaded(tmp_path, "train")
    assert rows[1]["tools"][0]["function"]["parameters"] == odd.parameters
    assert "anyOf" not in json.dumps(rows[0]["tools"])
