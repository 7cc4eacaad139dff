"""Recorded tables, step by step, with data files in which every file has one row of its own.

Data files are kept of the last step alone; here each other one is made: a base file, or a log with
one block of its writer, with one row. Its record key is the file's name and no other row has it, so
that the rows of a scan are the files that were read, whole. Files of the last step are as recorded.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import pyarrow as pa

from fsview.model.file_group import BaseFile
from fsview.model.file_name import parse_data_file
from strandline.records.commit_history import CommitHistory
from strandline.records.file.base_file_writer import BaseFileWriter
from strandline.records.meta_fields import with_meta_fields
from strandline.records.schema.avro_schema import avro_with_meta_fields, readable_columns
from tests.kit.formats.log_files import avro_block
from tests.kit.storage.read_only import ReadOnlyStorage
from tests.kit.tables import golden
from timeline.errors import PathNotFoundError
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.base import FileInfo, StorageCalls

Files = Mapping[str, tuple[bytes | None, int]]
"""Path -> content and modification time; without content it is a directory."""
Hook = Callable[[str, str], None]
"""Gets kind and path of a call before it is done."""


@cache
def files(scenario: str, step: int) -> Files:
    """Return the files of a table after a step, and its empty directories."""
    known = golden.contents(scenario, step)
    kept = _final_files(scenario)
    found: dict[str, tuple[bytes | None, int]] = {}
    for entry in golden.listing(scenario, step):
        data: bytes | None = None
        if not entry.is_dir:
            data = known.get(entry.path, b"")
            if entry.path not in known:
                data = kept.get((entry.path, entry.size)) or _made(scenario, entry.path)
        found[entry.path] = (data, entry.mtime_ms)
    return found


def midway(before: Files, after: Files, half: int) -> Files:
    """Return the files while a clean, rollback or restore between two steps deletes files.

    It is under way, what it undoes isn't completed any more, and of the data files that it deletes
    every second is there.

    Args:
        before: The files before it.
        after: The files after it.
        half: 0 or 1: which of them are there.
    """
    found = {
        path: file
        for path, file in after.items()
        if path in before or not path.endswith((".clean", ".rollback", ".restore"))
    }
    gone = sorted(path for path in before if path not in after and not path.startswith(".hoodie/"))
    found |= {path: before[path] for path in gone[half::2]}
    pending = (path for path in before if path.endswith((".requested", ".inflight")))
    return {path: before[path] for path in pending if path.startswith(".hoodie/")} | found


@cache
def _final_files(scenario: str) -> dict[tuple[str, int], bytes]:
    """Return the data files of the last step by path and size."""
    found = {}
    data = golden._read(scenario, "final_table.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                found[member.name.removeprefix("./"), member.size] = file.read()
    return found


@cache
def _made(scenario: str, path: str) -> bytes:
    """Return a data file with one row; of other files nothing."""
    partition, _, name = path.rpartition("/")
    file = parse_data_file(partition, name, 0, 0, [".parquet"])
    if file is None:
        return b""
    schema = _schema(scenario)
    writer = file.instant if isinstance(file, BaseFile) else _writers(scenario).get(path, "")
    known = {
        "_hoodie_commit_time": writer,
        "_hoodie_commit_seqno": f"{writer}_0_0",
        "_hoodie_record_key": name,
        "_hoodie_partition_path": partition,
        "_hoodie_file_name": name,
    }
    columns = with_meta_fields(readable_columns(schema))
    row = {name: known.get(name) for name in columns.names}
    text = avro_with_meta_fields(schema)
    if not isinstance(file, BaseFile):
        return avro_block(writer, text, [row])
    stream = io.BytesIO()
    base = BaseFileWriter(stream, text)
    base.write(pa.Table.from_pylist([row], columns))
    base.close()
    return stream.getvalue()


@cache
def _schema(scenario: str) -> str:
    """Return the schema of the last step."""
    meta = TableMetaClient.open(golden.GoldenStorage(scenario, golden.steps(scenario)[-1]))
    schema = CommitHistory().avro_schema(meta, meta.active_timeline())
    assert schema is not None
    return schema


@cache
def _writers(scenario: str) -> dict[str, str]:
    """Return which instant wrote each log that a completed commit names."""
    found: dict[str, str] = {}
    for step in golden.steps(scenario):
        meta = TableMetaClient.open(golden.GoldenStorage(scenario, step))
        for instant in meta.active_timeline().write_timeline().completed():
            metadata = meta.read(instant)
            assert isinstance(metadata, CommitMetadata)
            for stats in metadata.partition_to_write_stats.values():
                found |= {stat.path: instant.requested_time for stat in stats if stat.path}
    return found


class FilledStorage(ReadOnlyStorage):
    """A table's files, which a test replaces at once, with a hook before each call.

    An open file is read range by range, as an object: each is a call, and fails when it's gone.
    """

    has_directories = False
    calls: StorageCalls

    def __init__(self, now: Files, base_path: str = "/filled/table") -> None:
        self.base_path = base_path
        self.calls = StorageCalls()
        self.now = now
        self.log: list[tuple[str, str]] = []
        self.hook: Hook | None = None

    def for_cause(self, cause: str) -> FilledStorage:
        """Return this storage itself, as a test changes it."""
        return self

    with_own_calls = keeping_tails = lambda self: self

    @contextmanager
    def before(self, hook: Hook) -> Iterator[None]:
        """Run a hook before each call within the block."""
        self.hook, self.log = hook, []
        try:
            yield
        finally:
            self.hook = None

    def begin(self, kind: str, path: str) -> None:
        """Log a call, and run the hook."""
        self.log.append((kind, path))
        if self.hook is not None:
            self.hook(kind, path)

    def list(self, path: str) -> tuple[FileInfo, ...]:
        self.begin("list", path)
        prefix = f"{path}/" if path else ""
        found: dict[str, FileInfo] = {}
        for name, (data, mtime) in self.now.items():
            if name.startswith(prefix):
                first, slash, _ = name[len(prefix) :].partition("/")
                is_dir = bool(slash) or data is None
                found[first] = FileInfo(first, 0 if is_dir else len(data or b""), mtime, is_dir)
        return tuple(found[name] for name in sorted(found))

    def stat(self, path: str) -> FileInfo | None:
        self.begin("stat", path)
        name = path.rpartition("/")[2]
        if path in self.now:
            data, mtime = self.now[path]
            return FileInfo(name, len(data or b""), mtime, is_dir=data is None)
        if any(other.startswith(f"{path}/") for other in self.now):
            return FileInfo(name, 0, 0, is_dir=True)
        return None

    def read(self, path: str, *about: object) -> bytes:
        self.begin("read", path)
        return self.content(path)

    def open_input(self, path: str, *about: object) -> pa.NativeFile:
        self.begin("open", path)
        return pa.PythonFile(_Object(self, path), mode="r")

    def content(self, path: str) -> bytes:
        """Return a file's content now."""
        data, _ = self.now.get(path, (None, 0))
        if data is None:
            raise PathNotFoundError(f"no file {self.base_path}/{path}")
        return data


class _Object(io.BytesIO):
    """An open file whose every read is a call."""

    def __init__(self, storage: FilledStorage, path: str) -> None:
        super().__init__(storage.content(path))
        self._call = lambda: (storage.begin("range", path), storage.content(path))

    def read(self, size: int | None = -1) -> bytes:
        self._call()
        return super().read(size)
