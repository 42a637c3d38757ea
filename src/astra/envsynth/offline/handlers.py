"""The offline teacher of environment synthesis: one rule per template, over operations.

A rule answers only where a sub-question states its operation. Otherwise it raises ProviderError,
as a model would that cannot be reached.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from astra.envsynth.asks import (
    CallReply,
    ClusterReply,
    CodeReply,
    MergedCall,
    MergeReply,
)
from astra.envsynth.offline import stateful_code, tool_code
from astra.envsynth.offline.documents import complexity, document, operation_of
from astra.envsynth.offline.tool_forms import as_wanted
from astra.llm.protocol import OfflineHandlers, ProviderError
from astra.qa.knowledge.operations import FREE_OPS
from astra.qa.knowledge.references import EvaluationError, resolve
from astra.records.base import canonical_json

Variables = Mapping[str, Any]


def call(variables: Variables, _: random.Random) -> CallReply:
    """The operation's arguments, each in the form that the tool wants."""
    return CallReply(arguments=as_wanted(_given(variables), variables["tool"]["parameters"]))


def code(variables: Variables, rng: random.Random) -> CodeReply:
    """The operation as a small program over an excerpt of its table."""
    operation, table, tool = operation_of(variables), variables["table"], variables["tool"]
    if operation["op"] in FREE_OPS:
        return CodeReply(code=tool_code.write_code(tool, operation, []))
    if table is None:
        raise ProviderError(f"table {operation['table']!r} is not among the knowledge")
    rows = tool_code.excerpt(
        table, operation, tool, _given(variables), variables["other_keys"], rng
    )
    return CodeReply(code=tool_code.write_code(tool, operation, rows))


def code_stateful(variables: Variables, _: random.Random) -> CodeReply:
    """The operation as a small program over the tables of the world."""
    operation = operation_of(variables)
    source = stateful_code.write_stateful_code(variables["tool"], operation, variables["world"])
    return CodeReply(code=source)


def cluster(variables: Variables, _: random.Random) -> ClusterReply:
    """Same operation, relation, parameters and return shape: one tool can serve them."""
    groups: dict[str, list[int]] = {}
    for member in variables["members"]:
        operation = member["operation"] or {}
        shape = canonical_json(
            [
                {key: operation.get(key) for key in ("op", "relation", "table", "select")},
                member["tool"]["parameters"],
                member["tool"]["output_schema"],
                sorted(member["arguments"]),
            ]
        )
        groups.setdefault(shape, []).append(member["id"])
    return ClusterReply(groups=list(groups.values()))


def merge_code(variables: Variables, _: random.Random) -> MergeReply:
    """The base's program over the union of all members' data, in first-seen order."""
    members: list[dict[str, Any]] = variables["members"]
    base: str = members[0]["code"]
    merged = base
    if any(member["code"] != base for member in members):
        rows: dict[str, tool_code.Row] = {}
        try:
            for member in members:
                for row in tool_code.read_rows(member["code"]):
                    rows.setdefault(canonical_json(row), row)
        except (ValueError, SyntaxError) as error:
            raise ProviderError(f"the data cannot be merged by rule: {error}") from error
        if len({tuple(sorted(row)) for row in rows.values()}) > 1:
            raise ProviderError("the members' data have different columns")
        merged = tool_code.replace_rows(base, list(rows.values()))
    calls = [MergedCall(id=member["id"], arguments=member["arguments"]) for member in members]
    return MergeReply(code=merged, calls=calls)


HANDLERS: OfflineHandlers = {
    "envsynth/document": document,
    "envsynth/complexity": complexity,
    "envsynth/call": call,
    "envsynth/code": code,
    "envsynth/code_stateful": code_stateful,
    "envsynth/cluster": cluster,
    "envsynth/merge_code": merge_code,
}


def _given(variables: Variables) -> dict[str, Any]:
    """The operation's arguments, with earlier answers put in."""
    known = {item["id"]: item["answer"] for item in variables["dependencies"]}
    given = operation_of(variables)["arguments"]
    try:
        return {name: resolve(value, known) for name, value in given.items()}
    except EvaluationError as error:
        raise ProviderError(str(error)) from None
