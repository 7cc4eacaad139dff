"""``TableId``: the identity of a table, independent of how its base path is spelled."""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from typing import Final

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/?.*)", re.DOTALL)
_FAMILIES: Final = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "abfss": "abfs",
    "wasbs": "wasb",
    "viewfs": "hdfs",
    "local": "file",
}
"""Scheme aliases of one and the same store."""
_LOCAL: Final = ("file", "local")


@dataclass(frozen=True, slots=True)
class TableId:
    """A table's location: two spellings of one base path have equal ids.

    Attributes:
        family: The scheme without aliases: ``"file"``, ``"s3"``, ``"gs"``, ...
        authority: Bucket or host, empty for local paths.
        path: Absolute, without doubled or trailing slashes.
    """

    family: str
    authority: str
    path: str

    @classmethod
    def of(cls, base_path: str) -> TableId:
        """Return the id of a base path: a URL or a local path.

        ``/t``, ``/t/``, ``file:/t`` and ``file:///t`` are one table. ``..`` is resolved in local
        paths; symbolic links aren't.

        Raises:
            ValueError: The base path is empty.
        """
        if not base_path:
            raise ValueError("the base path is empty")
        match = _URL.fullmatch(base_path)
        scheme = match[1].lower() if match else "file"
        family = _FAMILIES.get(scheme, scheme)
        if family == "file":
            return cls("file", "", local_path(base_path))
        assert match is not None
        segments = [segment for segment in match[3].split("/") if segment]
        authority = match[2] or ""
        if family == "memory" and authority:  # fsspec's memory URLs have no host
            segments, authority = [authority, *segments], ""
        return cls(family, authority, "/" + "/".join(segments))

    def __str__(self) -> str:
        """Return the id as a URL."""
        return f"{self.family}://{self.authority}{self.path}"

    @property
    def base_path(self) -> str:
        """A base path of this location: a local path or a URL."""
        return self.path if self.family == "file" else str(self)

    def normal(self) -> TableId:
        """Return the id with ``..`` in its path resolved by the text alone."""
        return TableId(self.family, self.authority, posixpath.normpath(self.path))


def local_path(base_path: str) -> str:
    """Return the absolute path of a local base path: a path or a ``file:`` URL."""
    # Hadoop doesn't %-decode paths. ``abspath`` keeps two leading slashes, as POSIX allows.
    text = _local_text(base_path)
    return re.sub("^//+", "/", os.path.abspath(base_path if text is None else text))


def canonical_base_path(base_path: str) -> str:
    """Return the canonical spelling of a base path, without a storage call.

    A relative or empty one is returned unchanged, as it depends on the working directory.
    """
    if not base_path or is_relative(base_path):
        return base_path
    return TableId.of(base_path).normal().base_path


def is_relative(base_path: str) -> bool:
    """Return whether a base path is local and depends on the working directory.

    Raises:
        ValueError: It is empty.
    """
    if not base_path:
        raise ValueError("the base path is empty")
    text = _local_text(base_path)
    return text is not None and not text.startswith("/")


def absolute(base_path: str) -> str:
    """Return a relative base path as an absolute one, any other unchanged."""
    return local_path(base_path) if is_relative(base_path) else base_path


def id_text(base_path: str) -> str:
    """Return the text that names a client's table: its id; a relative path, which is none, as is.

    Raises:
        ValueError: It is empty.
    """
    return base_path if is_relative(base_path) else str(TableId.of(base_path))


def _local_text(base_path: str) -> str | None:
    """Return a local base path without its scheme, ``None`` for any other URL."""
    match = _URL.fullmatch(base_path)
    if match is None:
        return base_path
    text: str | None = match[3] if match[1].lower() in _LOCAL else None
    return text
