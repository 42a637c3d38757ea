"""The tokenizer of a rehearsal: the policy's own where it can be read, otherwise a stand-in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.rollout.errors import PolicyError
from astra.train.rehearsal.architecture import Architecture, Vocabulary
from astra.train.rehearsal.errors import RehearsalError, mismatch

LEARNED = 2000
"""Entries that the stand-in learns from the rehearsal's own texts; the others never occur."""
PIECES = r"\n| ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s"


def tokenizer_of(
    policy: PolicyConfig, architecture: Architecture, texts: Iterable[str], readable: bool
) -> tuple[Any, str]:
    """The tokenizer and what to call it. ``readable``: the policy's files are on this machine.

    Raises RehearsalError where the policy's own differs from what its conf states, and where the
    policy cannot be used with it.
    """
    stated = architecture.tokenizer
    try:
        if readable:
            return _own(policy, stated), f"the policy's own ({policy.path})"
        if stated is None:
            raise RehearsalError(
                f"policy.path: {policy.path} is not on this machine, and its conf states no "
                "architecture.tokenizer to make a stand-in from; state it, or download the model"
            )
        tokenizer = _stand_in(stated, [*texts, publisher_template(stated.template_hash)])
        return _as_loaded(tokenizer, policy, architecture.model_type), (
            f"a stand-in of {stated.words + len(stated.special):,} entries, {len(stated.special)} "
            f"of them special ({policy.path} is not on this machine)"
        )
    except PolicyError as error:
        raise RehearsalError(f"policy: {error}") from error


def _own(policy: PolicyConfig, stated: Vocabulary | None) -> Any:
    if stated is not None:
        _as_stated(policy, stated)
    return load_codec(policy).tokenizer


def _as_stated(policy: PolicyConfig, stated: Vocabulary) -> None:
    """Whether the tokenizer in the policy's folder is the one that its conf states."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(
        policy.path, revision=policy.revision or "main", local_files_only=True
    )
    known = tokenizer.get_vocab()
    expected = {token: stated.words + at for at, token in enumerate(stated.special)}
    found = {token: known.get(token) for token in expected}
    wrong = [token for token in expected if found[token] != expected[token]]
    repair = f"policy.path {policy.path} is another tokenizer than its conf states"
    if wrong:
        token = wrong[0]
        setting = f"architecture.tokenizer.special (id of {token})"
        raise mismatch(setting, found[token], expected[token], repair)
    pad = policy.pad_token or tokenizer.pad_token
    for name, value, wanted in (
        ("tokenizer.eos", tokenizer.eos_token, stated.eos),
        ("tokenizer.pad (policy.pad_token)", pad, stated.pad),
    ):
        if value != wanted:
            raise mismatch(f"architecture.{name}", value, wanted, repair)
    if policy.template == "own":
        digest = ChatCodec(tokenizer).template_hash
        if digest != stated.template_hash:
            raise mismatch(
                "policy.template own (architecture.tokenizer.template_hash)", digest,
                stated.template_hash,
                f"the chat template saved in {policy.path} is not the publisher's; restore it, or "
                "state its hash if it is meant",
            )  # fmt: skip


def _stand_in(stated: Vocabulary, texts: Iterable[str]) -> Any:
    """A tokenizer with as many entries, and the special tokens, ids and template stated."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    splits: Any = pre_tokenizers.Sequence(  # pyright: ignore[reportCallIssue]
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = splits
    trainer = trainers.BpeTrainer(
        vocab_size=min(LEARNED, stated.words), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    learned.train_from_iterator(texts, trainer)
    model = json.loads(learned.to_str())["model"]
    entries: dict[str, int] = model["vocab"]
    for number in range(len(entries), stated.words):
        entries[f"<unused {number}>"] = number
    merges = [tuple(pair) for pair in model["merges"]]
    whole = Tokenizer(models.BPE(vocab=entries, merges=merges))
    whole.pre_tokenizer = splits
    whole.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    # Qwen3 marks the tags of calls, results and thoughts as added, not as special: they are text.
    for token in stated.special:
        added = AddedToken(token, normalized=False, special=not token.strip("</>").isidentifier())
        whole.add_special_tokens([added]) if added.special else whole.add_tokens([added])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=whole, eos_token=stated.eos, pad_token=stated.pad,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.chat_template = publisher_template(stated.template_hash)
    return tokenizer


def _as_loaded(tokenizer: Any, policy: PolicyConfig, model_type: str) -> Any:
    """The tokenizer as a stage would load it, with the policy's template and pad token."""
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        # A folder is a model's where it has this; transformers picks repairs of tokenizers by it.
        Path(folder, "config.json").write_text(json.dumps({"model_type": model_type}))
        placed = policy.model_copy(update={"path": folder, "revision": None})
        try:
            return load_codec(placed).tokenizer
        except PolicyError as error:
            raise PolicyError(str(error).replace(folder, policy.path)) from error


def publisher_template(template_hash: str) -> str:
    """The template of that hash in TRL's collection. Raises RehearsalError if it has none."""
    found: list[str] = []
    for file in resources.files("trl").joinpath("chat_templates").iterdir():
        if file.name.endswith(".jinja"):
            text = file.read_text(encoding="utf-8")
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            if digest == template_hash:
                return text
            found.append(f"{file.name} {digest}")
    raise RehearsalError(
        f"architecture.tokenizer.template_hash: found no template of hash {template_hash} in TRL's "
        f"collection, expected one of its {len(found)}; correct the hash, or download the model"
    )
