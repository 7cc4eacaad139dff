"""The bucket index: a hash of the key names the file group, so nothing is looked up.

``BucketCountTask`` counts the rows of each partition and bucket. The driver opens a file group for
each bucket that has none and gets a row that isn't a delete. ``BucketTagTask`` then tags each row
with its bucket's file, so rows move once, to the task that writes them. That task combines rows
with one key.

Deletes whose bucket still has no file group have nothing to delete and are dropped. Deletes in a
newly opened bucket are kept: they may be newer than another row of the write with the same key.

A record's bucket is ``(h & 0x7fffffff) % buckets``, where h is Java's ``List.hashCode`` of the
values of the hash fields: 31-fold sums of ``String.hashCode``, which is itself a 31-fold sum of
UTF-16 code units. The values are parsed out of the record key, whose form is ``name:value,...`` if
it has several columns. The file group of bucket 7 has the id ``00000007-...``: eight decimal digits
in place of a UUID's first block.

Source: Hudi 1.2.0 ``HoodieSimpleBucketIndex``, ``SparkBucketIndexPartitioner``,
``BucketIdentifier``, ``KeyGenUtils.extractRecordKeysByFields``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.merge_rule import MergeProperties
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.row_selection import Mask, Positions, one_chunk
from strandline.write.engine.base import D, EngineContext, Tally, TaskAttempt
from strandline.write.index.base import TAGGED, KeyedRows, SearchScope, TaggedRows, Tagging
from strandline.write.operation import Operation, Replaces
from strandline.write.options.index_settings import BUCKET as BUCKET_INDEX
from strandline.write.options.index_settings import BUCKETS, INDEX_TYPE
from strandline.write.tasks.columns import (
    BUCKET,
    FILE,
    KEY_HASH,
    ROW_NUMBER_FIELD,
    ROWS,
    RowCount,
    add_counts,
    as_numbers,
    by_partition,
    changed,
    count_rows,
    counted_by,
    counts_of,
    fill_from,
    refuse_changed,
    refuse_without_key,
    tagged_schema,
)
from strandline.write.tasks.placement import StoredFile
from timeline.errors import UnsupportedTableError

DELETES: Final = "deletes"
"""Whether the rows of a count are deletes."""
COUNT_SCHEMA: Final = pa.schema(
    [
        (PARTITION_PATH, pa.string()),
        (BUCKET, pa.int32()),
        (DELETES, pa.bool_()),
        (ROWS, pa.int64()),
        (KEY_HASH, pa.int64()),
    ]
)
"""Number of rows in a partition's bucket, separately for deletes and other rows."""
_NONE: Final = -1

_LIKELY_BUCKETS: Final = 10_000
"""Above any sensible number of buckets; two in a million UUIDs start with a smaller number."""

BucketNumberArray = npt.NDArray[np.int32]
_DIGITS: Final = 8
_FILE_ID: Final = re.compile(r"[0-9]{8}-.+", re.ASCII)
_FACTOR: Final = np.uint32(31)
_POSITIVE: Final = np.uint32(0x7FFF_FFFF)
_NULL: Final = "__null__"
_EMPTY: Final = "__empty__"


class BucketNumbers:
    """A number for some buckets of some partitions, found for many rows at once.

    Args:
        numbers: (partition path, bucket) → its number, 0 or more.
        buckets: Number of buckets of a partition.
    """

    def __init__(self, numbers: Mapping[tuple[str, int], int], buckets: int) -> None:
        self._buckets = buckets
        self._paths = pa.array(sorted({path for path, _ in numbers}), pa.string())
        at = {path: position for position, path in enumerate(self._paths.to_pylist())}
        codes = np.array([at[path] * buckets + b for path, b in numbers], np.int64)
        order = np.argsort(codes)
        self._codes = codes[order]
        self._numbers = np.array([*numbers.values(), _NONE], np.int64)[[*order, _NONE]]

    def of(self, paths: pa.Array, buckets: npt.NDArray[np.int32]) -> Positions:
        """Return the number of each row's bucket; -1 if it has none."""
        coded = paths.dictionary_encode()
        known = pc.fill_null(pc.index_in(coded.dictionary, value_set=self._paths), _NONE)
        codes = known.to_numpy().astype(np.int64)[coded.indices.to_numpy()]
        wanted = np.where(codes == _NONE, np.int64(_NONE), codes * self._buckets + buckets)
        at = np.searchsorted(self._codes, wanted)
        hit = np.append(self._codes, _NONE - 1)[at] == wanted
        found: Positions = np.where(hit, self._numbers[np.minimum(at, len(self._codes))], _NONE)
        return found


