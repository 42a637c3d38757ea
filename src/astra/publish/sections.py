"""Tables that the cards share: what the stages made, who answered them, hashes, licences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from astra.publish import glossary
from astra.publish.evidence import VALUE, CardEvidence, CitedRow
from astra.publish.provenance import METRICS, BuildProvenance
from astra.publish.record import LOCK
from astra.settings import PARAMS

SOURCES = "sources.json"
"""Sources of rows with their licences and the works that they hold parts of, below ``build/``."""
COUNTS: Mapping[str, Mapping[str, str]] = {
    "tools": {"servers": "servers of tools", "tools": "tools", "live_servers": "live servers"},
    "chains": {"chains": "chains of calls"},
    "tasks": {"tasks": "user tasks"},
    "trajectories": {"trajectories": "conversations played"},
    "sft_set": {"samples_train": "conversations to train on", "samples_eval": "held back ones"},
    "worlds": {"out": "worlds"},
    "goals": {
        "out": "goals in worlds", "wordings_taught": "turns of users in a teacher's words",
        "wordings_kept_rules": "turns of users that kept the words of rules",
    },
    "conversations": {"out_train": "conversations in worlds", "out_eval": "held back ones"},
    "qa": {"out": "questions"},
    "qa_valid": {"out": "questions that passed the verifiers"},
    "envs": {"environments": "environments"},
    "envs_merged": {"arenas": "arenas", "hard": "hard arenas"},
    "sft": {
        "train_samples": "conversations trained on", "train_tokens": "tokens in them",
        "train_assistant_tokens": "of these, the assistant's: what was learnt to write",
        "steps": "steps of fine-tuning",
    },
    "rl": {"train_arenas": "arenas trained in", "steps": "steps of reinforcement learning"},
}  # fmt: skip
"""The keys of a stage's metrics that a card shows, and what a reader calls them."""


def rendered(template: str, **values: Any) -> str:
    """A text of ``templates/``."""
    environment = Environment(
        loader=PackageLoader("astra", "publish/templates"), undefined=StrictUndefined,
        keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(**values)


def stage_counts(evidence: CardEvidence, provenance: BuildProvenance) -> str:
    """What each stage made and dropped."""
    rows: list[CitedRow] = []
    for stage in provenance.stages:
        file = f"{METRICS}/{stage}.json"
        rows += [
            CitedRow((stage, said), file, (key,))
            for key, said in COUNTS.get(stage, {}).items()
            if evidence.has(file, key)
        ]
        for reason in evidence.at(file).get("dropped", {}):
            rows.append(CitedRow((stage, f"dropped: {reason}"), file, ("dropped", reason)))
    return evidence.table(("stage", "what"), (VALUE,), rows)


def drop_reasons(evidence: CardEvidence, provenance: BuildProvenance) -> str:
    """What the reasons of the stages' drops mean."""
    found = (
        evidence.at(f"{METRICS}/{stage}.json").get("dropped", {}) for stage in provenance.stages
    )
    return glossary.explained(
        sorted({reason for drops in found for reason in drops}), glossary.DROPS
    )


def works(evidence: CardEvidence) -> str:
    """Whose works are held, by how many rows."""
    rows = (CitedRow((key,), SOURCES, ("works", key)) for key in evidence.at(SOURCES, "works"))
    return evidence.table(("parts of",), ("licence", "copyright", "rows"), rows)


def outputs(evidence: CardEvidence, provenance: BuildProvenance) -> str:
    """The files that the stages made, with dvc's hashes."""
    rows = (
        CitedRow((stage, out["path"]), str(LOCK), ("stages", stage, "outs", at))
        for stage in provenance.stages
        for at, out in enumerate(evidence.at(str(LOCK), "stages", stage, "outs"))
    )
    return evidence.table(("stage", "file"), ("md5", "size"), rows)


def roles_table(evidence: CardEvidence, provenance: BuildProvenance) -> str:
    """Who answered each stage's asks."""
    columns = ("backend", "model")
    return evidence.table(("stage", "role"), columns, _roles(evidence, provenance))


def rules_only(evidence: CardEvidence, provenance: BuildProvenance) -> bool:
    """Whether no model answered an ask; one that embeds texts answers none."""
    found = (evidence.at(row.file, *row.keys) for row in _roles(evidence, provenance))
    return {block["backend"] for block in found} <= {"offline", "local"}


def _roles(evidence: CardEvidence, provenance: BuildProvenance) -> list[CitedRow]:
    """The places of stages' parameters that name a backend and a model."""
    found: list[CitedRow] = []
    for stage in provenance.stages:
        if evidence.has(str(LOCK), *_params(stage)):
            block = evidence.at(str(LOCK), *_params(stage))
            for keys in _models(block):
                label = ".".join(map(str, keys))
                found.append(CitedRow((stage, label), str(LOCK), (*_params(stage), *keys)))
    return found


def _models(block: Any) -> Iterator[tuple[str | int, ...]]:
    if isinstance(block, Mapping) and "backend" in block and "model" in block:
        yield ()
        return
    parts: Iterable[tuple[str | int, Any]] = ()
    if isinstance(block, Mapping):
        parts = block.items()
    elif isinstance(block, list):
        parts = enumerate(block)
    for key, part in parts:
        yield from ((key, *rest) for rest in _models(part))


def parameters(evidence: CardEvidence, stages: Sequence[str]) -> str:
    """Every parameter of stages, as the lock file has it."""
    rows = (
        CitedRow((stage, ".".join(map(str, keys))), str(LOCK), (*_params(stage), *keys))
        for stage in stages
        for keys in _leaves(evidence.at(str(LOCK), *_params(stage)))
    )
    return evidence.table(("stage", "parameter"), (VALUE,), rows)


def _params(stage: str) -> tuple[str, ...]:
    return ("stages", stage, "params", str(PARAMS), stage)


def _leaves(block: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in block.items():
        if isinstance(value, Mapping) and value:
            yield from ((key, *rest) for rest in _leaves(value))
        else:
            yield (key,)


def counted(evidence: CardEvidence, file: str, keys: Sequence[str], what: str) -> str:
    """A table of the counts that a place holds by name."""
    names: Iterable[str] = evidence.at(file, *keys)
    return evidence.table(
        (what,), (VALUE,), (CitedRow((name,), file, (*keys, name)) for name in names)
    )


def hub_licences(expressions: Iterable[str]) -> str | list[str]:
    """Licences as the front matter of a card has them: lower case, each once."""
    every = sorted({one.lower() for text in expressions for one in text.split(" AND ")})
    return every[0] if len(every) == 1 else every
