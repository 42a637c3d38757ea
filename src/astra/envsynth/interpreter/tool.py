"""The stateful ``python`` tool of code-interpreter arenas.

Its source runs in the arena's sandbox like any other tool's, so what it may import, use and
reach is what the sandbox allows. Variables live in the episode's session: they are gone when a
call ends the session (time, memory), and the model is told so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from astra.records.environment import ArenaTool
from astra.records.tool import Tool

NAME = "python"
_DOCUMENT = Tool(
    name=NAME,
    description=(
        "Run Python code. Variables stay for later calls. Returns what is printed and the value "
        "of a last expression."
    ),
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python source."}},
        "required": ["code"],
        "additionalProperties": False,
    },
)
# Flag 1024 makes compile() return the syntax tree: module ast is not importable in the sandbox.
_SOURCE = '''\
import contextlib
import io

LIMIT = 20_000
FILE = "<cell>"
EXPRESSION = type(compile("0", FILE, "eval", 1024))
SPACE = {"__name__": "__main__", "__builtins__": __builtins__}


class Output(io.StringIO):
    """Keeps the first characters, so that a runaway print cannot fill the memory."""

    def write(self, text):
        super().write(text[: max(0, LIMIT - self.tell())])
        return len(text)


def run(code):
    tree = compile(code, FILE, "exec", 1024)
    last = None
    if tree.body and type(tree.body[-1]).__name__ == "Expr":
        last = EXPRESSION(tree.body.pop().value)
    exec(compile(tree, FILE, "exec"), SPACE)
    return None if last is None else eval(compile(last, FILE, "eval"), SPACE)


def fault(error):
    line, text, trace = None, str(error), error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == FILE:
        line, text = error.lineno, error.msg
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {text}"


def python(code):
    output = Output()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            value = run(code)
            if value is not None:
                print(repr(value))
    except BaseException as error:
        printed = output.getvalue()
        raise ValueError(fault(error) + (f"\\n{printed}" if printed else "")) from None
    return output.getvalue().rstrip("\\n") or "no output"
'''


def python_tool(data: Mapping[str, Any]) -> ArenaTool:
    """The tool with variables that exist from the start; ``data`` must be JSON values."""
    preset = "".join(
        f"SPACE[{name!r}] = json.loads({json.dumps(value, ensure_ascii=False)!r})\n"
        for name, value in sorted(data.items())
    )
    code = f"import json\n{_SOURCE}\n\n{preset}" if preset else _SOURCE
    return ArenaTool(tool=_DOCUMENT, code=code)
