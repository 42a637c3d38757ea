"""The parts of the chat model's benchmark: what they show, what they keep, what they cost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.trainer import TRAINER_STATE_NAME

from astra.records.message import Message, MessageRole, ToolCall
from astra.records.trajectory import SFTSample
from astra.train.checkpoints import STATE_FILE

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import chat_data
import chat_model


def sample(number: int, answer: str) -> SFTSample:
    said = Message(role=MessageRole.ASSISTANT, content=f"So <answer>{answer}</answer>")
    return SFTSample(
        trajectory_id=str(number), split="train", language="en", domain="d", tools=(),
        messages=(said,), scores={}, mean_score=1.0,
    )  # fmt: skip


def checkpoint(folder: Path, step: int, whole: bool = True) -> None:
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    save_file({"a": torch.full((2,), float(step))}, made / "adapter_model.safetensors")
    config = {"r": 8, "base_model_name_or_path": "/somewhere/here"}
    (made / "adapter_config.json").write_text(json.dumps(config))
    curves = {"loss": [[one, one / 3] for one in range(1, step + 1)]}
    if whole:
        (made / STATE_FILE).write_text(json.dumps({"watcher": {"curves": curves}}))
        # A step whose batch was full of earlier surplus rolls nothing.
        logged = [{"step": 1, "filling/rolled_reward": 0.25}, {"step": 2, "loss": 0.0}]
        (made / TRAINER_STATE_NAME).write_text(json.dumps({"log_history": logged}))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(chat_model, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(chat_model, "JOURNAL", tmp_path / "kept/journal.json")
    return tmp_path / "kept"


def test_every_fifth_conversation_refuses_while_there_are_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = [sample(n, "no tool" if n < 3 else "42") for n in range(30)]
    monkeypatch.setattr(chat_data, "read_records", lambda *_: iter(every))
    refusing = [chat_data.is_refusal(one) for one in chat_data.selected("train")]
    assert [at for at, refuses in enumerate(refusing) if refuses] == [0, 5, 10]
    assert len(refusing) == 30
    assert chat_data.selected("eval") == []


def test_a_conversation_that_sends_a_call_again_is_not_shown() -> None:
    def asked(*arguments: str) -> SFTSample:
        turns = [
            Message(
                role=MessageRole.ASSISTANT,
                tool_calls=(ToolCall(id=str(at), name="get_age", arguments=one),),
            )
            for at, one in enumerate(arguments)
        ]
        return sample(0, "42").model_copy(update={"messages": (*turns, *sample(0, "42").messages)})

    assert chat_data.repeats(asked('{"who": "Ann"}', '{"who": "Ann"}'))
    assert not chat_data.repeats(asked('{"who": "Ann"}', '{"who": "Bo"}'))


def test_a_policy_is_the_base_with_the_adapters_of_every_part_before_it() -> None:
    assert chat_model.lineage("base") == []
    every = [
        "sft_arenas", "sft_calls", "sft_misses", "sft_more", "sft_again", "sft_stumbles", "sft",
    ]  # fmt: skip
    assert chat_model.lineage("rl") == [*every, "rl"]
    assert chat_model.lineage("control") == [*every, "control"]
    assert chat_model.lineage("rl_few") == ["sft_few", "rl_few"]
    for rl, control in chat_model.CONTROLS.items():
        assert chat_model.PARENTS[rl] == chat_model.PARENTS[control]


def test_a_parameter_that_has_no_effect_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"policy\.dtype=float32: only sft\., rl\., bench\."):
        chat_model.Settings.of(["sft.max_steps=3", "policy.dtype=float32"])


def test_what_a_policy_computes_in_reaches_training_and_serving(tmp_path: Path) -> None:
    for dtype in ("bfloat16", "float32"):
        settings = chat_model.Settings.of([], dtype)
        assert settings.dtype == settings.rl.dtype == dtype
        assert chat_model.the_policy(tmp_path, settings.dtype).dtype == dtype


def test_the_control_sees_again_what_sft_saw_and_nothing_that_rl_trains_in() -> None:
    parts = ("sft_arenas", "sft_calls", "sft_misses", "sft_more")
    seen = [at for part in parts for at in chat_data.places(part)]
    assert len(seen) == len(set(seen))
    assert set(chat_data.places("sft")) == set(chat_data.places("sft_again")) == set(seen)
    assert chat_model.shown_as("control") == chat_model.shown_as("sft") == "sft"
    assert set(chat_data.places("sft_stumbles")) < set(seen)
    assert set(seen).isdisjoint(chat_data.FOR_RL)
    assert chat_data.places("eval") == list(range(8))
    assert chat_model.shown_as("control_few") == "sft_few"
    assert chat_data.places("sft_few") == list(range(200))


def test_a_policy_without_its_adapters_is_refused(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_model, "WORK", tmp_path)
    (tmp_path / "policy").mkdir()
    with pytest.raises(SystemExit, match=r"policy rl needs .*sft.*run the part that makes it"):
        chat_model.policy_folder("rl")


def test_rl_trains_in_arenas_that_no_part_of_sft_shows_and_in_fresh_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arenas = [SimpleNamespace(id=str(at), is_hard=at > 410) for at in range(1188)]
    monkeypatch.setattr(chat_model, "arenas_of", lambda split: arenas)
    fresh = SimpleNamespace(id="fresh", is_hard=True)
    monkeypatch.setattr(chat_model, "fresh_arenas", lambda work, shown: [fresh] * (shown is arenas))
    shares: list[int] = []
    monkeypatch.setattr(
        chat_model, "some_without_tools", lambda arenas, every: shares.append(every) or arenas
    )
    look_ups, hard = map(str, (400, 403, 406, 409)), map(str, chat_data.FOR_RL[11:])
    assert [one.id for one in chat_model.rl_arenas("rl")] == [*look_ups, *hard, "fresh"]
    every = [*map(str, chat_data.FOR_RL), "fresh"]
    assert [one.id for one in chat_model.rl_arenas("rl_few")] == every
    assert shares == [6, 12]


def test_other_rows_or_arenas_are_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SAMPLES_FILE", "ARENAS_FILE", "BUILT_QA", "TOOLS_FILE"):
        monkeypatch.setattr(chat_model, name, tmp_path / name)
    monkeypatch.setattr(chat_model, "load_codec", lambda config: None)
    settings = chat_model.Settings.of([])

    def found(part: str, *rows: int) -> str:
        monkeypatch.setattr(chat_model, "encoded", lambda *_: SimpleNamespace(rows=rows))
        monkeypatch.setattr(
            chat_model, "rl_arenas", lambda name: [SimpleNamespace(id=str(one)) for one in rows]
        )
        return chat_model.contents(part, settings, tmp_path)

    with pytest.raises(SystemExit, match=r"sft trains on .*SAMPLES_FILE.*dvc repro"):
        found("sft", 1)
    for name in ("SAMPLES_FILE", "ARENAS_FILE", "BUILT_QA", "TOOLS_FILE"):
        (tmp_path / name).touch()
    for part in ("sft", "rl"):
        assert found(part, 1, 2) == found(part, 1, 2) != found(part, 1, 3)


def test_the_newest_whole_checkpoint_is_kept_small_and_the_journal_goes_on(
    kept: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(SystemExit, match="no checkpoint yet"):
        chat_model.export("sft", folder, {"cpu_s": 1, "wall_s": 1})
    checkpoint(folder, 9)
    chat_model.export("sft", folder, {"cpu_s": 60, "wall_s": 70})
    checkpoint(folder, 10)
    checkpoint(folder, 11, whole=False)
    chat_model.export("sft", folder, {"cpu_s": 20, "wall_s": 30})
    found = load_file(kept / "sft/adapter_model.safetensors")["a"]
    assert found.tolist() == [10.0, 10.0]
    assert found.dtype == torch.bfloat16
    config = json.loads((kept / "sft/adapter_config.json").read_text())
    assert config == {"r": 8, "base_model_name_or_path": None}
    journal = json.loads((kept / "journal.json").read_text())["sft"]
    assert journal["parts"] == [
        {"run": "run", "cpu_s": 60, "wall_s": 70, "to_step": 9},
        {"run": "run", "cpu_s": 20, "wall_s": 30, "to_step": 10},
    ]
    assert journal["curves"]["loss"]["10"] == 3.3333
    assert journal["curves"]["rolled_reward"] == {"1": 0.25}


def test_cpu_seconds_count_children_that_have_ended() -> None:
    burn = "sum(range(10**7))"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{burn}']); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as child:
        process, used = psutil.Process(child.pid), 0.0
        while used < 0.05:
            used = chat_model.cpu_seconds(process)
        child.communicate(b"\n")
    assert chat_model.cpu_seconds(process) == 0.0, "a process that is gone"
