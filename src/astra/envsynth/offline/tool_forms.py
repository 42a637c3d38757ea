"""Parameters that want a value in another form: how their schema says it, and how code reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from astra.text.forms import Form, written

_STATED = {
    Form.DAY_FIRST: "The {name} as DD/MM/YYYY.",
    Form.LAST_FIRST: "The {name}, last word first, then a comma and the rest.",
}
_READ = {
    Form.DAY_FIRST: """def _from_day_first(name, text):
    try:
        return datetime.strptime(text, "%d/%m/%Y").date().isoformat()
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be written as DD/MM/YYYY") from None
""",
    Form.LAST_FIRST: """def _from_last_first(name, text):
    last, comma, rest = text.partition(", ") if isinstance(text, str) else ("", "", "")
    if not (last and rest):
        raise ValueError(f"{name} must have its last word first, then a comma and the rest")
    return f"{rest} {last}"
""",
}
"""Form -> a helper that reads it, refuses what is in no such form, and names the form then."""


def with_form(name: str, schema: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """The schema of a parameter that wants its values in the form."""
    return {**schema, "description": _STATED[form].format(name=name.replace("_", " "))}


def forms_of(parameters: Mapping[str, Any]) -> dict[str, Form]:
    """Parameter -> the form that its schema states, for those that state one."""
    stated = {
        name: next(
            (form for form, text in _STATED.items()
             if schema.get("description") == text.format(name=name.replace("_", " "))), None,
        )
        for name, schema in parameters["properties"].items()
    }  # fmt: skip
    return {name: form for name, form in stated.items() if form is not None}


def as_wanted(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, each in the form that its schema states; as it is where it has none."""
    forms = forms_of(parameters)
    reformed = {name: written(arguments[name], form) for name, form in forms.items()}
    return {name: reformed.get(name) or value for name, value in arguments.items()}


def as_given(body: str, parameters: Mapping[str, Any]) -> str:
    """A tool's body whose messages repeat what the call gave, not the plain value read from it."""
    for name in forms_of(parameters):
        body = body.replace(f"{{{name}}}", f"{{given_{name}}}")
    return body


def reading_code(parameters: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """What the tool's code needs for its forms: imports, first lines of its body, and helpers."""
    forms = forms_of(parameters)
    lines = "".join(
        f'    given_{name}, {name} = {name}, _from_{form.value}("{name}", {name})\n'
        for name, form in forms.items()
    )
    imports = "from datetime import datetime\n" if Form.DAY_FIRST in forms.values() else ""
    return imports, lines, [_READ[form] for form in dict.fromkeys(forms.values())]
