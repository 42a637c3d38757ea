"""A policy on disk, and the one way its conversations become tokens.

The chat template is saved with the model and used unchanged for SFT, rollouts and serving.
Rollouts are token-in/token-out: sampled ids are appended as they are, tool messages as the
template's difference, and history is never rendered again (decoding and encoding sampled ids
changes a third of them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from astra.errors import AstraError
from astra.records.message import Message, MessageRole, ToolCall
from astra.records.tool import Tool
from astra.settings import StageConfig

THINK, THINK_END = "<think>", "</think>"
_COMMIT = re.compile("[0-9a-f]{40}")


class PolicyError(AstraError):
    """A policy cannot be loaded, or its chat template cannot be used for training."""


class PolicyConfig(StageConfig):
    """Block ``policy``: the base model. A folder, or a hub id with its pinned revision."""

    path: str
    revision: str | None
    """The commit of a hub model; None: a folder."""
    template: Literal["own", "compact", "hermes", "qwen3", "llama3"]
    """``own``: the one saved with the model. ``hermes``: ChatML (Qwen2.5, SmolLM2, and Qwen3
    where it should think); ``qwen3``: the same without thinking; ``llama3``; ``compact``: tiny.
    ``hermes`` and ``llama3`` render the thoughts that a message holds, the others none."""
    pad_token: str | None = None
    """Where the tokenizer names none."""
    dtype: Literal["float32", "bfloat16"]
    """The type of the weights."""

    @classmethod
    def saved(cls, path: str, dtype: Literal["float32", "bfloat16"]) -> Self:
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


def load_policy(config: PolicyConfig, device: str = "cpu") -> LoadedPolicy:
    """Load model, tokenizer and template. Raises PolicyError naming what is missing."""
    import torch
    from transformers import AutoModelForCausalLM

    codec = load_codec(config)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            config.path,
            revision=config.revision or "main",
            dtype=getattr(torch, config.dtype),
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
            raise PolicyError(f"policy {config.path}: no token {config.pad_token!r} to pad with")
        tokenizer.pad_token = config.pad_token
    if tokenizer.pad_token_id is None:
        raise PolicyError(
            f"policy {config.path}: its tokenizer has no pad token; set policy.pad_token to one "
            "that is not EOS"
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


class ChatCodec:
    """Messages to ids and back, for one tokenizer with its template."""

    def __init__(self, tokenizer: Any) -> None:
        template = tokenizer.chat_template
        if not isinstance(template, str) or "{%- generation" not in template:
            raise PolicyError(
                f"the chat template of {tokenizer.name_or_path or 'the policy'} has no "
                "{% generation %} marks, so assistant tokens cannot be told apart; set "
                "policy.template to hermes, qwen3 or llama3 (or compact for the tiny policy)"
            )
        self.tokenizer = tokenizer
        self.eos_id: int = tokenizer.eos_token_id
        self.pad_id: int = tokenizer.pad_token_id
        probe = [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "", "tool_calls": [_call_document(_PROBE)]},
        ]
        self._probe = probe
        rendered = self._render(probe, [], generation_prompt=False)
        end = rendered.rfind(tokenizer.eos_token)
        if end < 0:
            raise PolicyError(
                f"the chat template does not end an assistant turn with {tokenizer.eos_token!r}"
            )
        self._probe_length = end + len(tokenizer.eos_token)

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """Ids up to and including the header of the next assistant turn."""
        text = self._render([_document(m) for m in messages], _tools(tools), True)
        return self._encode(text)

    def suffix_ids(self, tool_messages: Sequence[Message]) -> list[int]:
        """What follows an assistant turn that was sampled up to EOS: results, next header."""
        documents = [*self._probe, *(_document(m) for m in tool_messages)]
        return self._encode(self._render(documents, [], True)[self._probe_length :])

    def encode_conversation(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[int], list[int]]:
        """Ids of a whole conversation and a mask: 1 on what the assistant writes, EOS included."""
        encoded = self.tokenizer.apply_chat_template(
            [_document(m) for m in messages],
            tools=_tools(tools) or None,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        return list(encoded["input_ids"]), list(encoded["assistant_masks"])

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


def split_thought(text: str) -> tuple[str, str]:
    """What a thinking policy thinks before it speaks, closing tag included, and what it says.

    A call or an answer inside a thought is neither; a thought that never ends is all there is.
    """
    if not text.lstrip().startswith(THINK):
        return "", text
    end = text.find(THINK_END)
    end = len(text) if end < 0 else end + len(THINK_END)
    return text[:end], text[end:]


_PROBE = ToolCall(id="call_0", name="f", arguments="{}")


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
