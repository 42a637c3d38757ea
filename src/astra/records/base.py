"""Frozen records: the only thing stages exchange.

Invariant: a record's ``id`` is a hash of the fields named in ``identity``, i.e. of what
produced the record, never a row number or a random value. Rebuilds, resume and
de-duplication therefore agree, and a row edited by hand is refused when it is read.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

ID_LENGTH = 16


def compact_json(value: Any) -> str:
    """JSON with its keys as they stand and no spaces, for whatever is kept and read again.

    Order says something: a publisher puts the main parameter first, a server the nearest place.
    Refuses NaN and infinities (ValueError).
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces, for hashes and comparisons alone.

    Refuses NaN and infinities (ValueError).
    """
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def content_id(value: Any) -> str:
    """First 16 hex digits of the SHA-256 of a JSON-able value's canonical form."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:ID_LENGTH]


class Frozen(BaseModel):
    """A value without identity of its own (a message, an answer, an edge)."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Sparse(Frozen):
    """A value that leaves the fields named in ``sparse`` out of its JSON while they are empty.

    A field added that way changes neither bytes nor ids of the records that do without it.
    """

    sparse: ClassVar[tuple[str, ...]]

    @model_serializer(mode="wrap")
    def _lean(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = handler(self)
        for name in self.sparse:
            if not dumped.get(name, True):
                del dumped[name]
        return dumped


class Record(Frozen):
    """A row of a stage's output. Leave ``id`` empty to have it computed."""

    identity: ClassVar[tuple[str, ...]]
    sparse: ClassVar[tuple[str, ...]] = ()
    """Fields with a default whose column a table has only if some row needs it; while empty, they
    are no part of the identity either."""
    id: str = ""

    @model_validator(mode="after")
    def _identify(self) -> Self:
        chosen = self.model_dump(mode="json", include=self._identifying())
        expected = content_id([type(self).__name__, chosen])
        if not self.id:
            object.__setattr__(self, "id", expected)
        elif self.id != expected:
            raise ValueError(
                f"{type(self).__name__} {self.id}: id does not match its content "
                f"({expected}); the row was edited or written by another version, "
                "rebuild the stage that made it"
            )
        return self

    def _identifying(self) -> set[str]:
        """The fields that the id is a hash of."""
        return {name for name in self.identity if name not in self.sparse or getattr(self, name)}
