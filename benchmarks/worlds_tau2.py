"""tau2-Bench hosted as worlds: our runner and verdicts beside the package's own, task by task.

    make bench-env
    PYTHONPATH=src python benchmarks/worlds_tau2.py [--domain retail|airline|telecom] [--count N]
        [--differences FILE] [--json]

Every task's solution is played as it is, not at all, with each write left out, each made twice and
the writes in reverse order: our verdict on the tables must be tau2's on its documents. What is told
is compared in several wordings; where the two differ the difference is written to FILE, one JSON
line each. The last line is one JSON object; exits 1 if a verdict on a state differs, if what is
told differs in mode substring, or if a call ended in a way that neither side means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from hosted_suites import conclude, options, suite_run

from astra.arena.delta import WorldBase
from astra.arena.verdict import GoalVerdict, judge
from astra.arena.world_runner import CallEnd, WorldRunner
from astra.bench.harness.hosted import HostedDesk, changed, writes_of
from astra.bench.harness.tau2_world import (
    DRIVER,
    Tau2Domain,
    Tau2Replay,
    Tau2Task,
    conversations,
    goal_of,
    replays,
    scriptable,
    substring_told,
    told,
    world_of,
)
from astra.records.base import compact_json
from astra.records.state import Row, Write
from astra.records.world import EventKind, TraceEvent, World, WorldGoal
from astra.sandbox.protocol import Sandbox

DOMAINS = ("retail", "airline", "telecom")
REWARDED = {"gold": "oracle", "careless": "one_call_left_out", "idle": "does_nothing"}
"""The replays that `docs/benchmarks.md` has rewards of, by their names there."""


@dataclass
class Tally:
    """What was compared so far, and every difference."""

    tasks: Counter[str] = field(default_factory=Counter[str])
    states: Counter[str] = field(default_factory=Counter[str])
    """Comparisons of states in which both say one thing: ``domain/kind of replay/what``."""
    state_differences: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    facts: Counter[str] = field(default_factory=Counter[str])
    """Comparisons of told facts, as ``wording/tau2's word/ours``."""
    differences: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    substring_differences: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    rewards: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Their rewards and our verdicts, as ``domain/replay/whose``."""
    ends: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    gold_errors: list[str] = field(default_factory=list[str])
    scripts: Counter[str] = field(default_factory=Counter[str])
    """How far a script of the user follows from the tasks: ``domain/what``."""

    def rewarded(self, domain: str, replay: str, whose: str, value: float) -> None:
        self.rewards.setdefault(f"{domain}/{replay}/{whose}", []).append(value)


@dataclass
class Hosted:
    """A task with its world, its goal and the runner in which it is played."""

    entry: str
    domain: Tau2Domain
    task: Tau2Task
    world: World
    goal: WorldGoal
    runner: WorldRunner
    desk: HostedDesk
    tally: Tally
    results: list[str] = field(default_factory=list[str])
    """What the calls of its solution returned."""


class Verdicts(NamedTuple):
    """Both sides' verdicts on one replay, and those by the second reference where there is one."""

    ours: GoalVerdict
    theirs: dict[str, Any]
    as_played: tuple[GoalVerdict, bool] | None


def hosted(desk: HostedDesk, name: str, count: int | None, tally: Tally) -> Iterator[Hosted]:
    """The tasks of a domain, each started. Tasks that start from the domain's documents as they
    are share one world."""
    domain = Tau2Domain.of(name, desk.ask("open", domain=name))
    shared = WorldBase(world_of(domain, domain.tables))
    sandbox = cast("Sandbox", desk)  # of a sandbox, a runner wants sessions alone
    for task in domain.tasks[:count]:
        told_of = desk.ask("start", task=task.id)
        base, tables = shared, domain.tables
        if told_of["changed"]:
            tables = changed(tables, domain.keys, told_of["changed"])
            base = WorldBase(world_of(domain, tables))
        entry = f"{name}/{task.id}"
        tally.gold_errors += [f"{entry}: {error}" for error in told_of["errors"]]
        goal = goal_of(task, writes_of(tables, domain.keys, told_of["effect"]))
        runner = WorldRunner(base, sandbox)
        yield Hosted(entry, domain, task, base.world, goal, runner, desk, tally)
        runner.close()


