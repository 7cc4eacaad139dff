"""Which store the settings mean: its kind, its directory, its budget.

Two vocabularies name a kind: Hudi's ``hoodie.filesystem.view.type`` and the word of ``--storage``
and of ``TimelineService(storage=…)``. Both come from ``fsview.store.stores.KINDS``, here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fsview.store.stores import KINDS, StoreOptions
from strandline.settings.service import MEMORY_BYTES, ROCKSDB_DIR, SPILL_DIR, STORAGE_TYPE
from strandline.settings.setting import Setting, Settings

STORE_SETTINGS: Final[tuple[Setting[Any], ...]] = (
    STORAGE_TYPE,
    SPILL_DIR,
    ROCKSDB_DIR,
    MEMORY_BYTES,
)

TYPES: Final[Mapping[str, str]] = {word: store.kind for word, store in KINDS.items()}
"""The word for a kind → what Hudi calls it."""

_WORDS: Final[Mapping[str, str]] = {kind: word for word, kind in TYPES.items()}


def store_options(
    values: Settings,
    *,
    storage: str | None = None,
    directory: str | None = None,
    rocksdb_default: str | None = None,
) -> StoreOptions:
    """Return what the settings say of the store, unless the caller says it.

    Args:
        values: The settings. Hudi's remote kinds mean memory, as to its embedded server.
        storage: The word for the kind, in place of the setting.
        directory: Where its files lie, in place of the settings.
        rocksdb_default: Where RocksDB's files lie if nothing says it.

    Raises:
        ConfigError: There is no such kind, or it can't be there.
    """
    kind = _WORDS.get(values.get(STORAGE_TYPE), "memory") if storage is None else storage.lower()
    directories = {
        "spillable": values.get(SPILL_DIR) or None,
        "rocksdb": values.get(ROCKSDB_DIR) or rocksdb_default,
    }
    if directory is None:
        directory = directories.get(kind)
    return StoreOptions(kind, directory, values.get(MEMORY_BYTES))
