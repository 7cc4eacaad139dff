"""``enclosing_table``: the table in which a path is that isn't a table's base path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from timeline.errors import StrandlineError
from timeline.meta_client import TableMetaClient
from timeline.storage.open import open_storage

DEEPEST: Final = 5
"""So many folders above a path are looked at: of a data file in partitions by day, and one more."""


def enclosing_table(base_path: str, storage_options: Mapping[str, Any] | None) -> str | None:
    """Return the base path of the table that a path is in; ``None`` if it is in none.

    Args:
        base_path: A path or a URL.
        storage_options: Options of fsspec.

    Cost: two reads for each of the folders above it, of ``DEEPEST`` at most. What can't be read is
        no table.
    """
    for folder in _folders_above(base_path):
        try:
            TableMetaClient.open(open_storage(folder, storage_options))
        except StrandlineError:
            continue
        return folder
    return None


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest first, without the root or a bucket's."""
    scheme, separator, rest = path.rpartition("://")
    for _ in range(DEEPEST):
        rest = rest.rstrip("/").rpartition("/")[0]
        if not rest.strip("/"):
            return
        yield f"{scheme}{separator}{rest}"
