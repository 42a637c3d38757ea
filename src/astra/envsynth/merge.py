"""One tool per operation within an instance (ASTRA section 4.2, merging).

A teacher groups sub-questions that one tool can serve. The group's first member is its base: the
teacher extends the data in the base's code until it serves all. ``_Merge`` then replays every
member's gold call: the merged code is one more candidate, proved in the sandbox like the tools of
stage ``envs``. A merge that keeps failing falls back to the separate tools. Tool names end up
unique.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from astra.envsynth import asks
from astra.envsynth.candidates import candidate_of
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.envsynth.static import Problem, call_problem, recorded
from astra.envsynth.verify import Verify
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


@dataclass(frozen=True)
class MergedTool:
    """A tool of an arena and the gold arguments of each sub-question it serves."""

    tool: Tool
    code: str
    calls: Mapping[int, dict[str, Any]]


@dataclass
class ArenaDraft:
    """An instance on its way to an arena; ``merge_tools`` fills ``tools`` and ``tries``."""

    instance: QAInstance
    environments: Mapping[int, Environment]
    """The verified tools by id of their sub-question, as stage ``envs`` left them."""
    tools: list[MergedTool] = field(default_factory=list[MergedTool])
    """The tools of the arena."""
    tries: list[Rejection] = field(default_factory=list[Rejection])
    """What failed on the way; the tools it was about stay apart."""
    notes: PromptNotes = field(default_factory=PromptNotes)
    """Which prompts the teacher was asked with."""

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
    draft: ArenaDraft,
    teacher: Teacher,
    verify: Verify,
    config: EnvsMergedConfig,
    metrics: StageMetrics,
) -> None:
    """Merge the draft's tools by group; a merged tool has to replay every member's gold call.

    Fills the draft's ``tools``, and its ``tries`` with why merges failed; counts what became of the
    groups.
    """
    merges = [
        _Merge(draft, members, teacher, verify, config)
        for members in await _groups(draft, teacher, metrics)
    ]
    async with aclosing(map_bounded(merges, _Merge.tools, len(merges))) as by_group:
        tools = [tool async for tools_of_group in by_group for tool in tools_of_group]
    draft.tools = unique_names(tools)
    for merge in merges:
        merge.count(metrics)
        for attempt, problem in enumerate(merge.problems):
            draft.failed(merge.part, problem, attempt)


async def _groups(draft: ArenaDraft, teacher: Teacher, metrics: StageMetrics) -> list[list[Member]]:
    """Groups of members, by first id; all apart, with the reason noted, if none can be had."""
    members = {
        question.id: (question, draft.environments[question.id])
        for question in draft.instance.sub_questions
        if question.id in draft.environments
    }
    groups = await _grouped_ids(draft, list(members.values()), teacher)
    if isinstance(groups, tuple):
        metrics.count(f"clustering_failed_{groups[0]}")
        draft.failed("grouping", groups)
        return [[member] for member in members.values()]
    named = {number for group in groups for number in group}
    apart = [[number] for number in members if number not in named]
    return [[members[number] for number in group] for group in sorted([*groups, *apart])]


async def _grouped_ids(
    draft: ArenaDraft, members: list[Member], teacher: Teacher
) -> list[list[int]] | Problem:
    """The ids of each group that the teacher sees; ids left out stay alone."""
    if len(members) < 2:
        return []
    try:
        reply = await draft.notes.of(teacher).ask(asks.cluster_ask(draft.instance, members))
    except (ProviderError, ParseError) as error:
        return asks.failure(error)
    named = [number for group in reply.groups for number in group]
    known = {question.id for question, _ in members}
    if len(set(named)) != len(named) or not set(named) <= known:
        return "bad_ids", f"{canonical_json(reply.groups)[:200]} of {sorted(known)}"
    return [sorted(group) for group in reply.groups if group]


class _Merge:
    """One group on its way to a tool that serves all its members."""

    def __init__(
        self,
        draft: ArenaDraft,
        members: list[Member],
        teacher: Teacher,
        verify: Verify,
        config: EnvsMergedConfig,
    ) -> None:
        self._instance = draft.instance
        self._members = members
        self._teacher = draft.notes.of(AskBudget(config.max_asks).of(teacher))
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
                result = await self._try(attempt)
                if isinstance(result, MergedTool):
                    self._merged = True
                    return [result]
                self.problems.append(result)
        except AskBudgetSpent as error:
            detail = f"{error}; the last problem was {self._feedback or 'none'}"
            self.problems.append(("ask_budget_spent", detail))
        return [
            MergedTool(environment.tool, environment.code, {question.id: environment.arguments})
            for question, environment in self._members
        ]

    def count(self, metrics: StageMetrics) -> None:
        """Count what became of the group; a member alone is none."""
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
        merged = await self._unproved(attempt)
        if not isinstance(merged, MergedTool):
            return merged
        candidate = candidate_of(self._instance, merged.tool, merged.code, merged.calls)
        proof = await self._verify(candidate)
        return proof.problem or merged

    async def _unproved(self, attempt: int) -> MergedTool | Problem:
        """The merged tool as the teacher writes it, its calls checked against the document."""
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
            except (ProviderError, ParseError) as error:
                return asks.failure(error)
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
    unique: list[MergedTool] = []
    for merged in tools:
        name = merged.tool.name
        required = merged.tool.parameters.get("required", ())
        by_parameter = [f"{name}_by_{parameter}" for parameter in reversed(required)]
        numbered = (f"{name}_{number}" for number in count(2))
        free = next(
            choice for choice in chain([name], by_parameter, numbered) if choice not in taken
        )
        taken.add(free)
        unique.append(merged if free == name else rename(merged, free))
    return unique


def rename(merged: MergedTool, name: str) -> MergedTool:
    """The same tool under another name, in document and code alike."""
    old = merged.tool.name
    lines = merged.code.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(merged.code).readline))
    for token in reversed(tokens):  # from the end, so that earlier positions stay true
        if token.type == tokenize.NAME and token.string == old:
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + name + line[column + len(old) :]
    tool = merged.tool.model_copy(update={"name": name})
    return MergedTool(tool, "".join(lines), merged.calls)
