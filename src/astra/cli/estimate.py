"""``astra teacher estimate``: what the stages would ask of models, before anything is asked.

Each stage's asks follow from the rows of the stage before. They are counted where a table in data/
belongs to the parameters, and guessed from the estimate before where not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import yaml

from astra.data_stage import DATA
from astra.devtools.params import compose
from astra.envsynth.envs_config import EnvsConfig
from astra.envsynth.envs_merged_config import EnvsMergedConfig
from astra.envsynth.estimate import environment_asks, merge_asks
from astra.errors import AstraError
from astra.estimate.asks import ExpectedAsks, costs, counted
from astra.estimate.episodes import episodes_of
from astra.estimate.plans import chains_of, tasks_of
from astra.estimate.questions import questions_of
from astra.estimate.servers import ServerFacts, servers_of
from astra.estimate.told import aligned, caps_line, price_lines, table
from astra.qa.config import QAConfig, QAValidConfig
from astra.qa.estimate import expected_questions, expected_valid, question_asks, verdict_asks
from astra.qa.free import count_requests
from astra.qa.knowledge.sources import KNOWLEDGE
from astra.records.environment import Arena
from astra.scoring.config import SFTSetConfig
from astra.scoring.estimate import grade_asks
from astra.settings import PARAMS, Config, ParamsError, RuntimeConfig, validate
from astra.store.tables import count_records, read_records
from astra.tasking.config import TasksConfig
from astra.tasking.estimate import expected_tasks, task_asks
from astra.toolbank.config import ToolsConfig
from astra.toolbank.estimate import expected_servers, tool_asks
from astra.toolbank.sources import load_sources
from astra.toolgraph.config import ChainsConfig, GraphConfig
from astra.toolgraph.estimate import expected_chains, judging_asks, proposal_asks
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.estimate import episode_asks, expected_episodes
from astra.worlds.config import WorldsConfig
from astra.worlds.conversation_config import PlayedGoalsConfig
from astra.worlds.conversation_estimate import conversation_asks
from astra.worlds.conversations import PLAYED, played_goals
from astra.worlds.estimate import world_asks
from astra.worlds.goal_config import GoalsConfig

LOCK, PIPELINE = Path("dvc.lock"), Path("dvc.yaml")
Facts = TypeVar("Facts")
Stages = dict[str, list[ExpectedAsks]]


@dataclass(frozen=True)
class Known:
    """The parameters, and which stages' tables were made with them."""

    parameters: Mapping[str, Any]
    current: frozenset[str]

    def block(self, stage: str, model: type[Config]) -> Config:
        """The parameters of a stage. Raises ParamsError."""
        return validate(stage, self.parameters[stage], model)

    def facts(
        self, stage: str, counted: Callable[[Path], Facts], guess: Callable[[], Facts]
    ) -> Facts:
        """What the stage's table tells, if it belongs to the parameters; else the guess."""
        return counted(table_of(stage)) if stage in self.current else guess()


def table_of(stage: str) -> Path:
    """Where a stage's table lies."""
    return DATA / f"{stage}.parquet"


def sft_track(known: Known) -> Stages:
    """The asks of the stages that make the SFT set."""
    tools, graph = known.block("tools", ToolsConfig), known.block("graph", GraphConfig)
    chains, tasks = known.block("chains", ChainsConfig), known.block("tasks", TasksConfig)
    played = known.block("trajectories", TrajectoriesConfig)

    def read() -> ServerFacts:
        return expected_servers([load_sources(Path(path)) for path in tools.sources], tools)

    servers = known.facts("tools", servers_of, read)
    graphs = known.facts("graph", lambda place: counted(count_records(place)), servers.rows.guessed)
    walked = known.facts("chains", chains_of, lambda: expected_chains(chains, graphs, servers))
    written = known.facts("tasks", tasks_of, lambda: expected_tasks(tasks, walked, servers))
    episodes = known.facts(
        "trajectories", episodes_of, lambda: expected_episodes(played, written, servers)
    )
    return {
        "tools": tool_asks(tools, servers),
        "graph": proposal_asks(graph, servers),
        "chains": judging_asks(chains, graphs, servers),
        "tasks": task_asks(tasks, walked, servers),
        "trajectories": episode_asks(played, written, servers),
        "sft_set": grade_asks(known.block("sft_set", SFTSetConfig), episodes),
    }


