"""The files that a commit wrote: read from its metadata a part at a time, without the statistics.

The metadata of a large commit is a hundred megabytes, and ten times that as values. Who wants the
files alone reads it here: of JSON about a megabyte is parsed at a time, of Avro only the fields
that are wanted. What is damaged is refused as ``timeline.metadata.codec`` refuses it, but for
statistics, which nobody looks at.

Source: Hudi 1.2.0 ``CommitMetadataSerDeV1``/``V2``, ``HoodieWriteStat``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from timeline.encoding import avro
from timeline.encoding.json_cursor import JsonCursor
from timeline.encoding.json_text import bounded_loads
from timeline.errors import CorruptMetadataError
from timeline.metadata import shape as _shapes
from timeline.metadata.codec import COMMIT_RECORDS, WRITE_STATS
from timeline.metadata.instant_metadata import NULL_COMMIT, CommitMetadata

BATCH_BYTES: Final = 1 << 20
"""How much of a JSON array is parsed at once."""

_WANTED: Final = {
    **dict.fromkeys(COMMIT_RECORDS, (WRITE_STATS,)),
    "HoodieWriteStat": ("path", "fileSizeInBytes", "prevCommit", "logOffset", "cdcStats"),
}
_WANTED_OF_COMMITS: Final = {"HoodieWriteStat": _WANTED["HoodieWriteStat"]}
"""The fields of Avro records that are read."""

WrittenFile = tuple[str, int, bool]
"""Name; bytes; whether it is a log that was there before, and grew to that size."""


@dataclass(slots=True)
class WrittenFiles:
    """Files that a commit wrote in one partition: all of them, or a part.

    Attributes:
        partition: Path under the base path.
        sizes: File name → bytes; with those of change data.
        previous: Requested times of the instants whose files they supersede.
        is_complete: Whether every stat named a file.
    """

    partition: str
    sizes: dict[str, int] = field(default_factory=dict)
    previous: set[str] = field(default_factory=set)
    is_complete: bool = True

    def add(self, stats: Iterable[Any]) -> None:
        """Add what write stats say, as they stand in the record.

        Raises:
            ValueError: A stat isn't one.
        """
        sizes, previous = self.sizes, self.previous
        for stat in stats:
            if stat is None:
                continue
            if type(stat) is not dict:
                raise ValueError(f"{type(stat).__name__} where a write stat belongs")
            path = stat.get("path")
            if path:
                sizes[_name(path)] = _size(stat.get("fileSizeInBytes"))
            else:
                self.is_complete = False
            previous.add(stat.get("prevCommit") or NULL_COMMIT)
            cdc = stat.get("cdcStats")
            if cdc:
                sizes.update((_name(path), _size(size)) for path, size in cdc.items())


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """What a completed commit says of files.

    Attributes:
        said: All that it says but for its write stats.
        files: Partition → what it wrote there, change data included.
    """

    said: CommitMetadata
    files: Mapping[str, Sequence[WrittenFile]]

    @classmethod
    def of(cls, metadata: CommitMetadata) -> CommitFiles:
        """Return what metadata that was read as a whole says."""
        files: dict[str, list[WrittenFile]] = {}
        for partition, stats in metadata.partition_to_write_stats.items():
            found = files[partition] = []
            for stat in stats:
                size, offset = stat.file_size_in_bytes, stat.log_offset
                _add_stat(found, stat.path, size, offset, stat.cdc_stats)
        return cls(replace(metadata, partition_to_write_stats={}), files)

    @property
    def says_nothing(self) -> bool:
        """Whether it is as empty as an empty file."""
        return not self.files and self.said == CommitMetadata()


def commit_files(
    data: bytes, *, source: str = "metadata", batch_bytes: int = BATCH_BYTES
) -> CommitFiles:
    """Return what a completed commit says of files.

    Args:
        data: The whole file; empty for a commit that says nothing.
        source: Its path, for the error.
        batch_bytes: How much JSON is parsed at once.

    Raises:
        CorruptMetadataError: The bytes are damaged, cut off, or of another kind; a file has a
            negative size.

    Cost: about 3 us a file of JSON, 8 us of Avro.
    """
    if not data:
        return CommitFiles(CommitMetadata(), {})
    files: dict[str, list[WrittenFile]] = {}
    try:
        if data.startswith(avro.MAGIC) or len(data) <= batch_bytes:
            said = _whole(data)
            by_partition = said.pop(WRITE_STATS, None)
            for partition, stats in () if by_partition is None else by_partition.items():
                if stats is not None:
                    _add_files(files.setdefault(_text(partition), []), stats)
        else:
            said = {}
            for partition, stats in _parts_of_json(data, batch_bytes, said):
                _add_files(files.setdefault(_text(partition), []), stats)
        return CommitFiles(_shapes.load(CommitMetadata, said), files)
    except (ValueError, TypeError, AttributeError, RecursionError) as exc:
        raise _corrupt(data, source, exc) from exc


def _whole(data: bytes) -> dict[str, Any]:
    if data.startswith(avro.MAGIC):
        return _avro_record(data, _WANTED_OF_COMMITS)
    record = bounded_loads(data)
    if type(record) is not dict or WRITE_STATS not in record:
        raise ValueError(f"it has no {WRITE_STATS}")
    return record


def _add_files(files: list[WrittenFile], stats: Any) -> None:
    """Add what write stats say, as they stand in the record."""
    if type(stats) is not list:
        raise ValueError(f"{type(stats).__name__} where write stats belong")
    for stat in stats:
        if stat is None:
            continue
        if type(stat) is not dict:
            raise ValueError(f"{type(stat).__name__} where a write stat belongs")
        get = stat.get
        size, offset = _length(get("fileSizeInBytes")), get("logOffset")
        _add_stat(files, get("path"), size, offset and _length(offset), get("cdcStats"))


def _add_stat(
    files: list[WrittenFile],
    path: str | None,
    size: int,
    offset: int | None,
    cdc: Mapping[str, Any] | None,
) -> None:
    """Add the files that a write stat names.

    What an append says is how much was written, and where in the log that begins.
    """
    if path:
        files.append((_name(path), size + (offset or 0), bool(offset)))
    if cdc:
        files += (
            (_name(log), _length(size), False) for log, size in cdc.items() if size is not None
        )


def written_files(
    data: bytes, *, source: str = "metadata", batch_bytes: int = BATCH_BYTES
) -> Iterator[WrittenFiles]:
    """Yield what a completed commit wrote, partition by partition; a large one in several parts.

    Args:
        data: The whole file.
        source: Its path, for the error.
        batch_bytes: How much of one partition's JSON is parsed at once.

    Raises:
        CorruptMetadataError: The bytes are damaged, cut off, or of another kind. Some parts may
            have been yielded before.

    Cost: about 3 us a file of JSON, 9 us of Avro.
    """
    try:
        is_avro = data.startswith(avro.MAGIC)
        yield from _of_avro(data) if is_avro else _of_json(data, batch_bytes)
    except (ValueError, TypeError, AttributeError, RecursionError) as exc:
        raise _corrupt(data, source, exc) from exc


def _corrupt(data: bytes, source: str, exc: Exception) -> CorruptMetadataError:
    return CorruptMetadataError(f"{source} ({len(data)} bytes) is no CommitMetadata: {exc}")


def _name(path: Any) -> str:
    if type(path) is not str:
        raise ValueError(f"path: {type(path).__name__} where str belongs")
    return _text(path).rpartition("/")[2]


def _text(text: str) -> str:
    if not text.isascii():
        text.encode()  # JSON has halves of characters, which no name can hold
    return text


def _size(size: Any) -> int:
    if size is None:
        return 0
    if type(size) is not int or not -(1 << 63) <= size < 1 << 63:
        raise ValueError(f"fileSizeInBytes: {size!r:.40} where a number of 64 bits belongs")
    return size


def _length(size: Any) -> int:
    if type(size) is int and 0 <= size < 1 << 63:
        return size
    if _size(size) < 0:
        raise ValueError("it has a file of negative size")
    return 0


def _avro_record(data: bytes, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    return avro.read_container(data, names=COMMIT_RECORDS, wanted=wanted)


def _of_avro(data: bytes) -> Iterator[WrittenFiles]:
    record = _avro_record(data, _WANTED)
    for partition, stats in (record.get(WRITE_STATS) or {}).items():
        written = WrittenFiles(partition)
        written.add(stats or ())
        yield written


def _of_json(data: bytes, batch_bytes: int) -> Iterator[WrittenFiles]:
    for partition, stats in _parts_of_json(data, batch_bytes, {}):
        written = WrittenFiles(partition)
        written.add(stats)
        yield written


def _parts_of_json(
    data: bytes, batch_bytes: int, said: dict[str, Any]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield partitions with their write stats, large ones in parts; ``said`` gets the rest."""
    cursor = JsonCursor(data, batch_bytes)
    found = False
    for member in cursor.members():
        if member != WRITE_STATS:
            said[member] = cursor.value()
            continue
        found = True
        if not cursor.null():
            for partition in cursor.members():
                yield from _parts_of_partition(cursor, partition)
    cursor.end()
    if not found:
        raise ValueError(f"it has no {WRITE_STATS}")


def _parts_of_partition(cursor: JsonCursor, partition: str) -> Iterator[tuple[str, list[Any]]]:
    if cursor.null():
        return
    empty = True
    for stats in cursor.batches():
        empty = False
        yield partition, stats
    if empty:
        yield partition, []
