"""Golden tables with damaged or missing files, failing calls, or a concurrent writer.

``TroubledStorage`` shows one golden step at a time, with some files damaged, and runs a test's hook
before each call, which may fail it, switch to another step or remove a file. ``answers`` collects a
view's answers about a whole table in a comparable form.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar
from zlib import crc32

import pyarrow as pa

from fsview.local_view import LocalView
from fsview.model.file_group import BaseFile, FileSlice
from fsview.table_view import TableView
from tests.kit.storage.read_only import ReadOnlyStorage
from tests.kit.tables import golden
from tests.kit.tables.golden import GoldenStorage
from timeline.errors import PathNotFoundError, StorageUnavailableError, ViewBehindError
from timeline.metadata.codec import encode
from timeline.metadata.instant_metadata import CleanMetadata, SavepointMetadata
from timeline.storage.base import FileInfo, Storage, StorageCalls
from timeline.table.config import CONFIG_PATH

T = TypeVar("T")

IN_FLIGHT = {
    "rollback_cow_v6": {2, 9},
    "rollback_cow_v9": {2, 9},
    "rollback_mor_v6": {2, 9, 10},
    "rollback_mor_v6_h0150": {2, 9, 10},
    "rollback_mor_v9": {2, 9, 10},
}
"""Steps with files of a write in flight, which a listing shows and no instant names.

In ``rollback_mor_v9`` 10 no recorded answer shows them.
"""

UNSAID_SIZES = {"rollback_mor_v6_h0150"}
"""Release 0.15 doesn't record the size of a log that a failed write left: the partition is listed
again."""

UNCOMMITTED = dict.fromkeys(("rollback_mor_v6", "rollback_mor_v6_h0150", "rollback_mor_v9"), (7,))
"""Steps at which a commit is in flight that was completed before: who missed it knows no file of
it."""

ROLLED_BACK = dict.fromkeys(("rollback_mor_v6", "rollback_mor_v6_h0150"), ((4, 5),))
"""Where a completed delta commit is rolled back: a view that was opened before and lists after
lacks its logs, though nobody who asks for that instant gets such a view any more."""

LATEST = "99991231235959999"


@dataclass(frozen=True)
class Damage:
    """Damage to a file.

    Attributes:
        name: The name in a test's messages.
        data: The content of the damaged file.
        error: The error raised by reading it, if any.
    """

    name: str
    data: bytes = b""
    error: type[Exception] | None = None


GONE = Damage("gone", error=PathNotFoundError)
"""The file is listed, but reading it fails: it doesn't exist."""
DIRECTORY = Damage("a directory", error=StorageUnavailableError)


