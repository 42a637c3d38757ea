import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoTokenizer

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool
from astra.rollout.chat import (
    ChatCodec,
    PolicyConfig,
    PolicyError,
    RopeScaling,
    load_codec,
    load_policy,
)
from astra.train.checkpoints import save_policy
from configs import policy_config

TINY = "policies/tiny"


def tool(name: str, *parameters: str) -> Tool:
    return Tool(
        name=name,
        description="Get it of an agent. " + "The template shows no more than a head of it. " * 2,
        parameters={
            "type": "object",
            "properties": {key: {"type": "string"} for key in parameters}
            | {"year": {"type": "integer"}},
            "required": list(parameters),
        },
    )


TOOLS = [tool("get_asking_price", "listing"), tool("find_agent", "listing")]
PROMPT = [
    Message(role=MessageRole.SYSTEM, content=AGENT_SYSTEM_PROMPT),
    Message(role=MessageRole.USER, content="What is the price of Amber Cove?"),
]
CALLS = (
    ToolCall(id="call_0", name="get_asking_price", arguments='{"listing": "Amber Cove"}'),
    ToolCall(id="call_1", name="find_agent", arguments='{"listing": "Amber Cove", "year": 19}'),
)
RESULTS = [
    Message(role=MessageRole.TOOL, content="45", tool_call_id="call_0", name="get_asking_price"),
    Message(role=MessageRole.TOOL, content='["Nora Birch"]', tool_call_id="call_1", name="f"),
]
FINAL = Message(role=MessageRole.ASSISTANT, content="<answer>45; Nora Birch</answer>")
TURN = Message(role=MessageRole.ASSISTANT, tool_calls=CALLS)
CONVERSATION = [*PROMPT, TURN, *RESULTS, FINAL]


@pytest.fixture(scope="module")
def codec() -> ChatCodec:
    return load_codec(PolicyConfig.saved(TINY, "float32"))


def pieces(codec: ChatCodec, ids: list[int]) -> list[str]:
    return [codec.tokenizer.decode([i]) for i in ids]


def test_golden_assistant_tokens(codec: ChatCodec) -> None:
    ids, mask = codec.encode_conversation(CONVERSATION, TOOLS)
    trained = [i for i, m in zip(ids, mask, strict=True) if m]
    assert pieces(codec, trained) == [
        '<tool_call>\n{"name":', " ", '"', " get", "_", " asking", "_", " price",
        '", "arguments": {', '"', " listing", '":', " ", '"', " Amber", " Cove",
        '"}}\n</tool_call>',
        '\n<tool_call>\n{"name":', " ", '"', " find", "_", " agent",
        '", "arguments": {', '"', " listing", '":', " ", '"', " Amber", " Cove", '",',
        " ", '"', " year",
        '":', " 1", "9", "}}\n</tool_call>", "<|im_end|>",
        " <answer", ">", " 4", "5", ";", " Nora", " Birch", "</answer>", "<|im_end|>",
    ]  # fmt: skip


def test_tool_documents_are_descriptions_cut_short_and_signatures(codec: ChatCodec) -> None:
    text = "".join(pieces(codec, codec.encode_prompt(PROMPT, TOOLS))).replace("_ ", "_")
    assert "get_ asking_ price( listing, year?: integer)".replace("_ ", "_") in text
    assert "get it of an agent." in re.sub(" +", " ", text)
    assert text.count("template") == 4
    assert text.count("head") == 2, "80 characters a tool"
    assert len(codec.encode_prompt(PROMPT, TOOLS)) < 120


def test_name_tokens_are_shared_by_question_call_and_answer(codec: ChatCodec) -> None:
    ids, _ = codec.encode_conversation(CONVERSATION, TOOLS)
    encoded = pieces(codec, ids)
    assert encoded.count(" Amber") == encoded.count(" Cove") == 3
    assert encoded.count(" Nora") == 2
    assert encoded.count(" price") == 3, "question, tool document and call"


def test_every_rendering_is_a_prefix_of_the_next(codec: ChatCodec) -> None:
    """prompt + sampled turn + suffix + sampled turn == the conversation encoded at once."""
    ids, mask = codec.encode_conversation(CONVERSATION, TOOLS)
    trained = [i for i, m in zip(ids, mask, strict=True) if m]
    cut = trained.index(codec.eos_id) + 1
    prompt = codec.encode_prompt(PROMPT, TOOLS)
    suffix = codec.suffix_ids(RESULTS)
    assert prompt + trained[:cut] + suffix + trained[cut:] == ids
    sampled = [0] * len(prompt) + [1] * cut + [0] * len(suffix) + [1] * (len(trained) - cut)
    assert mask == sampled


