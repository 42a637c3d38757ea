"""All knowledge of a configuration: every source of a split, by language and name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from astra.qa.config import Language, QAConfig, SourceName
from astra.qa.knowledge.domains import DOMAINS
from astra.qa.knowledge.packaged import elements, geography
from astra.qa.knowledge.schema import KnowledgeSource
from astra.qa.knowledge.tables import load_tables
from astra.qa.knowledge.worlds import build_world, in_chinese
from astra.records.qa import Split

PACKAGED = {"geography": geography, "elements": elements}
"""Source name -> the function that reads it."""
KNOWLEDGE = Path("sources/knowledge")
"""Where files of knowledge lie; a declared dependency of stage qa."""
Sources = Mapping[Language, Mapping[str, tuple[KnowledgeSource, ...]]]
"""Language -> source name -> its variants."""


def build_sources(config: QAConfig, split: Split, knowledge: Path = KNOWLEDGE) -> Sources:
    """All sources of one split. Raises KnowledgeError if a package or file is not as configured."""
    sources: dict[Language, dict[str, tuple[KnowledgeSource, ...]]] = {}
    for language in config.languages_used:
        sources[language] = {
            name: _variants(name, config, split, language)
            for name, weight in sorted(config.sources.items())
            if weight > 0
        }
        for name, spec in sorted(config.tables.items()):
            if spec.weight > 0 and spec.language == language:
                source = load_tables(name, spec, split, knowledge, config.names_per_type)
                sources[language][name] = (source,)
    return sources


def source_weights(config: QAConfig) -> dict[str, float]:
    """Source name -> how likely a question is about it, beside the others."""
    tables = {name: spec.weight for name, spec in config.tables.items()}
    return {**config.sources, **tables}


def _variants(
    name: SourceName, config: QAConfig, split: Split, language: Language
) -> tuple[KnowledgeSource, ...]:
    if name in DOMAINS:
        return tuple(
            build_world(
                name,
                split,
                variant,
                config.seed,
                config.names_per_kind,
                language,
                config.extended,
                pages=config.pages if config.hard else 0,
            )
            for variant in range(config.worlds)
        )
    versions = dict[str, str](config.packages.items())
    source = PACKAGED[name](split, versions, config.names_per_type)
    return (in_chinese(source) if language == "zh" else source,)


def all_sources(sources: Sources) -> Iterator[KnowledgeSource]:
    """Every variant of every source, in every language."""
    for by_name in sources.values():
        for variants in by_name.values():
            yield from variants


def shared_entities(sources: Mapping[Split, Sources]) -> set[str]:
    """Names that more than one split has: none, unless a source is broken."""
    owner: dict[str, Split] = {}
    shared: set[str] = set()
    for split, own in sources.items():
        for source in all_sources(own):
            for name in source.names:
                if owner.setdefault(name, split) is not split:
                    shared.add(name)
    return shared
