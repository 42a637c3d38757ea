"""Accepted codes of tools to be mutated: the offline teacher's, and those that a model wrote.

A code counts as accepted where today's proof takes it; ``mutants.py`` asks for that. What a model
wrote lies in tests/fixtures: codes that a strong model's run made (``model_codes``), recorded
exchanges of an early build, whose prompts hold question, call, answer and table, and single tools.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from astra.envsynth.candidates import CandidateTool, candidate_of
from astra.envsynth.envs import environments
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.offline.handlers import HANDLERS
from astra.llm.offline import OfflineTeacher
from astra.qa.config import QAConfig, QAValidConfig
from astra.qa.knowledge.operations import evaluate
from astra.qa.knowledge.references import EvaluationError
from astra.qa.offline.handlers import HANDLERS as QUESTION_HANDLERS
from astra.qa.qa import QuestionWriter
from astra.qa.qa import instances as questions
from astra.qa.qa_valid import valid
from astra.records.base import Frozen
from astra.records.environment import Arena, Environment
from astra.records.qa import (
    Answer,
    AnswerType,
    Operation,
    QAInstance,
    QuestionKind,
    Scenario,
    Split,
    SubQuestion,
    Table,
)
from astra.records.state import Write
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox
from astra.store.metrics import StageMetrics
from astra.store.tables import read_records

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests/fixtures"
EXCHANGES = FIXTURES / "exchanges/environment_track.jsonl.gz"
KEPT = FIXTURES / "model_codes/accepted.jsonl.gz"
SINGLE = ROOT / "tests/envsynth/model_tools.json"
HARD_QUESTIONS, HARD_SHARE = 130, 0.8
"""Questions asked for at the settings of scale ``small``, and how many of them are hard."""
OPERATIONS = {
    "get_cheapest_listing": ("argmin", "listing:asking_price"),
    "get_cheapest_room": ("argmin", "room:price"),
    "get_cheapest_departure": ("argmin", "departure:base_price"),
    "get_section_most_seats": ("argmax", "section:open_seats"),
    "get_total_specimens": ("sum", "specimens"),
    "get_fare_difference": ("subtract", ""),
}
"""What the tools of the exchanges do that are no look-ups: a prompt does not say it."""


class Written(Frozen):
    """A code with the question behind it and the gold calls that it serves."""

    source: QAInstance
    tool: Tool
    code: str
    calls: dict[int, dict[str, Any]]
    """Gold arguments by id of the sub-question."""
    members: tuple[Environment, ...] = ()
    """The tools that it was merged from."""

    def candidate(self, code: str = "") -> CandidateTool:
        """What has to be proved of the code, or of another in its place."""
        return candidate_of(self.source, self.tool, code or self.code, self.calls, self.members)


def distinct(codes: Iterable[Written]) -> list[Written]:
    """The codes without repeats."""
    kept: dict[str, Written] = {}
    for one in codes:
        kept.setdefault(one.code, one)
    return list(kept.values())


# The offline teacher's -----------------------------------------------------------------------


def committed(count: int, rng: random.Random, data: Path = ROOT / "data") -> list[Written]:
    """Some codes of the committed build."""
    found = from_tables(data)
    return rng.sample(found, min(count, len(found)))


def hard(count: int, rng: random.Random, sandbox: Sandbox) -> list[Written]:
    """Some codes of a build made on the spot as scale ``small`` has it: hard tools, tools that
    write, Chinese.
    """
    made = distinct(asyncio.run(_small(sandbox)))
    return rng.sample(made, min(count, len(made)))


async def _small(sandbox: Sandbox) -> list[Written]:
    """Every tool of the build, by the flows of the stages."""
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        whole = OmegaConf.to_container(compose("config", ["scale=small"]), resolve=True)
    assert isinstance(whole, dict)
    block = {**whole["qa"], "corpora": {}, "tables": {}, "instances": {"train": HARD_QUESTIONS}}
    config = QAConfig.model_validate({**block, "hard": HARD_SHARE})
    judged = QAValidConfig.model_validate(whole["qa_valid"])
    tools = EnvsConfig.model_validate(whole["envs"])
    asked = questions(
        QuestionWriter(config), OfflineTeacher(config.teacher, QUESTION_HANDLERS), 8,
        StageMetrics("qa"),
    )  # fmt: skip
    sources = [one async for one in asked if isinstance(one, QAInstance)]
    judge = OfflineTeacher(judged.judge, QUESTION_HANDLERS)
    passed = valid(sources, judge, judged, 8, StageMetrics("qa_valid"))
    by_id = {one.id: one async for one in passed if isinstance(one, QAInstance)}
    teacher = OfflineTeacher(tools.teacher, HANDLERS)
    flow = environments(by_id.values(), teacher, sandbox, tools, 8, StageMetrics("envs"))
    return [of(by_id[one.qa_id], one) async for one in flow if isinstance(one, Environment)]


# Those that a model wrote --------------------------------------------------------------------


def by_models(tables: Sequence[Path]) -> list[Written]:
    """Every code that a model wrote, those in other folders with tables included."""
    found = [*kept(), *exchanged(), *single()]
    for folder in tables:
        found += from_tables(folder)
    return distinct(found)


def of(source: QAInstance, made: Environment) -> Written:
    """The code of an environment."""
    return Written(
        source=source, tool=made.tool, code=made.code,
        calls={made.sub_question_id: made.arguments},
    )  # fmt: skip


def from_tables(folder: Path) -> list[Written]:
    """The codes in the tables of a build, those that came of merging included."""
    sources = {one.id: one for one in read_records(folder / "qa_valid.parquet", QAInstance)}
    made = list(read_records(folder / "envs.parquet", Environment))
    found = distinct(of(sources[one.qa_id], one) for one in made)
    known = {one.code for one in found}
    for arena in read_records(folder / "envs_merged.parquet", Arena):
        merged = [one for one in arena.tools if one.code and one.code not in known]
        for tool in merged:
            steps = {
                step.id: step.arguments for step in arena.steps if step.tool_name == tool.tool.name
            }
            members = [
                one for one in made if one.qa_id == arena.qa_id and one.sub_question_id in steps
            ]
            if steps and arena.qa_id in sources:
                found.append(
                    Written(
                        source=sources[arena.qa_id], tool=tool.tool, code=tool.code, calls=steps,
                        members=tuple(members),
                    )
                )  # fmt: skip
    return distinct(found)


def kept() -> list[Written]:
    """The codes that a strong model's run made, as they are kept with the tests."""
    with gzip.open(KEPT, "rt", encoding="utf-8") as lines:
        return [Written.model_validate_json(line) for line in lines]


