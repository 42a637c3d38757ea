"""The tokenizer of the tiny policy: byte-level BPE made for copying names into JSON.

Every word is one token wherever it stands. A space belongs to the word after it, and each glue
character (``_ " ( > [`` and the newline) is followed by an artificial space that the decoder
takes away again. `` Amber`` in a question, ``"Amber`` in JSON and ``>Amber`` in an answer thus
share a token, as do the words of a tool's name and those of the question that needs it: the
model can copy instead of having to learn a second spelling of every word. The mapping is
lossless for whatever text a message holds (boilerplate tokens decode to themselves); what no
merge covers falls back to bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import resources
from typing import Any

import yaml
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.text.names import Pool, draw_names

VOCABULARY = 2560
GLUE = ("_", '"', "(", ">", "[", "\n")
EOS, PAD = "<|im_end|>", "<|pad|>"
# Chat and JSON boilerplate, one token each. None may end in a glue character: the word after it
# would lose its artificial space.
BOILERPLATE = (
    AGENT_SYSTEM_PROMPT,
    "<|im_start|>system",
    "\n<|im_start|>user",
    "\n<|im_start|>user\n<tool_response>",
    "\n<|im_start|>assistant",
    "\n\n# Tools",
    '<tool_call>\n{"name":',
    '\n<tool_call>\n{"name":',
    '", "arguments": {',
    '", "arguments": {}}\n</tool_call>',
    '":',
    '",',
    '"}}\n</tool_call>',
    "}}\n</tool_call>",
    "\n<tool_response>",
    "</tool_response>",
    " <answer",
    "<answer",
    "</answer>",
)
OPENERS = (
    "What",
    "Which",
    "Who",
    "Where",
    "When",
    "How",
    "The",
    "Find",
    "List",
    "Tell",
    "Give",
    "It",
)
# Words with the space before them, an apostrophe's ending, digits one by one, then the rest.
PIECES = r"\n| ?[A-Z]?[a-z]+| ?[A-Z]+|'[a-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s"


def common_words() -> list[str]:
    """The everyday words of ``vocabulary.yaml``, sorted, without repeats."""
    text = resources.files("astra").joinpath("train", "vocabulary.yaml").read_text("utf-8")
    groups: list[str] = yaml.safe_load(text)
    return sorted({word for group in groups for word in group.split()})


def name_words() -> list[str]:
    """Every single word that entity names are made of."""
    names: list[str] = []
    for kind in ("person", "thing"):
        for pool in Pool:
            names += draw_names(kind, pool, 60, random.Random(f"{kind}:{pool}"))
    return sorted({word for name in names for word in name.split()})


def build_tokenizer(seed: int = 0) -> Any:
    """Train on generic text alone; returns a PreTrainedTokenizerFast. Same bytes every time."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token=None, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [normalizers.Replace(glue, f"{glue} ") for glue in GLUE]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [
            decoders.ByteLevel(),
            decoders.Fuse(),
            *(decoders.Replace(f"{glue} ", glue) for glue in GLUE),
        ]
    )
    trainer = BpeTrainer(
        vocab_size=VOCABULARY - len(BOILERPLATE) - 2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(seed), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in BOILERPLATE])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in (EOS, PAD)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )


def _corpus(seed: int) -> Iterator[str]:
    """Word lists and random sentences over them; each word occurs often enough to stay whole."""
    rng = random.Random(f"tokenizer:{seed}")
    words, names = common_words(), name_words()
    for word in names:
        yield f" {word}" * 40
    for word in words:
        yield f" {word}" * 30
        yield f" {word.capitalize()}" * 2
    for mark in ('"', "(", ")", "[", "]", "{", "}", "-", ":", "<", "$", "%", "=", "'", "&", "#"):
        yield f" {mark} x" * 60
    yield from ("}]", " }]", "},", " },", "],", " ],", "):", '."', "://", "...")
    yield " 0 1 2 3 4 5 6 7 8 9 -1" * 99
    for _ in range(4000):
        sentence = " ".join(rng.choice(words) for _ in range(8))
        yield f" {sentence} {rng.choice(names)} {rng.choice(names)}? {rng.randrange(10**6)}."
    for word in OPENERS:
        yield f" {word}" * 60
