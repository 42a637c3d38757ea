"""Which sources the rows of the data sets come from, looked up in the tables before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from astra.prompting import without_keywords
from astra.publish.licences import UNKNOWN, LicenceBook, RowOrigin, stated
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.records.task import Task, TaskKind
from astra.records.tool import Tool, ToolServer
from astra.records.trajectory import SFTSample, Trajectory
from astra.store.tables import read_records

TOOLS, TASKS = Path("data/tools.parquet"), Path("data/tasks.parquet")
TRAJECTORIES, SAMPLES = Path("data/trajectories.parquet"), Path("data/sft_set.parquet")
ARENAS = Path("data/envs_merged.parquet")
GOALS, CONVERSATIONS = Path("data/goals.parquet"), Path("data/conversations.parquet")
SFT_TABLES = (TOOLS, TASKS, TRAJECTORIES, SAMPLES)
CONVERSATION_TABLES = (GOALS, CONVERSATIONS)
ARENA_TABLES = (TOOLS, ARENAS)


@dataclass(frozen=True)
class ConversationOrigin:
    """What the tables say of a trajectory besides its messages."""

    origins: tuple[RowOrigin, ...]
    kind: str
    execution: str
    agent: str


def conversations() -> dict[str, ConversationOrigin]:
    """Every trajectory's origins and makers by its id.

    A request that none of the server's tools serves was written for another server, whose task has
    the same words: that server is an origin too, an unknown one where it is not found.
    """
    servers = {
        server.id: RowOrigin(server.source, stated(server.licence))
        for server in read_records(TOOLS, ToolServer)
    }
    kinds = {task.id: (task.kind, task.question) for task in read_records(TASKS, Task)}
    donors = _donors({words for kind, words in kinds.values() if kind == TaskKind.IRRELEVANT})
    found: dict[str, ConversationOrigin] = {}
    for run in read_records(TRAJECTORIES, Trajectory):
        kind, words = kinds[run.task_id]
        made_for = {run.server_id}
        if kind == TaskKind.IRRELEVANT:
            made_for |= donors.get(words, {""})
        origins = {servers.get(server, RowOrigin("no server", UNKNOWN)) for server in made_for}
        ordered = tuple(sorted(origins, key=lambda origin: origin.source))
        found[run.id] = ConversationOrigin(ordered, kind.value, run.execution.value, run.policy)
    return found


def _donors(questions: set[str]) -> dict[str, set[str]]:
    """The servers whose own tasks have these words."""
    found: dict[str, set[str]] = {}
    for task in read_records(TASKS, Task):
        if task.question in questions and task.kind != TaskKind.IRRELEVANT:
            found.setdefault(task.question, set()).add(task.server_id)
    return found


def goals(book: LicenceBook) -> dict[str, tuple[Arena, RowOrigin]]:
    """The goals of worlds by id, each with where its world comes from."""
    return {
        arena.id: (arena, RowOrigin(arena.source, book.of(arena.source)))
        for arena in read_records(GOALS, Arena)
    }


def goal_id(sample: SFTSample) -> str:
    """The goal that a conversation in a world was played for."""
    return sample.trajectory_id.partition(".")[0]


def trained_conversations(most: int | None) -> Iterator[SFTSample]:
    """The conversations in worlds that ``sft.conversations`` adds to the training samples."""
    if most is not None:
        every = sorted(read_records(CONVERSATIONS, SFTSample), key=lambda sample: sample.id)
        yield from [sample for sample in every if sample.split == "train"][:most]


def tool_origins(book: LicenceBook) -> Callable[[Tool], Sequence[RowOrigin]]:
    """Where a tool document may have come from: servers and arenas that have the same one."""
    found: dict[str, set[RowOrigin]] = {}
    for server in read_records(TOOLS, ToolServer):
        _note(found, server.tools, RowOrigin(server.source, stated(server.licence)))
    for arena in read_records(ARENAS, Arena):
        tools = (offer.tool for offer in arena.tools)
        _note(found, tools, RowOrigin(arena.source, book.of(arena.source)))
    ordered = {
        key: tuple(sorted(origins, key=lambda origin: origin.source))
        for key, origins in found.items()
    }
    return lambda tool: ordered.get(_key(tool), ())


def _note(found: dict[str, set[RowOrigin]], tools: Iterable[Tool], origin: RowOrigin) -> None:
    for tool in tools:
        found.setdefault(_key(tool), set()).add(origin)


def _key(tool: Tool) -> str:
    """The document without extensions (``x-...``), which arenas leave out."""
    bare = without_keywords(tool.parameters, lambda keyword: keyword.startswith("x-"))
    return content_id([tool.name, tool.description, bare])
