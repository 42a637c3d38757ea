"""Sources checked and compiled on the host, once, before they are sent to a session."""

import base64
import marshal
from collections.abc import Mapping
from functools import lru_cache

from astra.sandbox.imports import forbidden_imports
from astra.sandbox.protocol import SandboxLoadError
from astra.text.source import parsed

_MAX_SOURCE = 256 * 1024


def compile_sources(sources: Mapping[str, str], allowed: tuple[str, ...]) -> dict[str, str]:
    """Marshalled code in base64 by function name. Raises SandboxLoadError."""
    return {name: compile_source(name, text, allowed) for name, text in sources.items()}


@lru_cache(maxsize=2048)
def compile_source(name: str, source: str, allowed: tuple[str, ...]) -> str:
    """Check a source and compile it once: marshalled code, base64. Raises SandboxLoadError.

    The code object goes to an interpreter of the same version; its file name is the tool's
    name, so a traceback shows no path. Cached, since one environment is opened many times.
    """
    if not name.isidentifier():
        raise SandboxLoadError(f"{name!r} is not a function name")
    if len(source) > _MAX_SOURCE:
        raise SandboxLoadError(f"the source of {name} is longer than {_MAX_SOURCE} characters")
    try:
        tree = parsed(source)
        forbidden = forbidden_imports(tree, allowed)
        code = compile(source, f"<{name}>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise SandboxLoadError(
            f"SyntaxError in {name}: {error.msg} (line {error.lineno})"
        ) from error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SandboxLoadError(f"the source of {name} cannot be compiled: {error}") from error
    if forbidden:
        raise SandboxLoadError(f"forbidden import in {name}: {', '.join(forbidden)}")
    return base64.b64encode(marshal.dumps(code)).decode()
