"""The host's frame reader against honest and arbitrary bytes."""

import json
import math
import os
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astra.sandbox import wire
from astra.sandbox.driver import Gate
from astra.sandbox.limits import SandboxLimits
from astra.sandbox.session import Ends, LocalSession, Shared, check_reply

LIMITS = SandboxLimits(call_timeout_s=1.0, max_output_bytes=100)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)  # fmt: skip


def read_all(data: bytes, cuts: list[int]) -> list[bytes]:
    buffer, found, start = wire.FrameBuffer(), [], 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        buffer.feed(data[start:cut])
        start = cut
        while (payload := buffer.pop()) is not None:
            found.append(payload)
    return found


@given(st.lists(PLAIN, max_size=4), st.lists(st.integers(min_value=0), max_size=6))
def test_messages_survive_any_cut_of_the_stream(values: list[Any], cuts: list[int]) -> None:
    frames = b"".join(wire.encode({"v": value}) for value in values)
    assert [wire.decode(payload)["v"] for payload in read_all(frames, cuts)] == values


@given(st.binary(max_size=400), st.lists(st.integers(min_value=0), max_size=6))
def test_arbitrary_bytes_are_refused_or_read_never_crash(data: bytes, cuts: list[int]) -> None:
    try:
        for payload in read_all(data, cuts):
            check_reply(payload, 1, "n")
    except wire.WireError:
        pass


@given(st.dictionaries(st.sampled_from(["i", "n", "v", "e", "t", "o", "r", "x"]), PLAIN))
def test_a_reply_is_accepted_only_in_its_exact_shape(reply: dict[str, Any]) -> None:
    payload = json.dumps(reply).encode()
    try:
        accepted = check_reply(payload, 1, "n")
    except wire.WireError:
        return
    assert accepted["i"] == 1
    assert accepted["n"] == "n"
    assert all(isinstance(accepted.get(key, ""), str) for key in "etor")


def test_a_huge_frame_is_refused_from_its_header() -> None:
    with pytest.raises(wire.WireError, match="announces"):
        wire.FrameBuffer().feed(b"\xff\xff\xff\xff")
    buffer = wire.FrameBuffer()
    buffer.feed(b"\xff\xff")
    with pytest.raises(wire.WireError, match="announces"):
        buffer.feed(b"\xff\xff")


@pytest.mark.parametrize(
    "payload",
    [
        b'{"v":NaN}', b'{"v":Infinity}', b'{"v":-Infinity}', b'{"v":1e999}', b'{"v":-1e999}',
        b'{"v":' + b"9" * 4000 + b"}", b'{"v":' + b"[" * 70 + b"]" * 70 + b"}",
        b'{"v":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"v":"\\ud800"}', b'{"v":"\xff"}',
        b"[1]", b"1", b"", b" ", b'{"v":1} ', b'{"v":1}{}', b"{", b"\x80\x04K\x01.",
    ],
)  # fmt: skip
def test_unsafe_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(payload)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, {1, 2}, 10**600, "\ud800", b"x", object(), "x" * (wire.MAX_FRAME + 1)],
)
def test_values_that_may_not_travel_are_refused_when_sent(value: Any) -> None:
    with pytest.raises(wire.WireError):
        wire.encode({"v": value})


def test_depth_and_long_digit_strings_within_the_limits_travel() -> None:
    deep: Any = 1
    for _ in range(wire.MAX_DEPTH - 2):
        deep = [deep]
    for value in (deep, "9" * 5000, 10**500, "é\u2028😀"):
        assert wire.decode(wire.encode({"v": value})[4:])["v"] == value
    with pytest.raises(wire.WireError, match="nested"):
        wire.encode({"v": [[deep]]})


@given(st.binary(max_size=300) | st.binary(max_size=30).map(lambda b: wire.HEADER.pack(len(b)) + b))
@settings(max_examples=60)
def test_whatever_a_session_sends_its_call_ends_with_a_status(data: bytes) -> None:
    """A peer of arbitrary bytes: no crash, no hang, never a value, nothing left open."""
    before = len(os.listdir("/proc/self/fd"))
    requests_out, requests = os.pipe2(os.O_NONBLOCK)
    replies, replies_in = os.pipe2(os.O_NONBLOCK)
    status, zygote = socket.socketpair()
    output = os.memfd_create("output")
    os.write(output, data)
    os.write(replies_in, data)
    os.close(replies_in)
    zygote.close()
    session = LocalSession(Ends(requests, replies, status, output), LIMITS, Shared(Gate(1)))
    session.load_steps({"f": ""})
    result = session.call("f", {"x": 1})
    assert result.status in ("protocol", "infra")
    assert result.value is None
    assert len(result.stdout) <= LIMITS.max_output_bytes
    assert not session.alive
    os.close(requests_out)
    assert len(os.listdir("/proc/self/fd")) == before