def cuts(data: bytes) -> Iterator[Damage]:
    """Yield truncations of a file: to nothing, to one byte, to half, by one byte."""
    for length in sorted({0, min(1, len(data)), len(data) // 2, max(len(data) - 1, 0)}):
        if length < len(data):
            yield Damage(f"cut to {length} of {len(data)}", data[:length])


def foreign(path: str, data: bytes) -> Iterator[Damage]:
    """Yield contents and errors that are invalid for this kind of file."""
    yield Damage("random bytes", random.Random(path).randbytes(max(len(data), 64)))
    yield Damage("zeros", b"\x00" * len(data))
    yield Damage("other JSON", b'{"files": [{"fileName": "x"}]}')
    other = CleanMetadata("1") if "clean" not in path else SavepointMetadata("me", 1, "")
    yield Damage("other Avro", encode(other, 9))
    yield from (GONE, DIRECTORY)


@lru_cache(maxsize=48)
def table_at(scenario: str, step: int) -> GoldenStorage:
    """Return a shared, unchanged golden step."""
    return GoldenStorage(scenario, step)


def steps_of(scenario: str) -> list[int]:
    """Return the steps at which instants name every listed file."""
    return [n for n in golden.steps(scenario) if n not in IN_FLIGHT.get(scenario, ())]


Before = Callable[[int, str, str], None]


@dataclass
class _State:
    """What a storage shares with those made of it by ``for_cause``."""

    scenario: str
    step: int
    damage: dict[str, Damage] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)
    before: Before | None = None
    failing: int | None = None


class TroubledStorage(ReadOnlyStorage):
    """A golden table that tests can damage, switch to other steps, and hook before each call."""

    def __init__(self, scenario: str, step: int = 0) -> None:
        self.base_path = table_at(scenario, step).base_path
        self.calls = StorageCalls()
        self._cause = "other"
        self._state = _State(scenario, step)

    @property
    def log(self) -> list[tuple[str, str]]:
        """(kind, path) of every call so far."""
        return self._state.log

    @property
    def listed(self) -> Counter[str]:
        """How often each directory was listed."""
        return Counter(path for kind, path in self.log if kind == "list")

    def step(self, step: int) -> None:
        """Switch to another step."""
        self._state.step = step

    @property
    def now(self) -> GoldenStorage:
        """The current step without damage."""
        return table_at(self._state.scenario, self._state.step)

    @contextmanager
    def damaged(self, path: str, damage: Damage) -> Iterator[None]:
        """Damage a file within the block."""
        self._state.damage[path] = damage
        try:
            yield
        finally:
            del self._state.damage[path]

    @contextmanager
    def acting(self, before: Before) -> Iterator[None]:
        """Call ``before(n, kind, path)`` before the n-th call from now, counted from 1."""
        start = len(self.log)
        self._state.before = lambda n, kind, path: before(n - start, kind, path)
        try:
            yield
        finally:
            self._state.before = None

    @contextmanager
    def moving(self, nth: int, step: int) -> Iterator[list[int]]:
        """Switch to another step before the nth call; the yielded list then has that step."""
        moved: list[int] = []

        def move(at: int, _kind: str, _path: str) -> None:
            if at == nth:
                self.step(step)
                moved.append(step)

        with self.acting(move):
            yield moved

    @contextmanager
    def failing(self, nth: int) -> Iterator[None]:
        """Fail the nth call from now: all calls are reads, so before or after is the same."""
        self._state.failing = len(self.log) + nth
        try:
            yield
        finally:
            self._state.failing = None

    def copy(self) -> TroubledStorage:
        """Return a storage with the same step and damage, and a log of its own."""
        other = TroubledStorage(self._state.scenario, self._state.step)
        other._state.damage = dict(self._state.damage)
        return other

    def for_cause(self, cause: str) -> TroubledStorage:
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "_cause": cause}
        return other

    def _call(self, kind: str, path: str, work: Callable[[str], T]) -> T:
        state = self._state
        self.calls.add(kind, self._cause)
        self.log.append((kind, path))
        nth = len(self.log)
        if state.before is not None:
            state.before(nth, kind, path)
        if nth == state.failing:
            raise StorageUnavailableError(f"injected: {kind} {path}")
        return work(path)

    def list(self, path: str) -> tuple[FileInfo, ...]:
        return self._call("list", path, self._list)

    def stat(self, path: str) -> FileInfo | None:
        return self._call("stat", path, self._stat)

    def read(self, path: str, *about: object) -> bytes:
        return self._call("read", path, self._read)

    def _list(self, path: str) -> tuple[FileInfo, ...]:
        # A listing shows a damaged file as a file.
        return tuple(
            self._sized(f"{path}/{info.name}".lstrip("/"), info) for info in self.now.list(path)
        )

    def _sized(self, path: str, info: FileInfo) -> FileInfo:
        damage = self._state.damage.get(path)
        if damage is None or damage.error is not None:
            return info
        return replace(info, size=len(damage.data))

    def _stat(self, path: str) -> FileInfo | None:
        damage, info = self._state.damage.get(path), self.now.stat(path)
        if damage is GONE or info is None:
            return None
        if damage is DIRECTORY:
            return replace(info, is_dir=True)
        if damage is None or path == CONFIG_PATH:
            return self._sized(path, info)
        # Damaged files differ in their times, too.
        later = info.mtime_ms + 1 + crc32(damage.data) % 500
        return replace(self._sized(path, info), mtime_ms=later)

    def _read(self, path: str) -> bytes:
        damage = self._state.damage.get(path)
        if damage is None:
            return self.now.read(path)
        if damage.error is not None:
            raise damage.error(f"{self.base_path}/{path}: {damage.name}")
        return damage.data

    def open_input(self, path: str, *about: object) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))


