"""Opening the storage of a base path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from timeline.errors import ConfigError
from timeline.storage.base import DEFAULT_LIMITS, ReadLimits, Storage
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId

_ADVICE: Final[Mapping[tuple[str, ...], str]] = {
    ("s3", "s3a"): "on driver and executors: pip install s3fs",
    ("gs", "gcs"): "on driver and executors: pip install gcsfs",
    ("abfs", "abfss", "az"): "on driver and executors: pip install adlfs",
    ("hdfs", "viewfs"): "HDFS needs Java and Hadoop's libhdfs on driver and executors",
}
"""Schemes → what opening them needs."""


def open_storage(
    base_path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> Storage:
    """Return the storage of a table's base path.

    Args:
        base_path: A path of this machine, a ``file:`` URL, or a URL that fsspec opens.
        storage_options: For fsspec; ignored for a local path.
        limits: How many bytes of a file are read at most.

    Raises:
        ConfigError: The base path is empty or no text, no file system can be opened for its scheme,
            or the options are no mapping.
    """
    base_path = path_text(base_path)
    if storage_options is not None and not isinstance(storage_options, Mapping):
        # Not shown: it may be a secret.
        raise ConfigError(
            f"storage_options is of type {type(storage_options).__name__}; allowed: None, or a"
            " mapping of fsspec's options, such as {'anon': True}"
        )
    try:
        if TableId.of(base_path).family == "file":
            return LocalStorage(base_path, limits=limits)
        # fsspec and pyarrow take a tenth of a second, which processes with local tables save.
        remote: Any = import_module("timeline.storage.fsspec_storage")
        storage: Storage = remote.FsspecStorage(base_path, storage_options, limits=limits)
    # OSError: Hadoop's native client, which pyarrow loads when it connects.
    except (ValueError, ImportError, OSError) as exc:
        reason = (str(exc).splitlines() or [type(exc).__name__])[0]
        raise ConfigError(
            f"base path {base_path!r} can't be opened: {reason}", hint=_advice(base_path)
        ) from exc
    return storage


def path_text(base_path: object) -> str:
    """Return a base path as text.

    Raises:
        ConfigError: It is empty, has a NUL, or is neither text nor a ``pathlib.Path``.
    """
    if not isinstance(base_path, (str, os.PathLike)) or not base_path:
        raise ConfigError(
            f"base path {base_path!r} can't be opened; allowed: text or a pathlib.Path, such as"
            " '/lake/t' or 's3://bucket/t'"
        )
    text = str(os.fspath(base_path))
    if "\x00" in text:
        raise ConfigError(f"base path {text!r} can't be opened; allowed: text without NUL")
    return text


def _advice(base_path: str) -> str:
    """Return a hint how to make a base path's scheme usable."""
    scheme = base_path.partition(":")[0].lower()
    for schemes, advice in _ADVICE.items():
        if scheme in schemes:
            return advice
    return "allowed: a local path, s3, gs, abfs, or another scheme that fsspec opens"


def require_driver(base_path: str, called: str) -> None:
    """Refuse a base path whose scheme has no file system installed.

    Args:
        base_path: A URL.
        called: The setting that it comes from, for the error.

    Raises:
        ConfigError: fsspec doesn't know the scheme, or the package for it isn't installed.
    """
    scheme = base_path.partition(":")[0].lower()
    fsspec: Any = import_module("fsspec")
    try:
        fsspec.get_filesystem_class(scheme)
    except (ValueError, ImportError) as exc:
        raise ConfigError(f"{called} {base_path} can't be opened: {exc}") from exc
