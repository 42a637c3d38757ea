"""The official loop and the official checkers of BFCL's single-turn categories (bfcl-eval).

An entry is one request. What came back is judged by the functions that the official evaluation
calls for one entry: ``ast_checker`` behind one of them, whether a call can be read at all behind
the other.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import copy
from typing import Any

import bfcl_handler
import wire
from bfcl_eval.constants.enums import Language, ReturnFormat
from bfcl_eval.eval_checker.eval_runner import (
    _evaluate_single_ast_entry,
    _evaluate_single_relevance_entry,
)
from bfcl_eval.utils import (
    is_relevance_or_irrelevance,
    load_dataset_entry,
    load_ground_truth_entry,
)


class Suite:
    """The suite's entries, played by BFCL's loop and judged by BFCL's checkers (``check``)."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.mode: str = options["mode"]
        self.entries: dict[str, dict[str, Any]] = {}
        self.judged: dict[str, dict[str, Any]] = {}
        """Entries as the official evaluation reads them: without the hint which language it is."""
        self.truths: dict[str, list[dict[str, Any]]] = {}
        for category in options["categories"]:
            plain = load_dataset_entry(category, include_language_specific_hint=False)
            self.entries.update((entry["id"], entry) for entry in load_dataset_entry(category))
            self.judged.update((entry["id"], entry) for entry in plain)
            if not is_relevance_or_irrelevance(category):
                # By place: the package warrants their order, not their ids.
                truths = load_ground_truth_entry(category)
                for entry, truth in zip(plain, truths, strict=True):
                    self.truths[entry["id"]] = truth["ground_truth"]

    def attempt(self, main: wire.Wire, job: dict[str, Any]) -> dict[str, Any]:
        return bfcl_handler.attempt(main, job, self.entries[job["entry_id"]], self.check)

    def check(
        self, handler: bfcl_handler.Handler, job: dict[str, Any], result: Any
    ) -> tuple[bool, str]:
        """The official evaluation's word on one entry, and what it finds wrong."""
        name, category = job["entry_id"], job["category"]
        entry = copy.deepcopy(self.judged[name])
        if is_relevance_or_irrelevance(category):
            verdict = _evaluate_single_relevance_entry(
                handler, name, result, entry, self.mode, category
            )
        else:
            verdict = _evaluate_single_ast_entry(
                handler, name, result, self.truths[name], entry, self.mode, category,
                Language.PYTHON, ReturnFormat.PYTHON,
            )  # fmt: skip
        if verdict["valid"]:
            return True, ""
        return False, f"{verdict['error_type']}: {verdict['error']}"[: wire.MAX_REASON]
