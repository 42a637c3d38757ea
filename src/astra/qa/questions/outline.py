"""Outlines: the variables of the asks that word a plan (its steps with their answers, names)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from astra.qa.knowledge.operations import WRITE_OPS
from astra.qa.knowledge.references import chosen_by
from astra.qa.questions.outcomes import OUTCOMES, closing
from astra.qa.questions.plan import QuestionPlan
from astra.records.qa import Bar, QuestionKind


def ask_variables(plan: QuestionPlan, language: str) -> dict[str, Any]:
    """Variables of ``qa/decompose``: the plan's steps in order, each with its answer."""
    composition = plan.composition
    steps: list[dict[str, Any]] = []
    for position, node in enumerate(composition.nodes):
        operation, relation = plan.operations[position], node.relation
        steps.append(
            {
                "id": position + 1,
                "hop_level": composition.levels[position],
                "parents": list(node.parents),
                "start": node.start,
                "phrase": relation.phrase,
                "literal": plan.literals[position],
                "answer_type": relation.answer_type.value,
                "answer": plan.answers[position],
                **operation.model_dump(mode="json"),
            }
        )
    return {
        "domain": composition.domain,
        "language": language,
        "scenario": composition.scenario.value,
        "hops": composition.hops,
        "form": composition.form,
        "final": composition.final,
        "names": list(plan.names),
        "steps": steps,
    }


def outline_variables(plan: QuestionPlan, language: str, closes: bool) -> dict[str, Any]:
    """Variables of ``qa/outline`` and ``qa/outline_zh``: those of ``qa/decompose`` and the kind's.

    ``closes``: the question ends by naming the outcomes that it may have. Variable ``told`` holds
    what the question states verbatim; a step's ``untold`` names the parameter whose value it
    keeps back.
    """
    composition = plan.composition
    variables = ask_variables(plan, language)
    acts = any(node.relation.writes for node in composition.nodes)
    hidden = plan.kind is QuestionKind.MISSING_PARAMETER
    told: list[Any] = list(plan.names)
    for position, node in enumerate(composition.nodes):
        step = variables["steps"][position]
        untold = hidden and node.bar is Bar.NO_CALL
        step |= {
            "after": list(node.after),
            "dependencies": list(node.dependencies),
            "bar": node.bar.value if node.bar else "",
            "untold": node.relation.extra if untold else "",
            "writes": node.relation.op in WRITE_OPS,
            "choice": _choice(plan, position),
            "page_after": node.page_after,
        }
        if untold:
            step["phrase"] = node.relation.vague
        elif step["literal"] is not None:
            told.append(step["literal"])
        told += [cell for cell in chosen_by(plan.operations[position]) if cell not in told]
    return {
        **variables,
        "kind": plan.kind.value,
        "told": told,
        "outcome": OUTCOMES[language][plan.kind] if composition.final == "outcome" else "",
        "closing": closing(language, acts, composition.form != "act") if closes else "",
    }


def _choice(plan: QuestionPlan, position: int) -> dict[str, Any] | None:
    """What the node at a position is asked of, where that is chosen of its parents' answers.

    The phrase's ``{y}`` is filled with ``value``: the cell that chooses, or the second parameter
    of the step that is chosen from.
    """
    node = plan.composition.nodes[position]
    if node.choice is None:
        return None
    cells = chosen_by(plan.operations[position])
    return {
        **asdict(node.choice),
        "value": cells[0] if cells else plan.literals[node.parents[0] - 1],
    }
