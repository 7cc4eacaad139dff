"""``AssignTask``: gives each row the number of its bucket, and of the task that writes it.

Array operations assign all rows of a batch at once. An update is assigned by its file's number. An
insert is assigned by a binary search: of its key's hash among the bounds of its partition's shares,
or of its key among their least keys.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from strandline.write.tasks.columns import (
    BUCKET,
    FILE,
    KEY_HASH,
    TASK,
    assigned_schema,
    changed,
    fill,
    refuse_without_key,
)
from strandline.write.tasks.placement import InsertShares

_HASHES: Final = 2**32
_NOT_COUNTED: Final = -1
_PIECE_ROWS: Final = 8_192
"""Rows that are searched at once: arrays of megabytes would get new memory pages each time."""
_Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AssignTask:
    """Turns tagged (or keyed) rows into assigned rows.

    Attributes:
        schema: The columns of the rows.
        updates: Bucket of each stored file by the file's number; -1 for files without updates.
        inserts: Buckets of new rows by partition path.
        tasks: Number of the write task of each bucket.
    """

    schema: pa.Schema
    updates: tuple[int, ...]
    inserts: Mapping[str, InsertShares]
    tasks: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the numbers of their bucket and task.

        Raises:
            RowsChangedError: There is a row that wasn't counted.
        """
        form = assigned_schema(self.schema)
        by_file = np.array([*self.updates, _NOT_COUNTED], np.int32)
        tasks = np.array([*self.tasks, _NOT_COUNTED], np.int32)
        search = _InsertSearch(self.inserts)
        for rows in batches:
            if not rows.num_rows:
                continue
            refuse_without_key(rows)
            numbers = search.buckets(rows)
            if FILE in rows.schema.names:
                files = pc.fill_null(rows.column(FILE), _NOT_COUNTED).to_numpy()
                numbers = np.where(files == _NOT_COUNTED, numbers, by_file[files])
            if (numbers == _NOT_COUNTED).any():
                path = rows.column(PARTITION_PATH)[int(np.argmax(numbers == _NOT_COUNTED))].as_py()
                raise changed(path, "rows of a file group, or new rows, weren't counted")
            columns = {name: rows.column(name) for name in form.names if name in rows.schema.names}
            columns[BUCKET] = pa.array(numbers, pa.int32())
            columns[TASK] = pa.array(tasks[numbers], pa.int32())
            yield fill(form, rows.num_rows, columns)


class _InsertSearch:
    """The shares of all partitions as one ascending array.

    The number n is added to the bounds of the n-th partition's shares, and to the hashes, as
    fractions, of the keys searched among them.
    """

    def __init__(self, inserts: Mapping[str, InsertShares]) -> None:
        self._paths = pa.array(inserts, pa.string())
        shares = list(inserts.values())
        raised = [at + np.asarray(each.bounds) for at, each in enumerate(shares)]
        self._bounds = np.concatenate([*raised, np.zeros(0)])
        numbers = [number for each in shares for number in each.numbers]
        self._numbers = np.array([*numbers, _NOT_COUNTED], np.int32)
        self._ranges = {at: each for at, each in enumerate(shares) if each.keys}

    def buckets(self, rows: pa.RecordBatch) -> _Numbers:
        """Return the bucket of each row; -1 if its partition has no shares. There must be rows."""
        begins = range(0, rows.num_rows, _PIECE_ROWS)
        return np.concatenate([self._found(rows.slice(each, _PIECE_ROWS)) for each in begins])

    def _found(self, rows: pa.RecordBatch) -> _Numbers:
        coded = rows.column(PARTITION_PATH).dictionary_encode()
        of_path = pc.fill_null(pc.index_in(coded.dictionary, value_set=self._paths), _NOT_COUNTED)
        at = of_path.to_numpy()[coded.indices.to_numpy()]
        wanted = at + rows.column(KEY_HASH).to_numpy() / _HASHES
        found = self._numbers[np.searchsorted(self._bounds, wanted, "right")]
        for path in self._ranges.keys() & set(at.tolist()):
            shares, here = self._ranges[path], np.flatnonzero(at == path)
            keys = rows.column(RECORD_KEY).take(pa.array(here)).to_pylist()
            # Python orders texts by code points, which is the order of their UTF-8 bytes.
            found[here] = [shares.numbers[bisect_right(shares.keys, key)] for key in keys]
        return np.where(at == _NOT_COUNTED, np.int32(_NOT_COUNTED), found)