def played(one: Hosted, replay: Tau2Replay) -> GoalVerdict:
    """Play a replay and judge it; what its calls returned stays in the runner's trace."""
    one.runner.reset()
    one.desk.ask("reset")
    for tool, arguments in replay.calls:
        made = one.runner.call(tool, arguments)
        one.tally.ends[made.end] += 1
        if made.end not in (CallEnd.DONE, CallEnd.REFUSED):
            why = f"{one.entry} {replay.name}: {tool} {made.end}: {made.event.failed}"
            one.tally.faults.append(why)
    one.runner.add(TraceEvent(kind=EventKind.ASSISTANT, text=replay.closing))
    one.desk.ask("say", text=replay.closing)
    return judge(one.world, one.goal, one.runner.trace, one.runner.tables)


def compare_states(one: Hosted) -> None:
    """Every replay's end by our verdict and by theirs.

    tau2's reference is made without bringing both sides' documents in line, which an episode does
    after each call. Where its verdict therefore refuses the solution itself, and so whatever is
    played, the end of the solution as an episode plays it is a second reference: for tau2's hashes
    of its documents, and for our verdict.
    """
    reference: tuple[list[str | None], WorldGoal] | None = None
    known: dict[str, Verdicts] = {}
    for replay in replays(one.task, one.domain):
        calls = compact_json([*replay.calls, replay.closing])
        if calls not in known:  # a call left out is one story, whoever leaves it out
            ours, theirs = played(one, replay), one.desk.ask("verdict")
            if replay.name == "gold":
                one.results = _results_of(one)
                what = scriptable(one.task, one.domain, one.runner.trace)
                one.tally.scripts[f"{one.domain.name}/{what}"] += 1
                if not theirs["database"]:
                    reference = one.desk.ask("hashes"), goal_of(one.task, _effect_of(one))
            again = None
            if reference is not None:
                hashes, goal = reference
                rejudged = judge(one.world, goal, one.runner.trace, one.runner.tables)
                again = rejudged, one.desk.ask("hashes") == hashes
            known[calls] = Verdicts(ours, theirs, again)
        found = known[calls]
        _count_state(one, replay, found.ours, found.theirs["database"], "")
        _count_rewards(one, replay, found.ours, found.theirs)
        if found.as_played is not None:
            _count_state(one, replay, *found.as_played, "as_played/")


def _results_of(one: Hosted) -> list[str]:
    """What the calls of the runner's trace returned."""
    calls = [event for event in one.runner.trace if event.kind == EventKind.CALL]
    return [compact_json(event.result) for event in calls]


def _effect_of(one: Hosted) -> tuple[Write, ...]:
    """What the calls of the runner's trace have made of the tables, all in all."""
    net: dict[str, dict[str, Row | None]] = {}
    for event in one.runner.trace:
        for change in event.changes:
            net.setdefault(change.table, {})[change.key] = change.row
    return writes_of(one.world.rows, one.domain.keys, net)


def _count_state(
    one: Hosted, replay: Tau2Replay, ours: GoalVerdict, theirs: bool, reference: str
) -> None:
    state = ours.state and ours.outcome
    kind = replay.name.split(":")[0]
    if state == theirs:
        both = "reached" if theirs else "missed"
        one.tally.states[f"{one.domain.name}/{reference}{kind}/{both}"] += 1
    else:
        difference = {"entry": one.entry, "replay": reference + replay.name, "tau2": theirs,
                      "ours": state, "reasons": ours.reasons}  # fmt: skip
        one.tally.state_differences.append(difference)


