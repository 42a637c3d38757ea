"""Driver of BFCL's multi-turn classes as worlds: attributes as tables, calls one by one, verdicts.

Calls are executed by the package's own classes and judged by its own checker (bfcl-eval); what
becomes of the public attributes, all that the checker compares, is told row by row, as sessions of
worlds tell it.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import world_lines

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
KEY, CELL = "attribute", "value"
"""The columns of every table: where a part stands, as a JSON pointer, and what it is."""
WIDE, DEEP = 8_000, 6
"""A part with more characters as JSON, or deeper, is told in several rows; worlds admit twice the
characters and two levels more."""
FILES = ("Directory", "File")
"""Classes of the package whose objects equal by what they hold."""


class AttributeFault(ValueError):
    """An attribute that tables cannot hold."""


# Attributes as rows: plain Python, no package --------------------------------------------------


def rows_of(attributes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of an object's public attributes by key. Two objects have the same rows exactly
    where every attribute of one equals the other's (but for 1, 1.0 and true, which rows tell
    apart): what does not fit one cell is told part by part."""
    rows: dict[str, dict[str, Any]] = {}
    for name, value in attributes.items():
        if not name.startswith("_"):
            for path, cell in parts(value, pointer(name), top=True):
                rows[path] = {KEY: path, CELL: cell}
    return rows


def parts(value: Any, path: str, top: bool = False) -> Iterator[tuple[str, Any]]:
    """(key, cell) of a value: items of an attribute and files stand alone, all else as fits."""
    kind = type(value).__name__
    if kind == "Directory":
        yield path, {"$directory": value.name, "entries": len(value.contents)}
        for key, item in value.contents.items():
            yield from parts(item, path + pointer(key))
    elif kind == "File":
        yield path, {"$file": value.name}
        yield from parts(value.content, path + "/content")
    elif isinstance(value, dict) and (top or not fits(value)):
        yield path, {"$dict": len(value)}
        for key, item in value.items():
            yield from parts(item, path + pointer(key))
    elif isinstance(value, list) and (top or not fits(value)):
        yield path, {"$list": len(value)}
        for at, item in enumerate(value):
            yield from parts(item, f"{path}/{at}")
    elif isinstance(value, str) and len(value) > WIDE:
        pieces = [value[at : at + WIDE] for at in range(0, len(value), WIDE)]
        yield path, {"$text": len(pieces)}
        for at, piece in enumerate(pieces):
            yield f"{path}/{at}", piece
    else:
        yield path, cell_of(value)


def pointer(key: Any) -> str:
    """A step of a path; keys that are no texts say what they are."""
    if not isinstance(key, str):
        return f"/{type(key).__name__}:{key}"
    return "/" + key.replace("~", "~0").replace("/", "~1").replace(":", "~2")


def fits(value: Any) -> bool:
    """Whether a list or an object is one cell."""
    if holds_files(value):
        return False
    cell = cell_of(value)
    return len(json.dumps(cell, ensure_ascii=False)) <= WIDE and depth(cell) <= DEEP