@dataclass(frozen=True, slots=True)
class BucketRule:
    """Finds the buckets of rows.

    Attributes:
        buckets: Number of buckets of a partition.
        hash_fields: Columns of the record key that are hashed.
        all_deletes: Whether all rows are deletes, not only those that are marked.
        properties: Which rows are marked as deletes.
    """

    buckets: int
    hash_fields: tuple[str, ...]
    all_deletes: bool
    properties: MergeProperties = field(default_factory=MergeProperties)

    def numbered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, Mask]]:
        """Yield the rows of each batch with the column ``BUCKET``, and where they are deletes."""
        for batch in batches:
            if not batch.num_rows:
                continue
            refuse_without_key(batch)
            rows = pa.Table.from_batches([batch])
            numbers = bucket_numbers(batch.column(RECORD_KEY), self.hash_fields, self.buckets)
            deletes = self.properties.deletes(rows) | self.all_deletes
            yield rows.append_column(BUCKET, pa.array(numbers)), deletes


@dataclass(frozen=True, slots=True)
class BucketCountTask:
    """Counts rows by partition and bucket, deletes separately from other rows.

    Attributes:
        rule: Finds the rows' buckets.
        tally: Takes the counts of all rows.
        attempt: Returns the running attempt.
    """

    rule: BucketRule
    tally: Tally
    attempt: Callable[[], TaskAttempt]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of ``COUNT_SCHEMA``."""
        read: dict[str, RowCount] = {}
        for rows, deletes in self.rule.numbered(batches):
            add_counts(read, counts_of(rows))
            columns = rows.select([PARTITION_PATH, BUCKET, KEY_HASH])
            columns = columns.append_column(DELETES, pa.array(deletes))
            yield from count_rows(columns, [PARTITION_PATH, BUCKET, DELETES], COUNT_SCHEMA)
        self.tally.add(as_numbers(TAGGED, self.attempt(), read))


@dataclass(frozen=True, slots=True)
class BucketTagTask:
    """Turns keyed rows into tagged rows.

    Attributes:
        schema: The columns of the rows.
        rule: Finds the rows' buckets.
        files: (partition path, bucket) → number of its file. Deletes of other buckets are dropped.
    """

    schema: pa.Schema
    rule: BucketRule
    files: Mapping[tuple[str, int], int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield tagged rows.

        Raises:
            RowsChangedError: A row came that wasn't there when the rows were counted.
        """
        form = tagged_schema(self.schema)
        known = BucketNumbers(self.files, self.rule.buckets)
        for rows, deletes in self.rule.numbered(batches):
            paths = one_chunk(rows.column(PARTITION_PATH))
            numbers = known.of(paths, one_chunk(rows.column(BUCKET)).to_numpy())
            if (~deletes & (numbers == _NONE)).any():
                path = paths[int(np.argmax(~deletes & (numbers == _NONE)))].as_py()
                raise changed(path, "rows of a bucket weren't counted")
            tagged = rows.append_column(FILE, pa.array(numbers, pa.int32()))
            if (numbers == _NONE).any():
                tagged = tagged.filter(pa.array(numbers != _NONE))
            for batch in tagged.combine_chunks().to_batches():
                yield fill_from(form, batch)


def stored_buckets(
    partition: str, files: Iterable[StoredFile], buckets: int
) -> Mapping[int, StoredFile]:
    """Return bucket → the newest base file of its file group.

    Args:
        partition: The partition path.
        files: Its newest base files.
        buckets: Number of buckets of a partition.

    Raises:
        UnsupportedTableError: A file id names no bucket, a bucket that is too large, or the bucket
            of another file.
    """
    found: dict[int, StoredFile] = {}
    for file in files:
        bucket = bucket_of(file.file_id)
        if bucket is None:
            raise UnsupportedTableError(
                f"file {file.name} of partition {partition!r} isn't one of a bucket index",
                hint=f"leave {INDEX_TYPE.name}={BUCKET_INDEX} out, or write to another base path",
            )
        if bucket >= buckets:
            raise UnsupportedTableError(
                f"file {file.name} of partition {partition!r} has bucket {bucket}, but"
                f" {BUCKETS.name} is {buckets}",
                hint="set the number of buckets that the table was created with",
            )
        other = found.setdefault(bucket, file)
        if other is not file:
            raise UnsupportedTableError(
                f"files {other.name} and {file.name} of partition {partition!r} have the same"
                f" bucket, {bucket}",
                hint="roll back the commit that opened the second file group; bulk inserts of"
                " Hudi's do so",
            )
    return found


