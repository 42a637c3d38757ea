"""Arenas over an endpoint: the scores of the in-process path, and servers that die."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from test_bench_arenas import ARENAS, RUNTIME, config, of, play
from test_bench_arenas import store as store
from test_bench_arenas import workspace as workspace
from test_vllm import fake_vllm as fake_vllm

from astra.arena.irrelevant import IrrelevantMode
from astra.bench import arenas as in_process
from astra.bench.arenas import BenchError, job_of
from astra.bench.bench import run_arenas
from astra.bench.checkpoints import native_policy, policies, prompting
from astra.bench.config import BenchConfig
from astra.bench.harness import relay
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn, Writer, idle
from astra.bench.harness.served import Checkpoints, ServedCheckpoints
from astra.bench.progress import BenchProgress
from astra.bench.served_arenas import play_served
from astra.records.bench import BenchEpisode, EpisodeClass
from astra.records.trajectory import StopReason
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_codec, template_text
from astra.sandbox.protocol import Sandbox
from astra.serving.main import ServeConfig
from configs import block

JOBS = [job_of(arena, IrrelevantMode.BANDED, 1, 0) for arena in ARENAS]


def served(
    endpoint: Any, sandbox: Sandbox, settings: BenchConfig, name: str = "rl"
) -> list[BenchEpisode]:
    with closing(BenchProgress("episodes", len(JOBS), 1)) as progress:
        return play_served(name, JOBS, endpoint, sandbox, settings, progress)


def test_a_served_checkpoint_plays_as_in_process(
    root: Path, policy: LoadedPolicy, sandbox: Sandbox, tmp_path: Path
) -> None:
    codec = policy.codec
    limits = config(root).limits.model_dump()
    several = [
        config(root, limits={**limits, "max_response_tokens": most}) for most in (300, 90, 40)
    ]
    ours: list[BenchEpisode] = []
    for settings in several:
        engine = BatchedEngine(policy.model, codec.eos_id, codec.pad_id, settings.engine_rows)
        with closing(BenchProgress("episodes", len(JOBS), 1)) as progress:
            ours += in_process.play_jobs("rl", JOBS, engine, codec, sandbox, settings, progress)
    folder = tmp_path / "rl"
    shutil.copytree(root / "policies/tiny", folder)
    model: Any = policy.model
    model.save_pretrained(folder)
    saved = PolicyConfig.saved(str(folder), "float32")
    options = ServeConfig(policy=saved, name="rl", device="cpu", **block("bench")["serving"])
    with ServedCheckpoints({"rl": options})("rl") as subject:
        theirs = [
            one for settings in several for one in served(subject.endpoint, sandbox, settings)
        ]
        assert subject.prompting == prompting(codec)
        assert subject.prompting["template"] == "compact"
    assert [one.scores for one in theirs] == [one.scores for one in ours]
    assert [one.outcome for one in theirs] == [one.outcome for one in ours]
    assert [one.stop_reason for one in theirs] == [one.stop_reason for one in ours]
    assert {one.outcome for one in ours} >= {EpisodeClass.SUCCESS, EpisodeClass.UNFINISHED}


def test_what_a_dead_server_loses_is_infra_and_too_much_of_it_no_score(
    root: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "PAUSE_S", 0.01)
    said = r"lost 4 of 10 .*0\.0%.*first in arena .*not answer"
    with ScriptedServer(_dies_after(6)) as server, pytest.raises(BenchError, match=said):
        served(server.endpoint, sandbox, config(root, engine_rows=1, max_infra_share=0.0))
    with ScriptedServer(_dies_after(6)) as server:
        played = served(server.endpoint, sandbox, config(root, engine_rows=1, max_infra_share=0.4))
    assert [one.outcome == EpisodeClass.INFRA for one in played] == [False] * 6 + [True] * 4
    assert all(one.scores == {} for one in played[6:])
    assert all(one.scores["f1"] for one in played[:6])


def _dies_after(replies: int) -> Writer:
    given = [0]

    def write(entry: str, body: Mapping[str, Any]) -> ScriptedTurn:
        given[0] += 1
        return idle(entry, dict(body)) if given[0] <= replies else ScriptedTurn(status=503)

    return write


def test_a_fault_that_passes_is_played_again(root: Path, sandbox: Sandbox) -> None:
    refused: list[str] = []

    def write(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        if len(refused) < 3:
            refused.append(entry)
            return ScriptedTurn(status=400, error="a bad day")
        return idle(entry, body)

    with ScriptedServer(write) as server:
        played = served(server.endpoint, sandbox, config(root, max_infra_share=0.0))
    assert len(played) == len(JOBS)


def test_checkpoints_that_conf_names_servers_for_are_not_loaded(
    root: Path, workspace: Path
) -> None:
    with ScriptedServer(idle) as server:
        endpoint = server.endpoint.model_dump()
        names = ("base", "base_native", "sft", "rl")
        # The scripted server counts characters.
        room = config(root).limits.model_dump() | {"max_prompt_tokens": 10**5}
        played = play(
            root, workspace, endpoints=dict.fromkeys((*names, "closed"), endpoint), limits=room
        )
        assert server.requests == len(names) * len(ARENAS)
    assert {one.checkpoint for one in played} == {"floor", "ceiling", *names}
    assert of(played, "rl")[0].scores == of(played, "floor")[0].scores


def test_with_engine_vllm_every_checkpoint_is_served(root: Path) -> None:
    large = config(root, serving={"engine": "vllm", "rows": 1, "keep_mb": 0})
    found = Checkpoints(large, RUNTIME, {"sft": Path("models/sft")})
    assert all(found.serves(name) for name in found.policies)
    assert list(found.policies) == ["base", "sft"]
    assert not Checkpoints(config(root), RUNTIME, {}).serves("base")


def test_vllm_plays_the_arenas_token_by_token(root: Path, workspace: Path, fake_vllm: Path) -> None:
    options = {"engine": "vllm", "vllm": str(fake_vllm), "rows": 1, "keep_mb": 0}
    settings = config(root, serving=options)
    played = run_arenas(settings, RUNTIME, ARENAS, workspace / "arenas.parquet", {})
    assert {one.outcome for one in of(played, "base")} == {EpisodeClass.NO_CALL}
    assert {one.stop_reason for one in of(played, "base")} == {StopReason.ANSWERED}


def test_a_vllm_that_is_not_there_is_said(root: Path, workspace: Path) -> None:
    options = {"engine": "vllm", "vllm": "/nowhere/vllm", "rows": 1, "keep_mb": 0}
    with pytest.raises(Exception, match=r"(?s)/nowhere/vllm.*bench\.serving\.vllm"):
        play(root, workspace, serving=options)


def test_the_base_is_played_natively_too_where_its_own_template_is_another(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(root / "policies/tiny", folder)
    given = PolicyConfig.saved(str(folder), "float32")
    assert native_policy(given) is None, "it is played under its own"
    compact = given.model_copy(update={"template": "compact"})
    assert native_policy(compact) is None, "its own is the same"
    hermes = given.model_copy(update={"template": "hermes"})
    assert list(policies(hermes, {"rl": folder})) == ["base", "base_native", "rl"]
    native = policies(hermes, {})["base_native"]
    assert prompting(load_codec(native))["template"] == "compact"
    # Calls in another form than is read here, as Llama 3 writes them.
    tokenizer = load_codec(given).tokenizer
    tokenizer.chat_template = template_text("compact").replace("<tool_call>", "<call>")
    tokenizer.save_pretrained(folder)
    assert native_policy(hermes) is None
    assert "bench.endpoints.base_native" in caplog.text