# Answers.


@lru_cache(maxsize=48)
def partitions_of(scenario: str) -> tuple[str, ...]:
    """Return every partition that a scenario has at any step."""
    found = set()
    for step in golden.steps(scenario):
        for entry in golden.listing(scenario, step):
            folder, _, name = entry.path.rpartition("/")
            if name == ".hoodie_partition_metadata" and not folder.startswith(".hoodie/"):
                found.add(folder)
    return tuple(sorted(found))


def held_answers(view: LocalView, scenario: str) -> dict[str, Any]:
    """Return the answers of a loaded view that need no storage call.

    A refused answer is ``"refused"``.
    """
    found: dict[str, Any] = {
        "timeline": [str(instant) for instant in view.timeline],
        "compactions": sorted(
            (o.partition, o.file_id, o.compaction_instant)
            for o in view.pending_compaction_operations()
        ),
    }
    for partition in partitions_of(scenario):
        for name, ask in _QUESTIONS.items():
            try:
                found[f"{name} {partition}"] = ask(view, partition)
            except ViewBehindError:
                found[f"{name} {partition}"] = "refused"
    return found


def answers(view: LocalView, scenario: str) -> dict[str, Any]:
    """Return a view's answers about a table: files, slices, and pending operations."""
    clusterings = sorted((o.partition, o.file_id) for o in view.file_groups_in_pending_clustering())
    return {**held_answers(view, scenario), "clusterings": clusterings}


def changed(said: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """Return the names of the answers that differ."""
    return [name for name in said if said[name] != right[name]]


def changed_since(said: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """Return the names of the answers that differ from those an older client got.

    Refusals don't count as different, nor does a clustering that has been planned since.
    """
    return [
        name
        for name in said
        if said[name] != "refused"
        and said[name] != then[name]
        and not (name == "clusterings" and set(then[name]) <= set(said[name]))
    ]


def _file(file: BaseFile | None) -> tuple[str, int] | None:
    return None if file is None else (file.name, file.size)


def _slice(found: FileSlice) -> tuple[object, ...]:
    logs = tuple((log.name, log.size) for log in found.log_files)
    return (found.file_id, found.base_instant, _file(found.base_file), logs)


_QUESTIONS: dict[str, Callable[[LocalView, str], object]] = {
    "latest base files": lambda view, p: [_file(f) for f in view.latest_base_files(p)],
    "all base files": lambda view, p: [_file(f) for f in view.all_base_files(p)],
    "latest slices": lambda view, p: [_slice(s) for s in view.latest_file_slices(p)],
    "all slices": lambda view, p: [_slice(s) for s in view.all_file_slices(p)],
    "merged slices": lambda view, p: [
        _slice(s) for s in view.latest_merged_file_slices_before_or_on(p, LATEST)
    ],
    "replaced": lambda view, p: [g.file_id for g in view.all_replaced_file_groups(p)],
}


@lru_cache(maxsize=48)
def _expected(scenario: str, step: int) -> dict[str, Any]:
    return answers(LocalView.newest(TableView(table_at(scenario, step))), scenario)


def expected(scenario: str, step: int) -> dict[str, Any]:
    """Return the answers of a fresh view at a step."""
    return _expected(scenario, step)


def loaded(storage: Storage, scenario: str) -> TableView:
    """Return a view with every partition loaded, including those of later steps."""
    table = TableView(storage)
    LocalView.newest(table).load_all_partitions()
    LocalView.newest(table).load_partitions(partitions_of(scenario))
    return table
