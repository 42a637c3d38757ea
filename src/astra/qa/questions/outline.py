"""Outlines: the variables of the asks that word a plan (steps, names, knowledge excerpt)."""

from __future__ import annotations

from typing import Any

from astra.qa.knowledge.operations import WRITE_OPS
from astra.qa.questions.outcomes import OUTCOMES, closing
from astra.qa.questions.plan import QuestionPlan
from astra.records.qa import Bar, QuestionKind


def ask_variables(plan: QuestionPlan, language: str) -> dict[str, Any]:
    """Variables of ``qa/decompose``: the plan's steps in order, and all that answers them."""
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
        "tables": [table.model_dump(mode="json") for table in plan.tables],
    }


def outline_variables(plan: QuestionPlan, language: str, closes: bool) -> dict[str, Any]:
    """Variables of ``qa/outline`` and ``qa/outline_zh``: those of ``qa/decompose`` and the kind's.

    ``closes``: the question ends by naming the outcomes that it may have. Variable ``told`` holds
    what the question states verbatim; a step's ``untold`` names the parameter whose value it
    keeps back.
    """
    composition = plan.composition
    variables = ask_variables(plan, language)
    acts = composition.form == "act"
    hidden = plan.kind is QuestionKind.MISSING_PARAMETER
    told: list[Any] = list(plan.names)
    for step, node in zip(variables["steps"], composition.nodes, strict=True):
        untold = hidden and node.bar is Bar.NO_CALL
        step |= {
            "after": list(node.after),
            "dependencies": list(node.dependencies),
            "bar": node.bar.value if node.bar else "",
            "untold": node.relation.extra if untold else "",
            "writes": node.relation.op in WRITE_OPS,
        }
        if untold:
            step["phrase"] = node.relation.vague
        elif step["literal"] is not None:
            told.append(step["literal"])
    return {
        **variables,
        "kind": plan.kind.value,
        "told": told,
        "outcome": OUTCOMES[language][plan.kind] if composition.final == "outcome" else "",
        "closing": closing(language, acts) if closes else "",
    }
