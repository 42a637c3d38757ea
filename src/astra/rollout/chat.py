"""A policy on disk, and the one way its conversations become tokens.

The chat template is saved with the model and used unchanged for SFT, rollouts and serving.
Rollouts are token-in/token-out: sampled ids are appended as they are, messages of tools and of
users as the template's difference, and history is never rendered again (decoding and encoding
sampled ids changes a third of them).
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool
from astra.rollout.errors import PolicyError
from astra.rollout.template_traits import (
    PROBE,
    PROBE_NAME,
    SPOKEN_PROBE,
    Thoughts,
    examine,
    written_spans,
)
from astra.settings import StageConfig

_COMMIT = re.compile("[0-9a-f]{40}")

Dtype = Literal["float32", "bfloat16"]


class RopeScaling(StageConfig):
    """Static YaRN (arXiv 2309.00071): rotary positions beyond those of the pre-training."""

    factor: float = Field(gt=1)
    original_max_position_embeddings: int = Field(ge=1)
    """Positions that the model was trained on."""

    def stretch(self, config: Any) -> None:
        """Say so in a model's configuration, which its folder keeps: trainers and servers read it
        there. Nothing changes where it says so already."""
        # vLLM takes the product for the most that it serves; transformers warns of another one.
        config.max_position_embeddings = int(self.factor * self.original_max_position_embeddings)
        config.rope_parameters = {
            **config.rope_parameters, "rope_type": "yarn", **self.model_dump(mode="json"),
        }  # fmt: skip


class PolicyConfig(StageConfig):
    """Block ``policy``: the base model. A folder, or a hub id with its pinned revision."""

    path: str
    revision: str | None
    """The commit of a hub model; None: a folder."""
    template: Literal["own", "compact", "hermes", "signatures", "qwen3", "llama3"]
    """``own``: the one saved with the model, also its publisher's. ``hermes``: ChatML (Qwen2.5,
    SmolLM2); ``signatures``: the same with a line in place of each tool's document; ``qwen3``:
    without thinking; ``llama3``; ``compact``: tiny. ``hermes``, ``signatures`` and ``llama3``
    render the thoughts of every message, ``qwen3`` and ``compact`` none."""
    pad_token: str | None = None
    """Where the tokenizer names none."""
    rope_scaling: RopeScaling | None = None
    """None: the positions that the model's own configuration says."""
    dtype: Dtype
    """The type that the policy computes, is saved and is served in. Weights that train are float32
    besides (launch.weights_dtype)."""

    @classmethod
    def saved(cls, path: str, dtype: Dtype) -> Self:
        """A policy that training wrote: a folder with its own template."""
        return cls(path=path, revision=None, template="own", dtype=dtype)

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if not _is_local(self.path) and not _COMMIT.fullmatch(self.revision or ""):
            raise ValueError(
                f"{self.path} is no folder here, and a hub model may change under its name: set "
                "revision to the 40 digits of a commit"
            )
        return self


@dataclass
class LoadedPolicy:
    model: Any
    """A transformers causal language model."""
    codec: ChatCodec


