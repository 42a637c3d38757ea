"""One tool per operation within an instance (ASTRA section 4.2, merging).

``grouping`` says which sub-questions one tool serves by construction and which ones cannot share
one; a teacher groups what is left. A member's tool that serves its whole group as it is stays.
Else the first member is the base, as in the paper: the teacher extends the data in its code until
it serves all. ``_Merge`` replays every member's gold call: the merged code is one more candidate,
proved in the sandbox like the tools of stage ``envs``. A merge that keeps failing falls back to the
separate tools. Tool names end up unique.

Two tools for one operation are *twins*: a question cannot say which of them a step means, so an
instance that is left with some becomes no arena.
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
from astra.envsynth.asks import FIRST_TRY, LastTry, MergeReply
from astra.envsynth.candidates import candidate_of
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.envsynth.faults import failure
from astra.envsynth.grouping import Class, Member, calls_of, can_merge, classes_of, doubtful
from astra.envsynth.static import Problem, call_problem, recorded
from astra.envsynth.verify import Verify
from astra.envsynth.worlds import is_stateful
from astra.llm.notes import AskBudget, AskBudgetSpent, PromptNotes
from astra.llm.pool import map_bounded
from astra.llm.protocol import ParseError, ProviderError, Teacher
from astra.records.base import canonical_json
from astra.records.environment import Environment
from astra.records.qa import QAInstance
from astra.records.score import Rejection
from astra.records.tool import Tool
from astra.store.metrics import StageMetrics


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


def twin_tools(draft: ArenaDraft) -> Problem | None:
    """The tools that are left for one operation, if any are, once the draft is merged."""
    served = {number: merged.tool.name for merged in draft.tools for number in merged.calls}
    for members in _classes(draft):
        names = sorted({served[question.id] for question, _ in members})
        if len(names) > 1:
            ids = [question.id for question, _ in members]
            return "twin_tools", f"steps {ids} ask for the same and have the tools {names}"
    return None


def _classes(draft: ArenaDraft) -> list[Class]:
    """The members that are one by construction, together."""
    return classes_of(
        [
            (question, draft.environments[question.id])
            for question in draft.instance.sub_questions
            if question.id in draft.environments
        ]
    )


async def _groups(draft: ArenaDraft, teacher: Teacher, metrics: StageMetrics) -> list[Class]:
    """Groups of members, by first id: the classes that are one by construction, joined where the
    teacher sees one tool for several. If it cannot say, they stay apart, with the reason noted.
    """
    classes = _classes(draft)
    metrics.count("groups_by_construction", sum(len(members) > 1 for members in classes))
    unclear = doubtful(classes)
    joined: list[list[int]] = []
    if unclear:
        metrics.count("groupings_asked")
        joined = await _joined(draft, [members[0] for members in unclear], teacher, metrics)
    by_first = {members[0][0].id: members for members in classes}
    groups = [[member for number in ids for member in by_first.pop(number)] for ids in joined]
    ordered = [sorted(members, key=_number) for members in [*groups, *by_first.values()]]
    return sorted(ordered, key=lambda members: _number(members[0]))


async def _joined(
    draft: ArenaDraft, members: list[Member], teacher: Teacher, metrics: StageMetrics
) -> list[list[int]]:
    """The ids that the teacher puts together, without those that no one tool can serve."""
    groups = await _grouped_ids(draft, members, teacher)
    if isinstance(groups, tuple):
        metrics.count(f"clustering_failed_{groups[0]}")
        draft.failed("grouping", groups)
        return []
    by_id = {question.id: (question, made) for question, made in members}
    joined = [
        [number for number in ids if can_merge(by_id[ids[0]], by_id[number])] for ids in groups
    ]
    if joined != groups:
        draft.failed(
            "grouping", ("cannot_merge", f"{canonical_json(groups)[:200]} become {joined}")
        )
    return joined


async def _grouped_ids(
    draft: ArenaDraft, members: list[Member], teacher: Teacher
) -> list[list[int]] | Problem:
    """The ids of each group that the teacher sees; ids left out stay alone."""
    try:
        reply = await draft.notes.of(teacher).ask(asks.cluster_ask(members))
    except (ProviderError, ParseError) as error:
        return failure(error)
    named = [number for group in reply.groups for number in group]
    known = {question.id for question, _ in members}
    if len(set(named)) != len(named) or not set(named) <= known:
        return "bad_ids", f"{canonical_json(reply.groups)[:200]} of {sorted(known)}"
    return [sorted(group) for group in reply.groups if group]


def _number(member: Member) -> int:
    return member[0].id


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
        self._attempts = config.merge_attempts
        self._outcome = ""
        self.part = f"merge {' '.join(str(question.id) for question, _ in members)}"
        self.problems: list[Problem] = []
        """Why each try failed so far."""

    async def tools(self) -> list[MergedTool]:
        """The merged tool, or those of the members."""
        if len(self._members) > 1:
            merged = await self._as_is() or await self._rewritten()
            if merged is not None:
                return [merged]
        return [
            MergedTool(environment.tool, environment.code, {question.id: environment.arguments})
            for question, environment in self._members
        ]

    def count(self, metrics: StageMetrics) -> None:
        """Count what became of the group; a member alone is none."""
        if len(self._members) < 2:
            return
        metrics.count("groups")
        if self._outcome:
            metrics.count("merged_groups")
            metrics.count(f"merged_{self._outcome}")
            metrics.count("merged_members", len(self._members))
        else:
            metrics.count(f"merge_failed_{self.problems[-1][0]}")

    async def _as_is(self) -> MergedTool | None:
        """The first member's tool that serves all of them without a change."""
        why: Problem = "calls_unknown", "it is not known which arguments the members' calls need"
        for base in self._members:
            calls = calls_of(self._instance, base, self._members)
            if calls is None:
                continue
            merged = MergedTool(base[1].tool, base[1].code, calls)
            problem = await self._problem(merged)
            if problem is None:
                self._outcome = "as_is"
                return merged
            why = problem
        if self._has_no_data:
            self.problems.append(why)
        return None

    @property
    def _has_no_data(self) -> bool:
        """Whether there is nothing that a merge could extend: no data in the code, or the same."""
        base = self._members[0][1]
        return all(
            environment.code == base.code or is_stateful(self._instance, question)
            for question, environment in self._members
        )

    async def _rewritten(self) -> MergedTool | None:
        """The first member's tool with data that the teacher extended, so that it serves all."""
        if self._has_no_data:
            return None
        rejected = FIRST_TRY
        try:
            for attempt in range(self._attempts):
                reply = await self._reply(attempt, rejected)
                result = await self._judged(reply) if isinstance(reply, MergeReply) else reply
                if isinstance(result, MergedTool):
                    self._outcome = "rewritten"
                    return result
                self.problems.append(result)
                if result[0] == "not_served":  # the teacher's last word
                    break
                if isinstance(reply, MergeReply):
                    rejected = LastTry(": ".join(result), reply.model_dump(mode="json"))
        except AskBudgetSpent as error:
            last = ": ".join(self.problems[-1]) if self.problems else "none"
            self.problems.append(("ask_budget_spent", f"{error}; the last problem was {last}"))
        return None

    async def _reply(self, attempt: int, rejected: LastTry) -> MergeReply | Problem:
        try:
            return await self._teacher.ask(asks.merge_ask(self._members, attempt, rejected))
        except (ProviderError, ParseError) as error:
            return failure(error)

    async def _judged(self, reply: MergeReply) -> MergedTool | Problem:
        """The merged tool as the teacher wrote it, or why it cannot stand for its members."""
        if not reply.calls:
            return "not_served", "no one tool serves all members, the teacher says"
        calls = {call.id: call.arguments for call in reply.calls}
        if sorted(calls) != sorted(question.id for question, _ in self._members):
            return "calls_missing", f"all members or none: the calls are for {sorted(calls)}"
        merged = MergedTool(self._members[0][1].tool, reply.code, calls)
        return await self._problem(merged) or merged

    async def _problem(self, merged: MergedTool) -> Problem | None:
        """Why the tool does not do all that its members do; None if it is proved to."""
        for arguments in merged.calls.values():
            problem = call_problem(merged.tool, arguments)
            if problem is not None:
                return problem
        environments = [environment for _, environment in self._members]
        candidate = candidate_of(
            self._instance, merged.tool, merged.code, merged.calls, environments
        )
        proof = await self._verify(candidate)
        return proof.problem


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
