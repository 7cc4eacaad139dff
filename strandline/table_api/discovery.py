"""``tables_below``, ``enclosing_table``: which folders below and above a path are tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from timeline.errors import StrandlineError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.open import open_storage
from timeline.table.config import CONFIG_PATH

DEPTH: Final = 3
"""Levels of folders that are searched if nothing is said."""
DEEPEST: Final = 5
"""Most folders above a path that are searched: those of a data file by day, and one more."""


def tables_below(storage: Storage, depth: int = DEPTH) -> Iterator[str]:
    """Yield the paths of tables below a storage's base path, in order; ``""`` for itself.

    A table isn't searched, nor are hidden folders, whose names begin with a dot.

    Args:
        storage: The storage; its base path needn't be a table. One that isn't there has none.
        depth: Levels of folders that are searched, 0 or more; a folder beside tables counts.

    Raises:
        StorageError: A folder can't be listed.

    Cost: a stat for each folder, and a list for each that is no table.
    """
    if storage.stat(CONFIG_PATH) is not None:
        yield ""
        return
    if depth < 1:
        return
    yield from _below(storage, "", depth)


def _below(storage: Storage, folder: str, depth: int) -> Iterator[str]:
    for name in sorted(each.name for each in storage.list(folder) if each.is_dir):
        if name.startswith("."):
            continue
        path = f"{folder}/{name}".lstrip("/")
        if storage.stat(f"{path}/{CONFIG_PATH}") is not None:
            yield path
        elif depth > 1:
            yield from _below(storage, path, depth - 1)


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
