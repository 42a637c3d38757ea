"""A stage's items on workers of a local Ray cluster: the same bytes, nothing paid twice, honest
ends. The cluster needs `pip install '.[ray]'`.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from chat_server import Answer, ChatServer

try:
    import ray
except ImportError:
    ray: Any = None

needs_ray = pytest.mark.skipif(
    ray is None, reason="ray is not installed: pip install '.[ray]' to test stages on workers"
)
PACKAGES = f"{Path(__file__).parents[2] / 'src'}:{Path(__file__).parent}"
COUNT = 60
STAGE = """
from shared_words import main

from astra.stage import run_stage

if __name__ == "__main__":
    run_stage("words", main)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of this machine alone."""
    os.environ["PYTHONPATH"] = PACKAGES
    ray.init(num_cpus=1, log_to_driver=False, include_dashboard=False, address="local")
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


class Workspace:
    """A folder with stage ``words``."""

    def __init__(self, folder: Path, url: str, **runtime: Any) -> None:
        self.folder = folder
        (folder / "stages").mkdir(parents=True)
        (folder / "stages/words.py").write_text(STAGE)
        dvc = {"stages": {"words": {"cmd": "-", "deps": ["stages/words.py"]}}}
        (folder / "dvc.yaml").write_text(yaml.safe_dump(dvc))
        self.set(url, **runtime)

    def set(self, url: str, poison: int = -1, **runtime: Any) -> None:
        params = {
            "words": {"teacher": {"backend": "openai", "model": "m", "max_tokens": 10},
                      "count": COUNT, "poison": poison},
            "runtime": {"endpoints": [{"base_url": url, "api_key_env": ""}], "concurrency": 4,
                        "request_timeout_s": 20.0, **runtime},
        }  # fmt: skip
        (self.folder / "params.yaml").write_text(yaml.safe_dump(params))

    def start(self, cluster: str = "") -> subprocess.Popen[str]:
        kept = {"ASTRA_CACHE": str(self.folder / "cache"), "RAY_ADDRESS": cluster,
                "MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "PYTHONPATH": PACKAGES}  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "stages/words.py"],
            cwd=self.folder, env={**os.environ, **kept}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, cluster: str = "") -> tuple[int, str]:
        stage = self.start(cluster)
        _, said = stage.communicate(timeout=240)
        return stage.returncode, said

    def made(self) -> dict[str, bytes]:
        files = [*self.folder.glob("data/**/*.parquet"), *self.folder.glob("metrics/*"),
                 *self.folder.glob("plots/**/*.csv")]  # fmt: skip
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in files}

    def committed(self) -> int:
        with closing(sqlite3.connect(self.folder / "cache/answers.sqlite")) as connection:
            return connection.execute("SELECT COUNT(*) FROM answers").fetchone()[0]


class WordServer(ChatServer):
    """Answers with a word for each prompt, after a delay; keeps the time of every request."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.times: list[float] = []
        self._delay_s = delay_s
        super().__init__(default=self._word)

    def _word(self, body: dict[str, Any]) -> Answer:
        self.times.append(time.monotonic())
        said = body["messages"][0]["content"].split(".")[0].lower()
        return Answer(json.dumps({"word": said}), delay_s=self._delay_s)


def asked(server: WordServer) -> Counter[str]:
    return Counter(body["messages"][0]["content"].split(".")[0] for body in server.requests)


def workers_of(stage: subprocess.Popen[str], cluster: str) -> list[int]:
    """The worker processes of the cluster that run a stage."""
    return [
        one.pid
        for one in psutil.process_iter(["cmdline"])
        if "StageWorker" in " ".join(one.info["cmdline"] or ())
        and str(os.getpid()) in {str(parent.pid) for parent in one.parents()}
    ]


@pytest.mark.skipif(ray is not None, reason="ray is installed")
def test_without_ray_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    with WordServer() as server:
        status, said = Workspace(tmp_path / "w", server.url, stage_workers=2).run()
    assert status == 1
    assert "pip install '.[ray]'" in said
    assert "Traceback" not in said