def refuse_bucket_files(partition: str, files: Iterable[StoredFile]) -> None:
    """Refuse a partition whose files all belong to a bucket index, for a writer with another index.

    Hudi doesn't record that a table has a bucket index, but its file ids begin with small numbers.

    Raises:
        UnsupportedTableError: All files belong to a bucket index.
    """
    numbers = [bucket_of(file.file_id) for file in files]
    if numbers and all(each is not None and each < _LIKELY_BUCKETS for each in numbers):
        raise UnsupportedTableError(
            f"the files of partition {partition!r} are those of a bucket index, which another index"
            " would break",
            hint=f"set {INDEX_TYPE.name}={BUCKET_INDEX} and {BUCKETS.name} as when it was created",
        )


@dataclass(frozen=True, slots=True)
class BucketTagging(Tagging[D]):
    """Tags the rows of one write of a table with a bucket index.

    Attributes:
        engine: Runs the tasks.
        buckets: Number of buckets of a partition.
        hash_fields: Columns of the record key that are hashed.
        operation: The kind of write.
        tally: Gets the tasks' counts.
        combine_inserts: Whether rows with one key are combined although keys aren't compared.
        properties: Which rows are deletes.
    """

    engine: EngineContext[D]
    buckets: int
    hash_fields: tuple[str, ...]
    operation: Operation
    tally: Tally
    combine_inserts: bool
    properties: MergeProperties

    def scope(self, *, fills: bool) -> SearchScope:
        """Return the rows' partitions: any row may go to a stored bucket."""
        # Rows that replace stored groups open a new group in each bucket.
        replaces = self.operation.replaces is not Replaces.NOTHING
        return SearchScope.NOTHING if replaces else SearchScope.PARTITIONS

    @contextmanager
    def tagged(self, rows: KeyedRows[D], files: tuple[StoredFile, ...]) -> Iterator[TaggedRows[D]]:
        """Tag rows; each use computes them again, which costs no more than a cache."""
        engine = self.engine
        stored = {
            (partition, bucket): file
            for partition, found in groupby(files, key=attrgetter("partition"))
            for bucket, file in stored_buckets(partition, found, self.buckets).items()
        }
        rule = BucketRule(
            self.buckets, self.hash_fields, self.operation.hard_delete, self.properties
        )
        task = BucketCountTask(rule, self.tally, engine.attempt)
        counts = engine.collect(engine.transform(rows.data, task, COUNT_SCHEMA))
        refuse_changed(rows.counts, counted_by(TAGGED, self.tally.total))
        found = _written(counts, frozenset(stored))
        numbers = {at: number for number, at in enumerate(sorted(found))}
        used = tuple(
            stored.get(at) or StoredFile(at[0], new_bucket_file_id(at[1]), "", 0) for at in numbers
        )
        combine = self.operation.needs_match or self.combine_inserts
        # Write tasks combine the rows, after a shuffle.
        columns = rows.columns.append(ROW_NUMBER_FIELD) if combine else rows.columns
        tag = BucketTagTask(columns, rule, numbers)
        yield TaggedRows(
            engine.transform(rows.data, tag, tagged_schema(columns)),
            by_partition((partition, count) for (partition, _), count in found.items()),
            updates={number: found[at].rows for at, number in numbers.items()},
            inserts={},
            columns=columns,
            files=used,
            combine=combine,
        )


def _written(counts: pa.Table, stored: Set[tuple[str, int]]) -> Mapping[tuple[str, int], RowCount]:
    """Return (partition path, bucket) → its rows, of the buckets that are stored or opened.

    Args:
        counts: Rows of ``COUNT_SCHEMA``.
        stored: The (partition path, bucket) pairs that have a file. Others are opened if they get a
            row that isn't a delete.
    """
    found: dict[tuple[str, int], RowCount] = {}
    opened = set(stored)
    for row in counts.to_pylist():
        at = (row[PARTITION_PATH], row[BUCKET])
        found[at] = found.get(at, RowCount()) + RowCount(row[ROWS], row[KEY_HASH])
        if not row[DELETES]:
            opened.add(at)
    return {at: count for at, count in found.items() if at in opened}


