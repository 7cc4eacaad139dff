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
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from timeline.archive.history_folder import manifest_entries, opened, valid_manifest
from timeline.archive.log_archive import LogArchive
from timeline.errors import CorruptMetadataError, InstantNotFoundError, PathNotFoundError
from timeline.instant import Instant, State, completed_action
from timeline.metadata import codec
from timeline.metadata.instant_metadata import InstantMetadata
from timeline.storage.base import Storage, checked_path
from timeline.table.config import TableConfig
from timeline.timeline import Timeline

if TYPE_CHECKING:
    from timeline.archive.history_file import ArchivedRow

T = TypeVar("T")

_FILE: Final = re.compile(r"(\d+)_(\d+)_(\d+)\.parquet")
_ATTEMPTS: Final = 3

_Rows = Mapping[tuple[str, str], "ArchivedRow"]
"""(requested time, action) → row."""

_CONTENT: Final = ("instantTime", "action", "metadata", "plan")

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
                with opened(self._storage, self._folder, name) as file:
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
        with opened(self._storage, self._folder, name) as file:
            self._bounds[name] = file.bounds
            for number in _may_contain(file.bounds, time):
                read, size = file.read(_CONTENT, [number])
                rows = {(row["instantTime"], row["action"]): row for row in read}
                self._groups.put(name, number, rows, size)
                if (time, action) in rows:
                    return rows[time, action]
        return None

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
        version = valid_manifest(self._storage, self._folder)
        if version is None:
            return []

        def name_of(entry: Mapping[str, Any]) -> str:
            name = str(entry["fileName"])
            checked_path(f"{self._folder}/{name}")
            return name

        return manifest_entries(self._storage, self._folder, version, name_of)


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