def load_policy(
    config: PolicyConfig, device: str = "cpu", dtype: Dtype | None = None
) -> LoadedPolicy:
    """Load model, tokenizer and template. Raises PolicyError naming what is missing.

    The weights come in the policy's type, or in ``dtype`` where they are to be trained.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    codec = load_codec(config)
    try:
        stretched = {}
        if config.rope_scaling is not None:
            found = AutoConfig.from_pretrained(config.path, revision=config.revision or "main")
            config.rope_scaling.stretch(found)
            stretched = {"config": found}
        model = AutoModelForCausalLM.from_pretrained(
            config.path,
            **stretched,
            revision=config.revision or "main",
            dtype=getattr(torch, dtype or config.dtype),
            attn_implementation="sdpa",
        )
    except (OSError, ValueError) as error:
        raise PolicyError(f"policy {config.path}: the model does not load: {error}") from error
    placed: Any = model
    placed.to(device).eval()
    return LoadedPolicy(placed, codec)


def load_codec(config: PolicyConfig) -> ChatCodec:
    """Load the tokenizer and template alone."""
    from transformers import AutoTokenizer

    _check_folder(config.path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(config.path, revision=config.revision or "main")
    except (OSError, ValueError) as error:
        raise PolicyError(f"policy {config.path}: the tokenizer does not load: {error}") from error
    if config.template != "own":
        tokenizer.chat_template = template_text(config.template)
    if config.pad_token is not None:
        if config.pad_token not in tokenizer.get_vocab():
            raise PolicyError(
                f"policy {config.path}: policy.pad_token is {config.pad_token!r}, which its "
                "tokenizer's vocabulary lacks; set it to a token that is there"
            )
        tokenizer.pad_token = config.pad_token
    if tokenizer.pad_token_id is None:
        raise PolicyError(
            f"policy {config.path}: policy.pad_token is null and its tokenizer names none; set it "
            f"to a token of its vocabulary that is not EOS ({tokenizer.eos_token!r})"
        )
    return ChatCodec(tokenizer)


def _is_local(path: str) -> bool:
    """Whether a path means a folder, be it there or not, and no model of the hub."""
    named = path.startswith((".", "/")) or path.split("/")[0] in ("models", "policies")
    return named or Path(path).is_dir()


def _check_folder(path: str) -> None:
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise PolicyError(f"policy {path}: the folder has no config.json; is it a model?")
    elif _is_local(path):
        raise PolicyError(
            f"policy {path}: no such folder; build it (`dvc repro {folder.name}`), fetch it "
            "(`dvc pull`), or set policy.path to a model folder or hub id"
        )


_CHATML = {"bos": "", "open": "<|im_start|>", "after": "\n", "close": "<|im_end|>", "gap": "\n"}
FAMILIES = {
    "hermes": {**_CHATML, "hush": ""},
    "signatures": {**_CHATML, "hush": "", "signatures": "yes"},
    "qwen3": {**_CHATML, "hush": "<think>\n\n</think>\n\n"},
    "llama3": {
        "bos": "<|begin_of_text|>",
        "open": "<|start_header_id|>",
        "after": "<|end_header_id|>\n\n",
        "close": "<|eot_id|>",
        "gap": "",
        "hush": "",
    },
}
"""What hermes.jinja writes around messages, by template name."""


def template_text(name: str) -> str:
    """The chat template as it is saved with a policy: one text, which needs nothing else."""
    source = "hermes" if name in FAMILIES else name
    body = resources.files("astra").joinpath("rollout", "templates", f"{source}.jinja").read_text()
    marks = FAMILIES.get(name, {})
    opening = "".join(f"{{%- set {key} = {json.dumps(text)} %}}" for key, text in marks.items())
    return opening + body


def template_name(text: str) -> str:
    """Which of the templates here a saved one is; ``own`` for anybody else's."""
    return next((name for name in (*FAMILIES, "compact") if template_text(name) == text), "own")