def single() -> list[Written]:
    """Tools that a model wrote one by one, flawless and not."""
    cases: dict[str, Any] = json.loads(SINGLE.read_text(encoding="utf-8"))
    found: list[Written] = []
    for case in cases.values():
        tables = [Table.model_validate(case["table"])] if case.get("table") else []
        for one in [case, *case.get("members", ())]:
            if "code" in one and "arguments" in one:
                asked = {"answer": one["answer"], "question": one["question"]}
                found.append(_written(case["tool"], one["code"], one["arguments"], asked, tables))
    return found


def exchanged() -> list[Written]:
    """The codes of the recorded exchanges, with what their prompts say of question and data."""
    found: list[Written] = []
    with gzip.open(EXCHANGES, "rt", encoding="utf-8") as lines:
        for one in map(json.loads, lines):
            prompt = one["ask"]["messages"][0]["content"]
            if prompt.startswith("You implement one tool in Python"):
                code = json.loads(one["answer"]["content"])["code"]
                found.append(_from_prompt(prompt, code))
    return found + list(_merged(found))


_TOOL = re.compile(r"# Tool\n(.+)\n")
_CALL = re.compile(r"question: (.+)\narguments: (.+)\nresult: (.+)\n")
_TABLE = re.compile(r'# Data to take from: table "(.+)"\n((?:\[.*\]\n)+)')
_SHARED = re.compile(r"## (\w+), columns (\[.*\]).*\n((?:\{.*\}\n)*)")
_WRITE = re.compile(r"# What this call must change\n(\{.*\})\n")
_MEMBER = re.compile(r"## id (\d+): (.+)\ncall: (.+)\nresult: (.+)\n")


def _from_prompt(prompt: str, code: str) -> Written:
    """A code with what the prompt that asked for it says."""
    shown, call = _TOOL.search(prompt), _CALL.search(prompt)
    assert shown is not None
    assert call is not None
    tables = [
        Table(name=name, columns=columns, rows=tuple(tuple(row) for row in rows))
        for name, (columns, *rows) in (
            (name, [json.loads(line) for line in lines.splitlines()])
            for name, lines in _TABLE.findall(prompt)
        )
    ]
    for name, names, lines in _SHARED.findall(prompt):
        columns = json.loads(names)
        rows = [json.loads(line) for line in lines.splitlines()]
        cells = tuple(tuple(row[column] for column in columns) for row in rows)
        tables.append(Table(name=name, columns=columns, rows=cells))
    change = _WRITE.search(prompt)
    write = Write.model_validate_json(change[1]) if change else None
    shared = "works on shared tables" in prompt[:80]
    asked = {"question": call[1], "answer": json.loads(call[3])}
    return _written(
        json.loads(shown[1]), code, json.loads(call[2]), asked, tables, write, stateful=shared
    )


