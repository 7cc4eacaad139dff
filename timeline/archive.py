"""Archived timelines: instants that were moved out of the active one.

From table version 8 on the archive is a log-structured merge tree in ``timeline/history``: Parquet
files ``<min>_<max>_<level>.parquet`` whose rows are instants (requested and completion time,
action, the bytes of the completed file and of the plan), sorted by requested time. ``manifest_<V>``
lists the files that count, ``_version_`` names the manifest. Files that were merged go away while
they may be being read; then the newer manifest has their rows. For version 6 see
``timeline.archive_log``.

Source: Hudi 1.2.0 ``ArchivedTimelineLoaderV2``, ``LSMTimeline``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from timeline import codec
from timeline.archive_log import LogArchive
from timeline.errors import (
    CorruptMetadataError,
    InstantNotFoundError,
    PathNotFoundError,
    StorageUnavailableError,
)
from timeline.instant import Instant, State, completed_action
from timeline.metadata import InstantMetadata
from timeline.storage.base import Storage, checked_path
from timeline.table_config import TableConfig
from timeline.timeline import Timeline

T = TypeVar("T")

_VERSION: Final = "_version_"
_MANIFEST: Final = re.compile(r"manifest_(\d+)")
_FILE: Final = re.compile(r"(\d+)_(\d+)_(\d+)\.parquet")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_ATTEMPTS: Final = 3

_COLUMNS: Final[Mapping[str, tuple[type, ...]]] = {
    "instantTime": (str,),
    "completionTime": (str, type(None)),
    "action": (str,),
    "metadata": (bytes, type(None)),
    "plan": (bytes, type(None)),
}
"""The columns of a history file and what they hold."""


class ArchivedTimeline(Protocol):
    """The instants of a table's archive and what their files said."""

    @property
    def timeline(self) -> Timeline:
        """The archived instants, each in the most advanced state that the archive has."""

    def completion_times(self, start: str, end: str) -> Mapping[str, str]:
        """Return requested → completion time of what completed, requested in [start, end)."""

    def read(self, instant: Instant) -> InstantMetadata:
        """Return what the file of an instant in its state said.

        Raises:
            InstantNotFoundError: It isn't in the archive.
            CorruptMetadataError: It can't be read.
        """

    def read_plan(self, instant: Instant) -> InstantMetadata:
        """Return the plan of an instant; empty where the archive keeps none."""


def read_archived_timeline(storage: Storage, config: TableConfig) -> ArchivedTimeline:
    """Open a table's archive; a table that never archived has an empty one."""
    if config.layout_version == 1:
        return LogArchive(storage, config.archive_folder)
    return HistoryArchive(storage, config.archive_folder)


class HistoryArchive:
    """The archived instants of a table of version 8 or later, read when asked for."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    @cached_property
    def timeline(self) -> Timeline:
        """The archived instants, all completed."""
        rows = self._rows(("instantTime", "completionTime", "action"), "", "~")
        return Timeline.of(
            Instant(row["instantTime"], row["action"], State.COMPLETED, row["completionTime"])
            for row in rows
        )

    def completion_times(self, start: str, end: str) -> Mapping[str, str]:
        """Return requested → completion time of what completed, requested in [start, end)."""
        rows = self._rows(("instantTime", "completionTime"), start, end)
        return {
            row["instantTime"]: row["completionTime"] or row["instantTime"]
            for row in rows
            if start <= row["instantTime"] < end
        }

    def read(self, instant: Instant) -> InstantMetadata:
        """Return what the completed file of an instant said."""
        kind = codec.metadata_type(instant.action, instant.state)
        return codec.decode(kind, self._bytes(instant, "metadata"), source=self._source(instant))

    def read_plan(self, instant: Instant) -> InstantMetadata:
        """Return the plan of an instant; empty where the archive keeps none."""
        kind = codec.plan_type(instant.action)
        return codec.decode(kind, self._bytes(instant, "plan"), source=self._source(instant))

    def _bytes(self, instant: Instant, column: str) -> bytes:
        time = instant.requested_time
        for row in self._rows(("instantTime", "action", column), time, f"{time}~"):
            if (row["instantTime"], row["action"]) == (time, completed_action(instant.action)):
                return row[column] or b""
        raise InstantNotFoundError(f"{instant} is not in {self._source(instant)}")

    def _source(self, instant: Instant) -> str:
        return f"{self._storage.base_path}/{self._folder}, instant {instant.requested_time}"

    def _rows(self, columns: Iterable[str], start: str, end: str) -> list[dict[str, Any]]:
        """Return the rows of the files that may hold instants of [start, end)."""
        wanted = list(columns)

        def read() -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = []
            for name in self._files():
                match = _FILE.fullmatch(name)
                if match is None or (match[1] < end and match[2] >= start):
                    rows += self._read_file(name, wanted)
            return rows

        return _again_while_files_vanish(read, f"{self._storage.base_path}/{self._folder}")

    def _read_file(self, name: str, columns: list[str]) -> list[dict[str, Any]]:
        path = f"{self._folder}/{name}"
        full = f"{self._storage.base_path}/{path}"
        try:
            with self._storage.open_input(path) as file:
                table = pq.read_table(file, columns=columns, use_threads=False)
            found: list[dict[str, Any]] = table.to_pylist()
        except (pa.ArrowException, MemoryError, OSError, ValueError) as exc:
            if isinstance(exc, OSError) and exc.errno is not None:
                raise StorageUnavailableError(f"{full}: {exc.strerror or exc}") from exc
            # Arrow says of damaged pages and lengths what it says of a disk or a full memory.
            raise CorruptMetadataError(f"{full} is no history file: {exc}") from exc
        types = [(name, _COLUMNS[name]) for name in columns]
        for row in found:
            for name, allowed in types:
                if not isinstance(row.get(name), allowed):
                    raise CorruptMetadataError(
                        f"{full} is no history file: its {name} is {row.get(name)!r:.80}"
                    )
        return found

    def _files(self) -> list[str]:
        """Return the names of the files that count."""
        version = self._version()
        if version is None:
            return []
        path = f"{self._folder}/manifest_{version}"
        data = self._storage.read(path)
        try:
            names = [str(entry["fileName"]) for entry in json.loads(data)["files"]]
            for name in names:
                checked_path(f"{self._folder}/{name}")
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise CorruptMetadataError(
                f"{self._storage.base_path}/{path} ({len(data)} bytes) is no manifest: {exc!r}"
            ) from exc
        return names

    def _version(self) -> int | None:
        """Return the number of the manifest that counts, ``None`` when nothing was archived yet."""
        try:
            text = self._storage.read(f"{self._folder}/{_VERSION}").decode("ascii", "replace")
            if _NUMBER.fullmatch(text.strip()):
                return int(text)
        except PathNotFoundError:
            pass
        # Its writer died between manifest and pointer: the newest manifest counts.
        names = (_MANIFEST.fullmatch(entry.name) for entry in self._storage.list(self._folder))
        return max((int(match[1]) for match in names if match is not None), default=None)


def _again_while_files_vanish(read: Callable[[], T], folder: str) -> T:
    missing: PathNotFoundError | None = None
    for _ in range(_ATTEMPTS):
        try:
            return read()
        except PathNotFoundError as exc:  # merged into another since the manifest was read
            missing = exc
    raise CorruptMetadataError(f"{folder} names a file that isn't there: {missing}") from missing
