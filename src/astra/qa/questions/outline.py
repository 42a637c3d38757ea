"""What the teacher is told of a plan: the outline's steps, the names, the knowledge excerpt."""

from __future__ import annotations

from typing import Any

from astra.qa.knowledge.operations import WRITE_OPS
from astra.qa.questions.outcomes import OUTCOMES, closing
from astra.qa.questions.plan import QuestionPlan
from astra.records.qa import Bar, QuestionKind


def ask_variables(plan: QuestionPlan, language: str) -> dict[str, Any]:
    """Variables of ``qa/decompose``."""
    made = plan.composition
    steps: list[dict[str, Any]] = []
    for number, node in enumerate(made.nodes, start=1):
        operation, relation = plan.operations[number - 1], node.relation
        steps.append(
            {
                "id": number,
                "hop_level": made.levels[number - 1],
                "parents": list(node.parents),
                "start": node.start,
                "phrase": relation.phrase,
                "literal": plan.literals[number - 1],
                "answer_type": relation.answer_type.value,
                **operation.model_dump(mode="json"),
            }
        )
    return {
        "domain": made.domain,
        "language": language,
        "scenario": made.scenario.value,
        "hops": made.hops,
        "form": made.form,
        "final": made.final,
        "names": list(plan.names),
        "steps": steps,
        "tables": [table.model_dump(mode="json") for table in plan.tables],
    }


def outline_variables(plan: QuestionPlan, language: str, closes: bool) -> dict[str, Any]:
    """Variables of ``qa/outline`` and ``qa/outline_zh``: those of ``qa/decompose`` and the kind's.

    ``closes``: the question ends by naming the outcomes that it may have.
    """
    made = plan.composition
    variables = ask_variables(plan, language)
    acts = made.form == "act"
    hidden = plan.kind is QuestionKind.MISSING_PARAMETER
    told: list[Any] = list(plan.names)
    for step, node in zip(variables["steps"], made.nodes, strict=True):
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
        "outcome": OUTCOMES[language][plan.kind] if made.final == "outcome" else "",
        "closing": closing(language, acts) if closes else "",
    }
