"""``HistoryWriter`` adds instants to the archive of versions 8 and 9, a log-structured merge tree.

    Parquet file → manifest_<V+1> → _version_

The last step makes the file visible; in the first archival, with no ``_version_`` to replace, the
manifest does. A crash before it leaves files that no valid manifest names; the next archival
replaces them. Then files of a level are merged into one of the next, and old manifests and files
that none of the kept ones names are deleted.

Source: Hudi 1.2.0 ``LSMTimelineWriter``, ``MetadataConversionUtils.createLSMTimelineInstant``.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.table_services.archive.content import ArchivedFiles, Key
from strandline.table_services.archive.policy import ArchiveSettings
from timeline.archive.history_file import COLUMNS, FILE_ROWS, HistoryFile
from timeline.archive.history_folder import (
    MANIFEST,
    VERSION,
    manifest_entries,
    opened,
    valid_manifest,
)
from timeline.encoding import avro
from timeline.errors import CorruptMetadataError, PathNotFoundError
from timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    Instant,
    State,
)
from timeline.storage.base import Storage

_FILE: Final = re.compile(r"(\d+)_(\d+)_(\d+)\.parquet", re.ASCII)
_GROUP_ROWS: Final = 1000
_GROUP_BYTES: Final = 32 << 20
"""Bytes of values in a row group from which on another one begins."""

SCHEMA: Final = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_RECORD: Final = "HoodieLSMTimelineInstant"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A file of the archive, as a manifest names it.

    Attributes:
        name: ``<min>_<max>_<level>.parquet``.
        size: Its bytes.
    """

    name: str
    size: int

    @property
    def parts(self) -> tuple[str, str, int]:
        """First and last requested time, and level."""
        match = _FILE.fullmatch(self.name)
        assert match is not None
        return match[1], match[2], int(match[3])


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest: its number, 0 if nothing was archived yet, and its files."""

    number: int
    files: tuple[HistoryEntry, ...]


class HistoryWriter:
    """Writes the archive of one table; its methods are called under the table's lock.

    Args:
        storage: The table's storage.
        folder: The archive's folder.
        settings: The archiver's settings.
        most_rows: Rows of a file that a merge makes.
        check_lock: As in ``Archiver``.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        settings: ArchiveSettings,
        *,
        most_rows: int = FILE_ROWS,
        check_lock: Callable[[], object] = lambda: None,
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._settings = settings
        self._most_rows = most_rows
        self._check_lock = check_lock

    def manifest(self) -> Manifest:
        """Read the valid manifest.

        Raises:
            CorruptMetadataError: It is damaged.
        """
        number = valid_manifest(self._storage, self._folder) or 0
        return Manifest(number, tuple(self._files_of(number)) if number else ())

    def archived(self, manifest: Manifest, first: str) -> set[Key]:
        """Return the archived instants in the files that reach up to a requested time.

        Cost: a read of each such file; usually none, as archived instants are older.
        """
        found: set[Key] = set()
        for entry in manifest.files:
            if entry.parts[1] >= first:
                with self._opened(entry.name) as file:
                    rows = file.read(("instantTime", "action"))[0]
                found.update((row["instantTime"], row["action"]) for row in rows)
        return found

    def add(self, manifest: Manifest, rows: Iterator[Mapping[str, Any]], span: Key) -> Manifest:
        """Write instants to a file of level 0 and make it visible.

        Args:
            manifest: The valid manifest.
            rows: The instants by requested time, as rows of ``SCHEMA``.
            span: First and last requested time.
        """
        entry = self._write(f"{span[0]}_{span[1]}_0.parquet", rows)
        return self._publish(manifest, (*manifest.files, entry))

    def merge(self, manifest: Manifest) -> Manifest:
        """Merge small files level by level, then delete what isn't valid any more.

        Files stay that together have more rows than readers allow.
        """
        level = 0
        while chosen := self._to_merge(manifest, level):
            first = min(entry.parts[0] for entry in chosen)
            last = max(entry.parts[1] for entry in chosen)
            if sum(self._count(entry.name) for entry in chosen) > self._most_rows:
                break
            rows = (row for entry in chosen for row in self._rows(entry.name))
            merged = self._write(f"{first}_{last}_{level + 1}.parquet", rows)
            left = [entry for entry in manifest.files if entry not in chosen]
            manifest = self._publish(manifest, (*left, merged))
            level += 1
        self._delete_old(self._settings.manifests + level)
        return manifest

    def _to_merge(self, manifest: Manifest, level: int) -> list[HistoryEntry]:
        """Return the oldest files of a level that are merged now, none if there are too few."""
        files = sorted(
            (entry for entry in manifest.files if entry.parts[2] == level),
            key=lambda entry: entry.parts,
        )
        if len(files) < self._settings.merged_files:
            return []
        chosen: list[HistoryEntry] = []
        size = 0
        for entry in files:
            chosen.append(entry)
            size += entry.size
            if len(chosen) >= self._settings.merged_files:
                break
            if size > self._settings.merged_bytes:
                if len(chosen) >= 2:
                    break
                chosen, size = [], 0
        return chosen if len(chosen) >= 2 else []

    def _write(self, name: str, rows: Iterator[Mapping[str, Any]]) -> HistoryEntry:
        data = _parquet(_grouped(rows), "gzip")
        if not _expands_within_bounds(data):
            file = pq.ParquetFile(io.BytesIO(data))
            groups = map(file.read_row_group, range(file.num_row_groups))
            data = _parquet(groups, "none")
        # No valid manifest names a file of this name: at most a crash has left it.
        self._storage.replace(f"{self._folder}/{name}", data)
        return HistoryEntry(name, len(data))

    def _publish(self, before: Manifest, files: Sequence[HistoryEntry]) -> Manifest:
        number = before.number + 1
        listed = [{"fileName": entry.name, "fileLen": entry.size} for entry in files]
        text = json.dumps({"files": listed}, indent=2)
        # A crash may have left a manifest of this number that never became valid. One of another
        # archiver, which has the lock by now, would be replaced, too, and its instants lost.
        self._check_lock()
        self._storage.replace(f"{self._folder}/manifest_{number}", text.encode())
        self._storage.replace(f"{self._folder}/{VERSION}", str(number).encode())
        return Manifest(number, tuple(files))

    def _delete_old(self, kept: int) -> None:
        """Delete manifests but the newest, then files that none of these names."""
        entries = self._storage.list(self._folder)
        matches = (MANIFEST.fullmatch(entry.name) for entry in entries)
        numbers = sorted((int(m[1]) for m in matches if m is not None), reverse=True)
        if len(numbers) <= kept:
            return
        valid = {entry.name for number in numbers[:kept] for entry in self._files_of(number)}
        # Without the lock this could be a file that another archiver's manifest is about to name.
        self._check_lock()
        for number in numbers[kept:]:
            self._storage.delete(f"{self._folder}/manifest_{number}")
        for entry in entries:
            if _FILE.fullmatch(entry.name) and entry.name not in valid:
                self._storage.delete(f"{self._folder}/{entry.name}")

    def _files_of(self, number: int) -> list[HistoryEntry]:
        return manifest_entries(self._storage, self._folder, number, _entry_of)

    def _count(self, name: str) -> int:
        with self._opened(name) as file:
            return file.rows

    def _rows(self, name: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of a file, of which one row group is in memory."""
        with self._opened(name) as file:
            for group in range(len(file.bounds)):
                for row in file.read(tuple(COLUMNS), [group])[0]:
                    yield {**row, "version": 1}

    @contextmanager
    def _opened(self, name: str) -> Iterator[HistoryFile]:
        try:
            with opened(self._storage, self._folder, name) as file:
                yield file
        except PathNotFoundError as exc:
            full = f"{self._storage.base_path}/{self._folder}/{name}"
            raise CorruptMetadataError(f"a manifest names {full}, which isn't there") from exc


def _entry_of(file: Mapping[str, Any]) -> HistoryEntry:
    entry = HistoryEntry(str(file["fileName"]), int(file["fileLen"]))
    if _FILE.fullmatch(entry.name) is None:
        raise ValueError(f"it names {entry.name[:200]!r}; allowed: <min>_<max>_<level>.parquet")
    return entry


def _parquet(tables: Iterable[pa.Table], compression: str) -> bytes:
    stream = io.BytesIO()
    # No dictionary, which would store a repeated plan once: readers bound the expansion.
    with pq.ParquetWriter(
        stream, SCHEMA, compression=compression, use_dictionary=False, store_schema=False
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=_GROUP_ROWS)
        writer.add_key_value_metadata({"parquet.avro.schema": avro.schema_text(_RECORD)})
    return stream.getvalue()


def _expands_within_bounds(data: bytes) -> bool:
    """Whether readers accept a file; they refuse thousands of rows that are nearly alike."""
    try:
        HistoryFile(pa.BufferReader(data))
    except ValueError:
        return False
    return True


def row_of(files: ArchivedFiles, contents: Mapping[Instant, bytes]) -> dict[str, Any]:
    """Return the row of an instant.

    Args:
        files: Its files.
        contents: Their contents.
    """
    instant = files.instant
    return {
        "instantTime": instant.requested_time,
        "completionTime": instant.completion_time,
        "action": instant.action,
        "metadata": contents[instant] or None,
        "plan": _plan_of(files, contents),
        "version": 1,
    }


def _plan_of(files: ArchivedFiles, contents: Mapping[Instant, bytes]) -> bytes | None:
    """Return the plan's bytes, for the actions of which the archive keeps it."""
    if not files.pending:
        return None
    requested, inflight = (files.pending_in(s) for s in (State.REQUESTED, State.INFLIGHT))
    found = [contents[state] for state in (requested, inflight) if state is not None]
    action = files.pending[0].action
    if action == CLEAN:
        return found[0] or None
    if action in (REPLACE_COMMIT, CLUSTERING):
        # Hudi's archive keeps the profile of an inflight replacecommit in place of the plan.
        return next((data for data in reversed(found) if data), None)
    if action in (COMPACTION, LOG_COMPACTION) and requested is not None:
        return contents[requested] or None
    return None


def _grouped(rows: Iterator[Mapping[str, Any]]) -> Iterator[pa.Table]:
    """Yield rows as tables of bounded size."""
    group: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row["metadata"] or b"") + len(row["plan"] or b"")
        if len(group) >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_pylist(group, SCHEMA)
            group, size = [], 0
    if group:
        yield pa.Table.from_pylist(group, SCHEMA)
