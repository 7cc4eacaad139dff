"""Searches the keys of a write in the stored files of their partitions.

Files are packed into tasks by size. Each key is sent to the tasks that have files of its partition.
They read a file's keys only if its footer doesn't rule out all keys searched for. So the write's
keys move, not the stored ones, and a partition with several files can be divided among tasks.

===============  ==========================  =====================================
Index type       Files                       A file's keys are read unless
===============  ==========================  =====================================
`SIMPLE`         of the row's partition      its key range rules all keys out
`BLOOM`          of the row's partition      its range or Bloom filter does
`GLOBAL_SIMPLE`  of all partitions           its key range does
`GLOBAL_BLOOM`   of all partitions           its range or Bloom filter does
===============  ==========================  =====================================

With a global index of a merge-on-read table, a key that is found counts only if its slice holds it
with its logs merged (``merged_slices``): it may have been deleted, or moved to another partition.

Source: Hudi 1.2.0 ``HoodieSimpleIndex``, ``HoodieBloomIndex`` and their global subclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, Generic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsview.model.file_name import is_log_name
from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.block_rows import data_pieces
from strandline.records.file.key_search import KeySearch, KeysFound
from strandline.records.merge_rule import RowOrder, winners
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.records.row_selection import one_chunk
from strandline.records.schema.columns import column_of
from strandline.write.engine.base import D, EngineContext, Tally, TaskAttempt, tallied
from strandline.write.index.merged_slices import LateLogs, MergedSlices
from strandline.write.tasks.columns import (
    FILE,
    KEY_HASH,
    TASK,
    RowCount,
    add_counts,
    as_numbers,
    counts_of,
    fill,
    refuse_without_key,
)
from strandline.write.tasks.placement import StoredFile, pack
from timeline.errors import CorruptMetadataError
from timeline.storage.base import Storage

SEARCHED: Final = "search"
"""Stage of a write's tally: the rows whose keys were searched."""
_KEYS_AT_ONCE: Final = 1_000_000
"""Keys of one partition that are searched at once. With more, files are read repeatedly."""
_KEY_BYTES: Final = 1000
"""Length of a key that counts as one."""
_EVERYWHERE: Final = ""
NumberedFiles = tuple[tuple[int, str], ...]
"""Files of a partition path: the number of each among the write's stored files, and its path; a log
follows the base file of its group."""
_SPREAD = pa.schema([(TASK, pa.int32()), (PARTITION_PATH, pa.string()), (RECORD_KEY, pa.string())])


_STORED_VALUE: Final = "_strandline_stored_value_"


def stored_value(number: int) -> str:
    """Return the name of the column with the stored row's ordering value ``number``."""
    return f"{_STORED_VALUE}{number}"


def location_schema(ordering: Mapping[str, pa.DataType], *, everywhere: bool = False) -> pa.Schema:
    """Return the schema of locations: stored keys that match a key of the write.

    A location has the row's partition path, unless keys were searched ``everywhere``; the key; the
    number of the stored file; and the stored row's ordering values if requested.
    """
    path = [] if everywhere else [(PARTITION_PATH, pa.string())]
    values = [(stored_value(at), kind) for at, kind in enumerate(ordering.values())]
    return pa.schema([*path, (RECORD_KEY, pa.string()), (FILE, pa.int32()), *values])


@dataclass(frozen=True, slots=True)
class LocationRequest(Generic[D]):
    """The keys to find, and the files to search.

    Attributes:
        engine: Runs the search.
        rows: Keyed rows, persisted.
        files: The newest base files of the partitions that may hold the keys; a file's number is
            its position.
        storage: The table's storage.
        tally: Takes the counts of ``SEARCHED``, which the write compares with those of its rows.
        ordering: Ordering columns whose stored values are wanted, and their types.
        merged: Reads the slices of files with logs, in which keys that were found may not be any
            more; ``None``: what a base file holds counts.
        late: Reads the late logs of files; ``None``: they have none.
    """

    engine: EngineContext[D]
    rows: D
    files: tuple[StoredFile, ...]
    storage: Storage
    tally: Tally
    ordering: Mapping[str, pa.DataType] = field(default_factory=dict)
    merged: MergedSlices | None = None
    late: LateLogs | None = None


