"""The official loop and the official checker of BFCL multi-turn (package bfcl-eval)."""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import copy
from typing import Any

import bfcl_handler
import wire
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import is_empty_execute_response
from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry


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
        return bfcl_handler.attempt(main, job, self.entries[job["entry_id"]], self.check)

    def check(
        self, handler: bfcl_handler.Handler, job: dict[str, Any], result: Any
    ) -> tuple[bool, str]:
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
