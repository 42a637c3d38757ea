"""The model card of a published policy."""

from __future__ import annotations

from collections.abc import Sequence

from astra.publish import sections
from astra.publish.evidence import VALUE, CardEvidence, CitedRow
from astra.publish.provenance import METRICS, BuildProvenance
from astra.publish.record import LOCK
from astra.settings import PARAMS

SCORES = f"{METRICS}/bench.json"
SHOWN = ("f1", "f1_plain", "precision", "recall", "success", "answer", "malformed", "calls")
COMPARED = ("f1", "f1_plain", "success")
ESTIMATE = ("mean", "low", "high", "n")
GROUPS = {"by_hops": "hop levels", "by_difficulty": "difficulty", "by_kind": "kind"}
LOADED = ("architecture", "parameters", "dtype", "vocabulary", "context")
MEASURED = {
    "held-out arenas played": ("arenas",),
    "temperature": ("sampling", "temperature"),
    "runs of each": ("sampling", "runs"),
    "confidence of intervals": ("sampling", "confidence"),
}
STAGES = {"sft": ["sft"], "rl": ["sft", "rl"]}


def policy_card(name: str, stage: str, evidence: CardEvidence, provenance: BuildProvenance) -> str:
    """The card. ``stage`` is ``sft`` or ``rl``, the checkpoint's name in the scores."""
    played = list(evidence.at(SCORES, "checkpoints"))
    text = sections.rendered(
        "policy",
        name=name,
        stage=stage,
        commit=provenance.commit,
        dtype=evidence.at("loaded.json", "dtype"),
        size=evidence.table(
            ("what",), (VALUE,), [CitedRow((key,), "loaded.json", (key,)) for key in LOADED]
        ),
        scores=_scores(evidence, [stage], SHOWN),
        others=_scores(evidence, [one for one in played if one != stage], COMPARED),
        bounds=_bounds(evidence),
        differences=_differences(evidence, stage),
        groups=_groups(evidence, stage),
        measured=evidence.table(
            ("what",),
            (VALUE,),
            [CitedRow((said,), SCORES, keys) for said, keys in MEASURED.items()],
        ),
        limits=_limits(evidence),
        suites=_suites(evidence, stage),
        base=evidence.table(
            ("base policy",), ("path", "licence"), [CitedRow(("base",), "licences.json", ("base",))]
        ),
        licences=_licences(evidence),
        counts=sections.stage_counts(evidence, provenance),
        roles=sections.roles_table(evidence, provenance),
        rules_only=sections.rules_only(evidence, provenance),
        parameters=sections.parameters(evidence, STAGES[stage]),
        outputs=sections.outputs(evidence, provenance),
        files=evidence.files_table(),
    )
    return f"---\n{_front_matter(name, stage, evidence)}\n---\n{text}"


def _front_matter(name: str, stage: str, evidence: CardEvidence) -> str:
    """What the hub reads: licence, library, and the scores."""
    from huggingface_hub import EvalResult, ModelCardData  # late: a second for other commands

    base = evidence.at(str(LOCK), "stages", "sft", "params", str(PARAMS), "sft", "policy")
    results = [
        EvalResult(
            task_type="text-generation", task_name="tool use",
            dataset_type="astra-arenas", dataset_name="held-out arenas", dataset_split="heldout",
            metric_type=score, metric_value=evidence.at(*_place(stage, score), "mean"),
        )
        for score in SHOWN
        if evidence.has(*_place(stage, score))
    ]  # fmt: skip
    licence = sections.hub_licences([evidence.at("licences.json", "base", "licence")])
    data = ModelCardData(
        model_name=name,
        license=licence if isinstance(licence, str) else "other",
        # A folder is no name that the hub knows.
        base_model=base["path"] if base["revision"] else None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["tool-use", "agents"],
        eval_results=results,
        ignore_metadata_errors=False,
    )
    return data.to_yaml()


def _place(who: str, score: str) -> tuple[str, ...]:
    return SCORES, "checkpoints", who, "scores", score


def _scores(evidence: CardEvidence, who: Sequence[str], scores: Sequence[str]) -> str:
    places = [(one, score, _place(one, score)) for one in who for score in scores]
    rows = [CitedRow((one, score), file, tuple(keys)) for one, score, (file, *keys) in places
            if evidence.has(file, *keys)]  # fmt: skip
    return evidence.table(("policy", "score"), ESTIMATE, rows, exact=False)


def _bounds(evidence: CardEvidence) -> str:
    said = {"floor": "does nothing", "ceiling": "replays the reference calls"}
    rows = [CitedRow((said[name],), SCORES, ("references", name)) for name in said]
    return evidence.table(("policy",), (*COMPARED, "calls", "n"), rows, exact=False)


def _differences(evidence: CardEvidence, stage: str) -> str:
    rows = [
        CitedRow((pair, score), SCORES, ("differences", pair, score))
        for pair in evidence.at(SCORES, "differences")
        if stage in pair.split("-")
        for score in COMPARED
        if evidence.has(SCORES, "differences", pair, score)
    ]
    return evidence.table(("difference", "score"), ESTIMATE, rows, exact=False)


def _groups(evidence: CardEvidence, stage: str) -> str:
    rows = [
        CitedRow((said, value), SCORES, ("checkpoints", stage, group, value))
        for group, said in GROUPS.items()
        for value in evidence.at(SCORES, "checkpoints", stage).get(group, {})
    ]
    return evidence.table(("arenas by", "which"), ("n", "f1", "success"), rows, exact=False)


def _limits(evidence: CardEvidence) -> str:
    keys = ("stages", "bench", "params", str(PARAMS), "bench", "limits")
    rows = [CitedRow((name,), str(LOCK), (*keys, name)) for name in evidence.at(str(LOCK), *keys)]
    return evidence.table(("limit of an episode",), (VALUE,), rows)


def _suites(evidence: CardEvidence, stage: str) -> str:
    """Scores on external suites; empty where none was played."""
    if not evidence.has(SCORES, "suites"):
        return ""
    rows: list[CitedRow] = []
    for suite, found in evidence.at(SCORES, "suites").items():
        for who in (stage, "floor"):
            played = found["checkpoints"].get(who)
            if played is not None and played["score"] in played["scores"]:
                keys = ("suites", suite, "checkpoints", who, "scores", played["score"])
                rows.append(CitedRow((suite, who, str(played["score"])), SCORES, keys))
    return evidence.table(("suite", "policy", "score"), ESTIMATE, rows, exact=False) if rows else ""


def _licences(evidence: CardEvidence) -> str:
    rows = [
        CitedRow((table, licence), "licences.json", (table, licence))
        for table in ("sft_set", "envs_merged")
        if evidence.has("licences.json", table)
        for licence in evidence.at("licences.json", table)
    ]
    return evidence.table(("trained on rows of", "licence"), (VALUE,), rows)
