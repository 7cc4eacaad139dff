"""``FaultyStorage``: wraps a storage and fails, or simulates a crash, at chosen calls.

Every call counts, including ``make_dir``, the opening of a stream, each of its writes and its end.
A test can therefore learn from ``log`` how many calls an operation makes and fail each in turn.

An error is a ``StorageUnavailableError`` raised before or after the call takes effect, or after a
create an ``AlreadyExistsError``: the answer to a request that an object store's client repeated
after its own success. A crash is
``Crash``, which isn't an ``Exception``, so that no error handling runs. After a crash every call
crashes, and an open stream stays torn.

A crash can be outlived: what it would leave is copied in ``on_crash``, and the operation goes on.
So one run of an operation shows what a crash at each of its calls leaves.
"""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, cast

from tests.kit.short_runs import stride
from timeline.errors import AlreadyExistsError, StorageUnavailableError
from timeline.storage.base import FileInfo, FileKind, ReadLimits, Storage, StorageCalls

if TYPE_CHECKING:
    import pyarrow as pa


class Crash(BaseException):
    """The process died."""


class Effect(Enum):
    """How a call goes wrong.

    ``EXISTS_AFTER`` is of the first call from the planned one on that creates a file.
    ``CRASH_TORN`` crashes in the middle: half of a write is in the file, half of a tree is deleted.
    Atomic calls have no middle and crash before their effect.
    """

    ERROR_BEFORE = "error before"
    ERROR_AFTER = "error after"
    EXISTS_AFTER = "exists after"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    CRASH_TORN = "crash torn"


@dataclass(frozen=True, slots=True)
class Fault:
    """The effect of the ``at``-th call, counted from 1."""

    at: int
    effect: Effect


class _State:
    """What a storage shares with those made of it; its lock guards the log and the streams."""

    def __init__(
        self, plan: Iterable[Fault], on_crash: Callable[[], None], *, outlived: bool
    ) -> None:
        self.lock = threading.Lock()
        self.on_crash = on_crash
        self.outlived = outlived
        self.plan = {fault.at: fault.effect for fault in plan}
        self.log: list[tuple[str, str]] = []
        self.open: list[IO[bytes]] = []
        self.crashed = False

    def begin(self, kind: str, path: str) -> Effect | None:
        """Count a call; raise its fault if that comes before the effect, else return it."""
        with self.lock:
            if self.crashed:
                raise Crash(f"{kind} {path}: the process died before")
            self.log.append((kind, path))
            effect = self.plan.get(len(self.log))
            if effect is Effect.EXISTS_AFTER and kind != "create":
                # Calls of several threads may come in another order than when they were counted.
                self.plan[len(self.log) + 1] = effect
                effect = None
        if effect is Effect.CRASH_BEFORE:
            self.crash(kind, path)
        if effect is Effect.ERROR_BEFORE:
            raise StorageUnavailableError(f"injected: {kind} {path} failed before its effect")
        return effect

    def end(self, effect: Effect | None, kind: str, path: str) -> None:
        """Raise the fault of a call that comes after its effect."""
        if effect in (Effect.CRASH_AFTER, Effect.CRASH_TORN):
            self.crash(kind, path)
        if effect is Effect.EXISTS_AFTER:
            raise AlreadyExistsError(f"injected: {kind} {path} found what it had created")
        if effect is Effect.ERROR_AFTER:
            raise StorageUnavailableError(f"injected: {kind} {path} failed after its effect")

    def crash(self, kind: str, path: str) -> None:
        """Crash; open files keep what was written to them. Return if the crash is outlived."""
        if self.outlived:
            with self.lock:
                for file in self.open:
                    file.flush()
            self.on_crash()
            return
        with self.lock:
            self.crashed = True
            abandoned, self.open = self.open, []
        for file in abandoned:
            file.close()
        self.on_crash()
        raise Crash(f"injected: the process died at {kind} {path}")


