"""Which table a parameter or a column names a row of."""

from collections.abc import Iterable


def key_of(name: str, keys: Iterable[str]) -> str:
    """The key column whose values ``name`` takes: the one of that name, else the longest that it
    ends in after an underscore, so that ``new_copy_id`` takes a ``copy_id``. Empty for none.
    """
    fitting = (key for key in keys if name == key or name.endswith(f"_{key}"))
    return max(fitting, key=len, default="")
