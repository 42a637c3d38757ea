"""The data card of the SFT set: what it holds, beside the paper's statistics, as Markdown.

It is computed from the tables alone, so that the same data give the same card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from astra.records.message import MessageRole
from astra.records.score import Scored
from astra.records.task import Task
from astra.records.tool import ToolServer
from astra.records.trajectory import SFTSample, Trajectory
from astra.scoring.floors import DIMENSIONS, SELECTION

MOST_CALLS = 10
TOP = 12
_PAPER = {
    "conversations": "54,885",
    "messages": "580,983",
    "messages per sample": "10.59",
    "share of tool messages": "41.8 %",
    "share of assistant messages": "39.3 %",
    "calls per sample": "4.42",
    "share of samples with 1 to 5 calls": "72.2 %",
    "functions called": "6,765",
    "servers collected": "1,585",
    "tools collected": "19,036",
    "domains collected": "41",
}
"""The paper's figures, from its appendix and section 3.1."""


@dataclass
class _Seen:
    """Sums over the samples."""

    samples: int = 0
    calls: Counter[int] = field(default_factory=Counter[int])
    messages: Counter[int] = field(default_factory=Counter[int])
    roles: Counter[str] = field(default_factory=Counter[str])
    users: Counter[int] = field(default_factory=Counter[int])
    splits: Counter[str] = field(default_factory=Counter[str])
    languages: Counter[str] = field(default_factory=Counter[str])
    domains: Counter[str] = field(default_factory=Counter[str])
    executions: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[str] = field(default_factory=Counter[str])
    agents: Counter[str] = field(default_factory=Counter[str])
    licences: Counter[str] = field(default_factory=Counter[str])
    systems: set[str] = field(default_factory=set[str])
    functions: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    scores: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


def data_card(
    samples: Iterable[SFTSample],
    trajectories: Iterable[Trajectory],
    tasks: Iterable[Task],
    servers: Sequence[ToolServer],
    metrics: Mapping[str, Any],
    scale: str,
) -> str:
    """The card's text. ``metrics`` are the stage's, ``scale`` is the scale of the parameters."""
    kinds = {task.id: task.kind.value for task in tasks}
    licences = {server.id: server.licence for server in servers}
    origins = {
        run.id: (run.execution.value, kinds.get(run.task_id, "unknown"), run.policy, run.server_id)
        for run in trajectories
    }
    seen = _Seen()
    for sample in samples:
        _add(seen, sample)
        execution, kind, agent, server_id = origins[sample.trajectory_id]
        seen.executions[execution] += 1
        seen.kinds[kind] += 1
        seen.agents[agent] += 1
        seen.licences[licences.get(server_id, "unknown") or "not stated"] += 1
    parts = [
        _head(seen, scale),
        _beside_the_paper(seen, servers),
        _table("Roles", ("role", "messages", "share"), [
            (role, f"{n:,}", _share(n, seen.roles.total()))
            for role, n in sorted(seen.roles.items())
        ]),
        _counts("Calls per sample", "calls", _capped(seen.calls), seen.samples),
        _counts("User messages per sample", "user messages", seen.users, seen.samples),
        _counts("Kinds of tasks", "kind", seen.kinds, seen.samples),
        _counts("Tools executed by", "execution", seen.executions, seen.samples),
        _counts("Languages", "language", seen.languages, seen.samples),
        _counts(f"Domains (the {TOP} largest of {len(seen.domains)})", "domain",
                dict(seen.domains.most_common(TOP)), seen.samples),
        _counts("Licences of the tool documents", "licence", seen.licences, seen.samples),
        _scores(seen),
        _left_out(metrics),
        _use(),
    ]  # fmt: skip
    return "\n".join(parts)


def _add(seen: _Seen, sample: SFTSample) -> None:
    calls = [call.name for message in sample.messages for call in message.tool_calls]
    roles = [message.role.value for message in sample.messages]
    seen.samples += 1
    seen.calls[len(calls)] += 1
    seen.messages[len(roles)] += 1
    seen.roles.update(roles)
    seen.users[roles.count(MessageRole.USER)] += 1
    seen.splits[sample.split] += 1
    seen.languages[sample.language] += 1
    seen.domains[sample.domain] += 1
    seen.functions.update((sample.domain, name) for name in calls)
    seen.systems.update(m.content for m in sample.messages if m.role == MessageRole.SYSTEM)
    for name, score in (sample.scores | sample.selection).items():
        if isinstance(score, Scored):
            seen.scores.setdefault(name, []).append(score.value)


