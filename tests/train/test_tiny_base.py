"""The committed policy is what its recipe writes, and its tokenizer does what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.train.tiny.base import write_base
from astra.train.tiny.tokenizer import common_words, name_words


@pytest.fixture(scope="module")
def codec() -> ChatCodec:
    return load_codec(PolicyConfig.saved("policies/tiny", "float32"))


def test_committed_files_are_what_the_recipe_writes(tmp_path: Path) -> None:
    """On failure: `make tiny-base`. Weights are compared by size: kernels differ by machine."""
    write_base(tmp_path, steps=0)
    for name in ("tokenizer.json", "chat_template.jinja", "config.json"):
        assert (tmp_path / name).read_bytes() == (Path("policies/tiny") / name).read_bytes(), name
    weights = Path("policies/tiny/model.safetensors")
    assert weights.stat().st_size == (tmp_path / weights.name).stat().st_size
    assert sum(path.stat().st_size for path in Path("policies/tiny").iterdir()) < 8_000_000


def test_names_and_the_system_prompt_are_single_tokens(codec: ChatCodec) -> None:
    encode = codec.tokenizer.encode
    assert len(encode(AGENT_SYSTEM_PROMPT)) == 1
    assert [word for word in name_words() if len(encode(f" {word}")) != 1] == []
    assert [word for word in common_words() if len(encode(f" {word}")) != 1] == []


def test_unknown_words_are_spelled_and_every_text_comes_back(codec: ChatCodec) -> None:
    tokenizer = codec.tokenizer
    assert tokenizer.tokenize(" Karachi") == ["\u0120Ka", "\u2581ra", "\u2581c", "\u2581hi"]
    for text in (
        " Andijon and Zürich, 日本; “quoted” \u2581 \u0120 ## a_b__c",
        'x"y" (z) [1, -2.5] {"k": "v"}\n\n<a> b</a>',
        " " + "supercalifragilistic" * 40,
    ):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_a_word_has_one_token_wherever_it_stands(codec: ChatCodec) -> None:
    encode = codec.tokenizer.encode
    (amber,) = encode(" Amber")
    for text in ('"Amber Cove"', "(Amber Cove)", "<answer>Amber Cove</answer>", "of Amber Cove?"):
        assert encode(text).count(amber) == 1, text
    price = encode(" price")[0]
    assert encode("get_asking_price")[-1] == price