def bucket_numbers(
    keys: pa.Array | pa.ChunkedArray, fields: Sequence[str], buckets: int
) -> BucketNumberArray:
    """Return the bucket of each record key.

    Args:
        keys: Record keys without nulls.
        fields: Names of the hash fields; used only for keys of several columns.
        buckets: Number of buckets of a partition.

    Cost: about 0.3 µs per key of one column, 4 µs per key of several.
    """
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    compound = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    if not pc.any(compound).as_py():
        hashes = _FACTOR + _string_hashes(keys)
    else:
        hashes = _list_hashes([key_values(key, fields) for key in keys.to_pylist()])
    return ((hashes & _POSITIVE) % np.uint32(buckets)).astype(np.int32)


def key_values(key: str, fields: Sequence[str]) -> list[str | None]:
    """Return the values of some fields in a record key; the whole key if it has none of them.

    A value may contain commas and colons: it ends at the last comma before the next colon.
    """
    if "," not in key or ":" not in key:
        return [key]
    values = [
        None if value == _NULL else "" if value == _EMPTY else value
        for name, value in _parts(key)
        if name in fields
    ]
    return values or [key]


def _parts(key: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a record key of several columns."""
    begin = 0
    while begin < len(key):
        colon = key.find(":", begin)
        if colon < 0:
            # Hudi raises StringIndexOutOfBoundsException.
            return
        end, following = -1, key.find(":", colon + 1)
        while following >= 0 and end < colon:
            end = key.rfind(",", 0, following)
            following = key.find(":", following + 1)
        if end < colon:
            # Hudi 1.2.0 never returns from here if the field isn't a hash field and has a colon.
            end = len(key)
        yield key[begin:colon], key[colon + 1 : end]
        begin = end + 1


def bucket_of(file_id: str) -> int | None:
    """Return the bucket that a file id names; ``None`` if it names none."""
    return int(file_id[:_DIGITS]) if _FILE_ID.fullmatch(file_id) else None


def new_bucket_file_id(bucket: int) -> str:
    """Return the id of a bucket's new file group."""
    return f"{bucket:0{_DIGITS}}{str(uuid.uuid4())[_DIGITS:]}-0"


def _list_hashes(lists: Sequence[Sequence[str | None]]) -> npt.NDArray[np.uint32]:
    """Return Java's ``List.hashCode`` of lists of strings."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    # Java's hash of null is that of the empty string, 0.
    flat = pa.array([value or "" for values in lists for value in values], pa.string())
    hashes = np.zeros(len(lists), np.uint32)
    elements, starts = _string_hashes(flat), np.cumsum(lengths) - lengths
    hashes += np.uint32(1)
    for number in range(lengths.max(initial=0)):
        has = lengths > number
        hashes[has] = hashes[has] * _FACTOR + elements[starts[has] + number]
    return hashes


def _string_hashes(texts: pa.Array) -> npt.NDArray[np.uint32]:
    """Return Java's ``String.hashCode`` of texts, modulo 2³²."""
    units, lengths = _code_units(texts)
    hashes = np.zeros(len(lengths), np.uint32)
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return hashes
    ends = np.cumsum(lengths)
    behind = np.repeat(ends, lengths) - 1 - np.arange(len(units))
    powers = np.full(int(lengths.max()), _FACTOR)
    powers[0] = 1
    products = units.astype(np.uint32) * np.cumprod(powers, dtype=np.uint32)[behind]
    hashes[filled] = np.add.reduceat(products, (ends - lengths)[filled], dtype=np.uint32)
    return hashes


def _code_units(texts: pa.Array) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]:
    """Return the UTF-16 code units of all texts, and how many each has."""
    texts = texts.cast(pa.string())
    if pc.all(pc.string_is_ascii(texts)).as_py() and len(texts):
        _, offsets_buffer, data = texts.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1, texts.offset * 4)
        units = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
        return units, np.diff(offsets).astype(np.int64)
    encoded = [text.encode("utf-16-be") for text in texts.to_pylist()]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) // 2
    return np.frombuffer(b"".join(encoded), ">u2"), lengths
