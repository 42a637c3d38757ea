"""The cards of the published data sets."""

from __future__ import annotations

from astra.publish import sections
from astra.publish.data_rows import COUNTED
from astra.publish.evidence import VALUE, CardEvidence, CitedRow
from astra.publish.provenance import BuildProvenance
from astra.publish.rows import FOLDER

COUNTS = "counts.json"
TAGS = {"sft_set": ("tool-use", "agents", "sft"), "arenas": ("tool-use", "agents", "rl")}


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


def body(kind: str, name: str, evidence: CardEvidence, provenance: BuildProvenance) -> str:
    """The card below its front matter; ``build/loaded.json`` has to be there."""
    left_out = [CitedRow(("rows left out",), COUNTS, ("left_out", "rows"))]
    if kind == "arenas":
        tools = CitedRow(("irrelevant tools taken out",), COUNTS, ("tools_left_out", "tools"))
        left_out.append(tools)
    columns = evidence.at("loaded.json", "features")
    return sections.rendered(
        kind,
        name=name,
        commit=provenance.commit,
        splits=list(evidence.at(COUNTS, "split")),
        split_table=sections.counted(evidence, COUNTS, ("split",), "split"),
        column_table=evidence.table(
            ("column",),
            (VALUE,),
            [CitedRow((key,), "loaded.json", ("features", key)) for key in columns],
        ),
        tables={
            column: sections.counted(evidence, COUNTS, (column,), column) for column in COUNTED
        },
        left_out=evidence.table(("what",), (VALUE,), left_out),
        left_out_licences=sections.counted(evidence, COUNTS, ("left_out", "licence"), "licence"),
        any_left_out=bool(evidence.at(COUNTS, "left_out", "rows")),
        counts=sections.stage_counts(evidence, provenance),
        roles=sections.roles_table(evidence, provenance),
        rules_only=sections.rules_only(evidence, provenance),
        outputs=sections.outputs(evidence, provenance),
        files=evidence.files_table(),
    )
