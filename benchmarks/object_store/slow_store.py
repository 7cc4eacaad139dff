"""``slow:///path``: the local disk as an object store that takes 30 ms for each request.

It is read-only. ``python -m benchmarks.object_store.slow_store serve ...`` is ``strandline serve
...`` with this scheme, for the process of a service.
"""

from __future__ import annotations

import time
from typing import Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from strandline.__main__ import main

SCHEME: Final = "slow"
REQUEST_S: Final = 0.03


class SlowStore(AbstractFileSystem):  # type: ignore[misc]
    """A file system of fsspec that forwards each request to the local disk after a wait."""

    protocol = SCHEME
    root_marker = "/"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._disk = LocalFileSystem()

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List a directory by one request."""
        return list(self._requested().ls(path, detail=detail))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return a file's size and time by one request."""
        return dict(self._requested().info(path))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Read a file, or a range of it, by one request."""
        return bytes(self._requested().cat_file(path, start=start, end=end))

    def _requested(self) -> LocalFileSystem:
        """Return the disk after the time of a request."""
        time.sleep(REQUEST_S)
        return self._disk


fsspec.register_implementation(SCHEME, SlowStore)


if __name__ == "__main__":
    main()
