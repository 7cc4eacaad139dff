"""``tables_below``, ``table_at``: which folders below, at and above a path are tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from timeline.errors import StorageError, StrandlineError, TableNotFoundError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.open import open_storage
from timeline.table.config import CONFIG_PATH

DEPTH: Final = 3
"""Levels of folders that are searched if nothing is said."""
DEEPEST: Final = 5
"""Most folders above a path that are searched: those of a data file by day, and one more."""


def tables_below(storage: Storage, depth: int = DEPTH) -> Iterator[tuple[str, StorageError | None]]:
    """Yield the paths of tables below a storage's base path, in order; ``""`` for itself.

    Among them is each folder that can't be read, with the reason; it may be a table, or have some.

    A table isn't searched, nor are hidden folders, whose names begin with a dot.

    Args:
        storage: The storage; its base path needn't be a table. One that isn't there has none.
        depth: Levels of folders that are searched, 0 or more; a folder beside tables counts.

    Raises:
        StorageError: The base path can't be read, or can't any more after a folder that couldn't.

    Cost: a stat for each folder, and a list for each that is no table.
    """
    if storage.stat(CONFIG_PATH) is not None:
        yield "", None
    elif depth > 0:
        for name in _folders(storage, ""):
            for path, problem in _tables_in(storage, name, depth - 1):
                yield path, problem
                if problem is not None:  # of this folder alone, or of the storage
                    storage.check_base()


def _tables_in(
    storage: Storage, path: str, depth: int
) -> Iterator[tuple[str, StorageError | None]]:
    try:
        is_table = storage.stat(f"{path}/{CONFIG_PATH}") is not None
        names = [] if is_table or depth < 1 else _folders(storage, path)
    except StorageError as error:
        yield path, error
        return
    if is_table:
        yield path, None
    for name in names:
        yield from _tables_in(storage, f"{path}/{name}", depth - 1)


def _folders(storage: Storage, path: str) -> list[str]:
    """Return the names of the folders in a folder that aren't hidden, in order."""
    names = (each.name for each in storage.list(path) if each.is_dir)
    return sorted(name for name in names if not name.startswith("."))


def table_at(
    storage: Storage, base_path: str, storage_options: Mapping[str, Any] | None
) -> TableMetaClient:
    """Open a table; if there is none, the error names one that the path lies in.

    Args:
        storage: The table's storage.
        base_path: Its base path, a path or a URL.
        storage_options: Options of fsspec.

    Raises:
        TableNotFoundError: There is no table.
        TableError: As of ``TableMetaClient.open``.

    Cost: without a table two reads for each of the folders above it, of ``DEEPEST`` at most. What
        can't be read is no table.
    """
    try:
        return TableMetaClient.open(storage)
    except TableNotFoundError as error:
        for folder in _folders_above(base_path):
            with suppress(StrandlineError):
                TableMetaClient.open(open_storage(folder, storage_options))
                error.hint = f"it is inside the table {folder}; a filter chooses partitions of that"
                break
        raise


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest first, without the root or a bucket's."""
    scheme, separator, rest = path.rpartition("://")
    for _ in range(DEEPEST):
        rest = rest.rstrip("/").rpartition("/")[0]
        if not rest.strip("/"):
            return
        yield f"{scheme}{separator}{rest}"
