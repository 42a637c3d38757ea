"""All knowledge of a configuration: every source of every split, and the split of a name."""

from __future__ import annotations

from collections.abc import Mapping

from astra.qa.config import QAConfig, SourceName
from astra.qa.domains import DOMAINS
from astra.qa.packaged import elements, geography
from astra.qa.schema import Source
from astra.qa.worlds import build_world
from astra.records.qa import Split

PACKAGED = {"geography": geography, "elements": elements}


def build_sources(config: QAConfig, split: Split) -> dict[SourceName, tuple[Source, ...]]:
    """Source name -> its variants for one split. KnowledgeError if a package does not match."""
    return {
        name: _variants(name, config, split)
        for name, weight in sorted(config.sources.items())
        if weight > 0
    }


def _variants(name: SourceName, config: QAConfig, split: Split) -> tuple[Source, ...]:
    if name in DOMAINS:
        return tuple(
            build_world(name, split, variant, config.seed, config.names_per_kind)
            for variant in range(config.worlds)
        )
    versions = dict[str, str](config.packages.items())
    return (PACKAGED[name](split, versions, config.names_per_type),)


def shared_entities(sources: Mapping[Split, Mapping[SourceName, tuple[Source, ...]]]) -> set[str]:
    """Names that two splits both have. Empty unless a source is broken."""
    owner: dict[str, Split] = {}
    shared: set[str] = set()
    for split, by_name in sources.items():
        for variants in by_name.values():
            for source in variants:
                for name in source.entities_in(tuple(source.tables.values())):
                    if owner.setdefault(name, split) is not split:
                        shared.add(name)
    return shared
