"""``tables_below``: which folders below a path are tables, found by listing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from timeline.errors import PathNotFoundError
from timeline.storage.base import Storage
from timeline.table.config import CONFIG_PATH

DEPTH: Final = 3
"""Levels of folders that are searched if nothing is said."""


def tables_below(storage: Storage, depth: int = DEPTH) -> Iterator[str]:
    """Yield the paths of tables below a storage's base path, in order; ``""`` for itself.

    A table isn't searched, nor are hidden folders, whose names begin with a dot.

    Args:
        storage: The storage; its base path needn't be a table.
        depth: Levels of folders that are searched, 0 or more; a folder beside tables counts.

    Raises:
        PathNotFoundError: The base path isn't there.
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
    try:
        found = sorted(each.name for each in storage.list(folder) if each.is_dir)
    except PathNotFoundError:
        if not folder:
            raise
        return  # deleted meanwhile
    for name in found:
        if name.startswith("."):
            continue
        path = f"{folder}/{name}".lstrip("/")
        if storage.stat(f"{path}/{CONFIG_PATH}") is not None:
            yield path
        elif depth > 1:
            yield from _below(storage, path, depth - 1)
