"""One forked session: builds its walls, then serves loads and calls until its pipe ends.

Standard library only, loaded by path into the zygote. Descriptors 0-2 are /dev/null, requests
come at 3 and replies go to 4; nothing else is open. Replies carry the sequence number and nonce
of their request. Whatever the tool code does to this process (it can rewrite any Python object
here), the host trusts only the framing rules, its clock and the exit status.
"""

import base64
import builtins
import gc
import io
import marshal
import mmap
import os
import resource
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

REQUESTS, REPLIES = 3, 4
_LENGTH = struct.Struct("!I")
_MAX_ERROR = 2_000
_ISOLATION_FAILED = 111

# C code imports these on behalf of whoever calls it, through the caller's own __import__
_INTERNAL_IMPORTS = frozenset({"_strptime", "warnings", "locale", "numbers", "copyreg"})


def guarded_builtins(imports: Iterable[str]) -> dict[str, Any]:
    """The builtins of tool code, whose import knows only what is allowed.

    Made once, before sessions are forked: making it touches every builtin, and each page a
    session touches is copied.
    """
    table = dict(vars(builtins))
    real, allowed = builtins.__import__, _INTERNAL_IMPORTS.union(imports)

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


class SharedStream(io.TextIOBase):
    """Keeps the first ``cap`` bytes of text where the host can read them; never fails a print.

    The region holds the number of bytes kept, then the bytes, so they outlive this process.
    """

    def __init__(self, region: mmap.mmap, start: int, cap: int) -> None:
        self._region, self._start, self._cap = region, start, cap
        self._kept = 0
        self._full = False

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        room = 0 if self._full else self._cap - self._kept
        if room > 0 and text:
            whole = text[:room].encode("utf-8", "replace")
            data = whole[:room]
            self._full = len(data) < len(whole) or len(text) > room
            at = self._start + _LENGTH.size + self._kept
            self._region[at : at + len(data)] = data
            self._set(self._kept + len(data))
        return len(text)

    def _set(self, kept: int) -> None:
        self._kept = kept
        _LENGTH.pack_into(self._region, self._start, kept)

    def take(self) -> str:
        """Everything kept since the last call; empties the stream."""
        self._full = False
        if not self._kept:
            return ""
        at = self._start + _LENGTH.size
        data = self._region[at : at + self._kept]
        self._set(0)
        return data.decode("utf-8", "ignore")


def run(config: Mapping[str, Any], wire: ModuleType, kernel: ModuleType, output: mmap.mmap) -> None:
    """The whole life of a session; never returns. ``config`` is what the host sent the zygote."""
    code = _ISOLATION_FAILED
    try:
        _isolate(config, kernel)
        _send(wire.encode({"ready": True}))
        code = 0
        _Server(config, wire, output).serve()
    except OSError as error:
        if code:
            _send(wire.encode({"ready": False, "reason": str(error)}))
    except SystemExit as ended:
        code = _exit_code(ended)
    finally:
        os._exit(code)


def _exit_code(ended: SystemExit) -> int:
    return ended.code & 0xFF if isinstance(ended.code, int) else 1


def _isolate(config: Mapping[str, Any], kernel: ModuleType) -> None:
    """The order matters: what needs privileges first, the filter that forbids the rest last."""
    version: int = config["landlock"]
    files = config["tier"] == "A"
    megabyte = 1 << 20
    kernel.die_with_parent()
    if files:
        kernel.private_tmp(config["tmp_mb"])
    limits = {
        resource.RLIMIT_AS: config["base_bytes"] + config["memory_mb"] * megabyte,
        resource.RLIMIT_CPU: config["cpu_s"],
        resource.RLIMIT_FSIZE: config["tmp_mb"] * megabyte if files else 0,
        resource.RLIMIT_NOFILE: 16,
        resource.RLIMIT_NPROC: 0,
    }
    ruleset = kernel.landlock_ruleset(version) if version else -1
    if files and version:
        kernel.landlock_allow_directory(ruleset, "/tmp", version)
    for kind, value in limits.items():
        kernel.limit(kind, value)
    kernel.drop_capabilities()
    if version:
        kernel.landlock_enforce(ruleset)
        os.close(ruleset)
    kernel.install_filter(config["filters"]["files" if files else "sealed"])


def _send(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(REPLIES, view) :]


class _Server:
    def __init__(self, config: Mapping[str, Any], wire: ModuleType, output: mmap.mmap) -> None:
        self._wire = wire
        self._buffer: Any = wire.FrameBuffer()
        self._functions: dict[str, Callable[..., Any]] = {}
        self._builtins: dict[str, Any] = config["builtins"]
        self._hidden: tuple[str, ...] = tuple(config["hidden"])
        self._cap: int = config["max_output_bytes"]
        self._out = SharedStream(output, 0, self._cap)
        self._err = SharedStream(output, _LENGTH.size + self._cap, self._cap)
        sys.stdout, sys.stderr = self._out, self._err
        sys.stdin = io.StringIO("")
        gc.enable()

    def serve(self) -> None:
        """Answer until the pipe ends."""
        buffer, read, decode = self._buffer, os.read, self._wire.decode_own
        while True:
            payload = data = None
            while payload is None:
                data = read(REQUESTS, 1 << 16)
                if not data:
                    return
                buffer.feed(data)
                payload = buffer.pop()
            request = decode(payload)
            payload = data = None  # while the call runs, memory is the tool's
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
        if out := self._out.take():
            reply["o"] = out
        if err := self._err.take():
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
            namespace["__builtins__"] = self._builtins
            sys.modules[f"tool:{name}"] = module  # dataclasses and pickling look it up
            namespace["__name__"] = f"tool:{name}"
            exec(marshal.loads(base64.b64decode(code)), namespace)
            function = namespace.get(name)
            if not callable(function):
                raise LookupError(f"the source does not define a function named {name!r}")
            self._functions[name] = function

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
