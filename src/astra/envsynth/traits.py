"""What makes an arena hard, read off the arena alone: one function per trait.

Look-ups whose tools are named as the question is worded ask little of an agent. Stage
``envs_merged`` records which of the traits below an arena has, so that training and evaluation tell
hard arenas from look-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any

from astra.records.environment import DEEP, Arena, ArenaStep, Trait
from astra.records.qa import QuestionKind
from astra.records.tool import Tool
from astra.text.forms import readings
from astra.text.likeness import shared_words
from astra.text.words import has_cjk, numbers, plain, says


def traits_of(arena: Arena) -> tuple[Trait, ...]:
    """The traits of an arena; a code-interpreter arena has none."""
    if arena.kind == QuestionKind.CODE:
        return ()
    return tuple(trait for trait, found in _FOUND_BY.items() if found(arena))


def has_selection(arena: Arena) -> bool:
    """Whether a part of a record or list that a tool returned is used apart: by a later step, or as
    the final answer."""
    whole = [step.answer.value for step in arena.steps if step.tool_name is not None]
    return any(
        _selected(step, arena)
        or (arena.final_answer.value not in whole and _among(arena.final_answer.value, step))
        for step in _called(arena)
    )


def has_pages(arena: Arena) -> bool:
    """Whether a tool is called again with what its own result says comes next, all else equal."""
    by_id = {step.id: step for step in arena.steps}
    return any(
        _continues(step, by_id[number])
        for step in _called(arena)
        for number in step.dependencies
        if number in by_id
    )


def has_twins(arena: Arena) -> bool:
    """Whether two tools in scope are about the same, give the same type, and one has all the
    parameters of the other and one more."""
    tools = [offer.tool for offer in arena.tools]
    return any(_are_twins(one, other) for one, other in combinations(tools, 2))


def has_unlike_names(arena: Arena) -> bool:
    """Whether a needed tool's name shares no content word with its step's question, nor with the
    main one. Names say nothing to questions of another script, which are not judged."""
    return any(
        not has_cjk(step.question) and is_unlike(step.tool_name or "", step.question, arena)
        for step in _called(arena)
    )


def has_formats(arena: Arena) -> bool:
    """Whether a gold argument is written as its schema says and not as the agent was told it."""
    answers = {step.id: step.answer.value for step in arena.steps}
    tools = {offer.tool.name: offer.tool for offer in arena.tools}
    for step in _called(arena):
        told = [answers[number] for number in step.dependencies if number in answers]
        texts = [arena.main_question, step.question]
        schemas = tools[step.tool_name or ""].parameters.get("properties", {})
        for name, value in step.arguments.items():
            if schemas.get(name, {}).keys() & {"description", "format", "pattern"} and any(
                _reformatted(leaf, texts, list(_leaves(told))) for leaf in _leaves(value)
            ):
                return True
    return False


def has_hops(arena: Arena) -> bool:
    """Whether answers rest on answers over four levels or more."""
    return arena.hops >= DEEP


def is_unlike(name: str, question: str, arena: Arena) -> bool:
    """Whether a tool's name repeats a content word of neither question."""
    return not shared_words(name, f"{question} {arena.main_question}")


_FOUND_BY: dict[Trait, Callable[[Arena], bool]] = {
    Trait.SELECTION: has_selection,
    Trait.PAGES: has_pages,
    Trait.TWINS: has_twins,
    Trait.UNLIKE_NAMES: has_unlike_names,
    Trait.FORMATS: has_formats,
    Trait.HOPS: has_hops,
}


def _called(arena: Arena) -> list[ArenaStep]:
    return [step for step in arena.steps if step.tool_name is not None]


def _selected(step: ArenaStep, arena: Arena) -> bool:
    """Whether a step that depends on ``step`` uses a part of its answer."""
    for later in arena.steps:
        if step.id not in later.dependencies or _continues(later, step):
            continue
        if later.tool_name is None and _is_structured(step.answer.value):
            return True
        used = later.arguments if later.tool_name is not None else later.answer.value
        if any(_among(leaf, step) for leaf in _leaves(used)):
            return True
    return False


def _is_structured(value: Any) -> bool:
    """Whether a value is a record of several fields, or several records."""
    if isinstance(value, list):
        return len(value) > 1 and all(isinstance(item, dict) for item in value)
    return isinstance(value, dict) and len(value) > 1


def _among(value: Any, step: ArenaStep) -> bool:
    """Whether a scalar is one of several that the step's answer holds."""
    if isinstance(value, bool | list | dict) or value is None:
        return False
    leaves = list(_leaves(step.answer.value))
    return isinstance(step.answer.value, list | dict) and len(leaves) > 1 and value in leaves


def _continues(later: ArenaStep, earlier: ArenaStep) -> bool:
    """Whether ``later`` is the call of ``earlier`` with one argument taken from its result's top
    level, where that result also holds a list."""
    page, given, before = earlier.answer.value, later.arguments, earlier.arguments
    if later.tool_name is None or later.tool_name != earlier.tool_name:
        return False
    if not isinstance(page, dict) or earlier.id not in later.dependencies:
        return False
    changed = [name for name in given if name not in before or before[name] != given[name]]
    marks = [value for value in page.values() if not isinstance(value, list | dict | bool)]
    return (
        len(changed) == 1
        and before.keys() <= given.keys()
        and given[changed[0]] in marks
        and any(isinstance(value, list) for value in page.values())
    )


def _are_twins(one: Tool, other: Tool) -> bool:
    few, many = sorted((one, other), key=lambda tool: len(_types(tool)))
    fewer, more = _types(few), _types(many)
    return (
        bool(fewer)
        and len(more) == len(fewer) + 1
        and fewer.items() <= more.items()
        and (one.output_schema or {}).get("type") == (other.output_schema or {}).get("type")
        and bool(shared_words(one.name, other.name))
    )


def _types(tool: Tool) -> dict[str, str]:
    """Parameter -> its type, as text."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    return {name: str(schema.get("type")) for name, schema in properties.items()}


def _reformatted(value: Any, texts: Iterable[str], told: list[Any]) -> bool:
    """Whether an agent was told the value only in another form."""
    first, *others = readings(value)
    texts = list(texts)
    return not _is_told(first, texts, told) and any(_is_told(each, texts, told) for each in others)


def _is_told(value: Any, texts: list[str], told: list[Any]) -> bool:
    if isinstance(value, str):
        same = (plain(each) for each in told if isinstance(each, str))
        return plain(value) in same or any(says(value, text) for text in texts)
    return value in told or any(value in map(float, numbers(text)) for text in texts)


def _leaves(value: Any) -> Iterator[Any]:
    """The scalars inside a JSON value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value