def _count_rewards(
    one: Hosted, replay: Tau2Replay, ours: GoalVerdict, theirs: dict[str, Any]
) -> None:
    if replay.name not in REWARDED:
        return
    state = ours.state and ours.outcome
    found = {
        "tau2": theirs["reward"],
        "tau2_database": float(theirs["database"]),
        "state": float(state),
        "success": float(ours.success),
        "success_substring": float(state and all(substring_told(one.task.tell, [replay.closing]))),
    }
    for whose, value in found.items():
        one.tally.rewarded(one.domain.name, REWARDED[replay.name], whose, value)


def compare_words(one: Hosted) -> None:
    """What is told by our verdict and by theirs, in wordings of ours and in texts of the package:
    what its tools returned, and its policy."""
    wordings = [*conversations(one.task.tell), ("policy", [one.domain.policy])]
    if one.results:
        wordings.append(("results", one.results))
    for name, texts in wordings:
        theirs: list[bool] = one.desk.ask("told", texts=texts)
        trace = [TraceEvent(kind=EventKind.ASSISTANT, text=text) for text in texts]
        verdict = judge(one.world, one.goal, trace, one.runner.tables)
        ours = told(verdict, one.task.tell)
        words = [reason for reason in verdict.reasons if "said" in reason]
        rows = zip(one.task.tell, theirs, ours, substring_told(one.task.tell, texts), strict=True)
        for at, (fact, they, we, part) in enumerate(rows):
            one.tally.facts[f"{name.split(':')[0]}/{_word(they)}/{_word(we)}"] += 1
            found = {"entry": one.entry, "wording": name, "fact": fact, "tau2": they, "ours": we,
                     "reason": next((why for why in words if why.endswith(f":{at}")), ""),
                     "message": _around(fact, texts)}  # fmt: skip
            if part != they:
                one.tally.substring_differences.append(found)
            if we != they:
                one.tally.differences.append(found)


def _word(said: bool) -> str:
    return "told" if said else "untold"


def _around(fact: str, texts: list[str], width: int = 24) -> str:
    """Where a fact stands in the messages, or the first of them."""
    for text in texts:
        plain = text.lower().replace(",", "")
        at = plain.find(fact.lower())
        if at >= 0:
            return plain[max(0, at - width) : at + len(fact) + width]
    return texts[0][: 3 * width]


def summary(tally: Tally, cpu: float, seconds: float) -> dict[str, Any]:
    equal = sum(tally.states.values())
    return {
        "tasks": dict(tally.tasks),
        "state_verdicts": equal + len(tally.state_differences),
        "state_equal": equal,
        "state_differences": tally.state_differences,
        "states": dict(sorted(tally.states.items())),
        "rewards": {
            name: round(sum(values) / len(values), 3) for name, values in tally.rewards.items()
        },
        "facts": sum(tally.facts.values()),
        "facts_equal": sum(tally.facts.values()) - len(tally.differences),
        "facts_by_wording": dict(sorted(tally.facts.items())),
        "substring_differences": tally.substring_differences,
        "scripts": dict(sorted(tally.scripts.items())),
        "calls": dict(tally.ends),
        "faults": tally.faults,
        "gold_errors": len(tally.gold_errors),
        "cpu_seconds": round(cpu, 1),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    wanted = options(__doc__, "domain", DOMAINS)
    tally = Tally()
    with suite_run(DRIVER, tally.faults) as run:
        for name in wanted.domain or DOMAINS:
            for one in hosted(run.desk, name, wanted.count, tally):
                compare_states(one)
                if one.task.tell:
                    compare_words(one)
                tally.tasks[name] += 1
                verdicts, differ = sum(tally.states.values()), len(tally.state_differences)
                run.progress(name, tally.tasks[name], verdicts, differ)
    bad = ("state_differences", "substring_differences", "faults")
    figures = summary(tally, run.cpu_s, run.seconds)
    conclude(figures, bad, tally.differences, wanted.differences)


if __name__ == "__main__":
    main()
