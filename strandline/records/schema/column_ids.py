"""Columns with ids (schema on read): which of them have another name in older files.

``ALTER TABLE`` with ``hoodie.schema.on.read.enable`` gives columns ids. A commit stores the table's
columns with their ids as ``latest_schema``; a file of ``.hoodie/.schema`` stores each version of
them up to one commit. A version's id is the commit's time. A renamed column keeps its id. A column
that is dropped and added again has a new id, and older values of that name belong to the old one.
After all other changes, of types, order and nesting, a column is readable by name.

Source: Hudi 1.2.0 ``SerDeHelper``, ``InternalSchemaMerger``,
``FileBasedInternalSchemaStorageManager``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from strandline.records.meta_fields import META_FIELDS
from timeline.encoding.json_text import loads
from timeline.errors import CorruptMetadataError

LATEST_SCHEMA: Final = "latest_schema"
"""Name of the columns with their ids in a commit's extra metadata."""
HISTORY_FOLDER: Final = ".hoodie/.schema"
HISTORY_SUFFIX: Final = ".schemacommit"
"""Suffix of completed files in that folder: ``<t>[_<c>].schemacommit``."""


@dataclass(frozen=True, slots=True)
class ColumnIds:
    """One version of a table's columns.

    Attributes:
        version: Time of the commit that made it, as a number.
        names: Id → dotted name, nested columns too, without meta columns.
    """

    version: int
    names: Mapping[int, str]

    def differing(self, older: ColumnIds) -> str | None:
        """Return a column whose values have another name in files of an older version, if any."""
        older_names = frozenset(older.names.values())
        for number, name in self.names.items():
            before = older.names.get(number)
            if before is None and name in older_names:
                return f"{name!r} was dropped and added again"
            if before is not None and before != name:
                return f"{name!r} was {before!r}"
        return None


def column_ids(text: str, path: str) -> ColumnIds:
    """Return the version of a commit.

    Args:
        text: JSON.
        path: Where it was found, for messages.

    Raises:
        CorruptMetadataError: It isn't such a version.
    """
    with _damage_of(path):
        return _version(loads(text.encode()))


def column_history(data: bytes, path: str) -> tuple[ColumnIds, ...]:
    """Return the versions in a history file; arguments and errors as in ``column_ids``."""
    with _damage_of(path):
        return tuple(map(_version, loads(data)["schemas"]))


@contextmanager
def _damage_of(path: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise CorruptMetadataError(f"{path} has no columns with ids: {exc!r:.200}") from exc


def _version(found: Any) -> ColumnIds:
    names = dict(_fields(found["fields"], ""))
    own = {number: name for number, name in names.items() if name not in META_FIELDS}
    return ColumnIds(int(found["version_id"]), own)


def _fields(fields: Any, prefix: str) -> Iterator[tuple[int, str]]:
    for each in fields:
        name = f"{prefix}{each['name']}"
        yield int(each["id"]), name
        yield from _nested(each["type"], name)


def _nested(kind: Any, name: str) -> Iterator[tuple[int, str]]:
    if isinstance(kind, str):
        return
    if kind["type"] == "record":
        yield from _fields(kind["fields"], f"{name}.")
        return
    for part in ("element",) if kind["type"] == "array" else ("key", "value"):
        yield int(kind[f"{part}_id"]), f"{name}.{part}"
        yield from _nested(kind[part], f"{name}.{part}")
