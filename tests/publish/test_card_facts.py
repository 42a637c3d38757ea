"""What a card says beside its tables: meanings of names, tokens, what a template shows."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from astra.publish import glossary
from astra.publish.probes.load_policy import shown_documents
from astra.publish.record import PublishError
from astra.publish.registry import store_in_reach
from astra.publish.token_counts import _read
from astra.records.environment import Trait
from astra.records.qa import QuestionKind, Scenario
from astra.records.task import TaskKind
from astra.records.tool import Execution
from astra.records.world import GoalTrait


@pytest.mark.parametrize(
    ("names", "meanings"),
    [
        (Trait, glossary.TRAITS), (QuestionKind, glossary.QUESTION_KINDS),
        (GoalTrait, glossary.GOAL_TRAITS), (Scenario, glossary.SCENARIOS),
        (TaskKind, glossary.TASK_KINDS),
        (Execution, glossary.EXECUTIONS),
    ],
)  # fmt: skip
def test_every_name_of_an_enumeration_has_a_meaning(
    names: type[Trait], meanings: dict[str, str]
) -> None:
    assert set(meanings) == set(names)


def test_every_drop_of_the_committed_build_has_a_meaning(root: Path) -> None:
    for file in sorted((root / "metrics").glob("*.json")):
        assert set(json.loads(file.read_text())["dropped"]) <= set(glossary.DROPS), file


def test_what_training_read_counts_the_smaller_batch_that_ends_a_pass() -> None:
    kept = Counter(conversations=10, tokens=100, assistant_tokens=30)
    assert _read(kept, steps=3, batch_size=4) == {
        "conversations": 10, "tokens": 100, "assistant_tokens": 30, "passes": 1.0
    }  # fmt: skip
    assert _read(kept, steps=5, batch_size=4)["conversations"] == 18
    assert _read(kept, steps=1, batch_size=4)["passes"] == 0.4


def test_what_a_template_shows_of_a_tool_is_measured(root: Path) -> None:
    from transformers import AutoTokenizer

    from astra.rollout.chat import template_text

    tokenizer = AutoTokenizer.from_pretrained(root / "policies/tiny")
    assert shown_documents(tokenizer) == {
        "description_chars": 80, "whole": False, "lower_case": True, "parameters_described": False
    }  # fmt: skip
    tokenizer.chat_template = template_text("hermes")
    found = shown_documents(tokenizer)
    assert found["whole"]
    assert found["parameters_described"]
    assert not found["lower_case"]


@pytest.mark.slow
def test_an_mlflow_server_takes_what_was_pushed_alone(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}",
        "--artifacts-destination", str(tmp_path / "artifacts"),
    ]  # fmt: skip
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    uri, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300
    try:
        while True:
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        with pytest.raises(PublishError, match=r"takes no folder of this machine.*add --push"):
            store_in_reach(uri, pushed=False)
        store_in_reach(uri, pushed=True)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(timeout=30)
