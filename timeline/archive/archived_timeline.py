"""Archived timelines: instants that were moved out of the active one.

From table version 8 on the archive is a log-structured merge tree in ``timeline/history``: Parquet
files ``<min>_<max>_<level>.parquet`` whose rows are instants (requested and completion time,
action, the bytes of the completed file and of the plan), sorted by requested time. ``manifest_<V>``
lists the valid files, ``_version_`` has the number of the valid manifest. For version 6 see
``timeline.archive.log_archive``.

Source: Hudi 1.2.0 ``ArchivedTimelineLoaderV2``, ``LSMTimeline``.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final, TypeVar

import pyarrow as pa

from timeline.archive.history_file import ArchivedRow, HistoryFile
from timeline.archive.log_archive import LogArchive
from timeline.encoding.json_text import loads
from timeline.errors import (
    CorruptMetadataError,
    InstantNotFoundError,
    PathNotFoundError,
    StorageUnavailableError,
)
from timeline.instant import Instant, State, completed_action
from timeline.metadata import codec
from timeline.metadata.instant_metadata import InstantMetadata
from timeline.storage.base import Storage, checked_path
from timeline.storage.read_limits import FileKind
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

T = TypeVar("T")

_VERSION: Final = "_version_"
_MANIFEST: Final = re.compile(r"manifest_(\d+)")
_FILE: Final = re.compile(r"(\d+)_(\d+)_(\d+)\.parquet")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_ATTEMPTS: Final = 3

_Rows = Mapping[tuple[str, str], ArchivedRow]
"""(requested time, action) → row."""

_CONTENT: Final = ("instantTime", "action", "metadata", "plan")

MANIFEST_BYTES: Final = 1 << 20
"""The longest manifest that is parsed, enough for ten thousand files. Hudi's manifests list a few
dozen, as ten files of a level are merged into one of the next."""

HELD_BYTES: Final = 32 << 20
"""The most bytes of row groups that are cached while archived instants are read."""


class HistoryArchive:
    """The archived instants of a table of version 8 or later, from one manifest; for one thread.

    The manifest is read once, and again only if a file that it names is gone. Contents are cached
    by row group (LRU), so that instants read in order open each file once.
    """

    def __init__(self, storage: Storage, folder: str, *, held_bytes: int = HELD_BYTES) -> None:
        """Read nothing yet; ``held_bytes`` bounds the cache of row groups."""
        self._storage = storage
        self._folder = folder
        self._names: list[str] | None = None
        self._bounds: dict[str, Sequence[tuple[str, str]]] = {}
        self._groups = _RowGroups(held_bytes)

    @cached_property
    def timeline(self) -> Timeline:
        """The archived instants, all completed."""
        rows = self._rows(("instantTime", "completionTime", "action"), "", "~")
        return Timeline.of(
            Instant(row["instantTime"], row["action"], State.COMPLETED, row["completionTime"])
            for row in rows
        )

    def completion_times(self, start: str, end: str) -> Mapping[str, str]:
        """Return requested → completion time of the instants requested in [start, end)."""
        rows = self._rows(("instantTime", "completionTime"), start, end)
        return {
            row["instantTime"]: row["completionTime"] or row["instantTime"]
            for row in rows
            if start <= row["instantTime"] < end
        }

    def read(self, instant: Instant) -> InstantMetadata:
        """Return the content of an instant's completed file.

        Raises:
            InstantNotFoundError: It isn't in the archive.
            CorruptMetadataError: It can't be read.
        """
        kind = codec.metadata_type(instant.action, instant.state)
        return codec.decode(kind, self._bytes(instant, "metadata"), source=self._source(instant))

    def read_plan(self, instant: Instant) -> InstantMetadata:
        """Return the plan of an instant; empty if the archive doesn't keep it."""
        kind = codec.plan_type(instant.action)
        return codec.decode(kind, self._bytes(instant, "plan"), source=self._source(instant))

    def _bytes(self, instant: Instant, column: str) -> bytes:
        time, action = instant.requested_time, completed_action(instant.action)

        def find() -> ArchivedRow | None:
            rows = (self._row(name, time, action) for name in self._files(time, f"{time}~"))
            return next((row for row in rows if row is not None), None)

        row = self._again_while_files_vanish(find)
        if row is None:
            raise InstantNotFoundError(f"{instant} is not in {self._source(instant)}")
        return row[column] or b""

    def _source(self, instant: Instant) -> str:
        return f"{self._storage.base_path}/{self._folder}, instant {instant.requested_time}"

    def _rows(self, columns: Sequence[str], start: str, end: str) -> list[ArchivedRow]:
        """Return the rows of the files that may contain instants of [start, end)."""

        def read() -> list[ArchivedRow]:
            rows: list[ArchivedRow] = []
            for name in self._files(start, end):
                with self._opened(name) as file:
                    rows += file.read(columns)[0]
            return rows

        return self._again_while_files_vanish(read)

    def _row(self, name: str, time: str, action: str) -> ArchivedRow | None:
        """Return the row of an instant in a file, from the cache or by reading row groups."""
        bounds = self._bounds.get(name)
        if bounds is not None:
            cached = [self._groups.get(name, number) for number in _may_contain(bounds, time)]
            for rows in cached:
                if rows is not None and (time, action) in rows:
                    return rows[time, action]
            if None not in cached:
                return None
        with self._opened(name) as file:
            self._bounds[name] = file.bounds
            for number in _may_contain(file.bounds, time):
                read, size = file.read(_CONTENT, [number])
                rows = {(row["instantTime"], row["action"]): row for row in read}
                self._groups.put(name, number, rows, size)
                if (time, action) in rows:
                    return rows[time, action]
        return None

    @contextmanager
    def _opened(self, name: str) -> Iterator[HistoryFile]:
        """Open a history file; name it in the errors of the block."""
        path = f"{self._folder}/{name}"
        full = f"{self._storage.base_path}/{path}"
        try:
            with self._storage.open_input(path, FileKind.ARCHIVE) as file:
                yield HistoryFile(file)
        except (pa.ArrowException, MemoryError, OSError, TypeError, ValueError) as exc:
            if isinstance(exc, OSError) and exc.errno is not None:
                raise StorageUnavailableError(f"{full}: {exc.strerror or exc}") from exc
            # Arrow reports damaged pages and lengths by the errors of a disk or of full memory.
            raise CorruptMetadataError(f"{full} is no history file: {exc}") from exc

    def _files(self, start: str, end: str) -> list[str]:
        """Return the names of the valid files that may contain instants of [start, end)."""
        if self._names is None:
            self._names = self._manifest()
        return [name for name in self._names if _may_hold(name, start, end)]

    def _again_while_files_vanish(self, read: Callable[[], T]) -> T:
        missing: PathNotFoundError | None = None
        for _ in range(_ATTEMPTS):
            try:
                # Repeat the whole read: the newer manifest lists a file with the rows of the
                # missing one.
                return read()
            except PathNotFoundError as exc:  # merged into another since the manifest was read
                missing, self._names = exc, None
        folder = f"{self._storage.base_path}/{self._folder}"
        raise CorruptMetadataError(
            f"{folder} names a file that isn't there: {missing}"
        ) from missing

    def _manifest(self) -> list[str]:
        """Read the names of the valid files."""
        version = self._version()
        if version is None:
            return []
        path = f"{self._folder}/manifest_{version}"
        data = self._storage.read(path, FileKind.ARCHIVE)
        where = f"{self._storage.base_path}/{path} ({len(data)} bytes)"
        if len(data) > MANIFEST_BYTES:
            raise CorruptMetadataError(f"{where}: allowed: at most {MANIFEST_BYTES} bytes")
        try:
            names = list(dict.fromkeys(str(entry["fileName"]) for entry in loads(data)["files"]))
            for name in names:
                checked_path(f"{self._folder}/{name}")
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise CorruptMetadataError(f"{where} is no manifest: {exc!r}") from exc
        return names

    def _version(self) -> int | None:
        """Return the number of the valid manifest, ``None`` if nothing was archived yet."""
        try:
            data = self._storage.read(f"{self._folder}/{_VERSION}", FileKind.ARCHIVE)
            text = data.decode("ascii", "replace")
            if _NUMBER.fullmatch(text.strip()):
                return int(text)
        except PathNotFoundError:
            pass
        # Its writer died between manifest and pointer: the newest manifest is valid.
        names = (_MANIFEST.fullmatch(entry.name) for entry in self._storage.list(self._folder))
        return max((int(match[1]) for match in names if match is not None), default=None)