class FaultyStorage(Storage):
    """A storage that fails as planned.

    Args:
        inner: The storage that does the work.
        plan: The faults; if empty, calls are only logged.
        on_crash: Called at a crash, before it is raised; may end the process.
        outlived: Whether the operation goes on after ``on_crash``, as if nothing had happened.

    Attributes:
        log: (kind, path) of every call so far.
    """

    def __init__(
        self,
        inner: Storage,
        plan: Iterable[Fault] = (),
        on_crash: Callable[[], None] = lambda: None,
        *,
        outlived: bool = False,
    ) -> None:
        self.base_path = inner.base_path
        self._inner = inner
        self._state = _State(plan, on_crash, outlived=outlived)

    @property
    def calls(self) -> StorageCalls:  # type: ignore[override]  # the inner storage counts
        """The counts of the inner storage."""
        return self._inner.calls

    @property
    def has_failed(self) -> bool:
        """Whether all that was planned has happened."""
        return max(self._state.plan, default=0) <= len(self._state.log)

    @property
    def is_remote(self) -> bool:  # type: ignore[override]  # as above
        """Whether the inner storage is remote."""
        return self._inner.is_remote

    @property
    def limits(self) -> ReadLimits:
        """The read limits of the inner storage."""
        return self._inner.limits

    @property
    def log(self) -> list[tuple[str, str]]:
        """(kind, path) of every call so far."""
        with self._state.lock:
            return self._state.log.copy()

    @property
    def crashed(self) -> bool:
        """Whether a crash has happened."""
        return self._state.crashed

    def for_cause(self, cause: str) -> FaultyStorage:
        """Return this storage with its calls booked under ``cause``; log and plan are shared."""
        other = FaultyStorage(self._inner.for_cause(cause))
        other._state = self._state
        return other

    def list(self, path: str) -> tuple[FileInfo, ...]:
        """List a directory."""
        return cast("tuple[FileInfo, ...]", self._call("list", path))

    def list_tree(self, path: str) -> tuple[FileInfo, ...]:
        """List all files below a directory."""
        return cast("tuple[FileInfo, ...]", self._call("list_tree", path))

    def stat(self, path: str) -> FileInfo | None:
        """Look at a path."""
        return cast("FileInfo | None", self._call("stat", path))

    def read(self, path: str, kind: FileKind = FileKind.INSTANT, size: int | None = None) -> bytes:
        """Read a file."""
        return cast("bytes", self._call("read", path, kind, size))

    def open_input(self, path: str, kind: FileKind | None = None) -> pa.NativeFile:
        """Open a file for random access."""
        return self._call("open_input", path, kind)

    def create(self, path: str, data: bytes = b"") -> None:
        """Create a file."""
        self._call("create", path, data)

    def create_stream(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Open a new file for writing."""
        effect = self._state.begin("create_stream", path)
        stream = _Stream(self._inner.create_stream(path), path, self._state)
        with ExitStack() as failing:
            failing.push(stream)
            self._state.end(effect, "create_stream", path)
            failing.pop_all()
        return stream

    def replace(self, path: str, data: bytes) -> None:
        """Write a file."""
        self._call("replace", path, data)

    def make_dir(self, path: str) -> None:
        """Make a directory."""
        self._call("make_dir", path)

    def delete(self, path: str) -> bool:
        """Delete a file."""
        return cast("bool", self._call("delete", path))

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files, half of them if torn."""
        names = [*paths]
        label = " ".join(names)
        effect = self._state.begin("delete_all", label)
        if effect is Effect.CRASH_TORN:
            self._inner.delete_all(names[: len(names) // 2])
            self._state.crash("delete_all", label)
            effect = None
        self._inner.delete_all(names)
        self._state.end(effect, "delete_all", label)

    def delete_tree(self, path: str) -> bool:
        """Delete a directory."""
        effect = self._state.begin("delete_tree", path)
        if effect is Effect.CRASH_TORN:
            files = _files_below(self._inner, path)
            for file in files[: len(files) // 2]:
                self._inner.delete(file)
            self._state.crash("delete_tree", path)
            effect = None
        there = self._inner.delete_tree(path)
        self._state.end(effect, "delete_tree", path)
        return there

    def _call(self, kind: str, path: str, *args: object) -> Any:
        effect = self._state.begin(kind, path)
        if effect is Effect.CRASH_TORN:
            self._state.crash(kind, path)
            effect = None
        try:
            return getattr(self._inner, kind)(path, *args)
        finally:
            self._state.end(effect, kind, path)


class _Stream(AbstractContextManager[IO[bytes]]):
    """The context manager of ``create_stream``; its exit counts as a call."""

    def __init__(self, inner: AbstractContextManager[IO[bytes]], path: str, state: _State) -> None:
        self._inner = inner
        self._path = path
        self._state = state
        self._file = inner.__enter__()
        with state.lock:
            state.open.append(self._file)

    def __enter__(self) -> IO[bytes]:
        return cast("IO[bytes]", _File(self._file, self._path, self._state))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._state.crashed:
            return  # nobody is left to close or remove anything
        if kind is not None:
            self._leave(kind, error, trace)
            return
        try:
            effect = self._state.begin("close", self._path)
        except StorageUnavailableError as exc:
            self._leave(type(exc), exc, exc.__traceback__)
            raise
        if effect is Effect.CRASH_TORN:
            self._state.crash("close", self._path)
            effect = None
        self._leave(None, None, None)
        self._state.end(effect, "close", self._path)

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._state.lock:
            if self._file in self._state.open:
                self._state.open.remove(self._file)
        self._inner.__exit__(kind, error, trace)


class _File(io.RawIOBase):
    """A file whose writes count as calls."""

    def __init__(self, inner: IO[bytes], path: str, state: _State) -> None:
        self._inner = inner
        self._path = path
        self._state = state

    def writable(self) -> bool:
        """Return that the file is writable."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._inner.tell()

    def write(self, data: Any) -> int:
        """Write bytes."""
        effect = self._state.begin("write", self._path)
        whole = memoryview(data).cast("B")
        size = len(whole) // 2 if effect is Effect.CRASH_TORN else len(whole)
        self._inner.write(whole[:size])
        self._state.end(effect, "write", self._path)
        self._inner.write(whole[size:])
        return len(whole)


def _files_below(storage: Storage, path: str) -> list[str]:
    found = []
    for entry in storage.list(path):
        child = f"{path}/{entry.name}"
        found += _files_below(storage, child) if entry.is_dir else [child]
    return found


READS = frozenset({"list", "list_tree", "stat", "read", "open_input"})
STREAM = frozenset({"create_stream", "write", "close"})
DIVISIBLE = STREAM | {"delete_all", "delete_tree"}


def distinct_calls(log: Sequence[tuple[str, str]], effect: Effect) -> Iterator[int]:
    """Yield the calls, counted from 1, at which an effect leaves a state no other fault leaves.

    An error after a read equals one before it. A crash at a read equals a crash at the next call
    that changes something. Only streams and deletions of many files have a middle, and a crash
    after a call equals one before the next. Of the many writes of a file, the middle and last are
    taken.
    """
    at = 0
    for (kind, _), run in itertools.groupby(log):
        numbers = [at := at + 1 for _ in run]
        if kind == "write":
            numbers = sorted({numbers[len(numbers) // 2], numbers[-1]})
        if effect in (Effect.ERROR_AFTER, Effect.CRASH_BEFORE) and kind in READS:
            continue
        if effect is Effect.EXISTS_AFTER and kind != "create":
            continue
        if effect is Effect.CRASH_TORN and kind not in DIVISIBLE:
            continue
        if effect is Effect.CRASH_AFTER and at != len(log):
            continue
        yield from numbers


def calls_in_turns(log: Sequence[tuple[str, str]], effect: Effect, first: int) -> list[int]:
    """Return those of ``distinct_calls`` that are tried on every change.

    A call that changes something fails before its effect or after it, in turns; which comes first
    depends on whether ``first`` is odd. `tox -e all` tries both at each call.
    """
    calls = list(distinct_calls(log, effect))
    if effect not in (Effect.ERROR_BEFORE, Effect.ERROR_AFTER):
        return calls
    changes, step = list(distinct_calls(log, Effect.ERROR_AFTER)), stride(2)
    left_out = {*changes} - {*changes[(first + (effect is Effect.ERROR_AFTER)) % step :: step]}
    return [call for call in calls if call not in left_out]
