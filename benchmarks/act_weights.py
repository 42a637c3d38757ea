"""Learns how much each feature of a message speaks for each act.

    PYTHONPATH=src python benchmarks/act_weights.py [--write] [--leave-out [SPLIT ...]]

A multinomial logistic regression of the labelled messages of tests/fixtures/users, of those in the
tests of the rules, of talks with a strong model and of the goals' own ways; weights become whole
numbers. ``--write`` leaves them in src/astra/arena/act_weights.json. ``--leave-out`` prints how
well each split is read by what the others teach, ``--folds`` each fifth of the contexts.

The rules know the splits and tests that they were tuned on by heart. So what they find counts as a
feature of the other splits alone: else the model would trust them more than they deserve. Together
with where a message stands it counts everywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from user_acts import FIXTURES, SEALED, contexts, lines

from astra.arena.act_features import FOUND
from astra.arena.act_rules import ruled_act
from astra.arena.act_weights import ACTS, ALWAYS, MOST, likeliest, packed
from astra.arena.acts import message_features, wanted_calls
from astra.arena.heard_message import heard_message, is_babble, last_words
from astra.records.world import AgentAct, EventKind, TraceEvent, World, WorldGoal
from astra.worlds.agent_words import reworded
from astra.worlds.view import WorldView

TESTS = FIXTURES.parents[1] / "arena"
WEIGHTS = Path(__file__).resolve().parents[1] / "src/astra/arena/act_weights.json"
TUNED = ("tune", "opened")
"""Splits that the rules were tuned on."""
BY_HEART = "by heart"
"""The split of messages that are to be read as they are meant, whatever it takes."""
REWORDED = 2
"""So often the scripted agent says each goal's own way in its words."""
HEART = 0.3
"""How much such a message counts at first."""
SEEN = 3
"""So many messages at least have a feature that is weighed."""
KEPT = 12_000
"""So many features at most are weighed."""
STRENGTH = 0.1
"""The inverse of the penalty on large weights."""
UNIT = 110
"""The whole number of a weight of one."""
ROUNDS = 12
"""So often what is misread of what is to be read by heart counts for more."""
FOLDS = 5
Weights = Mapping[str, tuple[int, ...]]
Read = list[tuple["Example", AgentAct]]


class Example(NamedTuple):
    """A message by its features, and what it is labelled as."""

    split: str
    source: str
    context: str
    text: str
    features: frozenset[str]
    act: AgentAct

    @property
    def taught(self) -> frozenset[str]:
        """The features that count when the example is learned."""
        if self.split in (*TUNED, BY_HEART):
            return frozenset(one for one in self.features if not one.startswith(FOUND))
        return self.features


def labelled_messages() -> Iterator[Example]:
    """The messages of the splits that are not sealed, as the first labeller labels them."""
    for path in sorted(FIXTURES.glob("utterances_*.jsonl")):
        split = path.stem.removeprefix("utterances_")
        if split == SEALED:
            continue
        acts = {one["id"]: one["act"] for one in lines(FIXTURES / f"labels_{split}_a.jsonl")}
        for one in lines(path):
            context = contexts()[one["context"]]
            said = TraceEvent(kind=EventKind.ASSISTANT, text=one["text"])
            trace = (*context.trace, said)
            yield example(split, one["source"], one["context"], context.world, context.goal, trace,
                          acts[one["id"]])  # fmt: skip


def example(
    split: str, source: str, context: str, world: World, goal: WorldGoal,
    trace: Sequence[TraceEvent], act: str,
) -> Example:  # fmt: skip
    found = frozenset(message_features(world, goal, trace))
    return Example(split, source, context, trace[-1].text, found, AgentAct(act))


