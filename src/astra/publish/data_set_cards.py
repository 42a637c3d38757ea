"""The cards of the published data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from astra.publish import glossary, lineage, sections
from astra.publish.evidence import VALUE, CardEvidence, CitedRow
from astra.publish.provenance import BuildProvenance
from astra.publish.rows import FOLDER

COUNTS = "counts.json"
TAGS = {
    "sft_set": ("tool-use", "agents", "sft"),
    "conversations": ("tool-use", "agents", "multi-turn", "sft"),
    "arenas": ("tool-use", "agents", "rl"),
}
MEANINGS = {
    "sft_set": {"kind": glossary.TASK_KINDS, "execution": glossary.EXECUTIONS},
    "conversations": {"kind": glossary.QUESTION_KINDS, "traits": glossary.GOAL_TRAITS},
    "arenas": {
        "kind": glossary.QUESTION_KINDS,
        "scenario": glossary.SCENARIOS,
        "traits": {**glossary.TRAITS, **glossary.GOAL_TRAITS},
    },
}
"""Columns with values that a card explains."""


def front_matter(kind: str, name: str, evidence: CardEvidence) -> str:
    """What the hub and `datasets` read: splits with their files, licences, languages."""
    from huggingface_hub import DatasetCardData  # late: a second that other commands do not need

    splits = evidence.at(COUNTS, "split")
    files = [{"split": split, "path": f"{FOLDER}/{split}.parquet"} for split in splits]
    data = DatasetCardData(
        pretty_name=name,
        license=sections.hub_licences(evidence.at(COUNTS, "licence")),
        language=list(evidence.at(COUNTS, "language")),
        tags=list(TAGS[kind]),
        configs=[{"config_name": "default", "data_files": files}],
    )
    return f"---\n{data.to_yaml()}\n---\n"


def body(
    kind: str,
    out: Path,
    counted: Sequence[str],
    evidence: CardEvidence,
    provenance: BuildProvenance,
) -> str:
    """The card below its front matter; ``build/loaded.json`` has to be there.

    ``out`` is where the folder will lie, ``counted`` the columns whose values it counts.
    """
    columns = evidence.at("loaded.json", "features")
    itself = evidence.at(lineage.IDENTITY)
    policies = lineage.policies_of(evidence, itself["path"], itself["md5"])
    return sections.rendered(
        f"{kind}.md.j2",
        name=out.name,
        commit=provenance.commit,
        splits=list(evidence.at(COUNTS, "split")),
        split_table=sections.counted(evidence, COUNTS, ("split",), "split"),
        column_table=evidence.table(
            ("column",),
            (VALUE,),
            [CitedRow((key,), "loaded.json", ("features", key)) for key in columns],
        ),
        tables={
            column: sections.counted(evidence, COUNTS, (column,), column) for column in counted
        },
        meanings={
            column: glossary.explained(evidence.at(COUNTS, column), meanings)
            for column, meanings in MEANINGS[kind].items()
        },
        itself=evidence.table(
            ("data set",),
            ("path", "md5"),
            [CitedRow((out.name,), lineage.IDENTITY, ())],
        ),
        policies=lineage.table(evidence, policies, "policy") if policies else "",
        beside=lineage.beside(out, policies),
        works=sections.works(evidence),
        **_left_out(kind, evidence),
        counts=sections.stage_counts(evidence, provenance),
        drops=sections.drop_reasons(evidence, provenance),
        roles=sections.roles_table(evidence, provenance),
        rules_only=sections.rules_only(evidence, provenance),
        outputs=sections.outputs(evidence, provenance),
        files=evidence.files_table(),
        words=glossary,
    )


def _left_out(kind: str, evidence: CardEvidence) -> dict[str, object]:
    rows = [CitedRow(("rows left out",), COUNTS, ("left_out", "rows"))]
    if kind == "arenas":
        tools = CitedRow(("irrelevant tools taken out",), COUNTS, ("tools_left_out", "tools"))
        rows.append(tools)
    return {
        "left_out": evidence.table(("what",), (VALUE,), rows),
        "left_out_licences": sections.counted(evidence, COUNTS, ("left_out", "licence"), "licence"),
        "any_left_out": bool(evidence.at(COUNTS, "left_out", "rows")),
    }
