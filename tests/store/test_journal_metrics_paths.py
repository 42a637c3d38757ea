from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from astra.records.score import Rejection
from astra.store.journal import Journal
from astra.store.metrics import StageMetrics, write_json
from astra.store.paths import cache_root, repository_root


def test_a_journal_keeps_json_across_processes(tmp_path: Path) -> None:
    journal = Journal("calls", tmp_path)
    assert journal.get("k") is None
    journal.put("k", {"a": [1, None]})
    journal.put("k", {"a": [2, None]})
    journal.close()
    assert Journal("calls", tmp_path).get("k") == {"a": [2, None]}
    with pytest.raises(ValueError, match="null"):
        Journal("calls", tmp_path).put("n", None)


def test_a_replayed_result_has_its_keys_in_the_order_in_which_it_came(tmp_path: Path) -> None:
    near_first = {"value": {"pier": 2.9, "bridge": 6.4, "airport": 30.1}, "status": "ok"}
    with Journal("calls", tmp_path) as journal:
        journal.put("k", near_first)
        assert json.dumps(journal.get("k")) == json.dumps(near_first)
        with pytest.raises(ValueError, match="JSON compliant"):
            journal.put("n", {"share": float("nan")})


def test_several_processes_open_and_write_one_journal(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(root / "src"))
    code = (
        "import sys; from pathlib import Path; from astra.store.journal import Journal\n"
        "j = Journal('calls', Path(sys.argv[1]))\n"
        "for n in range(40): j.put(f'{sys.argv[2]}-{n}', n)"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)]) for n in range(4)
    ]
    assert [child.wait() for child in children] == [0] * 4
    journal = Journal("calls", tmp_path)
    assert all(journal.get(f"{n}-{m}") == m for n in range(4) for m in range(40))


def test_metrics_hold_counts_drops_and_plots_of_this_run_only(tmp_path: Path) -> None:
    stale = tmp_path / "plots" / "tasks" / "old.csv"
    stale.parent.mkdir(parents=True)
    stale.write_text("old")
    metrics = StageMetrics("tasks")
    metrics.count("in", 3)
    metrics.count("out")
    metrics.reject(Rejection(item="b", reason="duplicate"))
    metrics.reject(Rejection(item="c", reason="duplicate"))
    metrics.distribution("hops", [10, 9, 10, "many"])
    metrics.value("mean", 0.5)
    metrics.plot("loss", ["step", "loss"], iter([(1, 0.5), (2, 0.25)]))
    metrics.write(tmp_path / "metrics", tmp_path / "plots")
    document = json.loads((tmp_path / "metrics" / "tasks.json").read_text())
    assert document == {"in": 3, "out": 1, "dropped": {"duplicate": 2}, "mean": 0.5}
    assert not stale.exists()
    assert (tmp_path / "plots/tasks/hops.csv").read_text() == "value,count\n9,1\n10,2\nmany,1\n"
    assert (tmp_path / "plots/tasks/loss.csv").read_text() == "step,loss\n1,0.5\n2,0.25\n"


def test_failed_tries_are_counted_apart_from_drops() -> None:
    metrics = StageMetrics("tasks")
    seen: list[int] = []
    metrics.on_count = lambda: seen.append(1)
    metrics.reject(Rejection(item="b", reason="garbled", final=False))
    assert metrics.document() == {"dropped": {}, "tries": {"garbled": 1}}
    metrics.reject(Rejection(item="b", reason="garbled", attempt=1))
    assert metrics.document() == {"dropped": {"garbled": 1}, "tries": {"garbled": 1}}
    assert len(seen) == 2
    for name in ("dropped", "tries"):
        with pytest.raises(ValueError, match=name):
            metrics.value(name, {})


def test_nan_is_no_metric_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]


def test_a_value_may_not_hide_a_count() -> None:
    metrics = StageMetrics("tasks")
    metrics.count("out")
    with pytest.raises(ValueError, match="out"):
        metrics.value("out", 5)
    metrics.value("mean", 1)
    with pytest.raises(ValueError, match="mean"):
        metrics.count("mean")


def test_the_root_is_the_original_repository_also_in_a_temporary_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    workspace = repository / ".dvc" / "tmp" / "exps" / "standalone" / "tmpabc"
    (workspace / "src").mkdir(parents=True)
    (workspace / "dvc.yaml").touch()
    (repository / "dvc.yaml").touch()
    monkeypatch.delenv("ASTRA_CACHE", raising=False)
    monkeypatch.setenv("DVC_ROOT", str(workspace))
    assert repository_root() == repository
    monkeypatch.setenv("DVC_ROOT", str(repository))
    assert repository_root() == repository
    monkeypatch.delenv("DVC_ROOT")
    monkeypatch.chdir(repository / ".dvc")
    assert repository_root() == repository
    monkeypatch.chdir(workspace / "src")
    assert repository_root() == repository
    assert cache_root() == repository / ".astra"
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "elsewhere"))
    assert cache_root() == tmp_path / "elsewhere"
    assert cache_root().is_dir()