def messages_by_heart() -> Iterator[Example]:
    """What tests say how to read, the strong model's talks, and the goals' own ways, which are read
    as the rules read them, in the scripted agent's words too."""
    sys.path.append(str(TESTS))
    import test_acts
    import test_strong_talks

    for name, act, text in tested(test_acts):
        goal = test_acts.GOALS[name]
        trace = (goal.trace[0], TraceEvent(kind=EventKind.ASSISTANT, text=text))
        world = test_acts.library()
        if not is_babble(heard_message(world, text, trace)):
            yield example(BY_HEART, "tests", text, world, goal, trace, act)
    for number, talk in enumerate(test_strong_talks.talks()):
        for place, (at, act) in enumerate(zip(talk.answered, talk.acts, strict=True)):
            meant = test_strong_talks.MISREAD.get((number, place), act)
            yield example(BY_HEART, "talks", talk.trace[0].text, talk.world, talk.goal,
                          talk.trace[:at], meant)  # fmt: skip
    yield from own_ways()


def tested(tests: Any) -> Iterator[tuple[str, str, str]]:
    """The goal, the act and the text of the messages in the tests of reading."""
    for line in tests.MESSAGES.read_text().splitlines():
        one = json.loads(line)
        yield one["goal"], one["act"], one["text"]
    for act, cases in (("ask", (*tests.ASKS, *tests.UNKNOWN)), ("propose", tests.PROPOSALS),
                       ("offer", tests.OFFERS)):  # fmt: skip
        for one in cases:
            yield one[0], act, one[1]
    for act, text in tests.PLAIN:
        yield "days", act, text


def own_ways() -> Iterator[Example]:
    """Each message of the fixtures' goals before a turn of the user, or the end, and what the
    scripted agent says in its place; not of the goals that sealed messages are about."""
    seen = set[str]()
    kept = [one for path in FIXTURES.glob(f"utterances_{SEALED}.jsonl") for one in lines(path)]
    sealed = {one["context"] for one in kept}
    hidden = {contexts()[one].world.id for one in sealed}
    for name, one in contexts().items():
        if one.world.id in hidden:
            continue
        trace, view = one.goal.trace, WorldView(one.world)
        ways = [trace, *(reworded(view, one.goal, [trace[0].text, at]) for at in range(REWORDED))]
        for at, event in enumerate(trace):
            ends = at + 1 == len(trace) or trace[at + 1].kind == EventKind.USER
            if event.kind != EventKind.ASSISTANT or not ends:
                continue
            said = trace[: at + 1]
            raw = last_words(said)
            message = heard_message(one.world, raw, said)
            act = ruled_act(one.world, raw, message, wanted_calls(one.world, one.goal, said))
            for way in ways:
                if way[at].text not in seen:
                    seen.add(way[at].text)
                    yield example(BY_HEART, "own ways", name, one.world, one.goal, way[: at + 1],
                                  act)  # fmt: skip


def learned(examples: Sequence[Example]) -> Weights:
    """The weights that examples teach. Those to be read by heart that are not read so count twice
    as much in the next round."""
    taught = [one.taught | {ALWAYS} for one in examples]
    counts = Counter(feature for one in taught for feature in one)
    names = sorted(one for one, count in counts.items() if count >= SEEN)
    acts = np.array([ACTS.index(one.act) for one in examples])
    shares = np.array([HEART if one.split == BY_HEART else 1.0 for one in examples])
    often = np.array([counts[one] for one in names])
    rare = np.sqrt(np.log(len(examples) / often) + 0.3)
    worth = np.abs(fit(matrix(taught, names, rare), acts, shares) * rare).max(axis=0)
    kept = sorted(np.argsort(-worth * np.sqrt(often), kind="stable")[:KEPT])
    names, rare = [names[at] for at in kept], rare[kept]
    rows = matrix(taught, names, rare)
    for _ in range(ROUNDS):
        weights = whole(fit(rows, acts, shares) * rare, names)
        wrong = [
            at
            for at, one in enumerate(examples)
            if one.split == BY_HEART and likeliest(one.features, weights) != one.act
        ]
        if not wrong:
            return weights
        shares[wrong] *= 2
    for at in wrong:
        print(f"not read as it is meant: {examples[at].text!r}", file=sys.stderr)
    return weights


