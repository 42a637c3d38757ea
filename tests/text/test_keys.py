"""A parameter takes the key that its name says, whatever order the keys come in."""

import pytest

from astra.text.keys import key_of


@pytest.mark.parametrize("keys", [("item_id", "line_item_id"), ("line_item_id", "item_id")])
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("item_id", "item_id"),
        ("line_item_id", "line_item_id"),
        ("new_line_item_id", "line_item_id"),
        ("old_item_id", "item_id"),
        ("myitem_id", ""),
        ("item", ""),
    ],
)
def test_the_longest_key_counts(name: str, key: str, keys: tuple[str, ...]) -> None:
    assert key_of(name, keys) == key
