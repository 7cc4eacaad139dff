"""The views' store according to the settings: its kind, place and memory budget.

A kind has two names: the value of Hudi's ``hoodie.filesystem.view.type``, and the word used by
``--storage`` and ``TimelineService(storage=…)``. Both come from ``fsview.store.stores.KINDS``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any, Final

from fsview.store.sql.url import split_urls
from fsview.store.stores import KINDS, StoreOptions
from strandline.settings.service import (
    MEMORY_BYTES,
    ROCKSDB_DIR,
    SPILL_DIR,
    STORAGE_TYPE,
    STORE_URL,
)
from strandline.settings.setting import Setting, Settings

STORE_SETTINGS: Final[tuple[Setting[Any], ...]] = (
    STORAGE_TYPE,
    SPILL_DIR,
    ROCKSDB_DIR,
    STORE_URL,
    MEMORY_BYTES,
)

TYPES: Final[Mapping[str, str]] = {word: store.kind for word, store in KINDS.items()}
"""Word → Hudi's name of the same kind of store."""

_WORDS: Final[Mapping[str, str]] = {kind: word for word, kind in TYPES.items()}


def store_options(
    values: Settings,
    *,
    storage: str | None = None,
    directory: str | None = None,
    rocksdb_default: str | None = None,
) -> StoreOptions:
    """Return the options of the views' store.

    Args:
        values: The settings. Hudi's remote types mean memory, as in its embedded server.
        storage: Word for the kind; overrides the settings.
        directory: Directory of the store's files; overrides the settings.
        rocksdb_default: RocksDB's directory if neither names one.

    Raises:
        ConfigError: The kind doesn't exist, or can't use that directory or URL.
    """
    kind = _WORDS.get(values.get(STORAGE_TYPE), "memory") if storage is None else storage.lower()
    directories = {
        "spillable": values.get(SPILL_DIR) or None,
        "rocksdb": values.get(ROCKSDB_DIR) or rocksdb_default,
    }
    if directory is None:
        directory = directories.get(kind)
    urls = split_urls(values.get(STORE_URL))
    return StoreOptions(kind, directory, values.get(MEMORY_BYTES), urls)


def own_directory() -> str:
    """Return the default directory for RocksDB's files, one for each user."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return os.path.join(tempfile.gettempdir(), f"strandline-{user}")
