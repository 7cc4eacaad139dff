"""Opening the storage of a base path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec

from timeline.errors import ConfigError
from timeline.storage.base import Storage
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage
from timeline.storage.read_limits import DEFAULT_LIMITS, ReadLimits
from timeline.storage.table_id import TableId


def open_storage(
    base_path: str,
    storage_options: Mapping[str, Any] | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> Storage:
    """Return the storage of a table's base path.

    Args:
        base_path: A path of this machine, a ``file:`` URL, or a URL that fsspec opens.
        storage_options: For fsspec; ignored for a local path.
        limits: How many bytes of a file are read at most.

    Raises:
        ConfigError: The base path is empty, or no file system is installed for its scheme.
    """
    try:
        if TableId.of(base_path).family == "file":
            return LocalStorage(base_path, limits=limits)
        return FsspecStorage(base_path, storage_options, limits=limits)
    except (ValueError, ImportError) as exc:
        raise ConfigError(f"base path {base_path!r} can't be opened: {exc}") from exc


def require_driver(base_path: str, called: str) -> None:
    """Refuse a base path whose scheme has no file system installed.

    Args:
        base_path: A URL.
        called: The setting that it comes from, for the error.

    Raises:
        ConfigError: fsspec doesn't know the scheme, or what it needs for it isn't installed.
    """
    scheme = base_path.partition(":")[0].lower()
    try:
        fsspec.get_filesystem_class(scheme)
    except (ValueError, ImportError) as exc:
        raise ConfigError(f"{called} {base_path} can't be opened: {exc}") from exc