@needs_ray
@pytest.mark.slow
def test_two_workers_make_the_same_bytes_and_ask_no_more(tmp_path: Path, cluster: str) -> None:
    with WordServer() as server:
        alone = Workspace(tmp_path / "alone", server.url)
        assert alone.run()[0] == 0
        by_one = asked(server)
        server.requests.clear()
        shared = Workspace(tmp_path / "shared", server.url, stage_workers=2)
        status, said = shared.run(cluster)
    assert status == 0, said
    assert shared.made() == alone.made()
    assert len(shared.made()) == 4  # words, rejections, metrics, one plot
    # Equal asks of two workers are sent once.
    assert asked(server) == by_one == Counter(by_one.keys())
    assert f"{len(by_one)} answered" in said  # the run log is one, with the counts of all
    usage = (shared.folder / "runs/usage.jsonl").read_text().splitlines()
    assert [json.loads(line)["answers"] for line in usage] == [len(by_one)]


@needs_ray
@pytest.mark.slow
def test_a_killed_worker_costs_no_committed_answer(tmp_path: Path, cluster: str) -> None:
    with WordServer(delay_s=0.25) as server:
        alone = Workspace(tmp_path / "alone", server.url)
        assert alone.run()[0] == 0
        server.requests.clear()
        shared = Workspace(tmp_path / "shared", server.url, stage_workers=2)
        stage = shared.start(cluster)
        deadline = time.monotonic() + 120
        while len(server.requests) < 12 and time.monotonic() < deadline:
            time.sleep(0.02)
        victim, *others = workers_of(stage, cluster)
        assert len(others) == 1
        os.kill(victim, signal.SIGKILL)
        _, said = stage.communicate(timeout=240)
    assert stage.returncode == 0, said
    assert shared.made() == alone.made()
    assert "is lost" in said
    assert "go to others" in said
    # Asked again is what the killed worker had in flight, and no more than its places.
    again = sum(asked(server).values()) - len(asked(server))
    assert 1 <= again <= 4
    assert shared.committed() == len(asked(server))


@needs_ray
@pytest.mark.slow
def test_a_cap_holds_over_all_workers_together(tmp_path: Path, cluster: str) -> None:
    with WordServer(delay_s=0.05) as server:
        shared = Workspace(
            tmp_path / "w", server.url, stage_workers=2, budget={"stage": {"requests": 20}}
        )
        status, said = shared.run(cluster)
        assert status == 1
        assert "raise runtime.budget.stage.requests" in said
        assert len(server.requests) == 20 == shared.committed()


@needs_ray
@pytest.mark.slow
def test_a_rate_limit_holds_over_all_workers_together(tmp_path: Path, cluster: str) -> None:
    with WordServer() as server:
        shared = Workspace(tmp_path / "w", server.url, stage_workers=2)
        document = yaml.safe_load((shared.folder / "params.yaml").read_text())
        document["runtime"]["endpoints"][0]["requests_per_minute"] = 600
        (shared.folder / "params.yaml").write_text(yaml.safe_dump(document))
        status, said = shared.run(cluster)
        assert status == 0, said
        lasted = server.times[-1] - server.times[0]
        assert lasted >= 0.1 * (len(server.times) - 1) - 0.3


@needs_ray
@pytest.mark.slow
def test_an_item_that_kills_its_workers_is_named(tmp_path: Path, cluster: str) -> None:
    with WordServer(delay_s=0.05) as server:
        shared = Workspace(tmp_path / "w", server.url)
        shared.set(server.url, poison=17, stage_workers=1)
        status, said = shared.run(cluster)
        assert status == 1
        assert "3 workers of stage words were lost while they worked on" in said
        assert " 17" in said.rsplit("worked on", 1)[1]
        assert "Traceback" not in said
        before = len(server.requests)
        shared.set(server.url, stage_workers=1)
        assert shared.run(cluster)[0] == 0
        assert set(asked(server).values()) <= {1, 2, 3}
        assert len(server.requests) - before <= COUNT


def test_a_worker_with_other_inputs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astra.workers.inputs import WorkersError, require_same, stage_inputs

    with WordServer() as server:
        shared = Workspace(tmp_path / "w", server.url, stage_workers=1)
    monkeypatch.chdir(shared.folder)
    own = stage_inputs("words", "{}")
    (shared.folder / "stages/words.py").write_text("main = None\n")
    with pytest.raises(WorkersError, match=r"inputs as this machine has them: stages/words\.py "):
        require_same(own, stage_inputs("words", "{}"), "there")
    with pytest.raises(WorkersError, match="has no stage 'other'"):
        stage_inputs("other", "{}")
