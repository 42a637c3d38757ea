"""Frames between the host and a session: 4-byte big-endian length, then one JSON object.

Loaded by the host as a module and by the zygote by path, so it imports the standard library
only. Both ends apply the same refusals, which is why an honest tool gets a readable error while
a tool that rewrote its own encoder still cannot get an unsafe value past the host:

* a frame longer than ``MAX_FRAME`` is refused from its header, before anything is allocated;
* nesting beyond ``MAX_DEPTH``, NaN, infinities (also spelled ``1e999``), integers of more than
  ``MAX_INT_DIGITS`` digits, invalid UTF-8 and lone surrogates are refused.
"""

import json
import json.encoder
import math
import re
import struct
from collections.abc import Callable
from typing import Any, cast

HEADER = struct.Struct("!I")
MAX_FRAME = 1 << 20
MAX_DEPTH = 64
MAX_INT_DIGITS = 512

_PACK, _UNPACK = HEADER.pack, HEADER.unpack_from
_LONG_DIGITS = re.compile(rb"[0-9]{%d}" % (MAX_INT_DIGITS + 1))


class WireError(Exception):
    """A message that cannot be sent, or bytes that are not an acceptable message."""


def _refuse_constant(name: str) -> Any:
    raise WireError(f"{name} is not allowed in JSON")


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS + 1:
        raise WireError(f"an integer has more than {MAX_INT_DIGITS} digits")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise WireError("a number does not fit a finite float")
    return value


def _scanner(parse_int: Callable[[str], int]) -> Any:
    decoder = json.JSONDecoder(
        parse_constant=_refuse_constant, parse_int=parse_int, parse_float=_parse_float
    )
    # no white space is skipped around a value: the peers send none
    return cast("Any", decoder).scan_once


# int itself is parsed in C; the checked one is needed only where there are long runs of digits
_SCAN, _SCAN_CHECKED = _scanner(int), _scanner(_parse_int)
_SCAN_OWN: Any = cast("Any", json.JSONDecoder()).scan_once


def _chunks() -> Callable[[Any, int], Any]:
    """The C encoder that JSONEncoder makes anew for every message, made once."""
    encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    module: Any = json.encoder
    if module.c_make_encoder is None or module.c_encode_basestring is None:
        return lambda value, _: encoder.iterencode(value)
    # no table of visited objects: a cycle ends in RecursionError
    return module.c_make_encoder(
        None, encoder.default, module.c_encode_basestring, None, ":", ",", False, False, False
    )


_CHUNKS = _chunks()


def encode(message: dict[str, Any]) -> bytes:
    """One whole frame, or WireError saying why the message may not travel."""
    try:
        payload = "".join(_CHUNKS(message, 0)).encode("utf-8")
    except RecursionError:
        raise WireError("the value is nested too deeply") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(str(error)) from None
    size = len(payload)
    if size > MAX_DEPTH:
        if size > MAX_FRAME:
            raise WireError(f"the message is {size} bytes; the limit is {MAX_FRAME}")
        if _may_be_deep(payload) or _has_long_digits(payload):
            decode(payload)
    return _PACK(size) + payload


def decode(payload: bytes) -> dict[str, Any]:
    """The message in one payload; WireError for anything a peer must not send."""
    scan = _SCAN_CHECKED if _has_long_digits(payload) else _SCAN
    try:
        text = payload.decode("utf-8")
        message, end = scan(text, 0)
        if end != len(text):
            raise ValueError(f"extra data at {end}")
    except RecursionError:
        raise WireError("the value is nested too deeply") from None
    except StopIteration:
        raise WireError("not JSON: no value at the start") from None
    except ValueError as error:
        raise WireError(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(message, dict):
        raise WireError("the message is not an object")
    if len(payload) > MAX_DEPTH and _may_be_deep(payload):
        _check_depth(cast("dict[str, Any]", message))
    if b"\\u" in payload:
        _check_surrogates(message)
    return cast("dict[str, Any]", message)


def decode_own(payload: bytes) -> dict[str, Any]:
    """A message that ``encode`` has already checked, from a peer that is trusted."""
    return _SCAN_OWN(payload.decode("utf-8"), 0)[0]


def _has_long_digits(payload: bytes) -> bool:
    return len(payload) > MAX_INT_DIGITS and _LONG_DIGITS.search(payload) is not None


def _may_be_deep(payload: bytes) -> bool:
    return payload.count(b"[") + payload.count(b"{") > MAX_DEPTH


def _check_depth(message: dict[str, Any]) -> None:
    level: list[Any] = [message]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            children: Any = item.values() if isinstance(item, dict) else item
            below.extend(child for child in children if isinstance(child, dict | list))
        if not below:
            return
        level = below
    raise WireError(f"the value is nested more than {MAX_DEPTH} deep")


def _check_surrogates(message: object) -> None:
    try:
        json.dumps(message, ensure_ascii=False).encode("utf-8")
    except (UnicodeEncodeError, RecursionError):
        raise WireError("the value holds a lone surrogate") from None


class FrameBuffer:
    """Turns a byte stream into payloads; never waits for a frame it would refuse.

    ``feed`` and ``pop`` raise WireError as soon as a header announces more than ``MAX_FRAME``
    bytes; after that the stream is out of step and the buffer must be thrown away.
    """

    def __init__(self) -> None:
        self._data = b""
        self._end = 0  # of the frame at the start, once its header is there

    def feed(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        if len(self._data) >= HEADER.size:
            self._end = HEADER.size + cast("int", _UNPACK(self._data)[0])
            if self._end > HEADER.size + MAX_FRAME:
                length = self._end - HEADER.size
                raise WireError(f"a frame announces {length} bytes; the limit is {MAX_FRAME}")

    def pop(self) -> bytes | None:
        """The next complete payload, or None while it is still arriving."""
        data = self._data
        end = self._end
        if len(data) < HEADER.size or len(data) < end:
            return None
        self._data = b""
        if len(data) > end:
            self.feed(data[end:])
        return data[HEADER.size : end]

    def __len__(self) -> int:
        """Bytes received and not yet taken."""
        return len(self._data)
