"""A run of a suite: drawn, played in a process of its own, resumed, scored whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from made_up import add, made_up
from mlflow.utils.validation import _validate_metric_name

from astra import plugins
from astra.bench import suites as suites_package
from astra.bench.bench import play_suites
from astra.bench.harness.play import checked, draw, run_suite
from astra.bench.harness.process import converse
from astra.bench.harness.protocol import (
    DriverProcess,
    DriverRequest,
    Entry,
    ModelEndpoint,
    Sample,
    Subject,
    SuiteConfig,
    SuiteError,
    find_suite,
)
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn, Writer
from astra.bench.summary import run_metrics
from astra.records.bench import SuiteEpisode, SuiteOutcome, SuiteRun
from astra.records.score import Scored
from astra.store.tables import read_records
from astra.tracking.mlflow import Run

Use = Callable[..., None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Use:
    """Make a suite of this behaviour known."""
    folder = tmp_path_factory.mktemp("suites")

    def put(behaviour: str = "good", **fields: Any) -> None:
        add(monkeypatch, folder, made_up(behaviour, **fields))

    put()
    return put


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astra.bench.harness.relay.PAUSE_S", 0.01)


def right(entry: str, body: dict[str, Any]) -> ScriptedTurn:
    return ScriptedTurn(content="1")


def run(write: Writer, root: Path, **fields: Any) -> tuple[SuiteRun, list[SuiteEpisode]]:
    with ScriptedServer(write) as server:
        subject = Subject("sft", server.endpoint, "weights")
        return run_suite(SuiteConfig(name="made_up", **fields), subject, root)


def score(episode: SuiteEpisode) -> float:
    found = episode.scores["accuracy"]
    assert isinstance(found, Scored)
    return found.value


def test_a_whole_run_is_scored_and_says_how_it_was_measured(use: Use, tmp_path: Path) -> None:
    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        assert body["model"] == "scripted"  # the endpoint's name, whatever the driver said
        return ScriptedTurn(content="1" if entry.startswith("a") else "0")

    found, episodes = run(write, tmp_path, tries=2, decoding={"temperature": 0.6, "top_k": 20})
    assert len(episodes) == 40
    assert sum(map(score, episodes)) == 20
    assert {(one.checkpoint, one.suite, one.steps) for one in episodes} == {("sft", "made_up", 1)}
    assert all(one.prompt_tokens and one.completion_tokens and one.messages for one in episodes)
    assert (found.sample_count, found.sample_of, found.tries) == (20, 20, 2)
    assert found.versions == {"made_up": "1"}
    assert found.decoding["top_k"] == 20
    assert found.outcomes == {"scored": 40}


def test_a_sample_is_seeded_and_keeps_the_shares_of_categories() -> None:
    entries = [Entry(id=f"{c}{i}", category=c) for c, n in (("x", 60), ("y", 20)) for i in range(n)]
    drawn = draw(entries, Sample(count=20, seed=1))
    assert Counter(entry.category for entry in drawn) == {"x": 15, "y": 5}
    assert drawn == draw(list(reversed(entries)), Sample(count=20, seed=1))
    assert drawn != draw(entries, Sample(count=20, seed=2))
    assert len(draw(entries, Sample())) == 80
    assert {entry.category for entry in draw(entries, Sample(count=2))} == {"x", "y"}


def test_a_sample_may_take_as_many_of_each_category() -> None:
    entries = [Entry(id=f"{c}{i}", category=c) for c, n in (("x", 60), ("y", 20)) for i in range(n)]
    drawn = draw(entries, Sample(per_category=30, seed=1))
    assert Counter(entry.category for entry in drawn) == {"x": 30, "y": 20}
    assert drawn == draw(list(reversed(entries)), Sample(per_category=30, seed=1))
    assert drawn != draw(entries, Sample(per_category=30, seed=2))
    fewer = draw(entries, Sample(per_category=10, seed=1))
    assert {entry.id for entry in fewer} < {entry.id for entry in drawn}
    with pytest.raises(ValueError, match="not both"):
        Sample(count=3, per_category=3)


def test_mlflow_takes_the_figures_of_any_suite(use: Use, tmp_path: Path) -> None:
    found, episodes = run(right, tmp_path)
    odd = "Physics (general), R&D + π"
    renamed = [one.model_copy(update={"category": odd}) for one in episodes]
    figures = run_metrics(found, renamed)
    assert figures["made_up.accuracy"] == 1
    assert figures["made_up.by_category.Physics _general__ R_D _ π"] == 1
    assert figures["made_up.steps"] == 1
    for name in figures:
        _validate_metric_name(name)


def test_an_overflow_is_the_models_failure_and_counted(use: Use, tmp_path: Path) -> None:
    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        if entry == "a_3":
            return ScriptedTurn(
                status=400, error="This model's maximum context length is 2048 tokens."
            )
        return ScriptedTurn(content="1")

    found, episodes = run(write, tmp_path)
    assert found.outcomes == {"overflow": 1, "scored": 19}
    assert sum(map(score, episodes)) == 19


def test_an_endpoint_that_dies_gives_no_score_and_a_run_to_resume(use: Use, tmp_path: Path) -> None:
    asked: list[str] = []
    with ScriptedServer(right) as server:
        port = server.endpoint

        def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
            asked.append(entry)
            if len(asked) > 7:
                return ScriptedTurn(status=503, error="shutting down")
            return ScriptedTurn(content="1")

        server.write = write
        config = SuiteConfig(name="made_up")
        with pytest.raises(SuiteError, match=r"after 7 of 20 attempts and has no score.*resume"):
            run_suite(config, Subject("sft", port, "weights"), tmp_path)
        done = set(asked[:7])
        asked.clear()
        server.write = lambda entry, body: (asked.append(entry), ScriptedTurn(content="1"))[1]
        found, episodes = run_suite(config, Subject("sft", port, "weights"), tmp_path)
        assert found.outcomes == {"scored": 20}
        assert len(asked) == 13
        assert not done & set(asked)
        # Another checkpoint has nothing in the journal, whatever its name.
        asked.clear()
        run_suite(config, Subject("sft", port, "other weights"), tmp_path)
        assert len(asked) == 20
        assert len({episode.id for episode in episodes}) == 20


def test_a_server_that_is_gone_fails_the_run(use: Use, tmp_path: Path) -> None:
    with ScriptedServer(right) as server:
        endpoint = server.endpoint
    with pytest.raises(SuiteError, match="does not answer"):
        run_suite(SuiteConfig(name="made_up"), Subject("rl", endpoint, ""), tmp_path)


def test_lost_attempts_are_no_wrong_answers_and_are_played_again(use: Use, tmp_path: Path) -> None:
    broken = True

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        return (
            ScriptedTurn(status=418, error="no tea")
            if broken and entry == "b_2"
            else ScriptedTurn(content="1")
        )

    with pytest.raises(SuiteError, match=r"lost 1 of 20 attempts.*b_2"):
        run(write, tmp_path)
    found, episodes = run(write, tmp_path, max_infra_share=0.05)
    assert found.outcomes == {"infra": 1, "scored": 19}
    (lost,) = [one for one in episodes if one.outcome == SuiteOutcome.INFRA]
    assert lost.scores == {}
    assert "no tea" in lost.reason
    broken = False
    assert run(write, tmp_path)[0].outcomes == {"scored": 20}


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("dies", "a simulator broke"),
        ("cut", "ended before it was done"),
        ("twice", "answered before"),
        ("invents", "was not asked"),
        ("chatty", "hello from a library"),
    ],
)
def test_a_driver_that_breaks_the_protocol_gives_no_score(
    use: Use, tmp_path: Path, behaviour: str, said: str
) -> None:
    use(behaviour)
    with pytest.raises(SuiteError, match=said):
        run(right, tmp_path)


def test_a_harness_that_crashes_is_no_failure_of_the_model_and_its_run_resumes(
    use: Use, tmp_path: Path
) -> None:
    asked: list[str] = []

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        asked.append(entry)
        return ScriptedTurn(content="0" if entry == "a_1" else "1")

    use("dies")
    with pytest.raises(SuiteError, match=r"after 4 of 20 attempts and has no score.*code 3"):
        run(write, tmp_path)
    done = set(asked)
    asked.clear()
    use()
    found, episodes = run(write, tmp_path)
    assert len(done) == 4
    assert not done & set(asked)
    assert found.outcomes == {"scored": 20}  # nothing of the crash is in the scores
    assert sum(map(score, episodes)) == 19


def test_a_silent_driver_is_ended(use: Use, tmp_path: Path) -> None:
    use("silent")
    with pytest.raises(SuiteError, match="said nothing for 2 s"):
        run(right, tmp_path, entry_timeout_s=2.0)


def test_scores_outside_of_their_range_are_refused(use: Use, tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="no accuracy in \\[0, 1\\]"):
        run(lambda entry, body: ScriptedTurn(content="7"), tmp_path)


def test_keys_stay_in_the_relay(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use("leaky")
    with ScriptedServer(right) as server:
        endpoint = ModelEndpoint(
            base_url=server.endpoint.base_url, model="m", api_key_env="SUITE_TEST_KEY"
        )
        subject = Subject("sft", endpoint, "")
        with pytest.raises(SuiteError, match="SUITE_TEST_KEY, which is not set"):
            run_suite(SuiteConfig(name="made_up"), subject, tmp_path)
        monkeypatch.setenv("SUITE_TEST_KEY", "sk-of-the-relay")
        episodes = run_suite(SuiteConfig(name="made_up"), subject, tmp_path)[1]
        assert server.keys == {"Bearer sk-of-the-relay"}
        assert "PATH" in episodes[0].reason  # the driver did say what it has
        assert "sk-of-the-relay" not in episodes[0].reason


def test_roles_and_names_are_checked_before_any_work(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(roles=("user",))
    with pytest.raises(SuiteError, match=r"needs endpoints for the roles \['user'\]"):
        run(right, tmp_path)
    monkeypatch.undo()
    with pytest.raises(plugins.PluginError, match=r"no module 'nothing'; there are: .*bfcl, "):
        checked(SuiteConfig(name="nothing"))
    with pytest.raises(plugins.PluginError, match=r"bfcl.mode.*'fc' or 'prompt'"):
        checked(SuiteConfig(name="bfcl", options={"mode": "text"}))
    with pytest.raises(plugins.PluginError, match=r"categoriez.*Its options: mode, categories"):
        checked(SuiteConfig(name="bfcl", options={"categoriez": ["base"]}))


def test_every_suite_is_named_as_its_file() -> None:
    names = plugins.names(suites_package)
    assert {"bfcl", "tau2"} <= set(names)
    assert [find_suite(name).name for name in names] == names


def test_the_page_of_benchmarks_names_every_suite_and_its_official_checker(root: Path) -> None:
    page = (root / "docs/benchmarks.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name in plugins.names(suites_package):
        described = next(row for row in rows if row.startswith(f"| `{name}` |"))
        assert find_suite(name).checker in described


def test_the_stage_writes_a_table_per_suite_and_checkpoint(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASTRA_CACHE", str(tmp_path / "cache"))
    served: list[str] = []

    @contextmanager
    def serving(checkpoint: str) -> Generator[Subject]:
        served.append(checkpoint)
        text = "0" if checkpoint == "floor" else "1"
        with ScriptedServer(lambda entry, body: ScriptedTurn(content=text)) as server:
            yield Subject(checkpoint, server.endpoint, checkpoint)

    suites = [
        SuiteConfig(name="made_up", label="one"),
        SuiteConfig(name="made_up", label="two", sample=Sample(count=4)),
    ]
    folder = tmp_path / "suites"

    def tracked(checkpoint: str) -> AbstractContextManager[Run]:
        return nullcontext(Run(None, checkpoint, ""))

    runs = play_suites(suites, serving, ["floor", "rl"], folder, tracked)
    assert served == ["floor", "rl"]  # once for all suites
    assert len(runs) == 4
    for name, mean in (("floor", 0.0), ("rl", 1.0)):
        rows = list(read_records(folder / "two" / f"{name}.parquet", SuiteEpisode))
        assert [score(row) for row in rows] == [mean] * 4
        text = (folder / "two" / f"{name}.json").read_text(encoding="utf-8")
        assert SuiteRun.model_validate_json(text).sample_count == 4
    with pytest.raises(SuiteError, match="label twice"):
        play_suites([suites[0], suites[0]], serving, ["sft"], folder, tracked)
    play_suites([], serving, ["sft"], folder, tracked)
    assert list(folder.iterdir()) == []  # nothing of a former run is left


def test_a_driver_that_is_not_there_says_so() -> None:
    driver = DriverProcess(("/nowhere/python",), caged=True)
    endpoint = ModelEndpoint(base_url="http://127.0.0.1:9/v1", model="m")
    with pytest.raises(SuiteError, match=r"cannot start /nowhere/python|no cage can be built"):
        list(converse(driver, DriverRequest(task="list", config={}), {"model": endpoint}))
