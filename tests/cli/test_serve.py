from __future__ import annotations

import pytest
from typer.testing import CliRunner

from astra.cli.main import commands
from astra.errors import AstraError


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["models/none", "--engine", "warp"], "'local' or 'vllm'"),
        (["models/none", "--rows", "0"], "rows"),
        (["models/none", "--port", "0"], "no such folder"),
    ],
)
def test_what_cannot_be_served_is_said(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(commands, ["serve", *arguments])
    assert result.exit_code == 1
    assert isinstance(result.exception, AstraError)
    assert said in str(result.exception)
