"""What environment synthesis asks a teacher, and the replies it expects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from astra.envsynth.faults import FailedTry, ToolPart
from astra.envsynth.leaks import MIN_NUMBER, secrets_of
from astra.envsynth.truth import WHOLE_TABLE, filters_of
from astra.envsynth.wishes import Wishes
from astra.envsynth.worlds import around, effects, is_refused, is_stateful, key_of, may_write
from astra.llm.protocol import Ask
from astra.qa.knowledge.operations import PAGE_ROWS, TABLE_OPS
from astra.qa.knowledge.references import NEXT_PAGE
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion, Table
from astra.records.state import FieldClass
from astra.records.tool import Tool

FILTERED_OPS = TABLE_OPS - {"lookup", "record", "check", "convert"}
"""Operations over several rows."""
KEPT_OUT = 40
"""The most answers and arguments that a review is told to keep out of a document."""


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
    arguments: dict[str, Any] = {}
    unreachable: str = ""
    """Why nobody can know a required argument; empty where the call can be made."""

    @model_validator(mode="after")
    def _call_or_reason(self) -> Self:
        if bool(self.arguments) == bool(self.unreachable.strip()):
            raise ValueError("give either `arguments` or the reason in `unreachable`")
        return self


class CodeReply(Reply):
    analysis: str = ""
    code: str = ""
    impossible: str = ""
    """Why no code can do what document and call ask for; empty where there is code."""
    call_at_fault: bool = False
    """Whether that lies in the call: the document could stay."""

    @model_validator(mode="after")
    def _code_or_reason(self) -> Self:
        if bool(self.code.strip()) == bool(self.impossible.strip()):
            raise ValueError("give either `code` or the reason in `impossible`")
        return self


class ClusterReply(Reply):
    analysis: str = ""
    groups: list[list[int]]
    """Ids of sub-questions that one tool can serve; ids left out stay alone."""


class MergedCall(Reply):
    id: int
    arguments: dict[str, Any]


class MergeReply(Reply):
    analysis: str = ""
    code: str = ""
    calls: list[MergedCall]
    """The call of every member; empty where one tool cannot serve them all."""

    @model_validator(mode="after")
    def _code_for_calls(self) -> Self:
        if self.calls and not self.code.strip():
            raise ValueError("`calls` need the `code` that answers them")
        return self


@dataclass(frozen=True)
class LastTry:
    """A reply that failed, as the next ask for the same shows it."""

    feedback: str
    """The reason and its detail."""
    reply: Any = None
    """What was rejected; None where no reply could be read."""

    @property
    def shown(self) -> dict[str, Any]:
        return {"feedback": self.feedback, "rejected": self.reply}


FIRST_TRY = LastTry("")
"""Nothing was rejected yet."""


def document_ask(
    instance: QAInstance,
    question: SubQuestion,
    wishes: Wishes,
    failed: FailedTry | None,
    sample: int,
) -> Ask[DocumentReply]:
    """Ask for the document of a tool that could answer the sub-question; ``failed``: how the tool
    of the document before failed.
    """
    context = _context(instance, question)
    return Ask(
        "envsynth/document",
        {
            **context,
            "user_question": instance.main_question,
            "shape": _result_shape(question),
            "unlike_name": wishes.unlike_name,
            "other_form": wishes.other_form,
            "feedback": feedback_of(failed),
            "blamed": (failed.part if failed else ToolPart.DOCUMENT).value,
        },
        DocumentReply,
        sample,
    )


def feedback_of(failed: FailedTry | None) -> str:
    """Why a try failed, as the next ask shows it."""
    return ": ".join(failed.problem) if failed else ""


def gains_filter(question: SubQuestion) -> bool:
    """Whether a tool may gain a filter: one that acts, calculates or looks one row up cannot."""
    if question.writes:
        return False
    return question.operation is None or question.operation.op in FILTERED_OPS


def complexity_ask(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    failed: FailedTry | None,
    sample: int,
) -> Ask[DocumentReply]:
    """Ask for the same tool with a richer signature (the paper's complexity scaling)."""
    secrets = secrets_of(instance)
    columns = filters_of(instance, question)
    stated = question.operation.arguments if question.operation else {}
    return Ask(
        "envsynth/complexity",
        {
            **_context(instance, question),
            "tool": tool.view(),
            "columns": columns and _column_types(instance, question, set(columns) - set(stated)),
            "kept_out": [one for one in (*secrets.answers, *secrets.given) if _tells(one)][
                :KEPT_OUT
            ],
            "feedback": feedback_of(failed),
        },
        DocumentReply,
        sample,
    )


def _column_types(instance: QAInstance, question: SubQuestion, names: set[str]) -> dict[str, str]:
    """The columns of the question's table that are among the names, with the JSON type of cells."""
    table = _table(instance, question) or {"columns": [], "rows": []}
    cells = {name: [row[at] for row in table["rows"] if row[at] is not None]
             for at, name in enumerate(table["columns"]) if name in names}  # fmt: skip
    return {name: _type_of(column) for name, column in cells.items()}


def _type_of(cells: list[Any]) -> str:
    if any(isinstance(cell, str) for cell in cells):
        return "string"
    return "integer" if all(isinstance(cell, int) for cell in cells) else "number"


def _tells(value: Any) -> bool:
    """Whether a document that states the value tells anything: small numbers stand anywhere."""
    if isinstance(value, bool) or value is None:
        return False
    return isinstance(value, str) or abs(value) >= MIN_NUMBER


def _result_shape(question: SubQuestion) -> Any:
    """The shape of the answer; every page may have a next one or none."""
    shape = shape_of(question.answer.value)
    if question.operation is not None and question.operation.op == "page":
        return {**shape, NEXT_PAGE: ["integer", "null"]}
    return shape


def shape_of(value: Any) -> Any:
    """A value's JSON types in place of its scalars; of a list the first item's."""
    if isinstance(value, dict):
        return {name: shape_of(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    if value is None:
        return "null, or another type"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def call_ask(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    sample: int,
    rejected: LastTry = FIRST_TRY,
) -> Ask[CallReply]:
    """Ask for the gold call's arguments."""
    return Ask(
        "envsynth/call",
        {**_context(instance, question), "tool": tool.view(), **rejected.shown},
        CallReply,
        sample,
    )


def code_ask(
    instance: QAInstance,
    question: SubQuestion,
    tool: Tool,
    arguments: dict[str, Any],
    other_keys: int,
    sample: int,
    rejected: LastTry = FIRST_TRY,
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
            **rejected.shown,
        },
        CodeReply,
        sample,
        limits={"all_rows": WHOLE_TABLE, "page_rows": PAGE_ROWS},
    )


def cluster_ask(members: list[tuple[SubQuestion, Environment]]) -> Ask[ClusterReply]:
    """Ask which sub-questions one tool can serve."""
    return Ask("envsynth/cluster", {"members": _members(members)}, ClusterReply)


def merge_ask(
    members: list[tuple[SubQuestion, Environment]], sample: int, rejected: LastTry = FIRST_TRY
) -> Ask[MergeReply]:
    """``members[0]`` is the base: its document stays, its data grow."""
    return Ask(
        "envsynth/merge_code",
        {
            "tool": members[0][1].tool.view(),
            "members": _members(members),
            **rejected.shown,
        },
        MergeReply,
        sample,
    )


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