class _RowGroups:
    """An LRU cache of history files' row groups, bounded by bytes; at least one is kept."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[tuple[str, int], tuple[_Rows, int]] = OrderedDict()

    def get(self, name: str, number: int) -> _Rows | None:
        """Return a row group if it is cached."""
        if (name, number) not in self._held:
            return None
        self._held.move_to_end((name, number))
        return self._held[name, number][0]

    def put(self, name: str, number: int, rows: _Rows, size: int) -> None:
        """Cache a row group; evict older ones to make room."""
        self._held[name, number] = rows, size
        self._held.move_to_end((name, number))
        while len(self._held) > 1 and sum(s for _, s in self._held.values()) > self._limit_bytes:
            self._held.popitem(last=False)


def _may_contain(bounds: Sequence[tuple[str, str]], time: str) -> list[int]:
    """Return the numbers of the row groups that may contain an instant of this time."""
    return [number for number, (first, last) in enumerate(bounds) if first <= time <= last]


def _may_hold(name: str, start: str, end: str) -> bool:
    """Return whether a file of this name may contain instants of [start, end)."""
    match = _FILE.fullmatch(name)
    return match is None or (match[1] < end and match[2] >= start)


ArchivedTimeline = HistoryArchive | LogArchive
"""The archived instants of a table and the content of their files."""


def read_archived_timeline(
    storage: Storage, config: TableConfig, *, modified_ms: int = 0
) -> ArchivedTimeline:
    """Open a table's archive; a table that never archived has an empty one.

    Args:
        storage: The table's storage.
        config: Its properties.
        modified_ms: In layout 1, older files are skipped, as in ``LogArchive``.
    """
    if config.layout_version == 1:
        return LogArchive(storage, config.archive_folder, modified_ms=modified_ms)
    return HistoryArchive(storage, config.archive_folder)
