"""DeepSpeed's ZeRO-2 and ZeRO-3 in one process on the CPU, with the configurations that ship.

More ranks need GPUs: DeepSpeed finds no backend for several CPU processes under accelerate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes import TIMEOUT_S, last_json, run_python, script


def report(root: Path, folder: Path, stage: int) -> dict[str, Any]:
    pytest.importorskip("deepspeed", reason="deepspeed is not installed: pip install -e '.[gpu]'")
    launch = ["-m", "accelerate.commands.launch", "--num_processes", "1", "--config_file"]
    config = f"conf/accelerate/zero{stage}.yaml"
    return last_json(run_python(root, *launch, config, script(root, "zero_runs.py"), str(folder)))


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("stage", [2, 3])
def test_zero_trains_resumes_and_saves_the_whole_policy(
    root: Path, tmp_path: Path, stage: int
) -> None:
    made = report(root, tmp_path, stage)
    sft = made["sft"]
    # A trainer told to use the CPU would leave DeepSpeed out and say nothing.
    assert any(name.startswith("global_step") for name in sft["whole"]["files"])
    assert "optimizer.pt" in sft["plain"]["files"]
    assert "model.safetensors" in sft["whole"]["files"], "gathered where weights are spread"
    assert sft["whole"]["gathered"] == (stage == 3)
    assert sft["whole"]["losses"] == pytest.approx(sft["plain"]["losses"], rel=1e-3)
    assert sft["from_plain"] < 1e-5 < sft["from_start"]
    assert (sft["torn"]["steps"], sft["torn"]["losses"]) == (4, sft["whole"]["losses"])
    assert sft["from_torn"] == 0.0
    served = made["served"]
    assert served["whole"]["taken"] == ["version-0", "version-1", "version-2"]
    assert served["whole"]["gathered"] == (stage == 3)
    assert set(served["whole"]["dev"]) == {"before", "after"}
    assert served["whole"]["dev"] == served["plain"]["dev"]
    assert served["whole"]["dev"]["before"]["success"] == 1.0, "the server's script solves them"
    assert 0 < served["whole"]["rewards"][0] < 1
    assert served["whole"]["losses"] == pytest.approx(served["plain"]["losses"], rel=1e-3, abs=1e-5)
    assert not served["whole"]["faults"], "it computes what the trainer does, after every step"
    assert served["torn"]["taken"] == ["version-1", "version-2"], "a resume needs no first look"
    assert served["torn"]["dev"] == served["whole"]["dev"]
    assert served["from_plain"] < 1e-4 < served["from_start"]
    if stage == 3:
        assert "choose rl/engine=vllm" in made["rl"]["whole"]["refused"]
        return
    rl = made["rl"]
    assert any(name.startswith("global_step") for name in rl["whole"]["files"])
    assert rl["whole"]["losses"] == pytest.approx(rl["plain"]["losses"], rel=1e-3, abs=1e-5)
    assert rl["from_plain"] < 1e-5 < rl["from_start"]
    assert rl["torn"]["losses"] == rl["whole"]["losses"]
    assert rl["from_torn"] == 0.0
