"""The scale benchmark's made-up servers, and its measuring of a process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import scale

from astra.toolbank.documents import parse_document
from astra.toolbank.raw import RawServer


def test_services_hold_exactly_the_tools_asked_for() -> None:
    found = list(scale.services(31, 380))
    assert len(found) == 31
    assert sum(len(one["tools"]) for one in found) == 380
    assert {len(one["tools"]) for one in found} <= {12, 13}, "spread evenly"
    assert len({one["name"] for one in found}) == 31
    for one in found:
        assert len({tool["name"] for tool in one["tools"]}) == len(one["tools"])
        (server,) = parse_document("mcp", one, RawServer("x", "y", ()))
        assert server.name == one["name"]
        assert server.domain
        assert all(tool.description and tool.parameters and tool.output for tool in server.tools)


def test_more_services_leave_the_first_as_they_are() -> None:
    assert list(scale.services(3, 36)) == list(scale.services(9, 108))[:3]


def test_memory_counts_the_tree() -> None:
    alone = scale.held_mb(os.getpid())
    assert alone > 10
    assert scale.held_mb(2**22 + 1) == 0.0, "a process that is gone holds nothing"


def test_the_total_leaves_out_what_does_not_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    one = dict.fromkeys(scale.COLUMNS, 2)
    scale.show({"stages": {"tools": one, "graph": {**one, "peak_mb": 5}}, "dvc": {"dvc x": 1.5}})
    printed = capsys.readouterr().out
    assert "| all |  | 4 | 4 | 4 | 4 | 5 | 4 | 4 | 4 |" in printed
    assert "dvc x: 1.5 s" in printed