@dataclass(frozen=True, slots=True)
class SpreadTask:
    """Sends the keys of rows to the tasks that search them.

    Attributes:
        tasks: Tasks that have files of a partition, by partition path.
        tally: Takes the counts of the rows.
        attempt: Returns the running attempt.
        everywhere: Whether all keys go to the tasks of the partition path ``""``, which stands for
            all partitions.
    """

    tasks: Mapping[str, tuple[int, ...]]
    tally: Tally
    attempt: Callable[[], TaskAttempt]
    everywhere: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each key once for each task."""
        read: dict[str, RowCount] = {}
        for batch in batches:
            if not batch.num_rows:
                continue
            refuse_without_key(batch)
            rows = batch.select([PARTITION_PATH, RECORD_KEY, KEY_HASH])
            add_counts(read, counts_of(pa.Table.from_batches([rows])))
            if self.everywhere:
                paths = pa.repeat(pa.scalar(_EVERYWHERE, pa.string()), rows.num_rows)
                rows = rows.set_column(0, PARTITION_PATH, paths)
            yield self._spread(rows)
        self.tally.add(as_numbers(SEARCHED, self.attempt(), read))

    def _spread(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows' keys, repeated for each task of their partition."""
        coded = rows.column(PARTITION_PATH).dictionary_encode()
        codes = coded.indices.to_numpy()
        tasks = [self.tasks.get(path, ()) for path in coded.dictionary.to_pylist()]
        ends = np.cumsum([len(each) for each in tasks])
        times = np.diff(ends, prepend=0)[codes]
        at = np.repeat(np.arange(len(codes)), times)
        # The n-th copy of a row goes to the n-th task of its partition.
        nth = np.arange(len(at)) - np.repeat(np.cumsum(times) - times, times)
        begins = np.append(0, ends)[codes]
        flat = np.array([task for each in tasks for task in each], np.int32)
        sent = rows.take(pa.array(at))
        columns = [pa.array(flat[begins[at] + nth]), *(sent.column(n) for n in _SPREAD.names[1:])]
        return pa.RecordBatch.from_arrays(columns, schema=_SPREAD)


