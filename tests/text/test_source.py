"""Python source is parsed on several threads at once."""

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from astra.text.source import parsed, parsed_expression

_LONG = Path(ast.__file__).read_text(encoding="utf-8").partition("class _Unparser")[0]


@pytest.fixture
def others_run_in_collections() -> Iterator[None]:
    """Collections are frequent, and each lets another thread run, as a finalizer may."""

    def lets_others_run(phase: str, info: dict[str, Any]) -> None:
        time.sleep(1e-5)

    before = gc.get_threshold()
    gc.callbacks.append(lets_others_run)
    gc.set_threshold(50)
    yield
    gc.callbacks.remove(lets_others_run)
    gc.set_threshold(*before)


@pytest.mark.usefixtures("others_run_in_collections")
def test_threads_that_parse_do_not_disturb_each_other() -> None:
    """With ``ast.parse`` itself Python 3.11.7 raises SystemError here."""
    with ThreadPoolExecutor(4) as threads:
        trees = list(threads.map(parsed, [_LONG] * 16))
    assert {ast.dump(tree) for tree in trees} == {ast.dump(trees[0])}


def test_one_expression_is_an_expression() -> None:
    assert ast.literal_eval(parsed_expression("{'a': 1}")) == {"a": 1}
    with pytest.raises(SyntaxError):
        parsed_expression("a = 1")
