"""One attempt at an entry of BFCL through the official loop of package bfcl-eval.

One handler per attempt. The simulators live in module globals under a name made of the handler's
model name and the entry; each attempt gets a name of its own, so that tries of one entry do not
see each other's state either.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

# Importing the package makes result folders; not next to itself.
os.environ["BFCL_PROJECT_ROOT"] = os.environ.get("TMPDIR", "/tmp")

import wire
from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
from openai import APIError, DefaultHttpxClient

CONNECTIONS = DefaultHttpxClient(timeout=None, trust_env=False)
"""The one client of all attempts: each new one would read every certificate authority first."""


class Handler(OpenAICompletionsHandler):
    """The official handler with our client, sampling and book-keeping."""

    def __init__(self, endpoint: dict[str, str], job: dict[str, Any], decoding: dict, fc: bool):
        self.endpoint, self.job, self.decoding = endpoint, job, decoding
        self.steps = self.prompt_tokens = self.completion_tokens = 0
        self.seen: list[Any] = []
        # "FC" anywhere in the registry name would switch the mode.
        super().__init__(endpoint["model"], decoding.get("temperature", 0.0), "model", fc)
        self.model_name_underline_replaced = f"attempt_{job['attempt']}"

    def _build_client_kwargs(self) -> dict[str, Any]:
        return {
            "base_url": self.endpoint["base_url"],
            "api_key": "none",
            "max_retries": 0,
            "http_client": CONNECTIONS,
            "default_headers": {wire.ENTRY_HEADER: self.job["entry_id"]},
        }

    def generate_with_backoff(self, **kwargs: Any) -> Any:
        reply, seconds = super().generate_with_backoff(**{**kwargs, **self.decoding})
        self.steps += 1
        self.prompt_tokens += reply.usage.prompt_tokens
        self.completion_tokens += reply.usage.completion_tokens
        self.seen = [*kwargs["messages"], reply.choices[0].message]
        return reply, seconds

    def account(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "messages": [wire.plain(message) for message in self.seen],
        }


Check = Callable[[Handler, dict[str, Any], Any], tuple[bool, str]]
"""(handler, job, what the official loop returned) -> the official checker's word, and why."""


def attempt(
    main: wire.Wire, job: dict[str, Any], entry: dict[str, Any], check: Check
) -> dict[str, Any]:
    """The entry played by the official loop and judged, as fields of ``Played``."""
    fc = main.options["mode"] == "fc"
    handler = Handler(main.request["endpoints"]["model"], job, main.decoding(job), fc)
    outcome, valid, reason = "scored", False, ""
    try:
        result, _ = handler.inference(
            copy.deepcopy(entry), include_input_log=False, exclude_state_log=True
        )
        valid, reason = check(handler, job, result)
    except APIError as error:
        if not wire.outgrown(error):
            raise
        outcome, reason = "overflow", wire.said(error)
    except SystemExit as error:  # the package evaluates what the model writes
        reason = f"the model's call ended the interpreter: {error}"
    return {
        "outcome": outcome,
        "scores": {"accuracy": wire.scored(valid)},
        "reason": reason,
        **handler.account(),
    }
