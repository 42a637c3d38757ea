"""One tool per operation within an instance (ASTRA section 4.2, merging).

A teacher groups sub-questions that one tool can serve and extends the base member's data until
it serves all; every member's gold call is proved again on the merged code. A merge that keeps
failing falls back to the separate tools. Tool names end up unique.
"""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from astra.envsynth import asks
from astra.envsynth.candidates import Candidate, candidate_of
from astra.envsynth.config import EnvsMergedConfig
from astra.envsynth.static import Problem, call_problem
from astra.envsynth.verify import verify
from astra.envsynth.worlds import is_stateful
from astra.llm.notes import PromptNotes
from astra.llm.pool import map_bounded
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion
from astra.records.tool import Tool
from astra.sandbox.protocol import Sandbox

Member = tuple[SubQuestion, Environment]


@dataclass(frozen=True)
class MergedTool:
    """A tool of an arena and the gold arguments of each sub-question it serves."""

    tool: Tool
    code: str
    calls: Mapping[int, dict[str, Any]]


@dataclass
class Plan:
    """An instance with its environments on the way to merged tools."""

    instance: QAInstance
    environments: Mapping[int, Environment]
    tools: list[MergedTool] = field(default_factory=list[MergedTool])
    notes: PromptNotes = field(default_factory=PromptNotes)


@dataclass
class _Group:
    plan: Plan
    members: list[Member]
    problem: Problem | None = None
    merged: MergedTool | None = None

    @property
    def feedback(self) -> str:
        return f"{self.problem[0]}: {self.problem[1]}" if self.problem else ""


async def merge_all(
    plans: Sequence[Plan],
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsMergedConfig,
    concurrency: int,
) -> Counter[str]:
    """Fill each plan's ``tools``; returns counts of what became of the groups."""
    counts: Counter[str] = Counter()
    groups: list[_Group] = []
    clustered = map_bounded(plans, lambda plan: _clusters(plan, teacher), concurrency)
    for plan in plans:
        parts, fault = await anext(clustered)
        counts[f"clustering_failed_{fault}"] += bool(fault)
        groups += [_Group(plan, part) for part in parts]
    pending = [group for group in groups if len(group.members) > 1]
    counts["groups"] += len(pending)
    for attempt in range(config.merge_attempts):
        await _attempt(pending, attempt, teacher, sandbox, config, concurrency)
        pending = [group for group in pending if group.merged is None]
        if not pending:
            break
    for group in groups:
        if group.merged is not None:
            group.plan.tools.append(group.merged)
            counts["merged_groups"] += 1
            counts["merged_members"] += len(group.members)
        else:
            if group.problem is not None:
                counts[f"merge_failed_{group.problem[0]}"] += 1
            group.plan.tools += [
                MergedTool(environment.tool, environment.code, {question.id: environment.arguments})
                for question, environment in group.members
            ]
    for plan in plans:
        plan.tools = unique_names(plan.tools)
    return +counts


async def _clusters(plan: Plan, teacher: Teacher) -> tuple[list[list[Member]], str]:
    """Groups of members, by first id; all apart, with the reason, if none can be had."""
    members = {
        question.id: (question, plan.environments[question.id])
        for question in plan.instance.sub_questions
        if question.id in plan.environments
    }
    apart = [[member] for member in members.values()]
    if len(members) < 2:
        return apart, ""
    try:
        ask = asks.cluster_ask(plan.instance, list(members.values()))
        reply = await plan.notes.of(teacher).ask(ask)
    except ProviderError:
        return apart, "provider_error"
    except ParseError:
        return apart, "parse_error"
    named = [number for group in reply.groups for number in group]
    if len(set(named)) != len(named) or not set(named) <= set(members):
        return apart, "bad_ids"
    groups = [sorted(group) for group in reply.groups if group]
    groups += [[number] for number in members if number not in named]
    return [[members[number] for number in group] for group in sorted(groups)], ""


async def _attempt(
    groups: Sequence[_Group],
    attempt: int,
    teacher: Teacher,
    sandbox: Sandbox,
    config: EnvsMergedConfig,
    concurrency: int,
) -> None:
    async def draft(group: _Group) -> MergedTool | Problem:
        return await _draft(group, attempt, teacher)

    replies = map_bounded(groups, draft, concurrency)
    drafted: list[tuple[_Group, MergedTool, Candidate]] = []
    for group in groups:
        made = await anext(replies)
        if isinstance(made, MergedTool):
            drafted.append((group, made, _candidate(group, made)))
        else:
            group.problem = made
    verdicts = verify([candidate for _, _, candidate in drafted], sandbox, config.sandbox)
    for (group, made, _), verdict in zip(drafted, verdicts, strict=True):
        group.problem = verdict.problem
        if verdict.problem is None:
            group.merged = made


async def _draft(group: _Group, attempt: int, teacher: Teacher) -> MergedTool | Problem:
    base = group.members[0][1]
    instance = group.plan.instance
    if all(
        environment.code == base.code or is_stateful(instance, question)
        for question, environment in group.members
    ):
        # No data of its own, or the same: there is nothing to extend, only to prove.
        code = base.code
        calls = {question.id: environment.arguments for question, environment in group.members}
    else:
        try:
            ask = asks.merge_ask(group.members, group.feedback, attempt)
            reply = await group.plan.notes.of(teacher).ask(ask)
        except ProviderError as error:
            return "provider_error", str(error)[:200]
        except ParseError as error:
            return "parse_error", str(error)[:200]
        code, calls = reply.code, {call.id: call.arguments for call in reply.calls}
    if sorted(calls) != sorted(question.id for question, _ in group.members):
        return "calls_missing", f"all members or none: the calls are for {sorted(calls)}"
    for arguments in calls.values():
        problem = call_problem(base.tool, arguments)
        if problem is not None:
            return problem
    return MergedTool(base.tool, code, calls)


def _candidate(group: _Group, made: MergedTool) -> Candidate:
    return candidate_of(group.plan.instance, made.tool, made.code, made.calls)


def unique_names(tools: Sequence[MergedTool]) -> list[MergedTool]:
    """Tools in order; a name already taken gets ``_by_<parameter>``, else a number."""
    taken: set[str] = set()
    named: list[MergedTool] = []
    for made in tools:
        name = made.tool.name
        required = made.tool.parameters.get("required", ())
        choices = [name, *(f"{name}_by_{parameter}" for parameter in reversed(required))]
        number = 2
        while choices[0] in taken:
            choices.pop(0)
            if not choices:
                choices, number = [f"{name}_{number}"], number + 1
        taken.add(choices[0])
        named.append(made if choices[0] == name else rename(made, choices[0]))
    return named


def rename(made: MergedTool, name: str) -> MergedTool:
    """The same tool under another name, in document and code alike."""
    old = made.tool.name
    lines = made.code.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(made.code).readline))
    for token in reversed(tokens):
        if token.type == tokenize.NAME and token.string == old:
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + name + line[column + len(old) :]
    tool = made.tool.model_copy(update={"name": name})
    return MergedTool(tool, "".join(lines), made.calls)
