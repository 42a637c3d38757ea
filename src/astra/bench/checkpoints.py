"""Which checkpoints a benchmark run plays, and what each one is prompted with."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from astra.bench.names import BASE, BASE_NATIVE
from astra.rollout.chat import ChatCodec, PolicyConfig, load_codec
from astra.rollout.errors import PolicyError

log = logging.getLogger(__name__)


def policies(base: PolicyConfig, trained: Mapping[str, Path]) -> dict[str, PolicyConfig]:
    """The base policy, itself under its native template where that is another, and what was
    trained from it, which is read with the same dtype."""
    native = native_policy(base)
    return (
        {BASE: base}
        | ({} if native is None else {BASE_NATIVE: native})
        | {name: PolicyConfig.saved(str(path), base.dtype) for name, path in trained.items()}
    )


def native_policy(base: PolicyConfig) -> PolicyConfig | None:
    """The base policy under the chat template of its publisher; None where that is the one in use.

    None, with a warning, also where the native template cannot be used here: it shows no tools, or
    its calls are in another form than is read here.
    """
    if base.template == "own":
        return None
    native = base.model_copy(update={"template": "own"})
    try:
        codec = load_codec(native)
    except PolicyError as error:
        log.warning(
            "%s is not played under its native template: %s. Where vLLM has a parser for its calls "
            "(vllm serve --enable-auto-tool-choice --tool-call-parser NAME), name that server in "
            "bench.endpoints.%s",
            base.path, error, BASE_NATIVE,
        )  # fmt: skip
        return None
    return None if codec.template_hash == load_codec(base).template_hash else native


def prompting(codec: ChatCodec) -> dict[str, str]:
    """What a score is only comparable with, as records name it: template and thinking mode."""
    return {
        "template": codec.template,
        "template_hash": codec.template_hash,
        "thoughts": str(codec.thoughts),
    }
