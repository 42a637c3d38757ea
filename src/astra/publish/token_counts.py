"""Tokens of what SFT was given, by a policy's own template, and those that its training read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from astra.publish.origins import SAMPLES, trained_conversations
from astra.publish.record import PublishError
from astra.records.trajectory import SFTSample
from astra.stage import Progress
from astra.store.tables import read_records

FILE = "tokens.json"


def training_tokens(
    folder: Path, trained: Mapping[str, Any], steps: int, shown_chars: int
) -> dict[str, Any]:
    """The content of ``build/tokens.json`` for a policy in ``folder``.

    ``trained`` are the parameters of stage sft, ``steps`` those that it took; ``shown_chars`` is
    how much of a tool's description the template shows. What training read is computed from whole
    passes and the mean length of a conversation.
    """
    from transformers import AutoTokenizer

    from astra.rollout.chat import ChatCodec

    codec, progress = ChatCodec(AutoTokenizer.from_pretrained(folder)), Progress("conversations")
    counts = {part: Counter[str]() for part in ("set", "left_out", "kept")}
    described: dict[tuple[str, str], bool] = {}
    beside = trained_conversations(trained["conversations"])
    for sample in chain(read_records(SAMPLES, SFTSample), beside):
        if sample.split != "train":
            continue
        for tool in sample.tools:
            described[tool.name, tool.description] = len(tool.description) > shown_chars
        for ids, mask in codec.training_rows(sample.messages, sample.tools):
            fits = len(ids) <= trained["max_tokens"] and any(mask)
            for part in ("set", "kept" if fits else "left_out"):
                counts[part].update(conversations=1, tokens=len(ids), assistant_tokens=sum(mask))
        progress.advance(1)
    kept = counts["kept"]
    if not kept["conversations"]:
        raise PublishError(
            f"no conversation of {SAMPLES} fits into sft.max_tokens {trained['max_tokens']} with "
            f"the template of {folder}, so the policy cannot have been trained on them"
        )
    return {
        **{part: _filled(found) for part, found in counts.items()},
        "read": _read(kept, steps, trained["batch_size"]),
        "tools": {"documents": len(described), "longer_than_shown": sum(described.values())},
    }


def _filled(found: Counter[str]) -> dict[str, int]:
    return {key: found[key] for key in ("conversations", "tokens", "assistant_tokens")}


def _read(kept: Counter[str], steps: int, batch_size: int) -> dict[str, Any]:
    """What ``steps`` batches hold: the last one of a pass is as small as what is left."""
    rows = kept["conversations"]
    passes, rest = divmod(steps, math.ceil(rows / batch_size))
    conversations = passes * rows + rest * batch_size
    return {
        "conversations": conversations,
        **{key: round(conversations * kept[key] / rows) for key in ("tokens", "assistant_tokens")},
        "passes": round(conversations / rows, 2),
    }
