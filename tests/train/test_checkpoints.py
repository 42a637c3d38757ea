import copy
import logging
import threading
import time
from pathlib import Path

import pytest
import torch
import yaml
from pydantic import ValidationError

from astra.settings import ParamsError, load
from astra.train.checkpoints import (
    STATE_FILE,
    claim,
    mark_finished,
    optimizer_files,
    resume_point,
    run_folder,
    start_afresh_if_finished,
)
from astra.train.errors import TrainingError
from astra.train.optimizers import MuonAdamW
from astra.train.rl_config import RLConfig
from configs import block, changed, sft_config


def checkpoint(folder: Path, step: int, optimizer: bool, whole: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").touch()
    if optimizer:
        (path / "optimizer.pt").touch()
    if whole:
        (path / STATE_FILE).write_text("{}")
    return path


def test_resume_takes_the_newest_checkpoint(tmp_path: Path) -> None:
    assert resume_point(tmp_path) is None
    checkpoint(tmp_path, 90, optimizer=False)
    newest = checkpoint(tmp_path, 100, optimizer=True)
    assert resume_point(tmp_path) == str(newest)


def test_resume_without_optimizer_state_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5, optimizer=True)
    checkpoint(tmp_path, 10, optimizer=False)
    with pytest.raises(TrainingError, match=r"checkpoint-10: its optimizer state is missing"):
        resume_point(tmp_path)


def test_who_trains_the_same_at_the_same_time_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two workers of a queue, say, whose experiments differ in the benchmark only."""
    folder = tmp_path / "runs" / "rl" / "key"
    caplog.set_level(logging.INFO, logger="astra")
    entered, leave = threading.Event(), threading.Event()

    def later() -> None:
        with claim(folder):
            entered.set()
            leave.wait(60)

    other = threading.Thread(target=later, daemon=True)
    with claim(folder) as claimed:
        assert claimed == folder
        other.start()
        deadline = time.monotonic() + 60
        while "waiting" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
        assert str(folder) in caplog.text
        assert not entered.is_set()
    assert entered.wait(60)
    leave.set()
    other.join(60)


@pytest.mark.parametrize("fault", [TrainingError("no"), KeyboardInterrupt()])
def test_a_run_is_finished_unless_an_error_ends_it(tmp_path: Path, fault: BaseException) -> None:
    folder = tmp_path / "runs" / "sft" / "key"
    newest = checkpoint(folder, 5, optimizer=True)

    def failing() -> None:
        with claim(folder):
            raise fault

    with pytest.raises(type(fault)):
        failing()
    start_afresh_if_finished(folder)
    assert resume_point(folder) == str(newest)
    with claim(folder):  # free again
        pass
    start_afresh_if_finished(folder)
    assert resume_point(folder) is None


def test_a_later_rank_claims_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with claim(tmp_path / "runs" / "key") as folder:
        assert folder == tmp_path / "runs" / "key"
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_starts_afresh(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5, optimizer=True)
    mark_finished(tmp_path)
    start_afresh_if_finished(tmp_path)
    assert resume_point(tmp_path) is None
    assert not tmp_path.exists()


def test_what_a_kill_left_torn_is_deleted_and_the_one_before_resumes(tmp_path: Path) -> None:
    whole = checkpoint(tmp_path, 100, optimizer=True)
    torn = checkpoint(tmp_path, 110, optimizer=True, whole=False)
    assert resume_point(tmp_path) == str(whole)
    assert not torn.exists()


def test_sharded_optimizer_state_counts(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 5, optimizer=False)
    (path / "global_step5").mkdir()
    assert optimizer_files(path) == [path / "global_step5"]


def test_run_folder_depends_on_parameters_and_data() -> None:
    a = sft_config()
    b = a.model_copy(update={"seed": 1})
    folders = {
        run_folder("sft", config, {"data": digest}) for config in (a, b) for digest in ("x", "y")
    }
    assert len(folders) == 4


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"reward": "f3"}, r"rl\.reward: .*'f1', 'recall', 'precision', 'answer' or 'state'"),
        ({"final_answer": "maybe"}, r"rl\.final_answer: .*'subtask' or 'ignore'"),
        ({"irrelevant_tools": "all"}, r"'banded', 'random' or 'none'"),
        ({"roc": {"mode": "best"}}, r"rl\.roc\.mode: .*'off', 'sample' or 'sort'"),
        ({"groups": 3, "micro_batch_size": 7}, r"multiple of micro_batch_size"),
        ({"learning_rat": 1}, r"rl\.learning_rat"),
        ({"steps": 0}, r"rl\.steps"),
    ],
)
def test_bad_parameters_are_named_with_what_is_allowed(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump({"rl": changed(block("rl"), changes)}))
    with pytest.raises(ParamsError, match=named):
        load("rl", RLConfig, params)


def test_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ValidationError, match="'adamw' or 'muon'"):
        sft_config(optimizer="lion")


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.ModuleDict(
        {"embed_tokens": torch.nn.Embedding(8, 4), "layer": torch.nn.Linear(4, 4)}
    )


def step(model: torch.nn.Module, optimizer: MuonAdamW) -> None:
    hidden = model["embed_tokens"](torch.arange(8))  # type: ignore[index,operator]
    model["layer"](hidden).pow(2).sum().backward()  # type: ignore[index,operator]
    optimizer.step()
    optimizer.zero_grad()


def test_muon_takes_hidden_matrices_only_and_schedules_reach_both_parts() -> None:
    model = net()
    optimizer = MuonAdamW(model, muon_lr=0.1, adamw_lr=0.01)
    muon, adamw = optimizer.param_groups
    assert [tuple(p.shape) for p in muon["params"]] == [(4, 4)]
    assert sorted(tuple(p.shape) for p in adamw["params"]) == [(4,), (8, 4)]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.0 if s else 1.0)
    step(model, optimizer)
    schedule.step()
    before = [p.clone() for p in model.parameters()]
    step(model, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_optimizer_state_survives_a_checkpoint() -> None:
    first, second = net(), net()
    a, b = MuonAdamW(first, 0.1, 0.01), MuonAdamW(second, 0.1, 0.01)
    step(first, a)
    second.load_state_dict(first.state_dict())
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    step(first, a)
    step(second, b)
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right)
