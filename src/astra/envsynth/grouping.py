"""Which tools of an instance could be one: by construction, perhaps, or certainly not; pure.

Steps of one operation need one tool, so these are a *class* whatever a teacher would say. Two
classes whose tools differ in what they take or give can never be one. Only what is left is a matter
of judgement, and asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from astra.envsynth.truth import meaning_of
from astra.prompting import without_keywords
from astra.records.base import canonical_json
from astra.records.environment import Environment
from astra.records.qa import Operation, QAInstance, SubQuestion

Member = tuple[SubQuestion, Environment]
Class = list[Member]


def classes_of(members: Sequence[Member]) -> list[Class]:
    """Members of one operation together, by first member; one without an operation is alone."""
    classes: dict[str, Class] = {}
    for question, environment in members:
        operation = question.operation
        same = (
            str(question.id)
            if operation is None
            else canonical_json([_asked(operation), operation.relation, _shape(environment)])
        )
        classes.setdefault(same, []).append((question, environment))
    return list(classes.values())


def doubtful(classes: Sequence[Class]) -> list[Class]:
    """The classes that could be one with another of them."""
    return [
        one
        for one in classes
        if any(other is not one and can_merge(one[0], other[0]) for other in classes)
    ]


def can_merge(one: Member, other: Member) -> bool:
    """Whether one tool could serve both: it takes as many required values of the same types, gives
    the same kind of result and, where operations are stated, carries out the same one.
    """
    if _shape(one[1]) != _shape(other[1]):
        return False
    first, second = one[0].operation, other[0].operation
    if first is None or second is None:
        return True
    same_relation = first.relation == second.relation and first.op == second.op
    return same_relation or _asked(first) == _asked(second)


def calls_of(
    instance: QAInstance, base: Member, members: Sequence[Member]
) -> dict[int, dict[str, Any]] | None:
    """Each member's gold call for the tool of ``base``; None where one cannot be derived."""
    calls: dict[int, dict[str, Any]] = {}
    for member in members:
        arguments = _translated(instance, base, member)
        if arguments is None:
            return None
        calls[member[0].id] = arguments
    return calls


def _translated(instance: QAInstance, base: Member, member: Member) -> dict[str, Any] | None:
    """The member's arguments under the names, and in the forms, of the base's tool."""
    if base[0].id == member[0].id:
        return member[1].arguments
    ours, theirs = (
        meaning_of(instance, question, list(made.arguments), made.arguments, instance.knowledge)
        for question, made in (base, member)
    )
    if ours is not None and theirs is not None:
        known, given = theirs.operation.arguments, ours.gold
        fixed = ours.operation.arguments.keys() - {ours.names[name] for name in given}
        if any(known.get(own) != ours.operation.arguments[own] for own in fixed):
            return None  # the base's tool does only what its own question fixes
        return ours.written({name: known[ours.names[name]] for name in given})
    if _parameters(base[1]) == _parameters(member[1]):
        return member[1].arguments
    return None


def _asked(operation: Operation) -> list[Any]:
    """What makes two operations the same but for their values."""
    return [operation.op, operation.table, operation.select, sorted(operation.arguments)]


def _shape(environment: Environment) -> str:
    """The types of the required parameters and the kind of the result, without names."""
    parameters = environment.tool.parameters
    properties: Mapping[str, Any] = parameters.get("properties", {})
    required = sorted(str(properties[name].get("type")) for name in parameters.get("required", ()))
    return canonical_json([required, _kind(environment.answer.value)])


def _kind(value: Any) -> Any:
    """What sort of JSON a result is: its type, a list's items, a record's fields."""
    if isinstance(value, list):
        return ["list", _kind(value[0]) if value else None]
    if isinstance(value, dict):
        return ["record", *sorted(value)]
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"


def _parameters(environment: Environment) -> Mapping[str, Any]:
    """The required parameters with their schemas, whatever their descriptions say."""
    parameters = environment.tool.parameters
    required = {name: parameters["properties"][name] for name in parameters.get("required", ())}
    return without_keywords({"properties": required}, lambda keyword: keyword == "description")
