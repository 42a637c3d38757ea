"""A model that plays users badly on purpose: what of it reaches an agent, and what is scored.

``python benchmarks/user_faults.py`` plays goals with a user against a server that leaks what is
held back, contradicts the script, stops at once, agrees to everything, says nothing, hangs, writes
no JSON, or fails; ``bad_users`` is what it calls. The agent is the goal's own trace, asked in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from astra.arena.talk import leaked
from astra.arena.user_words import word_faults
from astra.arena.world_scripts import agent_turns
from astra.arena.world_table import read_arenas
from astra.arena.worlds import base_of, goal_of
from astra.bench.endpoint_episode import EndpointEpisode
from astra.bench.harness.client import ChatClient
from astra.bench.harness.scripted import ScriptedServer, ScriptedTurn
from astra.bench.llm_user import LlmUsers
from astra.errors import AstraError
from astra.llm.protocol import ModelConfig
from astra.records.environment import Arena
from astra.records.trajectory import StopReason
from astra.records.world import EventKind, UserAct, UserFact
from astra.rollout.driver import again_where_infra
from astra.rollout.live import PAPER_LIMITS, EpisodeJob, Rollout
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox
from astra.settings import Endpoint, RuntimeConfig

TIMEOUT_S = 0.3
"""How long a request to the user's model may take; one that hangs takes longer."""
Facts = Sequence[UserFact]


def _line(slot: str, value: Any) -> str:
    return f"The {slot.rpartition('.')[2].replace('_', ' ')} is {value}."


def _all_of(facts: Facts) -> str:
    return " ".join(_line(fact.slot, fact.value) for fact in facts)


def _in_other_forms(facts: Facts) -> str:
    """Every fact as people write it when they do not want to be caught."""
    return " ".join(_line(fact.slot, _other_form(fact.value)) for fact in facts)


def _other_form(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int) and 0 <= value <= 20:
        words = "zero one two three four five six seven eight nine ten eleven twelve thirteen " \
            "fourteen fifteen sixteen seventeen eighteen nineteen twenty"  # fmt: skip
        return words.split()[value]
    if isinstance(value, int | float):
        return f"{value:,}"
    day = _day(value)
    return f"{day:%B} {day.day}" if day else str(value).upper().replace("_", " ")


def _contradicted(facts: Facts) -> str:
    return " ".join(_line(fact.slot, _wrong(fact.value)) for fact in facts) or "I want 37 of them."


