"""How well the user that is made by rule reads what agents say.

    PYTHONPATH=src python benchmarks/user_acts.py [--split tune] [--misread] [--write]

Reads tests/fixtures/users: messages of agents, the contexts that they were said in, and the labels
of people or models who knew the definitions of the acts alone. An act counts as right where it is
the label; where two differ, it is measured against the first, and apart on the messages that they
agree on. What the weights were learned from (``act_weights.py``) is read better than what is new.
What a message asks for is told in words; the slots due are those that a request for just these
words asks for. Prints one JSON object, and with ``--write`` leaves it beside the messages as
``acts_<split>.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from astra.arena.acts import MessageReading, read_message
from astra.arena.asked_slots import asked_for, slots_of
from astra.records.world import (
    AgentAct,
    EventKind,
    FactTime,
    TraceEvent,
    UserAct,
    UserFact,
    UserScript,
    World,
    WorldGoal,
)

FIXTURES = Path(__file__).resolve().parents[1] / "tests/fixtures/users"
SEALED = "test"


class Context(NamedTuple):
    """Where in a conversation something is said."""

    world: World
    goal: WorldGoal
    trace: tuple[TraceEvent, ...]


class Labelled(NamedTuple):
    """A message, how it is read, and what each labeller says: the act, and what is asked for."""

    id: str
    text: str
    source: str
    context: Context
    reading: MessageReading
    acts: tuple[AgentAct, ...]
    asks: tuple[tuple[str, ...], ...]


def lines(path: Path) -> Iterator[Any]:
    """The JSON objects of a file, packed or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return map(json.loads, text.splitlines())


def all_lines(folder: Path, begins: str) -> Iterator[Any]:
    """The JSON objects of all packed files whose names begin so."""
    for path in sorted(folder.glob(f"{begins}*.jsonl.gz")):
        yield from lines(path)


@cache
def contexts(folder: Path = FIXTURES) -> Mapping[str, Context]:
    """The contexts by id; their users tell what the goal's own way has them tell, and when."""
    stored = [World.model_validate(one) for one in all_lines(folder, "worlds")]
    worlds = {one.id: one for one in stored}
    found: dict[str, Context] = {}
    for one in all_lines(folder, "contexts"):
        goal = WorldGoal.model_validate(one["goal"])
        trace = tuple(TraceEvent.model_validate(event) for event in one["trace"])
        found[one["id"]] = Context(worlds[one["world_id"]], with_facts(goal), trace)
    return found


def with_facts(goal: WorldGoal) -> WorldGoal:
    """A goal whose user knows the facts that its own way discloses, and has nothing to say."""
    facts: list[UserFact] = []
    for event in goal.trace:
        when = FactTime.ASKED
        if event.act in (UserAct.CHANGE, UserAct.OPENING):
            when = FactTime.CHANGE if event.act == UserAct.CHANGE else FactTime.OPENING
        if event is goal.trace[0]:
            when = FactTime.OPENING
        facts += [UserFact(slot=k, value=v, when=when) for k, v in event.facts.items()]
    script = UserScript(facts=tuple(facts), turns=(), patience=2, most_turns=10)
    return goal.model_copy(update={"script": script})


def labelled(split: str, folder: Path = FIXTURES) -> list[Labelled]:
    """The messages of a split in order, read and labelled. Raises ValueError where a message has
    not the label of each labeller."""
    labels = [
        {one["id"]: one for one in lines(path)}
        for path in sorted(folder.glob(f"labels_{split}*.jsonl"))
    ]
    found: list[Labelled] = []
    for one in lines(folder / f"utterances_{split}.jsonl"):
        given = [label[one["id"]] for label in labels if one["id"] in label]
        if not given or len(given) != len(labels):
            raise ValueError(f"{one['id']}: {len(given)} of {len(labels)} labels; label it, see "
                             f"{folder / 'labelling.md'}")  # fmt: skip
        context = contexts(folder)[one["context"]]
        said = TraceEvent(kind=EventKind.ASSISTANT, text=one["text"])
        reading = read_message(context.world, context.goal, (*context.trace, said))
        acts = tuple(AgentAct(label["act"]) for label in given)
        asks = tuple(tuple(label["asks"]) for label in given)
        found.append(Labelled(one["id"], one["text"], one["source"], context, reading, acts, asks))
    return found


