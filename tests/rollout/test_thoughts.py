"""Thoughts that the data hold: who is trained on them, and how other trainers get them."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from test_chat import FINAL, PROMPT, RESULTS, TOOLS, TURN
from test_families import CALLS, FAMILIES, Family, codec_of, spans

from astra.records.message import Message, MessageRole
from astra.records.score import Scored
from astra.records.trajectory import SFTSample
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.scoring.export import write_openai
from astra.train.sft import IGNORED, encode_samples

THINKING = ["llama3", "qwen2.5", "qwen3 thinking", "smollm2"]
"""The families whose template writes thoughts."""
FIRST, LAST = "The price first.\nThen the agent.", "Both are known: 45."
MORE = Message(role=MessageRole.USER, content="And what does Jade Mill cost?")
SECOND = FINAL.model_copy(update={"content": "I cannot say.", "reasoning": "Nobody knows."})
THOUGHT_OUT = [
    *PROMPT,
    TURN.model_copy(update={"reasoning": FIRST}),
    *RESULTS,
    FINAL.model_copy(update={"reasoning": LAST}),
    MORE,
    SECOND,
]
ANSWER = "<answer>45; Nora Birch</answer>"


def written(thought: str) -> str:
    return f"<think>\n{thought}\n</think>\n\n"


def sample(messages: list[Message]) -> SFTSample:
    return SFTSample(
        trajectory_id="t", split="train", language="en", domain="d", tools=tuple(TOOLS),
        messages=tuple(messages), scores={"tool_status": Scored(value=1.0)}, mean_score=1.0,
    )  # fmt: skip


@pytest.mark.parametrize("name", THINKING)
def test_a_thinking_policy_is_trained_on_the_thoughts_of_every_turn(name: str) -> None:
    family = FAMILIES[name]
    codec = codec_of(family)
    ids, mask = codec.encode_conversation(THOUGHT_OUT, TOOLS)
    assert spans(codec, ids, mask) == [
        written(FIRST) + CALLS + family.eos,
        written(LAST) + ANSWER + family.eos,
        written("Nobody knows.") + "I cannot say." + family.eos,
    ]
    encoded = encode_samples([sample(THOUGHT_OUT)], codec, len(ids))
    labels = encoded.rows[0]["labels"]
    assert [label != IGNORED for label in labels] == [bool(one) for one in mask]


@pytest.mark.parametrize("name", THINKING)
def test_every_rendering_with_thoughts_is_a_prefix_of_the_next(name: str) -> None:
    codec = codec_of(FAMILIES[name])
    ids, mask = codec.encode_conversation(THOUGHT_OUT, TOOLS)
    for at, message in enumerate(THOUGHT_OUT):
        if message.role == MessageRole.ASSISTANT:
            before = codec.encode_prompt(THOUGHT_OUT[:at], TOOLS)
            assert ids[: len(before)] == before
            assert mask[len(before)] == 1, "the first token to be written is trained"
            assert mask[len(before) - 1] == 0


def test_a_policy_that_is_not_to_think_sees_none_of_it() -> None:
    plain = [one.model_copy(update={"reasoning": ""}) for one in THOUGHT_OUT]
    quiet = codec_of(FAMILIES["qwen3"])
    tiny = load_codec(PolicyConfig.saved("policies/tiny", "float32"))
    for codec in (quiet, tiny):
        assert codec.encode_conversation(THOUGHT_OUT, TOOLS) == codec.encode_conversation(
            plain, TOOLS
        )


def test_without_thoughts_nothing_changes_for_a_thinking_policy() -> None:
    codec = codec_of(FAMILIES["qwen3 thinking"])
    ids, mask = codec.encode_conversation([*PROMPT, TURN, *RESULTS, FINAL], TOOLS)
    assert "<think>" not in codec.tokenizer.decode(ids)
    assert spans(codec, ids, mask)[0].startswith("<tool_call>")


def test_an_exported_row_has_its_thoughts_where_templates_look_for_them(tmp_path: Path) -> None:
    write_openai([sample(THOUGHT_OUT)], tmp_path)
    (row,) = pq.read_table(tmp_path / "train.parquet").to_pylist()
    messages = [json.loads(one) for one in row["messages"]]
    assert [one.get("reasoning_content") for one in messages if one["role"] == "assistant"] == [
        FIRST, LAST, "Nobody knows.",
    ]  # fmt: skip
    assert not any("reasoning_content" in one for one in messages if one["role"] != "assistant")
    assert "reasoning" not in json.dumps(messages).replace("reasoning_content", "")


def test_nobody_reads_thoughts_but_agents_policies_and_exports(root: Path) -> None:
    """No judge, simulated user or rule: what they are shown is made in other files."""
    package = root / "src" / "astra"
    readers = {
        str(one.relative_to(package))
        for one in package.rglob("*.py")
        if ".reasoning" in one.read_text(encoding="utf-8")
    }
    assert readers == {
        "bench/endpoint_episode.py",  # which keeps what its agent thought
        "llm/policy.py",
        "rollout/chat.py",
        "scoring/export.py",
        "train/rehearsal/world.py",  # whose stand-in tokenizer learns their words
        "train/sft.py",  # which counts them
        "serving/chat.py",  # which tells replies apart by them
        "trajectories/trajectories.py",  # which may drop them
        "worlds/conversations.py",  # which may drop them
    }


def of_trl(name: str) -> str:
    return resources.files("trl").joinpath("chat_templates", name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("template", "kept"),
    [
        ("qwen3_training.jinja", [FIRST, LAST, "Nobody knows."]),
        ("glm4moe_training.jinja", ["Nobody knows."]),  # what the user's last message led to
    ],
)
def test_the_publishers_own_templates_train_on_what_is_exported(
    template: str, kept: list[str], tmp_path: Path
) -> None:
    """Qwen3's and GLM-4.5's templates, with TRL's generation marks."""
    ids, mask, codec = rendered(of_trl(template), tmp_path)
    trained = "".join(spans(codec, ids, mask))
    assert [one for one in (FIRST, LAST, "Nobody knows.") if one in trained] == kept
    assert trained.count("Amber Cove") == 2


def rendered(template: str, folder: Path) -> tuple[list[int], list[int], ChatCodec]:
    """The exported row as a trainer with ``template`` encodes it."""
    write_openai([sample(THOUGHT_OUT)], folder)
    (row,) = pq.read_table(folder / "train.parquet").to_pylist()
    family: Family = FAMILIES["qwen3 thinking"]
    codec = codec_of(family)
    codec.tokenizer.chat_template = template
    encoded = codec.tokenizer.apply_chat_template(
        [json.loads(one) for one in row["messages"]],
        tools=[json.loads(one) for one in row["tools"]],
        tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
    )  # fmt: skip
    return list(encoded["input_ids"]), list(encoded["assistant_masks"]), codec