def _merged(codes: Sequence[Written]) -> Iterator[Written]:
    """The codes of the exchanges' merges; their members are known by question and call."""
    known = {_asked(one): one for one in codes}
    with gzip.open(EXCHANGES, "rt", encoding="utf-8") as lines:
        for exchange in map(json.loads, lines):
            prompt = exchange["ask"]["messages"][0]["content"]
            if not prompt.startswith("You merge tools"):
                continue
            reply = json.loads(exchange["answer"]["content"])
            shown = re.search(r"# The tool that stays\n(.+)\n", prompt)
            listed = {
                int(number): known.get((question, json.dumps(json.loads(call), sort_keys=True)))
                for number, question, call, _ in _MEMBER.findall(prompt)
            }
            found = {number: one for number, one in listed.items() if one is not None}
            calls = {member["id"]: member["arguments"] for member in reply["calls"]}
            if shown is None or len(calls) < 2 or found.keys() != calls.keys():
                continue
            steps = [
                member.source.sub_questions[0].model_copy(update={"id": number})
                for number, member in found.items()
            ]
            knowledge = {
                table.name: table for one in found.values() for table in one.source.knowledge
            }
            source = _instance(steps, list(knowledge.values()))
            tool = Tool.model_validate(json.loads(shown[1]))
            members = tuple(
                Environment(
                    qa_id=source.id, sub_question_id=step.id, tool=member.tool, code=member.code,
                    arguments=member.calls[1], answer=step.answer, checks={},
                )
                for step, member in zip(steps, found.values(), strict=True)
            )  # fmt: skip
            yield Written(
                source=source, tool=tool, code=reply["code"], calls=calls, members=members
            )


def _asked(one: Written) -> tuple[str, str]:
    (question, *_) = one.source.sub_questions
    return question.question, json.dumps(one.calls[question.id], sort_keys=True)


def _written(
    document: Mapping[str, Any],
    code: str,
    arguments: dict[str, Any],
    asked: Mapping[str, Any],
    tables: Sequence[Table],
    write: Write | None = None,
    stateful: bool = False,
) -> Written:
    """A code whose sub-question has no more than a wording, an answer and a table."""
    tool = Tool.model_validate(document)
    value = asked["answer"]
    kind = AnswerType.STRING if isinstance(value, str) else AnswerType.NUMBER
    operation = _operation(tool.name, arguments, value, tables, write)
    step = SubQuestion(
        id=1, hop_level=1, question=asked["question"], tool_necessity=True, operation=operation,
        answer=Answer(type=kind, value=value), writes=(write,) if write else (),
    )  # fmt: skip
    steps = [step]
    if stateful and write is None:
        steps.append(_later_write(tables))
    return Written(source=_instance(steps, tables), tool=tool, code=code, calls={1: arguments})


def _later_write(tables: Sequence[Table]) -> SubQuestion:
    """A later step that writes, as each of these questions had one: it makes tools stateful."""
    table = tables[0]
    values = dict(zip(table.columns, table.rows[0], strict=True)) | {table.columns[0]: "Zeno Loft"}
    write = Write.model_validate({"action": "insert", "table": table.name, "values": values})
    return SubQuestion(
        id=2, hop_level=2, question="Add it.", tool_necessity=True, dependencies=(1,),
        answer=Answer(type=AnswerType.STRING, value="Zeno Loft"), writes=(write,),
    )  # fmt: skip


def _operation(
    name: str,
    arguments: Mapping[str, Any],
    value: Any,
    tables: Sequence[Table],
    write: Write | None,
) -> Operation | None:
    """The operation that gives the answer; None where none does."""
    if write is not None:
        (told, *_) = [*(own for own, cell in write.values.items() if cell == value), ""]
        return Operation(
            op=write.action.value, relation=name, table=write.table, arguments=dict(arguments),
            select=told,
        )  # fmt: skip
    found: list[Operation] = []
    for table in [*tables, None]:
        if name in OPERATIONS:
            tried = [OPERATIONS[name]]
        else:
            tried = [("lookup", column) for column in (table.columns if table else ())]
        given = _by_column(arguments, table)
        if OPERATIONS.get(name, ("",))[0] == "subtract":
            given = dict(zip(("amount", "minus"), arguments.values(), strict=True))
        for op, select in tried:
            one = Operation(
                op=op, relation=name, table=table.name if table else "", arguments=given,
                select=select,
            )  # fmt: skip
            try:
                if evaluate(one, tables, {}) == value and select not in given:
                    found.append(one)
            except (EvaluationError, ArithmeticError, KeyError, ValueError):
                continue
    return found[0] if len(found) == 1 else None


def _by_column(arguments: Mapping[str, Any], table: Table | None) -> dict[str, Any]:
    """The arguments by the column of their name, else by the only one that holds their value."""
    given: dict[str, Any] = {}
    for name, value in arguments.items():
        columns = table.columns if table else ()
        cells = {column: [row[at] for row in table.rows] for at, column in enumerate(columns)}
        holding = [column for column in columns if value in cells[column]]
        given[name if name in columns or len(holding) != 1 else holding[0]] = value
    return given


def _instance(steps: Sequence[SubQuestion], tables: Sequence[Table]) -> QAInstance:
    writes = any(step.writes for step in steps)
    return QAInstance(
        split=Split.TRAIN, domain="exchanges", language="en", source="exchanges",
        kind=QuestionKind.MIXED if writes else QuestionKind.READ_ONLY,
        scenario=Scenario.SINGLE_HOP if len(steps) == 1 else Scenario.MULTI_HOP,
        main_question=" ".join(step.question for step in steps), final_answer=steps[-1].answer,
        sub_questions=tuple(steps), knowledge=tuple(tables), entities=(),
        composition="exchange",
    )  # fmt: skip