def summary(items: Sequence[Labelled]) -> dict[str, Any]:
    """Figures of one split."""
    agreed = [one for one in items if len(set(one.acts)) == 1]
    due, read, both = slot_counts(items)
    return {
        "messages": len(items),
        "act_accuracy": share(items),
        "act_accuracy_agreed": share(agreed),
        "by_source": {source: share([one for one in items if one.source == source])
                      for source in sorted({one.source for one in items})},
        "confusion": confusion(items),
        "labellers_agree": round(len(agreed) / len(items), 4),
        "kappa": kappa([one.acts for one in items]),
        "slots": {"precision": round(both / read, 4) if read else None,
                  "recall": round(both / due, 4) if due else None},
    }  # fmt: skip


def share(items: Sequence[Labelled]) -> float | None:
    """How many are read as the first labeller labels them; None of none."""
    right = sum(one.reading.act == one.acts[0] for one in items)
    return round(right / len(items), 4) if items else None


def confusion(items: Sequence[Labelled]) -> dict[str, dict[str, int]]:
    """How often each act is read as each: by the label, then by what is read."""
    counts = Counter((one.acts[0], one.reading.act) for one in items)
    return {
        label.value: {act.value: counts[label, act] for act in AgentAct if counts[label, act]}
        for label in AgentAct
    }


def kappa(pairs: Sequence[tuple[AgentAct, ...]]) -> float | None:
    """Cohen's kappa of two labellers; None where there is one, or both always say the same."""
    if not pairs or any(len(pair) != 2 for pair in pairs):
        return None
    same = sum(a == b for a, b in pairs) / len(pairs)
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(first[act] * second[act] for act in AgentAct) / len(pairs) ** 2
    return round((same - chance) / (1 - chance), 4) if chance < 1 else None


def slot_counts(items: Sequence[Labelled]) -> tuple[int, int, int]:
    """How many slots are due, read, and both, in all messages."""
    due = read = both = 0
    for one in items:
        wanted, found = slots_due(one), set(one.reading.slots)
        due, read, both = due + len(wanted), read + len(found), both + len(wanted & found)
    return due, read, both


def slots_due(one: Labelled) -> set[str]:
    """The slots that the first labeller's words ask for."""
    script = one.context.goal.script
    slots = slots_of(one.context.world, script.facts if script else ())
    found: set[str] = set()
    for words in one.asks[0]:
        said = words.casefold()
        found |= {*asked_for(one.context.world, slots, said, said).slots}
    return found


def written(split: str, folder: Path = FIXTURES) -> Path:
    """Where the figures of a split are kept."""
    return folder / f"acts_{split}.json"


def misread(items: Sequence[Labelled]) -> Iterator[str]:
    """The messages that are not read as they are labelled, and those whose slots differ."""
    for one in items:
        if one.reading.act != one.acts[0] or slots_due(one) != set(one.reading.slots):
            said = " | ".join(one.acts)
            yield f"## {one.id} {one.source}: {said} {one.asks} read {one.reading}\n{one.text}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", default="tune")
    parser.add_argument("--misread", action="store_true", help="print them; not of the sealed half")
    parser.add_argument("--write", action="store_true", help="leave the figures in the folder")
    given = parser.parse_args()
    items = labelled(given.split)
    if given.misread and given.split != SEALED:
        print("\n".join(misread(items)))
    figures = json.dumps(summary(items), indent=2)
    if given.write:
        written(given.split).write_text(f"{figures}\n")
    print(figures)


if __name__ == "__main__":
    main()
