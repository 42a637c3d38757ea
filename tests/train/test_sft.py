from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from training_world import make_sample
from trl.trainer.sft_config import SFTConfig as TRLSFTConfig

from astra.records.trajectory import SFTSample
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_codec, load_policy
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records, write_records
from astra.tracking.mlflow import Run
from astra.train.checkpoints import optimizer_files, save_policy
from astra.train.errors import TrainingError
from astra.train.sft import (
    IGNORED,
    Encoded,
    _arguments,
    encode_samples,
    report_sft,
    split_samples,
    total_steps,
    train_sft,
)
from astra.train.sft_config import SFTConfig
from configs import policy_config, sft_config

NO_RUN = Run(None, "", "")


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


def config(**options: Any) -> SFTConfig:
    settings = {
        "max_steps": 8, "epochs": 9, "batch_size": 8,
        "micro_batch_size": 4, "optimizer": "muon", "learning_rate": 3e-3, "eval_steps": 4,
        "save_steps": 2, "max_tokens": 512,
    }  # fmt: skip
    return sft_config(**(settings | options))


def encoded(policy: LoadedPolicy, count: int = 24, first: int = 0) -> Encoded:
    samples = [make_sample(seed) for seed in range(first, first + count)]
    return encode_samples(samples, policy.codec, 512)


def test_labels_cover_what_the_assistant_writes_alone(policy: LoadedPolicy) -> None:
    sample = make_sample(3)
    (row,) = encode_samples([sample], policy.codec, 512).rows
    trained = [label for label in row["labels"] if label != IGNORED]
    text = policy.codec.tokenizer.decode(trained)
    assert text.count("<|im_end|>") == sum(m.role == "assistant" for m in sample.messages)
    assert "<tool_response>" not in text
    assert sample.messages[1].content not in text
    assert all(
        label in (IGNORED, token)
        for label, token in zip(row["labels"], row["input_ids"], strict=True)
    )