def test_hermes_template_is_prefix_preserving_and_encodes_arguments_once() -> None:
    codec = load_codec(policy_config(template="hermes"))
    ids, mask = codec.encode_conversation(CONVERSATION, TOOLS)
    text = codec.tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m])
    assert '{"name": "get_asking_price", "arguments": {"listing": "Amber Cove"}}' in text
    assert "\\" not in text
    whole = codec.tokenizer.decode(ids)
    assert whole.startswith(codec.tokenizer.decode(codec.encode_prompt(PROMPT, TOOLS)))
    assert text.count("<|im_end|>") == 2


def test_malformed_arguments_are_shown_as_they_were_written(codec: ChatCodec) -> None:
    broken = ToolCall(id="c", name="find_agent", arguments='{"listing": oops')
    ids, _ = codec.encode_conversation(
        [*PROMPT, Message(role=MessageRole.ASSISTANT, tool_calls=(broken,)), FINAL], TOOLS
    )
    assert '"arguments": {"listing": oops}' in codec.tokenizer.decode(ids)


@pytest.mark.parametrize(
    "text",
    [
        'plain words, "quoted" (and) [listed] 12.5% of_x _ y "_z" > w',
        "été 日本 \U0001f600\ttabs\n\n lines \n end",
        " leading and trailing ",
        'A_b__c ((d)) "" \'',
    ],
)
def test_tokenizer_is_lossless(codec: ChatCodec, text: str) -> None:
    assert codec.tokenizer.decode(codec.tokenizer.encode(text)) == text


def test_missing_folder_is_one_clear_error() -> None:
    with pytest.raises(PolicyError, match=r"models/absent: no such folder; build it"):
        load_policy(PolicyConfig.saved("models/absent", "float32"))


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"no config\.json"):
        load_policy(PolicyConfig.saved(str(tmp_path), "float32"))


def test_a_missing_pad_token_is_told_before_weights_are_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["pad_token"]
    path.write_text(json.dumps(settings))
    config = PolicyConfig.saved(str(folder), "float32")
    with pytest.raises(PolicyError, match=r"policy\.pad_token is null .* not EOS \('<.im_end.>'\)"):
        load_policy(config)
    with pytest.raises(PolicyError, match=r"policy\.pad_token is '<none>', which .* lacks"):
        load_policy(config.model_copy(update={"pad_token": "<none>"}))


def test_scaled_positions_are_computed_with_and_saved_with_the_policy(tmp_path: Path) -> None:
    plain = PolicyConfig.saved(TINY, "float32")
    scaling = RopeScaling(factor=2.5, original_max_position_embeddings=2048)
    scaled = load_policy(plain.model_copy(update={"rope_scaling": scaling}))
    rope = scaled.model.config.rope_parameters
    assert (rope["rope_type"], rope["rope_theta"]) == ("yarn", 10000.0)
    assert scaled.model.config.max_position_embeddings == 5120
    save_policy(scaled.model, scaled.codec.tokenizer, tmp_path / "policy")
    again = load_policy(PolicyConfig.saved(str(tmp_path / "policy"), "float32"))
    ids = torch.arange(5, 69)[None]
    with torch.no_grad():
        one, other, unscaled = (
            policy.model(input_ids=ids).logits for policy in (scaled, again, load_policy(plain))
        )
    assert torch.equal(one, other), "a folder says itself how its positions are scaled"
    assert (one - unscaled).abs().max() > 0.01


@pytest.mark.parametrize("revision", [None, "main", "v1.0", "7ae5576"])
def test_a_hub_model_that_could_change_under_its_name_is_refused(revision: str | None) -> None:
    with pytest.raises(ValidationError, match=r"someone/model is no folder here.*40 digits"):
        PolicyConfig(path="someone/model", revision=revision, template="own", dtype="float32")


def test_a_pinned_hub_model_and_folders_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "model").mkdir(parents=True)
    pinned = PolicyConfig(path="someone/model", revision="0" * 40, template="own", dtype="float32")
    assert pinned.revision == "0" * 40
    for path in ("policies/absent", "models/absent", "./absent", str(tmp_path), "mine/model"):
        assert PolicyConfig.saved(path, "float32").revision is None


def test_template_without_generation_marks_is_refused() -> None:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(PolicyError, match=r"policy\.template to hermes"):
        ChatCodec(tokenizer)
