"""A storage whose table moves on while somebody watches: golden steps, one after another."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from tests.kit.golden import GoldenStorage
from tests.kit.read_only import ReadOnlyStorage
from timeline.storage.base import FileInfo, StorageCalls


class SteppingStorage(ReadOnlyStorage):
    """Shows one golden step at a time; ``step`` moves it on.

    Attributes:
        listed: How often each directory was listed.
    """

    def __init__(self, scenario: str, step: int = 0) -> None:
        self._scenario = scenario
        self._shared = [GoldenStorage(scenario, step)]
        self._cause = "other"
        self.base_path = self._shared[0].base_path
        self.calls = StorageCalls()
        self.listed: Counter[str] = Counter()

    def step(self, step: int) -> None:
        self._shared[0] = GoldenStorage(self._scenario, step)

    @property
    def _now(self) -> GoldenStorage:
        return self._shared[0]

    def for_cause(self, cause: str) -> SteppingStorage:
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "_cause": cause}
        return other

    def list(self, path: str) -> tuple[FileInfo, ...]:
        self.calls.add("list", self._cause)
        self.listed[path] += 1
        return self._now.list(path)

    def stat(self, path: str) -> FileInfo | None:
        self.calls.add("stat", self._cause)
        return self._now.stat(path)

    def read(self, path: str, *about: object) -> bytes:
        self.calls.add("read", self._cause)
        return self._now.read(path, *about)

    def open_input(self, path: str, *about: object) -> pa.NativeFile:
        return self._now.open_input(path, *about)
