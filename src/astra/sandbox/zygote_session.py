"""One forked session: builds its walls, then serves loads and calls until its socket ends.

Standard library only, loaded by path into the zygote. Descriptors 0-2 are /dev/null and 3 is
the socket; nothing else is open. Replies carry the sequence number and nonce of their request.
Whatever the tool code does to this process (it can rewrite any Python object here), the host
trusts only the framing rules, its clock and the exit status.
"""

import base64
import builtins
import gc
import io
import marshal
import os
import resource
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, cast

SOCKET = 3
_MAX_ERROR = 2_000
_ISOLATION_FAILED = 111

# C code imports these on behalf of whoever calls it, through the caller's own __import__
_INTERNAL_IMPORTS = frozenset({"_strptime", "warnings", "locale", "numbers", "copyreg"})


class CappedStream(io.TextIOBase):
    """Keeps the first ``cap`` bytes of text, counts no more, and never fails a print."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._room = cap
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self._room > 0:
            data = text[: self._room].encode("utf-8", "replace")[: self._room]
            self._room -= len(data)
            self._parts.append(data)
        return len(text)

    def take(self) -> str:
        """Everything kept since the last call; empties the stream."""
        if not self._parts:
            self._room = self._cap
            return ""
        data = b"".join(self._parts)
        self._parts.clear()
        self._room = self._cap
        return data.decode("utf-8", "ignore")


def run(config: Mapping[str, Any], wire: ModuleType, kernel: ModuleType) -> None:
    """The whole life of a session; never returns. ``config`` is what the host sent the zygote."""
    code = _ISOLATION_FAILED
    try:
        _isolate(config, kernel)
        _send(wire.encode({"ready": True}))
        code = 0
        _Server(config, wire).serve()
    except OSError as error:
        if code:
            _send(wire.encode({"ready": False, "reason": str(error)}))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(code & 0xFF)


def _isolate(config: Mapping[str, Any], kernel: ModuleType) -> None:
    """The order matters: what needs privileges first, the filter that forbids the rest last."""
    version: int = config["landlock"]
    full = config["tier"] == "A"
    megabyte = 1 << 20
    kernel.die_with_parent()
    if full:
        kernel.private_tmp(config["tmp_mb"])
    limits = {
        resource.RLIMIT_AS: config["base_bytes"] + config["memory_mb"] * megabyte,
        resource.RLIMIT_CPU: config["cpu_s"],
        resource.RLIMIT_FSIZE: config["tmp_mb"] * megabyte if full else 0,
        resource.RLIMIT_NOFILE: 16,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: 8 * megabyte,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    ruleset = kernel.landlock_ruleset(version) if version else -1
    if full and version:
        kernel.landlock_allow_directory(ruleset, "/tmp", version)
    for kind, value in limits.items():
        kernel.limit(kind, value)
    kernel.drop_capabilities()
    if version:
        kernel.landlock_enforce(ruleset)
        os.close(ruleset)
    kernel.install_filter(config["filter_bytes"])


def _send(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(SOCKET, view) :]


class _Server:
    def __init__(self, config: Mapping[str, Any], wire: ModuleType) -> None:
        self._wire = wire
        self._buffer: Any = wire.FrameBuffer()
        self._functions: dict[str, Callable[..., Any]] = {}
        self._allowed = _INTERNAL_IMPORTS.union(cast("list[str]", config["imports"]))
        self._hidden: tuple[str, ...] = tuple(config["hidden"])
        self._out = CappedStream(config["max_output_bytes"])
        self._err = CappedStream(config["max_output_bytes"])
        sys.stdout, sys.stderr = self._out, self._err
        sys.stdin = io.StringIO("")
        gc.enable()

    def serve(self) -> None:
        buffer, read = self._buffer, os.read
        while True:
            payload = buffer.pop()
            while payload is None:
                data = read(SOCKET, 1 << 16)
                if not data:
                    return
                buffer.feed(data)
                payload = buffer.pop()
            request = self._wire.decode(payload)
            del payload
            reply = self._answer(request)
            reply["i"], reply["n"] = request["i"], request["n"]
            self._reply(reply)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one load or call. SystemExit passes through and really ends the process."""
        try:
            if "load" in request:
                self._load(request["load"])
                return {"v": None}
            return {"v": self._functions[request["f"]](**request["a"])}
        except SystemExit:
            raise
        except BaseException as error:
            # the traceback would keep the frames, and with them the memory, alive
            error.__traceback__ = None
            return {"e": self._describe(error), "t": type(error).__name__[:200]}

    def _reply(self, reply: dict[str, Any]) -> None:
        out, err = self._out.take(), self._err.take()
        if out:
            reply["o"] = out
        if err:
            reply["r"] = err
        try:
            frame = self._wire.encode(reply)
        except (self._wire.WireError, MemoryError) as error:
            kind = "MemoryError" if isinstance(error, MemoryError) else "TypeError"
            text = f"{kind}: return value refused: {error}"[:_MAX_ERROR]
            kept = {key: reply[key] for key in ("i", "n", "o", "r") if key in reply}
            frame = self._wire.encode({**kept, "e": text, "t": kind})
        _send(frame)

    def _load(self, sources: dict[str, str]) -> None:
        """Execute each source, sent as host-compiled code, in a module namespace of its own."""
        for name, code in sources.items():
            module = ModuleType(name)
            namespace = module.__dict__
            namespace["__builtins__"] = self._builtins()
            sys.modules[f"tool:{name}"] = module  # dataclasses and pickling look it up
            namespace["__name__"] = f"tool:{name}"
            exec(marshal.loads(base64.b64decode(code)), namespace)
            function = namespace.get(name)
            if not callable(function):
                raise LookupError(f"the source does not define a function named {name!r}")
            self._functions[name] = function

    def _builtins(self) -> dict[str, Any]:
        table = dict(vars(builtins))
        real, allowed = builtins.__import__, self._allowed

        def guarded(
            name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
        ) -> Any:
            parts = name.split(".")
            listed = any(".".join(parts[: end + 1]) in allowed for end in range(len(parts)))
            partly = any(f"{name}.{member}" in allowed for member in fromlist or ())
            if level or not (listed or partly):
                raise ImportError(f"import of {name!r} is not allowed in the sandbox")
            return real(name, globals, locals, fromlist, 0)

        table["__import__"] = guarded
        return table

    def _describe(self, error: BaseException) -> str:
        """The last line of a traceback, without paths of the host."""
        name = type(error).__name__[:200]
        try:
            text = str(error)[:_MAX_ERROR]
        except BaseException:
            text = "<unprintable>"
        for prefix in self._hidden:
            text = text.replace(prefix, "…")
        line = f"{name}: {text}" if text else name
        return line.encode("utf-8", "replace").decode()
