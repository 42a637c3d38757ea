"""The official loop and the official checker of BFCL multi-turn (package bfcl-eval).

One handler per attempt. The simulators live in module globals under a name made of the handler's
model name and the entry; each attempt gets a name of its own, so that tries of one entry do not
see each other's state either.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import copy
import os
from typing import Any

# Importing the package makes result folders; not next to itself.
os.environ["BFCL_PROJECT_ROOT"] = os.environ.get("TMPDIR", "/tmp")

import wire
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import is_empty_execute_response
from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry
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


class Suite:
    """The suite's entries, played by BFCL's loop and judged by BFCL's checker (``check``)."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.truths: dict[str, list[list[str]]] = {}
        for category in options["categories"]:
            name = f"multi_turn_{category}"
            self.entries.update((entry["id"], entry) for entry in load_dataset_entry(name))
            self.truths.update(
                (entry["id"], entry["ground_truth"]) for entry in load_ground_truth_entry(name)
            )

    def attempt(self, main: wire.Wire, job: dict[str, Any]) -> dict[str, Any]:
        fc = main.options["mode"] == "fc"
        handler = Handler(main.request["endpoints"]["model"], job, main.decoding(job), fc)
        outcome, valid, reason = "scored", False, ""
        try:
            result, _ = handler.inference(
                copy.deepcopy(self.entries[job["entry_id"]]),
                include_input_log=False,
                exclude_state_log=True,
            )
            valid, reason = self.check(handler, job, result)
        except APIError as error:
            if not wire.outgrown(error):
                raise
            outcome, reason = "overflow", wire.said(error)
        except SystemExit as error:  # the official loop evaluates what the model writes
            reason = f"the model's call ended the interpreter: {error}"
        return {
            "outcome": outcome,
            "scores": {"accuracy": wire.scored(valid)},
            "reason": reason,
            **handler.account(),
        }

    def check(self, handler: Handler, job: dict[str, Any], result: Any) -> tuple[bool, str]:
        """The official checker's word on one entry, asked as the official evaluation does."""
        entry, truth = self.entries[job["entry_id"]], self.truths[job["entry_id"]]
        if len(result) != len(truth):
            return False, f"force-terminated after {len(result)} of {len(truth)} turns"
        decoded: list[list[list[str]]] = []
        for turn in result:
            steps: list[list[str]] = []
            for step in turn:
                try:
                    calls = handler.decode_execute(step, has_tool_call_tag=False)
                except Exception:
                    # As the official evaluation: chat and broken calls are no calls to check. Its
                    # decoders raise whatever the text leads to, plain Exception included.
                    continue
                if not is_empty_execute_response(calls):
                    steps.append(calls)
            decoded.append(steps)
        verdict = multi_turn_checker(
            decoded,
            truth,
            copy.deepcopy(entry),
            job["category"],
            handler.model_name_underline_replaced,
        )
        return verdict["valid"], "" if verdict["valid"] else str(verdict["error_type"])
