"""One tool per operation within an instance (ASTRA section 4.2, merging).

A teacher groups sub-questions that one tool can serve and extends the base member's data until
it serves all; every member's gold call is proved again on the merged code. A merge that keeps
failing falls back to the separate tools. Tool names end up unique.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from astra.envsynth import asks
from astra.envsynth.candidates import CandidateTool, Proof, candidate_of
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.envsynth.static import Problem, call_problem, recorded
from astra.envsynth.worlds import is_stateful
from astra.llm.notes import AskBudget, AskBudgetSpent, PromptNotes
from astra.llm.pool import map_bounded
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.base import canonical_json
from astra.records.environment import Environment
from astra.records.qa import QAInstance, SubQuestion
from astra.records.score import Rejection
from astra.records.tool import Tool
from astra.store.metrics import StageMetrics

Member = tuple[SubQuestion, Environment]
Verify = Callable[[CandidateTool], Awaitable[Proof]]


@dataclass(frozen=True)
class MergedTool:
    """A tool of an arena and the gold arguments of each sub-question it serves."""

    tool: Tool
    code: str
    calls: Mapping[int, dict[str, Any]]


@dataclass
class ArenaDraft:
    """An instance with its environments on the way to merged tools."""

    instance: QAInstance
    environments: Mapping[int, Environment]
    tools: list[MergedTool] = field(default_factory=list[MergedTool])
    tries: list[Rejection] = field(default_factory=list[Rejection])
    """What failed on the way; the tools it was about stay apart."""
    notes: PromptNotes = field(default_factory=PromptNotes)

    def failed(self, part: str, problem: Problem, attempt: int = 0) -> None:
        """Note a failed try of grouping or merging."""
        self.tries.append(
            Rejection(
                item=self.instance.id,
                part=part,
                reason=problem[0],
                detail=recorded(problem),
                attempt=attempt,
                final=False,
            )
        )


async def merge_tools(
    plan: ArenaDraft,
    teacher: Teacher,
    verify: Verify,
    config: EnvsMergedConfig,
    metrics: StageMetrics,
) -> None:
    """Fill the plan's ``tools`` and ``tries``; count what became of its groups."""
    merges = [
        _Merge(plan, members, teacher, verify, config)
        for members in await _clusters(plan, teacher, metrics)
    ]
    async with aclosing(map_bounded(merges, _Merge.tools, len(merges))) as merged:
        tools = [tool async for made in merged for tool in made]
    plan.tools = unique_names(tools)
    for merge in merges:
        merge.count(metrics)
        for attempt, problem in enumerate(merge.problems):
            plan.failed(merge.part, problem, attempt)


async def _clusters(
    plan: ArenaDraft, teacher: Teacher, metrics: StageMetrics
) -> list[list[Member]]:
    """Groups of members, by first id; all apart, with the reason noted, if none can be had."""
    members = {
        question.id: (question, plan.environments[question.id])
        for question in plan.instance.sub_questions
        if question.id in plan.environments
    }
    groups = await _grouped(plan, list(members.values()), teacher)
    if isinstance(groups, tuple):
        metrics.count(f"clustering_failed_{groups[0]}")
        plan.failed("grouping", groups)
        return [[member] for member in members.values()]
    named = {number for group in groups for number in group}
    apart = [[number] for number in members if number not in named]
    return [[members[number] for number in group] for group in sorted([*groups, *apart])]


async def _grouped(
    plan: ArenaDraft, members: list[Member], teacher: Teacher
) -> list[list[int]] | Problem:
    """The ids of each group that the teacher sees; ids left out stay alone."""
    if len(members) < 2:
        return []
    try:
        reply = await plan.notes.of(teacher).ask(asks.cluster_ask(plan.instance, members))
    except ProviderError as error:
        return "provider_error", str(error)[:200]
    except ParseError as error:
        return "parse_error", str(error)[:200]
    named = [number for group in reply.groups for number in group]
    known = {question.id for question, _ in members}
    if len(set(named)) != len(named) or not set(named) <= known:
        return "bad_ids", f"{canonical_json(reply.groups)[:200]} of {sorted(known)}"
    return [sorted(group) for group in reply.groups if group]


class _Merge:
    """One group on its way to a tool that serves all its members."""

    def __init__(
        self,
        plan: ArenaDraft,
        members: list[Member],
        teacher: Teacher,
        verify: Verify,
        config: EnvsMergedConfig,
    ) -> None:
        self._instance = plan.instance
        self._members = members
        self._teacher = plan.notes.of(AskBudget(config.max_asks).of(teacher))
        self._verify = verify
        self._attempts = config.merge_attempts if len(members) > 1 else 0
        self._merged = False
        self.part = f"merge {' '.join(str(question.id) for question, _ in members)}"
        self.problems: list[Problem] = []
        """Why each try failed so far."""

    async def tools(self) -> list[MergedTool]:
        """The merged tool, or those of the members."""
        try:
            for attempt in range(self._attempts):
                made = await self._try(attempt)
                if isinstance(made, MergedTool):
                    self._merged = True
                    return [made]
                self.problems.append(made)
        except AskBudgetSpent as error:
            detail = f"{error}; the last problem was {self._feedback or 'none'}"
            self.problems.append(("ask_budget_spent", detail))
        return [
            MergedTool(environment.tool, environment.code, {question.id: environment.arguments})
            for question, environment in self._members
        ]

    def count(self, metrics: StageMetrics) -> None:
        if len(self._members) < 2:
            return
        metrics.count("groups")
        if self._merged:
            metrics.count("merged_groups")
            metrics.count("merged_members", len(self._members))
        else:
            metrics.count(f"merge_failed_{self.problems[-1][0]}")

    @property
    def _feedback(self) -> str:
        return ": ".join(self.problems[-1]) if self.problems else ""

    async def _try(self, attempt: int) -> MergedTool | Problem:
        made = await self._draft(attempt)
        if not isinstance(made, MergedTool):
            return made
        candidate = candidate_of(self._instance, made.tool, made.code, made.calls)
        return (await self._verify(candidate)).problem or made

    async def _draft(self, attempt: int) -> MergedTool | Problem:
        base = self._members[0][1]
        if all(
            environment.code == base.code or is_stateful(self._instance, question)
            for question, environment in self._members
        ):
            # No data of its own, or the same: there is nothing to extend, only to prove.
            code = base.code
            calls = {question.id: environment.arguments for question, environment in self._members}
        else:
            try:
                ask = asks.merge_ask(self._members, self._feedback, attempt)
                reply = await self._teacher.ask(ask)
            except ProviderError as error:
                return "provider_error", str(error)[:200]
            except ParseError as error:
                return "parse_error", str(error)[:200]
            code, calls = reply.code, {call.id: call.arguments for call in reply.calls}
        if sorted(calls) != sorted(question.id for question, _ in self._members):
            return "calls_missing", f"all members or none: the calls are for {sorted(calls)}"
        for arguments in calls.values():
            problem = call_problem(base.tool, arguments)
            if problem is not None:
                return problem
        return MergedTool(base.tool, code, calls)


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