def _head(seen: _Seen, scale: str) -> str:
    agents = ", ".join(f"`{name}`" for name in sorted(seen.agents))
    splits = ", ".join(f"{n:,} {name}" for name, n in sorted(seen.splits.items()))
    return f"""# Data card: sft_set

Written by `astra sft card` from `data/`; do not edit. Scale `{scale}`.

Conversations of an agent with tools, for supervised fine-tuning: {seen.samples:,} samples
({splits}), acted by {agents} (a name that starts with `offline:` is a rule-based expert, not
a model), each with the tools it was offered, all messages, and its scores in seven dimensions.
Made by the stages tools, graph, chains, tasks, trajectories and sft_set; people, names and records
in it are made up. Different system prompts: {len(seen.systems)}.
"""


def _beside_the_paper(seen: _Seen, servers: Sequence[ToolServer]) -> str:
    messages = sum(count * n for count, n in seen.messages.items())
    calls = sum(count * n for count, n in seen.calls.items())
    few = sum(n for count, n in seen.calls.items() if 1 <= count <= 5)
    ours = {
        "conversations": f"{seen.samples:,}",
        "messages": f"{messages:,}",
        "messages per sample": _ratio(messages, seen.samples),
        "share of tool messages": _share(seen.roles["tool"], messages),
        "share of assistant messages": _share(seen.roles["assistant"], messages),
        "calls per sample": _ratio(calls, seen.samples),
        "share of samples with 1 to 5 calls": _share(few, seen.samples),
        "functions called": f"{len(seen.functions):,}",
        "servers collected": f"{len(servers):,}",
        "tools collected": f"{sum(len(server.tools) for server in servers):,}",
        "domains collected": f"{len({server.domain for server in servers}):,}",
    }
    rows = [(name, _PAPER[name], value) for name, value in ours.items()]
    return _table("Beside the paper", ("", "ASTRA", "here"), rows)


def _capped(calls: Mapping[int, int]) -> dict[str, int]:
    few = {str(n): calls[n] for n in sorted(calls) if n <= MOST_CALLS}
    more = sum(count for n, count in calls.items() if n > MOST_CALLS)
    return few | ({f"more than {MOST_CALLS}": more} if more else {})


def _counts(title: str, what: str, counts: Mapping[Any, int], total: int) -> str:
    """A table of counts with their shares: a counter by size, a mapping in its own order."""
    ordered = list(counts.items())
    if isinstance(counts, Counter):
        ordered.sort(key=lambda pair: (-pair[1], str(pair[0])))
    rows = [(str(name), f"{n:,}", _share(n, total)) for name, n in ordered]
    return _table(title, (what, "samples", "share"), rows)


def _scores(seen: _Seen) -> str:
    rows = [
        (name, f"{fmean(seen.scores[name]):.3f}", f"{len(seen.scores[name]):,}")
        for name in (*DIMENSIONS, *SELECTION)
        if name in seen.scores
    ]
    return _table("Scores of the samples kept", ("dimension", "mean", "scored"), rows) + (
        "\nThe first seven are ASTRA's; `correlation` and `faithfulness` are the halves of "
        "`final_answer`, `closing`\nis the lowest understanding of a turn that speaks to the user, "
        "and `own_tool_status` leaves out calls that timed out or found the tool "
        "unreachable.\n"
    )


def _left_out(metrics: Mapping[str, Any]) -> str:
    dropped: Mapping[str, int] = metrics.get("dropped", {})
    rows = [(reason, f"{n:,}") for reason, n in sorted(dropped.items())]
    suites: Mapping[str, Any] | None = metrics.get("contamination_suites")
    if suites is None:
        checked = "Overlap with benchmark suites was not checked (sft_set.contamination is off)."
    else:
        names = ", ".join(sorted(suites)) or "no suite: the index is empty"
        checked = f"Checked for overlap with benchmark suites: {names}."
    of = f"Of {metrics.get('trajectories', 0):,} trajectories. {checked}\n"
    return _table("Left out", ("reason", "trajectories"), rows) + f"\n{of}"


def _use() -> str:
    return """## Use

`astra sft export --out exports/sft` writes `train.parquet` and `eval.parquet` with OpenAI messages
and tools; `datasets.load_dataset("parquet", data_files=...)` loads them as lists of dicts, and
TRL's `SFTTrainer` takes them as they are. All distributions as plots: `dvc plots show`
(plots/sft_set/).
"""


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"## {title}", "", f"| {' | '.join(header)} |"]
    lines.append("|" + "|".join("---" if n == 0 else "---:" for n in range(len(header))) + "|")
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"
