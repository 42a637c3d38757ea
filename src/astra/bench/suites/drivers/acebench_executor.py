"""The executor of ACEBench agent: runs a turn's calls on the simulators and words the results.

It does what the official one does also where that is odd, because what it says and leaves out
decides scores; but nothing that a model wrote is evaluated.
"""

# pyright: basic
from __future__ import annotations

import ast
import json
from contextlib import suppress
from typing import Any

Calls = list[dict[str, dict[str, Any]]]

FAILED = "Error during execution: {str(e)}"
"""What the multi-turn executor says of a call that fails: officially the text lacks an ``f``."""


class World:
    """The simulators of one attempt. ``scenarios`` is the official module that makes them."""

    def __init__(self, scenarios: Any, sample: dict[str, Any], language: str) -> None:
        self.scenarios = scenarios
        self.apis = scenarios.load_scenario_instances(
            sample["initial_config"], sample["classes"], language
        )
        self.reached = False
        """Whether a turn's calls were executed. Officially an end state is what they left: without
        any there is none, which fails a task that needs no call as well."""

    def run(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call every simulator that has the method, as the official executor does: they share a
        device, and each keeps its own copy of its switches. Raises what a simulator makes of bad
        arguments, and NameError for a function that none has."""
        methods = self._methods(name)
        if not methods:
            raise NameError(f"name {name!r} is not defined")
        result = None
        for method in methods:
            result = method(**arguments)
        return result

    def each(self, calls: Calls) -> list[Any]:
        """The multi-step executor: a call that fails is told, and the next one made."""
        self.reached = True
        results: list[Any] = []
        for call in calls:
            try:
                results.append(self._result(call, results))
            except Exception as error:  # whatever a simulator makes of bad arguments
                results.append(f"Error during execution: {error}")
        return [worded(one) for one in results]

    def together(self, calls: Calls) -> list[Any]:
        """The multi-turn executor: a call that fails ends its turn, which then has no end state.
        What is told of it is one text, taken for a list of results."""
        results: list[Any] = []
        for call in calls:
            try:
                results.append(self._result(call, results))
            except Exception:  # whatever a simulator makes of bad arguments
                return [worded(character) for character in FAILED]
        self.reached = True
        return [worded(one) for one in results]

    def end_state(self) -> list[dict[str, Any]]:
        """Each simulator's graded attributes; nothing where no turn's calls were executed."""
        return self.scenarios.snapshot_states(self.apis) if self.reached else []

    def _result(self, call: dict[str, dict[str, Any]], before: list[Any]) -> Any:
        """What a call returns. A function that is not there repeats the result before it."""
        name, arguments = next(iter(call.items()))
        if before and not self._methods(name):
            return before[-1]
        return self.run(name, arguments)

    def _methods(self, name: str) -> list[Any]:
        if name.startswith("_"):
            return []
        found = (getattr(api, name, None) for api in self.apis.values())
        return [method for method in found if callable(method)]


def check_elements(text: str) -> None:
    """Raises ValueError for a list that holds something else than calls. Only the multi-step
    executor minds; the other leaves it out."""
    body = ast.parse(text.removeprefix(" ").strip("[]'"), mode="eval").body
    elements = body.elts if isinstance(body, (ast.Tuple, ast.List)) else []
    if not all(isinstance(one, ast.Call) for one in elements):
        raise ValueError("something else than calls")


def worded(result: Any) -> Any:
    """A result as the model is told it: as JSON where its text is JSON."""
    text = str(result)
    if isinstance(result, dict):
        with suppress(TypeError, ValueError):
            text = json.dumps(result)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
