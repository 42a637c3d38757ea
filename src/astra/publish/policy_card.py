"""The model card of a published policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from astra.publish import glossary, lineage, round_trip, sections, token_counts
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
NUMBERS = {"1": "one", "2": "two", "3": "three", "4": "four", "5": "five", "6": "six"}
STAGES = {"sft": ["sft"], "rl": ["sft", "rl"]}


def policy_card(out: Path, stage: str, evidence: CardEvidence, provenance: BuildProvenance) -> str:
    """The card of a folder that will lie at ``out``. ``stage`` is ``sft`` or ``rl``, the
    checkpoint's name in the scores."""
    name, played = out.name, list(evidence.at(SCORES, "checkpoints"))
    data_sets = lineage.data_sets_of(evidence, stage)
    text = sections.rendered(
        "policy.md.j2",
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
        by_hops=_by_hops(evidence, stage),
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
        works=sections.works(evidence),
        data_sets=lineage.table(evidence, data_sets, "data set"),
        beside=lineage.beside(out, data_sets),
        exchange=_exchange(evidence),
        tokens=_tokens(evidence),
        words=glossary,
        meanings=_meanings(evidence, stage),
        cited=evidence.cited,
        at=evidence.at,
        drops=sections.drop_reasons(evidence, provenance),
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


def _meanings(evidence: CardEvidence, stage: str) -> str:
    """What the names in the table of groups mean."""
    found = evidence.at(SCORES, "checkpoints", stage)
    kinds = glossary.explained(found.get("by_kind", {}), glossary.QUESTION_KINDS)
    difficulty = glossary.explained(found.get("by_difficulty", {}), glossary.DIFFICULTY)
    if not difficulty:
        return kinds
    traits = glossary.explained(glossary.TRAITS, glossary.TRAITS)
    return f"{kinds}\n{difficulty}\n\nThe traits that make an arena hard:\n\n{traits}"


def _by_hops(evidence: CardEvidence, stage: str) -> str:
    """Success by hop levels as the rest of a sentence; empty where scores are not told apart."""
    keys = ("checkpoints", stage, "by_hops")
    if not evidence.has(SCORES, *keys):
        return ""
    said = [
        f"{evidence.cited(SCORES, *keys, hops, 'success', share=True)} of the "
        f"{evidence.cited(SCORES, *keys, hops, 'n')} with {NUMBERS.get(hops, f'`{hops}`')}"
        for hops in sorted(evidence.at(SCORES, *keys), key=int)
    ]
    return " and ".join(", ".join(said).rsplit(", ", 1))


def _exchange(evidence: CardEvidence) -> dict[str, str]:
    """The texts of the exchange that the card quotes, each below the place that it stands at."""
    places: dict[str, tuple[str | int, ...]] = {
        "system": ("messages", 0, "content"), "rendered": ("rendered",),
        "call": ("written", 0), "answer": ("written", 1),
    }  # fmt: skip
    return {name: evidence.quoted(round_trip.FILE, *keys) for name, keys in places.items()}


def _tokens(evidence: CardEvidence) -> str:
    said = {
        "set": "given to training", "left_out": "left out: longer than `max_tokens`",
        "kept": "trained on", "read": "read in all passes, about",
    }  # fmt: skip
    return evidence.table(
        ("what",),
        ("conversations", "tokens", "assistant_tokens"),
        (CitedRow((said[part],), token_counts.FILE, (part,)) for part in said),
    )


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
        for table in ("sft_set", "conversations", "envs_merged")
        if evidence.has("licences.json", table)
        for licence in evidence.at("licences.json", table)
    ]
    return evidence.table(("trained on rows of", "licence"), (VALUE,), rows)
