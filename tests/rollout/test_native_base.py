"""Which base models are benchmarked under their publishers' own chat templates too."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from test_families import FAMILIES, codec_of

from astra.bench.checkpoints import native_policy, prompting
from astra.rollout.chat import PolicyConfig, load_codec


def saved(folder: Path, family: str, published: str) -> PolicyConfig:
    """A policy of ``family`` under our template of it, whose folder has the publisher's."""
    tokenizer: Any = codec_of(FAMILIES[family]).tokenizer
    tokenizer.chat_template = template(published)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    ours = {"qwen2.5": "hermes", "qwen3": "qwen3", "llama3": "llama3", "smollm2": "hermes"}
    native = PolicyConfig.saved(str(folder), "float32")
    return native.model_copy(update={"template": ours[family]})


def template(published: str) -> str:
    folder = resources.files("trl").joinpath("chat_templates")
    return folder.joinpath(f"{published}.jinja").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("family", "published", "thoughts"),
    [("qwen2.5", "qwen2_5", "never"), ("qwen3", "qwen3", "current")],
)
def test_qwen_speaks_natively(tmp_path: Path, family: str, published: str, thoughts: str) -> None:
    base = saved(tmp_path, family, published)
    native = native_policy(base)
    assert native is not None
    said, ours = prompting(load_codec(native)), prompting(load_codec(base))
    assert (said["template"], said["thoughts"]) == ("own", thoughts)
    assert said["template_hash"] != ours["template_hash"]


def test_llama_needs_the_parser_of_a_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its calls are bare JSON."""
    base = saved(tmp_path, "llama3", "llama3_2")
    assert native_policy(base) is None
    assert "only <tool_call> tags are read" in caplog.text
    assert "bench.endpoints.base_native" in caplog.text


def test_a_template_that_shows_no_tools_is_no_baseline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Phi 3's writes the conversation alone."""
    base = saved(tmp_path, "smollm2", "phi3")
    assert native_policy(base) is None
    assert "the chat template of" in caplog.text
