"""The protocols under which fsspec knows a file system."""

from __future__ import annotations

from typing import Any


def protocols(fs: Any) -> tuple[str, ...]:
    """Return the protocols of a file system of fsspec, the preferred one first."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
