"""A trained policy as a folder that transformers, TRL and vLLM load, with its model card."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from astra.publish import round_trip, token_counts
from astra.publish.evidence import CardEvidence
from astra.publish.folder import published
from astra.publish.fresh import probed, served
from astra.publish.licences import BOOK, UNKNOWN, LicenceBook, RowOrigin, joined
from astra.publish.lineage import IDENTITY, TRAINED, identity
from astra.publish.notices import SourceTally, write_notices
from astra.publish.origins import (
    ARENA_TABLES,
    ARENAS,
    CONVERSATION_TABLES,
    CONVERSATIONS,
    SAMPLES,
    SFT_TABLES,
    conversations,
    goal_id,
    goals,
    tool_origins,
    trained_conversations,
)
from astra.publish.policy_card import policy_card
from astra.publish.provenance import METRICS, BuildProvenance
from astra.publish.record import LOCK, BuildRecord, PublishError
from astra.publish.sections import SOURCES
from astra.publish.token_counts import training_tokens
from astra.records.environment import Arena
from astra.records.qa import Split
from astra.records.trajectory import SFTSample
from astra.rollout.chat import Dtype
from astra.settings import PARAMS
from astra.store.tables import read_records

SCORES, RECORD = "metrics/bench.json", Path("training.lock")


@dataclass(frozen=True)
class PublishedPolicy:
    """What became of a policy."""

    stage: str
    loaded: Mapping[str, Any]
    """What transformers said of it in a process of its own."""
    commit: str
    outputs: tuple[str, ...]
    """What the stages made that it comes from, as DVC stores it."""


def publish_policy(checkpoint: Path, out: Path, say: Callable[[str], None]) -> PublishedPolicy:
    """Write a policy of the build to ``out``, then load and serve it in processes of their own.

    ``say`` is told each step.

    Raises PublishError where the record does not fit, scores are of another checkpoint, the base
    policy's licence is unknown, or what was written does not load.
    """
    stage = TRAINED.get(str(checkpoint))
    if stage is None:
        raise PublishError(
            f"{checkpoint}: the build has scores of {' and '.join(TRAINED)}, and a policy without "
            "scores has no card; `astra train export` writes any checkpoint as a folder"
        )
    book = LicenceBook.read()
    tables = {*SFT_TABLES, *(ARENA_TABLES if stage == "rl" else ())}
    with BuildRecord([SCORES, str(checkpoint)]) as record:
        if str(CONVERSATIONS) in record.outputs():
            tables |= {*CONVERSATION_TABLES}
        record.refuse_misfits([str(checkpoint), SCORES, *map(str, sorted(tables))])
        provenance, outputs = BuildProvenance.of(record, RECORD), tuple(record.outputs())
        itself = identity(str(checkpoint), record.md5(str(checkpoint)), provenance.commit)
    say(f"{checkpoint}: the build of commit {provenance.commit[:12]}, as {LOCK} records it")
    with published(out) as folder:
        evidence = CardEvidence(folder)
        provenance.take(evidence)
        evidence.put(IDENTITY, itself)
        trained = evidence.at(str(LOCK), "stages", "sft", "params", str(PARAMS), "sft")
        tally = SourceTally(book)
        evidence.put("licences.json", _licences(tally, trained, stage))
        evidence.put(SOURCES, tally.document())
        write_notices(folder, tally, f"{out.name}, a language model trained by ASTRA-DVC")
        write_weights(checkpoint, folder, trained["policy"]["dtype"])
        loaded = _loaded(folder, evidence, trained["policy"]["dtype"])
        say(f"transformers loads it in a process of its own: {loaded['parameters']:,} parameters")
        say("`astra serve` answers with it in another")
        steps = evidence.at(f"{METRICS}/sft.json", "steps")
        shown = loaded["documents"]["description_chars"]
        evidence.put(token_counts.FILE, training_tokens(folder, trained, steps, shown))
        evidence.write_list()
        text = policy_card(out, stage, evidence, provenance)
        (folder / "README.md").write_text(text, encoding="utf-8")
    say(f"{out}: published, its card is {out / 'README.md'}")
    return PublishedPolicy(stage, loaded, provenance.commit, outputs)


def _loaded(folder: Path, evidence: CardEvidence, dtype: Dtype) -> dict[str, Any]:
    """Load and serve the folder; write what they said, and the exchange that they were asked."""
    asked = round_trip.example()
    loaded = probed("load_policy", folder, json.dumps(asked))
    evidence.put(round_trip.FILE, asked | loaded.pop("exchange"))
    question = asked | {"messages": asked["messages"][:2]}
    loaded["served"] = served(folder, dtype, question)
    evidence.put("loaded.json", loaded)
    return loaded


def write_weights(checkpoint: Path, folder: Path, dtype: Dtype) -> None:
    """Put weights, configurations, tokenizer and template of a checkpoint into ``folder``.

    An adapter is merged into what it adapts; whole weights are the checkpoint's bytes, which are
    those that were scored. Raises PublishError where one of the parts is missing.
    """
    from astra.train.checkpoints import ADAPTER_CONFIG

    if (checkpoint / ADAPTER_CONFIG).is_file():
        from astra.train.exporting import merge_adapter

        with TemporaryDirectory(dir=folder.parent) as place:
            merge_adapter(checkpoint, Path(place, "policy"), dtype)
            _copy(Path(place, "policy"), folder)
    else:
        _copy(checkpoint, folder)
    parts = {
        "weights": "model*.safetensors", "configuration": "config.json",
        "generation configuration": "generation_config.json", "tokenizer": "tokenizer.json",
        "tokenizer's configuration": "tokenizer_config.json",
        "chat template": "chat_template.jinja",
    }  # fmt: skip
    missing = [name for name, pattern in parts.items() if not any(folder.glob(pattern))]
    if missing:
        raise PublishError(
            f"{checkpoint} has no {', no '.join(missing)}: it is no whole policy; "
            f"`dvc checkout {checkpoint}` or `dvc repro {checkpoint.name}` makes it whole"
        )


def _copy(source: Path, folder: Path) -> None:
    for path in sorted(source.iterdir()):
        if path.is_file():
            shutil.copyfile(path, folder / path.name)


def _licences(tally: SourceTally, trained: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """Licences of the base policy and, by rows, of what the policy was trained on.

    ``trained`` are the parameters of stage sft. All sources are counted in ``tally``, the base
    policy with no row.
    """
    book, path = tally.book, str(trained["policy"]["path"])
    licence = book.of(path)
    if licence == UNKNOWN:
        raise PublishError(
            f"the licence of base policy {path} is unknown, and a policy made from it inherits it: "
            f"add {path!r} with its licence to `sources` in {BOOK}"
        )
    if unnoticed := book.unnoticed(path, licence):
        raise PublishError(
            f"{' and '.join(unnoticed)} of base policy {path} asks for a notice of its authors: "
            f"add one for source {path!r} to `notices` in {BOOK}"
        )
    tally.add([RowOrigin(path, licence)], rows=0)
    found: dict[str, Any] = {"base": {"path": path, "licence": licence}}
    known, samples = conversations(), Counter[str]()
    for sample in read_records(SAMPLES, SFTSample):
        if sample.split == "train":
            origins = known[sample.trajectory_id].origins
            samples[joined(origin.licence for origin in origins)] += 1
            tally.add(origins)
    found["sft_set"] = dict(sorted(samples.items()))
    if trained["conversations"] is not None:
        found["conversations"] = _conversation_licences(tally, trained["conversations"])
    if stage == "rl":
        found["envs_merged"] = _arena_licences(tally)
    return found


def _conversation_licences(tally: SourceTally, most: int) -> dict[str, int]:
    """The conversations in worlds that were trained on, by the licences of their worlds."""
    played, samples = goals(tally.book), Counter[str]()
    for sample in trained_conversations(most):
        _, origin = played[goal_id(sample)]
        tally.add([origin])
        samples[origin.licence] += 1
    return dict(sorted(samples.items()))


def _arena_licences(tally: SourceTally) -> dict[str, int]:
    """Training arenas by the licences of their knowledge and of the tools beside it."""
    book, arenas = tally.book, Counter[str]()
    origins_of = tool_origins(book)
    for arena in read_records(ARENAS, Arena):
        if arena.split != Split.TRAIN:
            continue
        origins = [RowOrigin(arena.source, book.of(arena.source))]
        for offers in arena.irrelevant.values():
            for offer in offers:
                found = origins_of(offer.tool)
                fit = next((one for one in found if book.admits_origin(one)), None)
                origins += [fit] if fit else found or [RowOrigin("no server", UNKNOWN)]
        tally.add(origins)
        arenas[joined(origin.licence for origin in origins)] += 1
    return dict(sorted(arenas.items()))