def fit(rows: csr_matrix, acts: Any, shares: Any) -> Any:
    """The weights of each column for each act."""
    model = LogisticRegression(C=STRENGTH, max_iter=400, tol=1e-3, fit_intercept=False)
    return model.fit(rows, acts, sample_weight=shares).coef_


def matrix(features: Sequence[frozenset[str]], names: Sequence[str], rare: Any) -> csr_matrix:
    """A row for each set of features, a column for each name: ``rare`` where the set has it, and
    each row as long as all are on average, so that long messages count no more than short ones."""
    at = {name: number for number, name in enumerate(names)}
    columns = [sorted(at[one] for one in row if one in at) for row in features]
    ends = np.cumsum([0, *map(len, columns)])
    flat = np.concatenate([np.array(one, dtype=int) for one in columns])
    lengths = np.sqrt(np.add.reduceat(rare[flat] ** 2, ends[:-1]))
    values = rare[flat] * np.repeat(lengths.mean() / lengths, np.diff(ends))
    return csr_matrix((values, flat, ends), shape=(len(features), len(names)))


def whole(weights: Any, names: Sequence[str]) -> Weights:
    """Weights as whole numbers; features without any are left out."""
    columns = np.clip(np.rint(weights.T * UNIT), -MOST, MOST).astype(int).tolist()
    return {name: tuple(one) for name, one in zip(names, columns, strict=True) if any(one)}


def left_out(examples: Sequence[Example], out: Callable[[Example], bool]) -> Read:
    """The examples left out, and how they are read by what the others teach."""
    weights = learned([one for one in examples if not out(one)])
    return [(one, likeliest(one.features, weights)) for one in examples if out(one)]


def figures(read: Read) -> dict[str, Any]:
    """How many are read as labelled, by source, and how the others are read."""
    right = {source: [act == one.act for one, act in read if one.source == source]
             for source in sorted({one.source for one, _ in read})}  # fmt: skip
    wrong = Counter(f"{one.act} as {act}" for one, act in read if act != one.act)
    return {
        "accuracy": round(sum(map(sum, right.values())) / len(read), 4),
        **{source: f"{sum(of)}/{len(of)}" for source, of in right.items()},
        "misread": dict(wrong.most_common()),
    }


def in_fold(one: Example, fold: int) -> bool:
    return one.split != BY_HEART and zlib.crc32(one.context.encode()) % FOLDS == fold


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="leave the weights in the package")
    parser.add_argument("--leave-out", nargs="*", metavar="SPLIT", help="measure on each left out")
    parser.add_argument("--folds", action="store_true", help="measure on contexts left out")
    parser.add_argument("--misread", action="store_true", help="print what is misread")
    asked = parser.parse_args()
    examples = [*labelled_messages(), *messages_by_heart()]
    splits = sorted({one.split for one in examples} - {BY_HEART})
    for split in () if asked.leave_out is None else asked.leave_out or splits:
        read = left_out(examples, lambda one, split=split: one.split == split)
        print(json.dumps({split: figures(read)}), flush=True)
        for one, act in read if asked.misread else ():
            if act != one.act:
                print(f"  {one.source} {one.context} {one.act} as {act}: {one.text[:400]!r}")
    if asked.folds:
        parts = (
            left_out(examples, lambda one, fold=fold: in_fold(one, fold)) for fold in range(FOLDS)
        )
        read = [one for part in parts for one in part]
        print(json.dumps({"contexts left out": figures(read)}), flush=True)
    if asked.write:
        weights = learned(examples)
        stored = {name: packed(weights[name]) for name in sorted(weights)}
        text = json.dumps(stored, indent=0, ensure_ascii=False, separators=(",", ":"))
        WEIGHTS.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
