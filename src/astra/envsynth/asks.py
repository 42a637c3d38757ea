"""What environment synthesis asks a teacher, and the replies it expects."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict

from astra.envsynth.static import Problem
from astra.envsynth.worlds import around, effects, is_refused, is_stateful, key_of, may_write
from astra.llm.protocol import Ask, ParseError, ProviderError
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion, Table
from astra.records.state import FieldClass
from astra.records.tool import Tool


class Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")


class ToolDocument(Reply):
    name: str
    description: str
    parameters: dict[str, Any]
    output_schema: dict[str, Any] | None = None

    def tool(self) -> Tool:
        return Tool(**self.model_dump())


class DocumentReply(Reply):
    analysis: str = ""
    tool: ToolDocument


class CallReply(Reply):
    analysis: str = ""
    arguments: dict[str, Any]


class CodeReply(Reply):
    analysis: str = ""
    code: str


class ClusterReply(Reply):
    groups: list[list[int]]
    """Ids of sub-questions that one tool can serve; ids left out stay alone."""


class MergedCall(Reply):
    id: int
    arguments: dict[str, Any]


class MergeReply(Reply):
    code: str
    calls: list[MergedCall]


def document_ask(
    instance: QAInstance, question: SubQuestion, feedback: str, sample: int
) -> Ask[DocumentReply]:
    """Ask for the document of a tool that could answer the sub-question."""
    return Ask(
        "envsynth/document",
        {**_context(instance, question), "feedback": feedback},
        DocumentReply,
        sample,
    )


def complexity_ask(
    instance: QAInstance, question: SubQuestion, tool: Tool, sample: int
) -> Ask[DocumentReply]:
    """Ask for the same tool with a richer signature (the paper's complexity scaling)."""
    return Ask(
        "envsynth/complexity",
        {**_context(instance, question), "tool": tool.view()},
        DocumentReply,
        sample,
    )


def call_ask(
    instance: QAInstance, question: SubQuestion, tool: Tool, feedback: str, sample: int
) -> Ask[CallReply]:
    """Ask for the gold call's arguments."""
    return Ask(
        "envsynth/call",
        {**_context(instance, question), "tool": tool.view(), "feedback": feedback},
        CallReply,
        sample,
    )


def code_ask(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    arguments: dict[str, Any],
    other_keys: int,
    feedback: str,
    sample: int,
) -> Ask[CodeReply]:
    """Ask for the tool's source, over its own data or over the world of a stateful tool."""
    stateful = is_stateful(instance, question)
    return Ask(
        "envsynth/code_stateful" if stateful else "envsynth/code",
        {
            **_context(instance, question),
            "tool": tool.view(),
            "arguments": arguments,
            "other_keys": other_keys,
            "feedback": feedback,
        },
        CodeReply,
        sample,
    )


def cluster_ask(
    instance: QAInstance, members: list[tuple[SubQuestion, Environment]]
) -> Ask[ClusterReply]:
    """Ask which sub-questions one tool can serve."""
    return Ask("envsynth/cluster", {"members": _members(members)}, ClusterReply)


def merge_ask(
    members: list[tuple[SubQuestion, Environment]], feedback: str, sample: int
) -> Ask[MergeReply]:
    """``members[0]`` is the base: its document stays, its data grow."""
    return Ask(
        "envsynth/merge_code",
        {
            "tool": members[0][1].tool.view(),
            "members": _members(members),
            "feedback": feedback,
        },
        MergeReply,
        sample,
    )


def failure(error: ProviderError | ParseError) -> Problem:
    """The problem of a try whose ask got no usable reply."""
    reason = "provider_error" if isinstance(error, ProviderError) else "parse_error"
    return reason, str(error)[:200]


def _context(instance: QAInstance, question: SubQuestion) -> dict[str, Any]:
    """What every ask about a sub-question shows of it."""
    by_id = {other.id: other for other in instance.sub_questions}
    # Only where there is one: a further variable would change what the offline rules draw.
    world = {"world": _world(instance, question)} if is_stateful(instance, question) else {}
    return {
        **world,
        "domain": instance.domain,
        "language": instance.language,
        "question": question.question,
        "answer": question.answer.model_dump(mode="json", include={"type", "value", "unit"}),
        "dependencies": [
            {
                "id": number,
                "question": by_id[number].question,
                "answer": by_id[number].answer.value,
            }
            for number in question.dependencies
        ],
        "operation": question.operation and question.operation.model_dump(mode="json"),
        "table": _table(instance, question),
        "knowledge_text": "" if instance.knowledge else instance.knowledge_text,
    }


def _world(instance: QAInstance, question: SubQuestion) -> dict[str, Any]:
    """What the tool meets, and what its gold call must change."""
    before, _ = around(instance, question)
    return {
        "tables": before.tables,
        "columns": {table.name: table.columns for table in instance.knowledge},
        "made": {
            table.name: [name for name, kind in table.fields.items() if kind == FieldClass.IGNORE]
            for table in instance.knowledge
        },
        "row_keys": {table.name: key_of(table) for table in instance.knowledge},
        "may_write": sorted(may_write(question)),
        "writes": [write.model_dump(mode="json") for write in effects(instance, question)],
        "refused": is_refused(instance, question),
    }


def _table(instance: QAInstance, question: SubQuestion) -> dict[str, Any] | None:
    """The background table that the sub-question is about, where its source states that."""
    named = question.operation.table if question.operation else ""
    table: Table | None = next((t for t in instance.knowledge if t.name == named), None)
    return table and table.model_dump(mode="json")


def _members(members: list[tuple[SubQuestion, Environment]]) -> list[dict[str, Any]]:
    return [
        {
            "id": question.id,
            "question": question.question,
            "operation": question.operation and question.operation.model_dump(mode="json"),
            "tool": environment.tool.view(),
            "arguments": environment.arguments,
            "answer": json.loads(json.dumps(environment.answer.value)),
            "code": environment.code,
        }
        for question, environment in members
    ]