class ChatCodec:
    """Messages to ids and back, for one tokenizer with its template.

    Raises PolicyError for a template that cannot be used (``template_traits.examine``).
    """

    def __init__(self, tokenizer: Any) -> None:
        template, owner = tokenizer.chat_template, tokenizer.name_or_path or "the policy"
        if not isinstance(template, str):
            raise PolicyError(f"{owner} has no chat template of its own; set policy.template")
        self.tokenizer = tokenizer
        self.eos_id: int = tokenizer.eos_token_id
        self.pad_id: int = tokenizer.pad_token_id
        self.template = template_name(template)
        """Its name: one of ``PolicyConfig.template``."""
        self.template_hash = hashlib.sha256(template.encode()).hexdigest()[:16]
        """The first 16 digits of the SHA-256 of its text."""
        self.thoughts: Thoughts = examine(self._render, tokenizer.eos_token, owner)
        self._marked = "{%- generation" in template and self.thoughts != Thoughts.CURRENT

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """Ids up to and including the header of the next assistant turn."""
        text = self._render([_document(m) for m in messages], _tools(tools), True)
        return self._encode(text)

    def suffix_ids(self, messages: Sequence[Message]) -> list[int]:
        """What follows an assistant turn that was sampled up to EOS: the results of its calls, or
        what the user says to one without calls, and the next header."""
        calls = messages[0].role == MessageRole.TOOL
        probe = PROBE if calls else SPOKEN_PROBE
        text = self._render([*probe, *(_document(m) for m in messages)], [], True)
        eos = self.tokenizer.eos_token
        return self._encode(text[text.index(eos, text.index(PROBE_NAME)) + len(eos) :])

    def training_rows(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> list[tuple[list[int], list[int]]]:
        """Ids and masks as ``encode_conversation``; together they train every turn once.

        One row, but where the template forgets thoughts once the user speaks again
        (``Thoughts.CURRENT``) and there are some to forget: then one per user message. It ends
        before the next one and trains the turns since this one, each in the prompt in which it is
        rolled and served.
        """
        users = [at for at, one in enumerate(messages) if one.role == MessageRole.USER]
        forgotten = any(one.reasoning for one in messages[: users[-1]]) if users else False
        if self.thoughts != Thoughts.CURRENT or not forgotten:
            return [self.encode_conversation(messages, tools)]
        ends = [*users[1:], len(messages)]
        rows = [
            self._derived([_document(m) for m in messages[:end]], _tools(tools), first)
            for first, end in zip([0, *users[1:]], ends, strict=True)
        ]
        return [row for row in rows if any(row[1])]

    def encode_conversation(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[int], list[int]]:
        """Ids of a whole conversation and a mask: 1 on what the assistant writes, EOS included."""
        documents = [_document(m) for m in messages]
        if not self._marked:
            return self._derived(documents, _tools(tools), 0)
        encoded = self.tokenizer.apply_chat_template(
            documents,
            tools=_tools(tools) or None,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        return list(encoded["input_ids"]), list(encoded["assistant_masks"])

    def _derived(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], first: int
    ) -> tuple[list[int], list[int]]:
        """Ids and mask without the template's marks, of turns from message ``first`` on."""
        spans = written_spans(self._render, self.tokenizer.eos_token, messages, tools, first)
        encoded = self.tokenizer(
            self._render(messages, tools, False),
            add_special_tokens=False,
            return_offsets_mapping=True,
        )
        begins = [begin for begin, _ in encoded["offset_mapping"]]
        mask = [0] * len(begins)
        for start, end in spans:
            first_id, next_id = bisect_left(begins, start), bisect_left(begins, end)
            mask[first_id:next_id] = [1] * (next_id - first_id)
        return list(encoded["input_ids"]), mask

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids without the EOS that ends them."""
        kept = [i for i in ids if i != self.eos_id]
        return self.tokenizer.decode(kept, skip_special_tokens=False)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], generation_prompt: bool
    ) -> str:
        return self.tokenizer.apply_chat_template(
            messages,
            tools=tools or None,
            tokenize=False,
            add_generation_prompt=generation_prompt,
        )


def _tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [tool.openai() for tool in tools]


def _document(message: Message) -> dict[str, Any]:
    document: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.reasoning:
        document["reasoning_content"] = message.reasoning
    if message.tool_calls:
        document["tool_calls"] = [_call_document(call) for call in message.tool_calls]
    if message.role == MessageRole.TOOL:
        document["tool_call_id"] = message.tool_call_id
        document["name"] = message.name
    return document


def _call_document(call: ToolCall) -> dict[str, Any]:
    """Arguments as an object: templates that render JSON would encode a string a second time."""
    try:
        parsed: Any = json.loads(call.arguments)
    except (ValueError, RecursionError):
        parsed = None
    arguments = parsed if isinstance(parsed, Mapping) else call.arguments
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