@dataclass(frozen=True, slots=True)
class FileSearch:
    """Searches keys of one partition path in its files.

    Attributes:
        by_range: Whether key ranges rule files out.
        by_filter: Whether Bloom filters do.
        ordering: Ordering columns whose stored values are returned, and their types.
        form: Schema of the locations.
        merged: As in ``LocationRequest``.
        late: As in ``LocationRequest``.
    """

    by_range: bool
    by_filter: bool
    ordering: Mapping[str, pa.DataType]
    form: pa.Schema
    merged: MergedSlices | None = None
    late: LateLogs | None = None

    def locations(
        self, storage: Storage, path: str, keys: pa.Array, files: NumberedFiles
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of the schema ``form``, those of a file together.

        Args:
            storage: The table's storage.
            path: The partition path.
            keys: Record keys, all different.
            files: The files to search.
        """
        search = KeySearch(keys, by_range=self.by_range, by_filter=self.by_filter)
        heads = tuple(name.partition(".")[0] for name in self.ordering)
        for number, of_group in groupby(files, key=itemgetter(0)):
            is_merged = self.merged is not None and number in self.merged.slices
            columns = () if is_merged else heads
            parts: list[KeysFound] = []
            logs: list[str] = []
            for _, name in of_group:
                if is_log_name(name.rpartition("/")[2]):
                    logs.append(name)
                else:
                    parts += filter(None, [search.found(storage, name, columns)])
            if logs:
                assert self.late is not None
                for placed in self.late.blocks(storage, number, logs):
                    parts += _found_in_block(search, placed, columns)
            found = KeysFound.joined(parts) if parts else None
            if found is not None and is_merged:
                found = self._still_held(found, storage, number, heads)
            if found is not None:
                yield self._located(found, path, number)

    def _still_held(
        self, found: KeysFound, storage: Storage, number: int, columns: tuple[str, ...]
    ) -> KeysFound | None:
        """Return the keys of a base file that its slice still holds, logs merged."""
        assert self.merged is not None
        held = one_chunk(found.stored.column(RECORD_KEY)).cast(pa.string())
        keys, first = np.unique(held.to_numpy(zero_copy_only=False), return_index=True)
        searched = pa.array(keys, pa.string())
        rows = self.merged.holding(storage, number, searched, columns)
        if not rows.num_rows:
            return None
        match = pc.index_in(one_chunk(rows.column(RECORD_KEY)), value_set=searched)
        return KeysFound(found.at[first[match.to_numpy()]], rows)

    def _located(self, found: KeysFound, path: str, number: int) -> pa.RecordBatch:
        """Return the locations of the keys that a file holds."""
        values = [one_chunk(column_of(found.stored, n)).cast(k) for n, k in self.ordering.items()]
        # After inserts a file may hold a key twice; its newest row decides on a move.
        _, once, groups = np.unique(found.at, return_index=True, return_inverse=True)
        if values and len(once) < len(groups):
            once = winners(groups, RowOrder.of(values, np.zeros(len(groups), np.bool_)))
        at = pa.array(once)
        columns = {
            PARTITION_PATH: pa.repeat(pa.scalar(path, pa.string()), len(once)),
            RECORD_KEY: one_chunk(found.stored.column(RECORD_KEY)).cast(pa.string()).take(at),
            FILE: pa.repeat(pa.scalar(number, pa.int32()), len(once)),
        }
        columns |= {stored_value(n): value.take(at) for n, value in enumerate(values)}
        return fill(self.form, len(once), columns)


def _found_in_block(
    search: KeySearch, placed: PlacedBlock, columns: tuple[str, ...]
) -> Iterator[KeysFound]:
    """Yield the searched keys of a log's rows; those that it deletes don't count.

    Raises:
        CorruptMetadataError: The block is damaged.
    """
    try:
        for rows in data_pieces(placed.block, (RECORD_KEY, *columns)):
            found = search.among(rows) if rows.num_rows else None
            if found is not None:
                yield found
    except ValueError as exc:
        raise CorruptMetadataError(f"{placed.place} is damaged: {exc}") from exc


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Searches sorted keys in the files of its part.

    Attributes:
        files: For each part, the files of each partition path.
        storage: The table's storage.
        tally: Takes the storage calls.
        search: Searches them.
    """

    files: tuple[Mapping[str, NumberedFiles], ...]
    storage: Storage
    tally: Tally
    search: FileSearch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of the search's form."""
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        # Don't use the engine's part number: an engine may number a stage's parts differently.
        files = self.files[first.column(TASK)[0].as_py()]
        with tallied(self.storage, self.tally, "tag") as storage:
            for path, keys in _distinct_keys(chain([first], rows), _KEYS_AT_ONCE):
                if len(keys):
                    yield from self.search.locations(storage, path, keys, files.get(path, ()))


def _distinct_keys(
    batches: Iterator[pa.RecordBatch], at_once: int
) -> Iterator[tuple[str, pa.Array]]:
    """Yield (partition path, its distinct keys) of sorted rows, about ``at_once`` keys each."""
    waiting: list[pa.Array] = []
    current, size = "", 0
    for batch in batches:
        for path, keys in _runs(batch):
            if waiting and path != current:
                yield current, pc.unique(pa.concat_arrays(waiting))
                waiting, size = [], 0
            current = path
            if size >= at_once:
                # The last key may continue in this run; then it must be counted only there.
                last = waiting[-1][-1]
                held = pa.concat_arrays(waiting)
                yield current, pc.unique(held.filter(pc.not_equal(held, last)))
                waiting, size = [pa.array([last.as_py()], pa.string())], 1
            waiting.append(keys)
            # A long key counts as several, so that all keys fit in one array.
            size += max(len(keys), keys.nbytes // _KEY_BYTES)
    if waiting:
        yield current, pc.unique(pa.concat_arrays(waiting))


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """Yield (partition path, keys) of a sorted batch."""
    ends = pc.run_end_encode(batch.column(PARTITION_PATH), run_end_type=pa.int32())
    begin = 0
    keys = batch.column(RECORD_KEY)
    for path, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        yield path, keys.slice(begin, end - begin)
        begin = end


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """Finds keys by reading base files.

    Attributes:
        by_range: Whether key ranges in footers rule files out.
        by_filter: Whether Bloom filters in footers do.
        is_global: Whether a key is stored in one partition only.
        moves_rows: Whether a global index moves records to the partition of the write's row.
    """

    by_range: bool = True
    by_filter: bool = False
    is_global: bool = False
    moves_rows: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a record: partition path and record key, or the key alone."""
        return (RECORD_KEY,) if self.is_global else (PARTITION_PATH, RECORD_KEY)

    @property
    def file_search(self) -> FileSearch:
        """The search for keys in the files of their own partition."""
        form = location_schema({})
        return FileSearch(by_range=self.by_range, by_filter=self.by_filter, ordering={}, form=form)

    def locations(self, request: LocationRequest[D]) -> D:
        """Return the locations (``location_schema``) of each key of the write, one for each file.

        Files are searched that neither key range nor filter rules out. No location occurs twice.

        Cost: opens each file once for each million keys of its partition.
        """
        engine, files = request.engine, request.files
        parts = max(1, min(len(files), engine.cores))
        chosen = pack([file.size for file in files], parts)
        tasks: dict[str, set[int]] = {}
        of_task: list[dict[str, list[tuple[int, str]]]] = [{} for _ in range(parts)]
        for number, (file, task) in enumerate(zip(files, chosen, strict=True)):
            scope = _EVERYWHERE if self.is_global else file.partition
            tasks.setdefault(scope, set()).add(task)
            of_task[task].setdefault(scope, []).extend((number, path) for path in file.searched)
        to_tasks = {path: tuple(sorted(each)) for path, each in tasks.items()}
        spread = SpreadTask(to_tasks, request.tally, engine.attempt, everywhere=self.is_global)
        keys = engine.transform(request.rows, spread, _SPREAD)
        placed = engine.shuffle(keys, TASK, parts, (PARTITION_PATH, RECORD_KEY))
        search = replace(
            self.file_search,
            ordering=request.ordering,
            form=location_schema(request.ordering, everywhere=self.is_global),
            merged=request.merged,
            late=request.late,
        )
        numbered = ({path: tuple(each) for path, each in files.items()} for files in of_task)
        searches = SearchTask(tuple(numbered), request.storage, request.tally, search)
        return engine.transform(placed, searches, search.form)