def test_schemas_of_different_tools_stay_apart_on_disk_and_in_prompts(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    """As structs, Arrow would give every tool the parameters of all, as nulls in the prompt."""
    samples = [make_sample(seed) for seed in range(6)]
    names = [frozenset(tool.name for tool in sample.tools) for sample in samples]
    assert len(set(names)) > 1
    codec = load_codec(policy_config(template="hermes"))

    def prompts(*given: SFTSample) -> dict[str, list[int]]:
        table = tmp_path / "sft_set.parquet"
        write_records(table, given, SFTSample)
        read = list(read_records(table, SFTSample))
        rows = encode_samples(read, codec, 9999).rows
        return {one.id: row["input_ids"] for one, row in zip(read, rows, strict=True)}

    together = prompts(*samples)
    for sample in samples:
        assert prompts(sample) == {sample.id: together[sample.id]}
        assert "null" not in codec.tokenizer.decode(together[sample.id])


def test_long_samples_are_dropped_and_counted(policy: LoadedPolicy) -> None:
    part = encode_samples([make_sample(seed) for seed in range(9)], policy.codec, 20)
    assert not part.rows
    assert {rejection.reason for rejection in part.rejections} == {"too_long"}
    assert len(part.rejections) == 9


def test_unknown_split_is_refused() -> None:
    train, evaluation = split_samples([make_sample(1), make_sample(2, "eval")])
    assert (len(train), len(evaluation)) == (1, 1)
    with pytest.raises(TrainingError, match="unknown split 'heldout'"):
        split_samples([make_sample(1, "heldout")])


def test_total_steps_is_bounded_by_epochs_and_by_max_steps() -> None:
    assert total_steps(24, config(max_steps=None, epochs=2, batch_size=10)) == 6
    assert total_steps(24, config(max_steps=4, epochs=2, batch_size=10)) == 4
    assert total_steps(1, config(max_steps=None, epochs=0.1)) == 1


def test_training_learns_prunes_optimizer_state_and_reports(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    train, evaluation = encoded(policy), encoded(policy, 4, first=10**6)
    result = train_sft(policy, train, evaluation, config(), tmp_path, NO_RUN)
    losses = result.curves.values("loss")
    assert len(losses) == result.steps == 8
    assert losses[-1] < losses[0] - 1
    saved = sorted(tmp_path.glob("checkpoint-*"), key=lambda p: int(p.name[11:]))
    assert [path.name for path in saved] == ["checkpoint-4", "checkpoint-6", "checkpoint-8"]
    assert [len(optimizer_files(path)) for path in saved] == [0, 0, 1]
    assert all((path / "model.safetensors").is_file() for path in saved)
    assert all((path / "scheduler.pt").is_file() for path in saved)
    metrics = StageMetrics("sft")
    report_sft(metrics, train, evaluation, result)
    document = metrics.document()
    assert document["train_samples"] == 24
    assert document["steps"] == 8
    assert document["eval_loss"] < losses[0]


def test_resumed_training_equals_uninterrupted_training(tmp_path: Path) -> None:
    def run(folder: Path) -> LoadedPolicy:
        torch.manual_seed(0)
        one = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
        settings = config(keep_optimizer_states=9)
        train_sft(one, encoded(one), Encoded(), settings, folder, NO_RUN)
        return one

    whole = run(tmp_path / "a")
    run(tmp_path / "b")
    for step in (6, 8):  # as if it had been killed after step 4
        shutil.rmtree(tmp_path / "b" / f"checkpoint-{step}")
    resumed = run(tmp_path / "b")
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("killed_after", [(4,), (5, 6), (6, 7)])
def test_a_resume_goes_on_in_the_order_of_its_epoch(
    tmp_path: Path, killed_after: tuple[int, ...]
) -> None:
    """Epochs of three steps, and samples of like length together; a second kill is survived too."""

    def run(folder: Path) -> LoadedPolicy:
        torch.manual_seed(0)
        one = load_policy(PolicyConfig.saved("policies/tiny", "float32"))
        settings = config(
            length_grouped=True, save_steps=1, keep_checkpoints=9, keep_optimizer_states=9
        )
        train_sft(one, encoded(one), encoded(one, 2, 10**6), settings, folder, NO_RUN)
        return one

    whole = resumed = run(tmp_path)
    for last in killed_after:
        for step in range(last + 1, 9):
            shutil.rmtree(tmp_path / f"checkpoint-{step}")
        resumed = run(tmp_path)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_settings_that_bite_are_set(tmp_path: Path) -> None:
    """The trainer's own defaults: bfloat16, recomputed activations, a last good loss for NaN."""
    made = _arguments(config(), tmp_path, 8, True)
    assert (made.bf16, made.use_cpu, made.max_length) == (False, True, None)
    assert (made.packing, made.padding_free, made.eval_packing) == (False, False, None)
    assert made.activation_checkpointing is False
    assert made.logging_nan_inf_filter is False
    assert made.save_only_model is False
    assert made.save_total_limit is None, "it would delete weights too"
    assert made.dataset_kwargs == {"skip_prepare_dataset": True}
    assert made.parallelism_config is None


def test_shared_sequences_are_padded_so_that_they_divide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of n devices takes two pieces of a sequence, one from either end."""
    monkeypatch.setenv("WORLD_SIZE", "8")
    # It would ask for a process group; what is tested here is what it is told.
    monkeypatch.setattr(TRLSFTConfig, "__post_init__", lambda self: None)
    made = _arguments(config(context_parallel=4), tmp_path, 8, True)
    assert (made.parallelism_config.cp_size, made.parallelism_config.dp_shard_size) == (4, 2)
    assert made.pad_to_multiple_of == 8
    assert made.gradient_accumulation_steps * made.per_device_train_batch_size * 2 == 8


def test_stalled_evaluation_ends_training(policy: LoadedPolicy, tmp_path: Path) -> None:
    settings = config(
        max_steps=20, eval_steps=1, patience=2, learning_rate=1e-12, muon_learning_rate=1e-12,
        save_steps=50,
    )  # fmt: skip
    result = train_sft(
        policy, encoded(policy), encoded(policy, 2, 10**6), settings, tmp_path, NO_RUN
    )
    assert result.stopped_early
    assert result.steps < 20
    full = settings.model_copy(update={"max_steps": result.steps})
    again = train_sft(
        policy, encoded(policy), encoded(policy, 2, 10**6), full, tmp_path / "full", NO_RUN
    )
    assert again.steps == result.steps
    assert not again.stopped_early, "patience ran out with the last step"


def test_nothing_to_train_on_is_one_clear_error(policy: LoadedPolicy, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no training sample that fits"):
        train_sft(policy, Encoded(), Encoded(), config(), tmp_path, NO_RUN)


def test_a_saved_policy_is_complete_and_replaces_what_was_there(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    folder = tmp_path / "models" / "sft"
    folder.mkdir(parents=True)
    (folder / "stale").touch()
    save_policy(policy.model, policy.codec.tokenizer, folder)
    assert not (folder / "stale").exists()
    again = load_policy(PolicyConfig.saved(str(folder), "float32"))
    sample = make_sample(1)
    assert again.codec.encode_conversation(
        sample.messages, sample.tools
    ) == policy.codec.encode_conversation(sample.messages, sample.tools)
    assert "/" not in (folder / "config.json").read_text()
