"""What the chat model is shown: conversations of ``sft_set``, gold episodes, function calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chat_calls import calls_of
from chat_stumbles import failed_turns, stumbling, untrained
from staged import ROOT

from astra.arena.env import offered
from astra.arena.world_table import read_arenas
from astra.bench.arenas import job_of
from astra.bench.config import BenchConfig
from astra.bench.names import CEILING
from astra.bench.references import reference_scripts, scripted_engine
from astra.records.base import content_id
from astra.records.environment import Arena
from astra.records.message import Message
from astra.records.qa import Split
from astra.records.tool import Tool
from astra.records.trajectory import SFTSample
from astra.rollout.chat import ChatCodec
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import Sampling
from astra.sandbox.build import build_sandbox
from astra.sandbox.protocol import Sandbox
from astra.settings import RuntimeConfig
from astra.store.tables import read_records
from astra.train.sft import Encoded
from astra.train.sft_trainer import IGNORED

SAMPLES_FILE, ARENAS_FILE = ROOT / "data/sft_set.parquet", ROOT / "data/envs_merged.parquet"
SHOWN = {
    "sft_arenas": (0, 400), "sft_calls": (550, 700), "sft_misses": (700, 800),
    "sft_more": (800, 1150), "sft_again": (0, 1150), "sft_stumbles": (0, 300),
    "sft": (0, 1150), "sft_few": (0, 200), "eval": (0, 8),
}  # fmt: skip
"""The training arenas (their gold episodes) and the conversations of ``sft_set`` that a part is
shown, from which to which but those ``FOR_RL``: the last parts of SFT see them again. What watches
training is counted alike, in the development arenas and the evaluation samples."""
STUMBLING = ("sft_stumbles", "sft", "sft_few")
"""The parts of whose gold episodes some go wrong before they are mended."""
FOR_RL = (*range(400, 550), *range(1150, 1188))
"""The training arenas that no part shows and RL trains in."""
REFUSALS = ("no tool", "missing value", "not found")


class Shown(NamedTuple):
    """A conversation that SFT is shown, and its tools."""

    messages: Sequence[Message]
    tools: Sequence[Tool]
    untrained: frozenset[int] = frozenset()
    """The turns, from 0, that are shown and not trained."""


def is_refusal(sample: SFTSample) -> bool:
    return any(f"<answer>{words}</answer>" in sample.messages[-1].content for words in REFUSALS)


def repeats(sample: SFTSample) -> bool:
    """Whether a call was sent again as it was, as after a failure that time mends."""
    calls = [(call.name, call.arguments) for one in sample.messages for call in one.tool_calls]
    return len(set(calls)) < len(calls)


def selected(split: str) -> list[SFTSample]:
    """Conversations of ``sft_set`` in an order drawn by hash, in which every fifth refuses while
    there are such. Those that repeat a call, a third of all, are left out: a small model learns
    from them to repeat calls, whatever came back."""
    found = (one for one in read_records(SAMPLES_FILE, SFTSample) if one.split == split)
    every = [one for one in found if not repeats(one)]
    every.sort(key=lambda one: content_id(["chat", one.id]))
    refusing = [one for one in every if is_refusal(one)]
    others = [one for one in every if not is_refusal(one)]
    for at, one in enumerate(refusing):
        others.insert(5 * at, one)
    return others


def gold(
    arenas: Sequence[Arena],
    config: BenchConfig,
    sandbox: Sandbox,
    codec: ChatCodec,
    stumbles: bool = False,
) -> Iterator[Shown]:
    """Each arena's episode as the script that knows its gold calls plays it, with its tools;
    ``stumbles``: some after turns in which a call fails. Left out is what does not succeed, or does
    not fail where it was to."""
    jobs = [job_of(one, config.irrelevant_tools, config.irrelevant_per_band, 0) for one in arenas]
    tools = {
        job.arena.id: [one.tool for one in offered(job.arena, job.extra_tools)] for job in jobs
    }
    written = reference_scripts(CEILING, jobs, sandbox)
    wrong: dict[str, set[int]] = {}
    if stumbles:
        for id_, script in written.items():
            most = config.limits.max_turns
            written[id_], wrong[id_] = stumbling(id_, script, tools[id_], most)
    engine = scripted_engine(written, jobs, codec, config.engine_rows)
    driver = RolloutDriver(engine, codec, sandbox, config.limits)
    for job, rollout in zip(jobs, driver.run(jobs, Sampling()), strict=True):
        failed = failed_turns(rollout.calls)
        if (
            rollout.score is not None
            and rollout.score.success
            and failed == wrong.get(job.arena.id, set())
        ):
            yield Shown(rollout.messages, tools[job.arena.id], frozenset(failed))


def arenas_of(split: Split, count: int | None = None) -> list[Arena]:
    """Arenas without a world of a split, drawn by hash where not all are wanted."""
    found = [one for one in read_arenas(ARENAS_FILE) if one.split == split and not one.world_id]
    found.sort(key=lambda one: content_id(["chat", one.id]))
    return found[:count]


def places(part: str) -> list[int]:
    """Which arenas and conversations a part is shown, or with ``eval`` is watched by."""
    return [at for at in range(*SHOWN[part]) if part == "eval" or at not in FOR_RL]


def encoded(
    codec: ChatCodec, bench: BenchConfig, runtime: RuntimeConfig, most: int, part: str
) -> Encoded:
    """Rows that a part trains on, or with ``eval`` is watched by: one half conversations of
    ``sft_set``, one half gold episodes, and the function calls of the part. Rows of more than
    ``most`` tokens are left out."""
    watching, some = part == "eval", places(part)
    samples = selected("eval" if watching else "train")
    shown = [Shown(samples[at].messages, samples[at].tools) for at in some]
    with build_sandbox(bench.sandbox, runtime) as sandbox:
        arenas = arenas_of(Split.DEV if watching else Split.TRAIN)
        stumbles = part in STUMBLING
        shown += gold([arenas[at] for at in some], bench, sandbox, codec, stumbles)
    shown += [Shown(one.conversation(), one.tools) for one in calls_of(part)]
    found = Encoded()
    for one in shown:
        for ids, whole in codec.training_rows(one.messages, one.tools):
            mask = untrained(whole, one.untrained)
            if len(ids) <= most and any(mask):
                labels = [i if m else IGNORED for i, m in zip(ids, mask, strict=True)]
                found.rows.append({"input_ids": ids, "labels": labels})
    return found