def environment_track(known: Known) -> Stages:
    """The asks of the stages that make arenas."""
    qa, qa_valid = known.block("qa", QAConfig), known.block("qa_valid", QAValidConfig)
    free = count_requests(qa, KNOWLEDGE)
    asked = known.facts("qa", questions_of, lambda: expected_questions(qa, free))
    wanted = known.block("goals", GoalsConfig).instances
    goals = known.facts(
        "goals",
        lambda place: counted(len(played_goals(read_records(place, Arena)))),
        lambda: counted(sum(wanted.get(split, 0) for split in PLAYED)).guessed(),
    )
    valid = known.facts("qa_valid", questions_of, lambda: expected_valid(qa_valid, asked))
    return {
        "worlds": world_asks(known.block("worlds", WorldsConfig)),
        "conversations": conversation_asks(known.block("conversations", PlayedGoalsConfig), goals),
        "qa": question_asks(qa, free),
        "qa_valid": verdict_asks(qa_valid, asked),
        "envs": environment_asks(known.block("envs", EnvsConfig), valid),
        "envs_merged": merge_asks(known.block("envs_merged", EnvsMergedConfig), valid),
    }


def parameters(overrides: list[str]) -> Mapping[str, Any]:
    """``params.yaml``, or what conf/ composes to with ``overrides``. Raises ParamsError."""
    if overrides:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / PARAMS
            compose(place, overrides)
            return yaml.safe_load(place.read_text(encoding="utf-8"))
    if not PARAMS.is_file():
        raise ParamsError(f"{PARAMS} not found; run `make params`")
    return yaml.safe_load(PARAMS.read_text(encoding="utf-8"))


def current_stages(given: Mapping[str, Any], lock: Path = LOCK) -> frozenset[str]:
    """The stages whose table lies in data/ as dvc.lock has it, made with these parameters.

    So must be the tables that the stage reads. Edited code and sources are not looked at.
    """
    if not lock.is_file():
        return frozenset()
    locked = yaml.safe_load(lock.read_text(encoding="utf-8")).get("stages", {})
    found: dict[str, bool] = {}

    def current(stage: str) -> bool:
        if stage not in found:
            entry = locked.get(stage, {})
            made_with = entry.get("params", {}).get(str(PARAMS), {})
            found[stage] = (
                stage in given
                and made_with.get(stage) == given[stage]
                and _lies_there(stage, entry)
                and all(map(current, _read_by(dep["path"] for dep in entry.get("deps", ()))))
            )
        return found[stage]

    return frozenset(stage for stage in locked if current(stage))


def _lies_there(stage: str, entry: Mapping[str, Any]) -> bool:
    place = table_of(stage)
    sizes = {out["path"]: out.get("size") for out in entry.get("outs", ())}
    return place.is_file() and place.stat().st_size == sizes.get(str(place))


def _read_by(dependencies: Iterable[str]) -> list[str]:
    """The stages whose tables a stage with these dependencies reads."""
    paths = map(Path, dependencies)
    return [path.stem for path in paths if path.parent == DATA and path.suffix == ".parquet"]


def estimated(known: Known) -> Stages:
    """The asks of every data stage, in the order in which they are built."""
    return {**sft_track(known), **environment_track(known)}


def built_for(targets: Iterable[str], pipeline: Path = PIPELINE) -> set[str]:
    """The targets and every stage whose table goes into theirs, as ``dvc repro`` builds them."""
    stages = yaml.safe_load(pipeline.read_text(encoding="utf-8"))["stages"]
    needed: set[str] = set()
    waiting = list(targets)
    while waiting:
        stage = waiting.pop()
        if stage not in needed:
            needed.add(stage)
            waiting += _read_by(stages[stage]["deps"])
    return needed


def estimate_command(
    stages: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STAGE]...", help="Only what `dvc repro STAGE...` would build."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", "-S", help="NAME=VALUE as for `dvc exp run`; without: params.yaml."),
    ] = None,
) -> None:
    """Say how many asks, tokens and how much money a build would take; ask nothing.

    Prices are those of runtime.prices. What rules answer costs nothing and is left out, as are
    stages whose tables are there already.
    """
    given = parameters(changes or [])
    runtime = validate("runtime", given["runtime"], RuntimeConfig)
    known = Known(given, current_stages(given))
    expected = estimated(known)
    if unknown := sorted(set(stages or ()) - set(expected)):
        raise AstraError(f"no asks of stages {unknown}; there are: {', '.join(expected)}")
    chosen = [stage for stage in expected if stage in built_for(stages or expected)]
    open_ones = [stage for stage in chosen if stage not in known.current]
    told = [(stage, costs(expected[stage], runtime.prices)) for stage in open_ones]
    if done := [stage for stage in chosen if stage in known.current]:
        typer.echo(f"built already with these parameters: {', '.join(done)}")
    if not any(found for _, found in told):
        typer.echo("nothing is asked of a model: what is to be built, rules answer")
        return
    for line in aligned(table(told)):
        typer.echo(line)
    for line in price_lines(one for _, found in told for one in found):
        typer.echo(line)
    typer.echo(caps_line(runtime.budget))
