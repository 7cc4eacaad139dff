"""A storage that can't be written to."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import IO

from timeline.storage.base import Storage


class ReadOnlyStorage(Storage):
    """Refuses every call that would change something."""

    def create(self, path: str, data: bytes = b"") -> None:
        raise PermissionError(path)

    def create_stream(self, path: str) -> AbstractContextManager[IO[bytes]]:
        raise PermissionError(path)

    def replace(self, path: str, data: bytes) -> None:
        raise PermissionError(path)

    def make_dir(self, path: str) -> None:
        raise PermissionError(path)

    def delete(self, path: str) -> bool:
        raise PermissionError(path)

    def delete_all(self, paths: Iterable[str]) -> None:
        raise PermissionError(*paths)

    def delete_tree(self, path: str) -> bool:
        raise PermissionError(path)