def _wrong(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value + 1
    day = _day(value)
    return (day + timedelta(days=1)).isoformat() if day else f"{str(value)[::-1]}7"


def _day(value: Any) -> date | None:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        return None


def _words(message: str, ends: bool = False) -> ScriptedTurn:
    return ScriptedTurn(json.dumps({"message": message, "ends": ends}))


def _hangs(facts: Facts) -> ScriptedTurn:
    time.sleep(3 * TIMEOUT_S)
    return _words("Go on, please.")


BAD: Mapping[str, Callable[[Facts], ScriptedTurn]] = {
    "leaks": lambda facts: _words(_all_of(facts)),
    "leaks in other forms": lambda facts: _words(_in_other_forms(facts)),
    "contradicts": lambda facts: _words(_contradicted(facts)),
    "stops": lambda facts: _words("Thank you, goodbye.", ends=True),
    "stops in words": lambda facts: _words("That is all, I am done here."),
    "agrees to everything": lambda facts: _words("Yes, go ahead."),
    "takes everything back": lambda facts: _words("No, stop. I changed my mind."),
    "speaks of tools": lambda facts: _words("Call find_person({}) for me."),
    "says nothing": lambda facts: _words(" "),
    "hangs": _hangs,
    "writes no JSON": lambda facts: ScriptedTurn('{"message": "Go on'),
    "fails": lambda facts: ScriptedTurn(status=500, error="internal error"),
}
"""What may be wrong with a model, and its answer to any prompt, given all the user knows."""
FAULTY = ("hangs", "writes no JSON", "fails")
"""Those that give no words: every episode in which they are asked is lost, and none scored."""
FAULTY_GOALS = 3
"""How many goals these play: each is tried several times, with pauses."""


def bad_users(arenas: Iterable[Arena], sandbox: Sandbox) -> dict[str, Any]:
    """Play every bad model in every arena, all with a user, and count over all episodes.

    ``leaks``: facts in a user's words before they were due, ``contradictions``: other words that
    the script does not bear, ``premature_ends``: conversations that a user closed before the goal
    was reached, ``scored_faults``: episodes in which a model gave no words and that have a score.
    All of them must be 0. ``models`` tells for each how often it was asked (``turns``), refused,
    replaced (``fallbacks``) and failed (``faults``), and how many episodes were scored.
    """
    found = {"episodes": 0, "leaks": 0, "contradictions": 0, "premature_ends": 0,
             "scored_faults": 0}  # fmt: skip
    models: dict[str, dict[str, int]] = {}
    for name, answer in BAD.items():
        models[name] = _play(name, answer, list(arenas), sandbox, found)
    return {**found, "models": models}


def _play(
    name: str,
    answer: Callable[[Facts], ScriptedTurn],
    arenas: Sequence[Arena],
    sandbox: Sandbox,
    found: dict[str, int],
) -> dict[str, int]:
    playing: list[Arena] = []

    def bad(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        script = goal_of(playing[-1]).script
        return answer(script.facts if script else ())

    config = ModelConfig(backend="openai", model=name, max_tokens=200)
    tally: Counter[str] = Counter()
    with ScriptedServer(bad, model=name) as server, _fresh_cache():
        url = server.endpoint.base_url
        runtime = RuntimeConfig(
            endpoints=(Endpoint(base_url=url, api_key_env=""),), request_timeout_s=TIMEOUT_S,
            max_attempts=1,
        )  # fmt: skip
        for arena in arenas[: FAULTY_GOALS if name in FAULTY else None]:
            playing.append(arena)
            # A client for each: one that has seen a server fail lets it rest for longer and longer.
            with LlmUsers(config, runtime) as users:
                rollout = _episode(arena, users, name, sandbox)
                tally += users.tallies[name]
            tally["scored"] += rollout.score is not None
            _count(arena, rollout, found)
    found["episodes"] += len(playing)
    if name in FAULTY:
        found["scored_faults"] += tally["scored"]
    refused = sum(count for code, count in tally.items() if code.startswith("gate."))
    told = ("turns", "fallbacks", "faults", "scored")
    return {one: tally[one] for one in told} | {"refused": refused}


def _episode(arena: Arena, users: LlmUsers, name: str, sandbox: Sandbox) -> Rollout:
    """An episode as the benchmark plays it: again where our own machinery fails it, bounded."""
    job = EpisodeJob(arena, user=users.user(name, arena))
    turns = [
        ScriptedTurn(turn.text, tuple((tool, dict(given)) for tool, given in turn.calls))
        for turn in agent_turns(goal_of(arena).trace)
    ]

    def agent(entry: str, body: dict[str, Any]) -> ScriptedTurn:
        at = sum(message["role"] == "assistant" for message in body["messages"])
        return turns[min(at, len(turns) - 1)]

    def roll(positions: list[int], attempt: int) -> list[Rollout]:
        try:
            return [EndpointEpisode(job, client, PAPER_LIMITS, {}).play(sandbox)]
        except AstraError as error:  # an outage concerns all episodes: none is scored
            lost = Rollout(arena, [], 0, stop_reason=StopReason.INFRA, problem=str(error))
            return [lost for _ in positions]

    with ScriptedServer(agent) as server, closing(ChatClient(server.endpoint)) as client:
        (rollout,), _ = again_where_infra([job], roll)
    return rollout


def _count(arena: Arena, rollout: Rollout, found: dict[str, int]) -> None:
    """What reached the agent in an episode that was scored."""
    goal, trace = goal_of(arena), rollout.trace or ()
    if goal.script is None or rollout.score is None:
        return
    said = [event for event in trace if event.kind == EventKind.USER]
    found["leaks"] += len(leaked(goal.script, said))
    for at, event in enumerate(said[1:], 1):
        before = [one.text for one in said[:at]]
        faults = word_faults(base_of(arena).world, goal.script, event.text, event.facts, before)
        found["contradictions"] += len(faults)
    verdict = rollout.score.verdict
    reached = verdict is not None and verdict.state and verdict.outcome
    found["premature_ends"] += said[-1].act == UserAct.CLOSE and not reached


@contextmanager
def _fresh_cache() -> Generator[None]:
    """What a bad model answers is kept from every other run."""
    before = os.environ.get("ASTRA_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ASTRA_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["ASTRA_CACHE"]
            else:
                os.environ["ASTRA_CACHE"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, nargs="?", default=Path("data/envs_merged.parquet"))
    parser.add_argument("--goals", type=int, default=20)
    arguments = parser.parse_args()
    talking = [one for one in read_arenas(arguments.table)
               if one.world_id and goal_of(one).script is not None]  # fmt: skip
    with LocalSandbox(SandboxLimits()) as sandbox:
        print(json.dumps(bad_users(talking[: arguments.goals], sandbox)))


if __name__ == "__main__":
    main()