def holds_files(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(map(holds_files, value))
    return type(value).__name__ in FILES


def depth(cell: Any) -> int:
    if isinstance(cell, dict):
        cell = list(cell.values())
    return 1 + max(map(depth, cell), default=0) if isinstance(cell, list) else 0


def cell_of(value: Any) -> Any:
    """A value as JSON, in which what Python tells apart stays apart."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [cell_of(item) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [cell_of(item) for item in value]}
    if isinstance(value, set):
        return {"$set": sorted((cell_of(item) for item in value), key=json.dumps)}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: cell_of(item) for key, item in value.items()}
        pairs = [[cell_of(key), cell_of(item)] for key, item in value.items()]
        return {"$pairs": sorted(pairs, key=json.dumps)}
    raise AttributeFault(f"no cell holds {value!r}")


class Rows:
    """The attributes of several objects as tables, and what changed since they were last seen."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, dict[str, Any]]] = {}
        self._lines: dict[str, dict[str, str]] = {}

    def copy(self) -> Rows:
        other = Rows()
        other.tables = {name: dict(rows) for name, rows in self.tables.items()}
        other._lines = {name: dict(lines) for name, lines in self._lines.items()}
        return other

    def look(self, objects: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The rows that are not as they were, by table and key; None for those that are gone."""
        writes: dict[str, dict[str, Any]] = {}
        for name, one in objects.items():
            rows, before = rows_of(vars(one)), self._lines.get(name, {})
            lines = {key: world_lines.as_line(row) for key, row in rows.items()}
            changed: dict[str, Any] = {key: None for key in before if key not in lines}
            changed |= {key: rows[key] for key, line in lines.items() if before.get(key) != line}
            self.tables[name], self._lines[name] = rows, lines
            if changed:
                writes[name] = changed
        return writes

    def digest(self, name: str) -> str:
        return str(sum(map(world_lines.line_hash, self._lines[name].values())) % (1 << 64))


# Calls -----------------------------------------------------------------------------------------


def parsed(text: str, methods: dict[str, Any]) -> dict[str, Any]:
    """A call of a solution as tool and arguments by name; it is Python: ``cd(folder='a')``."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise AttributeFault(f"{text} is no call of one method")
    given = [ast.literal_eval(one) for one in call.args]
    named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    bound = inspect.signature(methods[call.func.id]).bind(*given, **named)
    return {"tool": call.func.id, "arguments": dict(bound.arguments), "text": text}


def written(tool: str, arguments: dict[str, Any]) -> str:
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def result_text(value: Any) -> str:
    """What a method returned as the text that the package gives a model."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            return str(value)
    return str(value)


def named(text: str, times: int) -> str:
    """What a result is known by that is heard so many times by now."""
    return f"{blake2b(text.encode(), digest_size=8).hexdigest()}-{times}"


def schema(told: Any) -> Any:
    """The package's schema of parameters as JSON Schema: it has types of its own."""
    if isinstance(told, list):
        return [schema(item) for item in told]
    if not isinstance(told, dict):
        return told
    made = {key: schema(item) for key, item in told.items() if key not in ("default", "optional")}
    own = {"dict": "object", "float": "number", "tuple": "array", "any": None}
    if isinstance(made.get("type"), str) and made["type"] in own:
        kind = own[made.pop("type")]
        made |= {"type": kind} if kind else {}
    return made


class Episode:
    """An entry's objects of the package's classes, and what its calls have made of them."""

    def __init__(self, entry: dict[str, Any], paths: dict[str, str], stateless: list[str]) -> None:
        self.objects: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}
        self.owners: dict[str, str] = {}
        self.heard: Counter[str] = Counter()
        for name in entry["involved_classes"]:
            one = getattr(importlib.import_module(paths[name]), name)()
            if name not in stateless:
                config = copy.deepcopy(entry["initial_config"].get(name, {}))
                one._load_scenario(config, long_context="long_context" in entry["id"])
            self.objects[name] = one
            for method, bound in inspect.getmembers(one, predicate=inspect.ismethod):
                if not method.startswith("_"):  # of two alike the later counts, as in the package
                    self.methods[method], self.owners[method] = bound, name

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Execute a call; the text that a model would get, errors included."""
        try:
            text = result_text(self.methods[tool](**copy.deepcopy(arguments)))
        except Exception as error:  # whatever a method raises is a result in the package
            text = f"Error during execution: {error}"
        self.heard[text] += 1
        return text


class Desk:
    """One entry, and the episode that its calls have made."""

    def __init__(self) -> None:
        # Importing the package makes result folders; not next to itself.
        os.environ["BFCL_PROJECT_ROOT"] = os.environ.get("TMPDIR", "/tmp")
        from bfcl_eval.constants import executable_backend_config as backend
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as checker
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
        from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry

        self.check, self.played = checker.multi_turn_checker, vars(multi_turn_utils)
        self.backend = backend.CLASS_FILE_PATH_MAPPING, backend.STATELESS_CLASSES
        self.entries: dict[str, Any] = {}
        self.truths: dict[str, Any] = {}
        self.documents: dict[str, Any] = {}
        for category in CATEGORIES:
            name = f"multi_turn_{category}"
            self.entries |= {entry["id"]: entry for entry in load_dataset_entry(name)}
            self.truths |= {one["id"]: one["ground_truth"] for one in load_ground_truth_entry(name)}
        for entry in self.entries.values():
            self.documents |= {one["name"]: one for one in entry["function"]}
        self.rounds = 0

    def entry_ids(self) -> list[str]:
        return list(self.entries)

    def start(self, entry: str) -> dict[str, Any]:
        """Where an entry starts, as tables, its tools, and turn by turn what its solution calls,
        hears and has made of the tables by then."""
        self.entry = self.entries[entry]
        self.reset()
        self.at_start = self.rows
        gold, turns = self._fresh(), []
        for truth in self.truths[entry]:
            calls = [parsed(text, gold.methods) for text in truth]
            texts = [gold.call(one["tool"], one["arguments"]) for one in calls]
            counts = Counter(texts)
            heard = [named(text, at + 1) for text, many in counts.items() for at in range(many)]
            effect = self.at_start.copy().look(gold.objects)
            turns.append({"calls": calls, "heard": heard, "effect": effect})
        return {
            "tables": {name: list(rows.values()) for name, rows in self.at_start.tables.items()},
            "tools": [self._described(name, owner) for name, owner in gold.owners.items()],
            "turns": turns,
        }

    def _fresh(self) -> Episode:
        return Episode(self.entry, *self.backend)

    def _described(self, name: str, owner: str) -> dict[str, Any]:
        document = self.documents.get(name, {})
        return {"name": name, "owner": owner, "description": document.get("description", name),
                "parameters": schema(document.get("parameters", {"type": "object"}))}  # fmt: skip

    def reset(self) -> None:
        """Bring the objects back to the entry's start."""
        self.episode, self.rows, self.now = self._fresh(), Rows(), 0
        self.rows.look(self.episode.objects)
        self.at_start = self.rows.copy()

    def turn(self, at: int) -> None:
        """The calls that follow are of this turn."""
        self.now = at

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Execute a call. Its result is told with a name that it has by what it says and how often
        that was heard, and with the turn that it came in."""
        text = self.episode.call(tool, arguments)
        writes = self.rows.look(self.episode.objects)
        return {
            "failed": False,
            "value": {"result_id": named(text, self.episode.heard[text]),
                      "turn_id": str(self.now), "result": text},
            "writes": writes,
            "digest": {name: self.rows.digest(name) for name in writes},
        }  # fmt: skip

    def verdict(self, turns: list[list[str]]) -> dict[str, Any]:
        """What the package's checker makes of these calls: whether they are right, else the first
        turn that is not, and why."""
        self.rounds += 1
        model = f"hosted_{self.rounds}"
        decoded = [[calls] if calls else [] for calls in turns]
        truth, category = self.truths[self.entry["id"]], self.entry["id"].rsplit("_", 1)[0]
        try:
            word = self.check(decoded, truth, copy.deepcopy(self.entry), category, model)
        finally:
            for name in [name for name in self.played if name.startswith(model)]:
                del self.played[name]
        if word["valid"]:
            return {"valid": True, "turn": None, "why": ""}
        found = re.search(r" turn (\d+)", word["error_message"])
        at = int(found[1]) if found else len(word["execution_result"]) - 1
        return {"valid": False, "turn": at, "why": word["error_type"]}

    def written(self, tool: str, arguments: dict[str, Any]) -> str:
        """A call as the package writes calls."""
        return written(tool, arguments)

    def cpu_seconds(self) -> float:
        """What the driver has used so far."""
        return time.process_time()


if __name__ == "__main__":
    world_lines.serve(Desk)
