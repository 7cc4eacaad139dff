"""Tagging by tasks that have whole partitions: all their rows, and all their stored files.

Such a task finds the keys of its rows by itself, and writes them in place: rows move once, and
neither keys nor locations move. A task holds the rows of one partition at a time, or of several
small ones. So this suits batches with at most some thousand rows per partition, if partitions
divide the work evenly.

Source: none; Hudi moves keys, locations and rows by three shuffles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.row_selection import compact, gathered, one_chunk
from strandline.write.engine.base import D, Tally, tallied
from strandline.write.engine.local_shuffle import adjacent, left_join
from strandline.write.engine.packed_rows import PLACES
from strandline.write.index.search import FileSearch, LocationRequest, NumberedFiles
from strandline.write.tasks.columns import FILE, PLACE, TASK, RowCount, changed, refuse_without_key
from strandline.write.tasks.placement import StoredFile, heaviest, is_even, pack, tasks_for
from strandline.write.tasks.row_order import by_partition_path
from timeline.storage.base import Storage

_MOST_ROWS: Final = 31_250
"""The most rows of a partition that a task holds, as in a place of a join's largest task."""
_ROW_BYTES: Final = 100
"""Bytes of a stored file whose search takes as long as one row."""
_ROWS_AT_ONCE: Final = 4096
"""Rows of small partitions that are joined at once: each join costs at least 1 ms."""
_KEY: Final = (PARTITION_PATH, RECORD_KEY)
_NOWHERE: Final = -1


def colocated(
    counts: Mapping[str, RowCount], files: Sequence[StoredFile], cores: int, least: int
) -> dict[str, int] | None:
    """Return the part of each partition, if this divides the work about evenly.

    Args:
        counts: The rows of each partition path.
        files: The stored files of these partitions.
        cores: Number of tasks that can run at the same time.
        least: Minimum number of parts for this number of rows.

    Returns:
        Partition path → part, from 0. ``None``: a partition has too many rows, there are too many
        partitions, or some would take much longer than a part should.
    """
    if any(count.rows > _MOST_ROWS for count in counts.values()):
        return None
    stored: Counter[str] = Counter()
    for file in files:
        stored[file.partition] += file.size
    paths = sorted(counts)
    weights = [stored[path] + counts[path].rows * _ROW_BYTES for path in paths]
    parts = pack(weights, min(len(paths), max(least, tasks_for(weights, cores))))
    # On Spark a task sends each partition of a part as a separate stream.
    if len(paths) > PLACES * (max(parts, default=0) + 1):
        return None
    # Otherwise a separate stage searches the files, and rows are divided in any way.
    sizes = [file.size for file in files]
    searched = heaviest(sizes, pack(sizes, max(1, tasks_for(sizes, cores))))
    joined = sum(count.rows for count in counts.values()) * _ROW_BYTES // least
    if not is_even(heaviest(weights, parts), searched + joined):
        return None
    return dict(zip(paths, parts, strict=True))


def found_in_place(request: LocationRequest[D], search: FileSearch, parts: Mapping[str, int]) -> D:
    """Return the rows with the stored files that hold their keys, in the parts of their partitions.

    A row appears once for each file, or once with null. Within a part, partitions follow one
    another in the order of their paths; rows with one key are adjacent.

    Args:
        request: The rows and files.
        search: Searches the files of a partition.
        parts: Part of each partition path.
    """
    engine = request.engine
    files: dict[str, list[tuple[int, str]]] = {path: [] for path in parts}
    for number, file in enumerate(request.files):
        files[file.partition].extend((number, path) for path in file.searched)
    keyed = engine.schema(request.rows)
    placed = keyed.append(pa.field(TASK, pa.int32())).append(pa.field(PLACE, pa.int32()))
    there = engine.transform(request.rows, PlaceTask(dict(parts)), placed)
    moved = engine.shuffle(there, TASK, max(parts.values()) + 1, (PLACE,))
    of_path = {path: tuple(each) for path, each in files.items()}
    find = FindTask(of_path, request.storage, request.tally, search)
    return engine.transform(moved, find, keyed.append(pa.field(FILE, pa.int32())))


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """Adds to each row the part and the place of its partition.

    Attributes:
        parts: Part of each partition path.
    """

    parts: Mapping[str, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            RowsChangedError: A row came that wasn't there when the rows were counted.
        """
        paths = pa.array(sorted(self.parts), pa.string())
        part_of = np.array([self.parts[path] for path in paths.to_pylist()], np.int32)
        for batch in batches:
            if not batch.num_rows:
                continue
            refuse_without_key(batch)
            coded = batch.column(PARTITION_PATH).dictionary_encode()
            known = pc.fill_null(pc.index_in(coded.dictionary, value_set=paths), _NOWHERE)
            if _NOWHERE in known.to_pylist():
                path = coded.dictionary[known.index(_NOWHERE).as_py()].as_py()
                raise changed(path, "rows weren't counted")
            places = known.to_numpy()[coded.indices.to_numpy()]
            columns = {TASK: part_of[places], PLACE: places}
            arrays = [*batch.columns, *(pa.array(each, pa.int32()) for each in columns.values())]
            yield pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, *columns])


@dataclass(frozen=True, slots=True)
class FindTask:
    """Adds the files that hold the rows' keys.

    Attributes:
        files: The files of each partition path.
        storage: The table's storage.
        tally: Takes the storage calls.
        search: Searches the files.
    """

    files: Mapping[str, NumberedFiles]
    storage: Storage
    tally: Tally
    search: FileSearch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows partition by partition, several small partitions at once."""
        with tallied(self.storage, self.tally, "tag") as storage:
            partitions = by_partition_path(batches)
            for some in gathered(partitions, lambda each: each[1].num_rows, _ROWS_AT_ONCE):
                placed = pa.concat_tables([each for _, each in some])
                rows = compact(placed.drop_columns([TASK, PLACE]))
                found = self._found(storage, some).select([*_KEY, FILE])
                joined, codes = left_join(rows, found, _KEY)
                yield from compact(adjacent(joined, codes)[0]).to_batches()

    def _found(self, storage: Storage, partitions: Sequence[tuple[str, pa.Table]]) -> pa.Table:
        """Return the locations of the keys of some partitions."""
        form = self.search.form
        found = [form.empty_table()]
        for path, rows in partitions:
            if files := self.files[path]:
                keys = one_chunk(rows.column(RECORD_KEY).unique())
                located = self.search.locations(storage, path, keys, files)
                found.append(pa.Table.from_batches(located, form))
        return pa.concat_tables(found)
