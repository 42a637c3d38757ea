"""The tokenizer of the tiny policy: words are tokens, made for copying names into JSON.

Every known word is one token wherever it stands. A space belongs to the word after it, and each
glue character (``_ " ( > [`` and the newline) is followed by an artificial space that the decoder
takes away again. `` Amber`` in a question, ``"Amber`` in JSON and ``>Amber`` in an answer thus
share a token, as do the words of a tool's name and those of the question that needs it: the
model can copy instead of having to learn a second spelling of every word. Unknown words are
spelled greedily in syllables, letters and bytes, so the mapping is lossless for whatever text a
message holds (boilerplate tokens decode to themselves). Nothing is trained: the vocabulary is
listed here and in ``vocabulary.yaml``.
"""

from __future__ import annotations

import random
from importlib import resources
from itertools import product
from typing import Any

import yaml
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from astra.agent.prompt import AGENT_SYSTEM_PROMPT
from astra.text.names import Pool, draw_names

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
SPACE = "\u0120"
"""The space in the byte-level alphabet."""
CONTINUES = "\u2581"
"""The mark before a piece that does not begin its word; it is outside the byte-level alphabet."""
ENDINGS = "able al ed er ers es est ful ic ing ive less ly ment ness ous th tion".split()
MARKS = (":", ".", ",", "?", "-", "=", ";", ")", "):", ").", "),", "&", "%", "$", "/", "...")


def common_words() -> list[str]:
    """The everyday words of ``vocabulary.yaml``, sorted, without repeats."""
    text = resources.files("astra").joinpath("train", "tiny", "vocabulary.yaml").read_text("utf-8")
    groups: list[str] = yaml.safe_load(text)
    return sorted({word for group in groups for word in group.split()})


def name_words() -> list[str]:
    """Every single word that entity names are made of."""
    names: list[str] = []
    for kind in ("person", "thing"):
        for pool in Pool:
            names += draw_names(kind, pool, 60, random.Random(f"{kind}:{pool}"))
    return sorted({word for name in names for word in name.split()})


def vocabulary() -> list[str]:
    """The tokens, boilerplate excepted, in the order of their ids: bytes, letters, pieces, words.

    Greedy matching takes the longest token that fits, so every word in the list is one token.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vowels, consonants = "aeiouy", "bcdfghjklmnpqrstvwxz"
    onsets = ["".join(pair) for pair in product(consonants, vowels)]
    rimes = ["".join(pair) for pair in product(vowels, "lmnrst")]
    letters = "abcdefghijklmnopqrstuvwxyz"
    begin = [*letters, *letters.upper(), *"0123456789", *(onset.title() for onset in onsets)]
    inside = [*alphabet, *onsets, *rimes, *ENDINGS]
    words = [*common_words(), *name_words(), *OPENERS]
    return list(
        dict.fromkeys(
            [
                *alphabet,
                *(CONTINUES + piece for piece in inside),
                *(SPACE + piece for piece in begin),
                *(mark for mark in MARKS),
                *(SPACE + mark for mark in MARKS),
                *(SPACE + word for word in words),
            ]
        )
    )


def build_tokenizer() -> Any:
    """A PreTrainedTokenizerFast; the same bytes every time."""
    from transformers import PreTrainedTokenizerFast

    tokens = {token: index for index, token in enumerate(vocabulary())}
    model = models.WordPiece(  # every byte is a token: there is no unknown one
        tokens,
        unk_token=SPACE,
        continuing_subword_prefix=CONTINUES,
        max_input_chars_per_word=1_000_000,
    )
    tokenizer = Tokenizer(model)
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
            decoders.Replace(CONTINUES, ""),
            decoders.ByteLevel(),
            decoders.Fuse(),
            *(decoders.Replace(f"{glue} ", glue) for glue in GLUE),
        ]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in BOILERPLATE])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in (EOS, PAD)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
