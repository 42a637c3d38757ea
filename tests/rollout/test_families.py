"""Chat templates by family of models: golden tokens, and prefixes that stay prefixes.

The families' own vocabularies are not at hand offline. What decides where tokens begin is which
texts are single tokens, so each family gets a byte-level tokenizer with its real added tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from test_chat import CONVERSATION, FINAL, PROMPT, RESULTS, TOOLS, TURN
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from astra.agent.thoughts import split_thought
from astra.records.message import Message, MessageRole
from astra.rollout.chat import ChatCodec, PolicyError, load_codec, template_text
from configs import policy_config

CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
QWEN_TOOLS = ("<tool_call>", "</tool_call>")
LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
         "<|finetune_right_pad_id|>")  # fmt: skip


@dataclass(frozen=True)
class Family:
    template: str
    special: tuple[str, ...]
    words: tuple[str, ...]
    """Added tokens that are ordinary text, which decoding keeps."""
    eos: str
    pad: str
    header: str
    """What opens an assistant turn, never trained."""


FAMILIES = {
    "qwen3": Family(
        "qwen3", CHATML, (*QWEN_TOOLS, "<tool_response>", "</tool_response>", "<think>",
        "</think>"), "<|im_end|>", "<|endoftext|>",
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
    "qwen3 thinking": Family(
        "hermes", CHATML, (*QWEN_TOOLS, "<tool_response>", "</tool_response>", "<think>",
        "</think>"), "<|im_end|>", "<|endoftext|>", "<|im_start|>assistant\n"),
    "qwen2.5": Family("hermes", CHATML, QWEN_TOOLS, "<|im_end|>", "<|endoftext|>",
                      "<|im_start|>assistant\n"),
    "smollm2": Family("hermes", CHATML, (), "<|im_end|>", "<|im_end|>", "<|im_start|>assistant\n"),
    "signatures": Family("signatures", CHATML, (), "<|im_end|>", "<|im_end|>",
                         "<|im_start|>assistant\n"),
    "llama3": Family("llama3", LLAMA, (), "<|eot_id|>", "<|finetune_right_pad_id|>",
                     "<|start_header_id|>assistant<|end_header_id|>\n\n"),
}  # fmt: skip


def codec_of(family: Family) -> ChatCodec:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True) for text in family.special])
    made.add_tokens([AddedToken(text, special=False) for text in family.words])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=family.eos, pad_token=family.pad
    )
    tokenizer.chat_template = template_text(family.template)
    return ChatCodec(tokenizer)


def spans(codec: ChatCodec, ids: list[int], mask: list[int]) -> list[str]:
    """The trained texts, one per assistant turn."""
    found: list[list[int]] = []
    for at, (token, trained) in enumerate(zip(ids, mask, strict=True)):
        if trained:
            if at == 0 or not mask[at - 1]:
                found.append([])
            found[-1].append(token)
    return [codec.tokenizer.decode(span) for span in found]


CALLS = (
    '<tool_call>\n{"name": "get_asking_price", "arguments": {"listing": "Amber Cove"}}\n'
    '</tool_call>\n<tool_call>\n{"name": "find_agent", "arguments": {"listing": "Amber Cove", '
    '"year": 19}}\n</tool_call>'
)


@pytest.mark.parametrize("name", FAMILIES)
def test_golden_spans(name: str) -> None:
    family = FAMILIES[name]
    codec = codec_of(family)
    ids, mask = codec.encode_conversation(CONVERSATION, TOOLS)
    answer = "<answer>45; Nora Birch</answer>"
    assert spans(codec, ids, mask) == [CALLS + family.eos, answer + family.eos]
    prompt = codec.tokenizer.decode(codec.encode_prompt(PROMPT, TOOLS))
    assert prompt.endswith(family.header)
    first = codec.encode_prompt(PROMPT, TOOLS)
    assert codec.tokenizer.decode(first[:1]) == family.special[0], "BOS, or the first header"
    # Tags that are tokens of their own stay whole, and the model learns them as such.
    trained = [token for token, m in zip(ids, mask, strict=True) if m]
    for text in family.words:
        if text in CALLS:
            assert trained.count(codec.tokenizer.convert_tokens_to_ids(text)) == 2
    if not family.words:
        assert all(token < 256 for token in trained if token != codec.eos_id)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_rendering_is_a_prefix_of_the_next(name: str) -> None:
    codec = codec_of(FAMILIES[name])
    ids, mask = codec.encode_conversation(CONVERSATION, TOOLS)
    trained = [token for token, m in zip(ids, mask, strict=True) if m]
    cut = trained.index(codec.eos_id) + 1
    prompt, suffix = codec.encode_prompt(PROMPT, TOOLS), codec.suffix_ids(RESULTS)
    built = prompt + trained[:cut] + suffix + trained[cut:]
    assert ids[: len(built)] == built
    assert len(ids) - len(built) <= 1, "at most the line end after the last turn"
    assert mask[len(prompt) : len(prompt) + cut] == [1] * cut
    assert not any(mask[: len(prompt)])
    assert not any(mask[len(prompt) + cut : len(prompt) + cut + len(suffix)])
    results = codec.tokenizer.decode(suffix)
    assert results.count("<tool_response>\n") == 2
    assert results.endswith(FAMILIES[name].header)


def test_a_signature_is_a_line_with_what_a_call_needs() -> None:
    codec = codec_of(FAMILIES["signatures"])
    properties = {
        "size": {"type": "string", "enum": ["small", "large"]},
        "year": {"type": "integer"},
        "town": {"type": "string"},
        "rooms": {"type": ["integer", "null"]},
    }
    parameters = {"type": "object", "properties": properties, "required": ["size", "town"]}
    told = TOOLS[0].model_copy(update={"description": "d" * 300, "parameters": parameters})
    prompt = codec.tokenizer.decode(codec.encode_prompt(PROMPT, [told]))
    line = "\nget_asking_price(size: small|large, year?: integer, town, rooms?): " + "d" * 200
    assert prompt.split("# Tools")[1].startswith(line + "<|im_end|>")
    assert "<tool_call>" in prompt.split("# Tools")[0], "all conversations with tools begin alike"


def test_no_family_encodes_arguments_twice() -> None:
    for family in FAMILIES.values():
        ids, _ = codec_of(family).encode_conversation(CONVERSATION, TOOLS)
        assert '\\"' not in codec_of(family).tokenizer.decode(ids).split("</tools>")[-1]


def test_a_thinking_policy_is_trained_on_its_thoughts_and_keeps_them() -> None:
    codec = codec_of(FAMILIES["qwen3 thinking"])
    thought = "<think>\nThe price first.\n</think>\n\n"
    turn = TURN.model_copy(update={"content": thought.rstrip()})
    ids, mask = codec.encode_conversation([*PROMPT, turn, *RESULTS, FINAL], TOOLS)
    first, _ = spans(codec, ids, mask)
    assert first.startswith("<think>\nThe price first.\n</think>")
    assert CALLS in first


@pytest.mark.parametrize(
    ("text", "thought", "spoken"),
    [
        ("no thought", "", "no thought"),
        ("<think>a</think>b", "<think>a</think>", "b"),
        ("\n<think>\n<answer>9</answer>", "\n<think>\n<answer>9</answer>", ""),
        ("b <think>a</think>", "", "b <think>a</think>"),
    ],
)
def test_thoughts_are_told_from_speech(text: str, thought: str, spoken: str) -> None:
    assert split_thought(text) == (thought, spoken)


def test_a_pad_token_may_be_named_and_must_exist() -> None:
    codec = load_codec(policy_config(pad_token="<|im_start|>system"))
    assert codec.pad_id == codec.tokenizer.convert_tokens_to_ids("<|im_start|>system")
    with pytest.raises(PolicyError, match=r"policy\.pad_token is 'absent'"):
        load_codec(policy_config(pad_token="absent"))


def test_system_messages_further_down_are_rendered() -> None:
    for family in FAMILIES.values():
        codec = codec_of(family)
        late = Message(role=MessageRole.SYSTEM, content="mind the gap")
        ids, mask = codec.encode_conversation([*PROMPT, late, FINAL], TOOLS)
        assert "mind the gap" in codec.tokenizer.decode(ids)
        assert "mind the gap" not in "".join(spans(codec, ids, mask))
