"""vLLM behind our server, with a stand-in that speaks its protocol."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest
from serving_chat import ask, chat

from astra.bench.harness.served import served
from astra.rollout.chat import PolicyConfig, RopeScaling
from astra.serving import vllm
from astra.serving.generation import GenerationError
from astra.serving.main import ServeConfig
from configs import policy_config

FAKE_VLLM = """\
import json, sys
from aiohttp import web

async def complete(request):
    body = await request.json()
    assert body["stop_token_ids"] and body["ignore_eos"]
    ids = [body["prompt"][-1]] * min(3, body["max_tokens"] - 1) + body["stop_token_ids"]
    return web.json_response({"choices": [{"token_ids": ids, "finish_reason": "stop"}]})

async def models(request):
    return web.json_response({"data": [{"max_model_len": 777}]})

async def health(request):
    return web.Response()

given = sys.argv[1:]
print(json.dumps(given), flush=True)
if "--fail" in given:
    raise SystemExit("no such device")
app = web.Application()
app.router.add_get("/health", health)
app.router.add_get("/v1/models", models)
app.router.add_post("/v1/completions", complete)
web.run_app(app, host="127.0.0.1", port=int(given[given.index("--port") + 1]), print=None)
"""


@pytest.fixture
def fake_vllm(tmp_path: Path) -> Path:
    script = tmp_path / "vllm"
    script.write_text(f"#!{sys.executable}\n{FAKE_VLLM}")
    script.chmod(0o755)
    return script


def test_vllm_is_started_spoken_to_and_ended(
    root: Path, fake_vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = ServeConfig(
        policy=PolicyConfig.saved(str(root / "policies/tiny"), "float32"), name="tiny",
        engine="vllm", rows=16, keep_mb=0,
        vllm=str(fake_vllm), vllm_args=("--tensor-parallel-size", "2"), context=600,
    )  # fmt: skip
    with served(config) as url:
        body = {**chat("hello", max_tokens=9, return_token_ids=True), "model": "tiny"}
        status, reply = ask(url, body)
        assert status == 200
        assert len(reply["choices"][0]["token_ids"]) == 4
        assert reply["choices"][0]["finish_reason"] == "stop"
        assert ask(url, None, "/models")[1]["data"][0]["max_model_len"] == 777
        (log,) = (tmp_path / "runs/serve").glob("vllm-*.log")
        told = json.loads(log.read_text().splitlines()[0])
        port = told[told.index("--port") + 1]
    assert told[:2] == ["serve", str(root / "policies/tiny")]
    assert told[told.index("--max-model-len") + 1] == "600"
    assert told[-2:] == ["--tensor-parallel-size", "2"]
    with pytest.raises(OSError, match="refused"):
        ask(f"http://127.0.0.1:{port}", None, "/health")


def test_a_vllm_that_does_not_start_says_why(fake_vllm: Path, tmp_path: Path) -> None:
    async def start(made: list[str], timeout_s: float = 30.0) -> None:
        async with vllm.launched(made, 1, tmp_path / "log", timeout_s):
            pass

    policy = policy_config(path="somewhere", revision="a" * 40)
    made = vllm.command(str(fake_vllm), policy, 1, None, ["--fail"])
    assert made[made.index("--revision") + 1] == "a" * 40
    with pytest.raises(GenerationError, match="no such device"):
        asyncio.run(start(made))
    with pytest.raises(GenerationError, match="does not start"):
        asyncio.run(start(["/nowhere/vllm"]))
    started = time.monotonic()
    with pytest.raises(GenerationError, match="not healthy"):
        asyncio.run(start([sys.executable, "-c", "import time; time.sleep(60)"], 0.5))
    assert time.monotonic() - started < 30


def test_stretched_positions_are_said_to_vllm_with_the_rest_of_its_block(root: Path) -> None:
    path = str(root / "policies/tiny")
    plain = PolicyConfig.saved(path, "float32")
    assert "--hf-overrides" not in vllm.command("vllm", plain, 1, None, [])
    scaling = RopeScaling(factor=2.5, original_max_position_embeddings=2048)
    stretched = plain.model_copy(update={"rope_scaling": scaling})
    made = vllm.command("vllm", stretched, 1, None, ["--last"])
    said = json.loads(made[made.index("--hf-overrides") + 1])
    assert said["max_position_embeddings"] == 5120
    assert said["rope_parameters"]["rope_type"] == "yarn"
    assert said["rope_parameters"]["rope_theta"] > 1, "an override replaces the block"
    assert made[-1] == "--last"
