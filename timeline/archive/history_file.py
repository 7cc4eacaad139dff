"""A file of a table's history as rows, with bounds on its size in memory.

Parquet stores a repeated value once, so a few hundred kilobytes may expand to any number of rows.
The footer is checked before anything is read, and each batch is counted before it becomes Python
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timeline.encoding.column_chunk import check_chunks

COLUMNS: Final[Mapping[str, tuple[type, ...]]] = {
    "instantTime": (str,),
    "completionTime": (str, type(None)),
    "action": (str,),
    "metadata": (bytes, type(None)),
    "plan": (bytes, type(None)),
}
"""The columns of a history file and their types."""

BYTES_PER_ROW: Final = 16
"""The minimum average bytes per row of a file. Hudi's rows take 90 or more. Their times alone take
about this much, as they differ from row to row."""
FEW_ROWS: Final = 1 << 12
"""Rows that a file may have however small it is."""
FILE_ROWS: Final = 1 << 20
"""The most rows of a file: two years of one instant per minute."""
INFLATION: Final = 200
"""The values of a file may total at most this many times its size. In Hudi's files they total up to
forty times, as each row repeats an Avro schema."""
SMALL_BYTES: Final = 16 << 20
"""Total bytes that the values of a file may have however small it is."""
GROUP_BYTES: Final = 512 << 20
"""The most bytes that one read may return; by default a row group has at most a quarter of them."""

_FOOTER_ITEMS: Final = 1 << 16
"""The most row groups, or columns of one, in a footer."""
_BATCH_ROWS: Final = 1 << 10

ArchivedRow = Mapping[str, Any]


class HistoryFile:
    """One open file of the history.

    Attributes:
        rows: Their number.
        bounds: First and last requested time that each row group may contain.
    """

    def __init__(self, file: pa.NativeFile) -> None:
        """Read a file's footer.

        Raises:
            ValueError: According to the footer the file is larger in memory than allowed.
            pa.ArrowException, OSError: It is no Parquet file.
        """
        self._file = file
        self._size: int = file.size()
        self._footer = pq.ParquetFile(file, thrift_container_size_limit=_FOOTER_ITEMS).metadata
        self._check_footer()
        self.rows: Final[int] = self._footer.num_rows
        self.bounds: Final[Sequence[tuple[str, str]]] = _bounds(self._footer)

    def read(
        self, columns: Sequence[str], groups: Iterable[int] | None = None
    ) -> tuple[list[ArchivedRow], int]:
        """Return rows and the total bytes of their values.

        Args:
            columns: Some of ``COLUMNS``.
            groups: Numbers of the row groups; ``None`` for all.

        Raises:
            TypeError: The columns aren't those of a history file.
            ValueError: There are more rows or bytes than allowed.
            pa.ArrowException, OSError: The file is damaged.
        """
        self._check_columns(columns)
        found: list[ArchivedRow] = []
        size = 0
        # Dictionary-encoded: a repeated value is stored once until the total has been checked.
        file = pq.ParquetFile(
            self._file, metadata=self._footer, read_dictionary=[*columns], pre_buffer=False
        )
        # Small batches, so that other threads get the interpreter lock in between.
        for batch in file.iter_batches(
            _BATCH_ROWS,
            row_groups=None if groups is None else list(groups),
            columns=[*columns],
            use_threads=False,
        ):
            size += sum(map(_bytes_in, batch.columns))
            self._check(len(found) + batch.num_rows, size)
            found += _checked(batch, columns)
        return found, size

    def _check_footer(self) -> None:
        footer = self._footer
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        self._check(max(footer.num_rows, sum(group.num_rows for group in groups)), 0)
        for group in groups:
            self._check(group.num_rows, group.total_byte_size)

    def _check(self, rows: int, size: int) -> None:
        """Refuse more rows or bytes than a file of this size may have."""
        most_rows = min(FILE_ROWS, max(FEW_ROWS, self._size // BYTES_PER_ROW))
        most = min(GROUP_BYTES, max(SMALL_BYTES, INFLATION * self._size))
        if rows > most_rows or size > most:
            raise ValueError(
                f"{rows} rows or more, of {size} bytes, in {self._size} bytes;"
                f" allowed: at most {most_rows} rows and {most} bytes"
            )

    def _check_columns(self, columns: Iterable[str]) -> None:
        """Refuse columns that are missing, duplicate, or may hold lists."""
        schema = self._footer.schema
        flat = [
            column.path
            for column in map(schema.column, range(len(schema)))
            if column.physical_type == "BYTE_ARRAY" and not column.max_repetition_level
        ]
        for name in columns:
            if flat.count(name) != 1:
                raise TypeError(f"it has {flat.count(name)} columns {name} of text or bytes")


def _bounds(metadata: pq.FileMetaData) -> list[tuple[str, str]]:
    """Return the first and last time that each row group may contain."""
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    at = names.index("instantTime") if "instantTime" in names else -1
    if at >= 0:
        check_chunks(metadata, ("instantTime",))
    found = []
    for number in range(metadata.num_row_groups):
        stats = None if at < 0 else metadata.row_group(number).column(at).statistics
        if stats is not None and stats.has_min_max and isinstance(stats.min, str):
            found.append((stats.min, stats.max))
        else:
            found.append(("", "~"))
    return found


def _bytes_in(column: pa.Array) -> int:
    """Return the bytes of a column's values, repeated ones counted each time."""
    if not isinstance(column, pa.DictionaryArray):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary)
    return pc.sum(lengths.take(column.indices)).as_py() or 0


def _checked(batch: pa.RecordBatch, columns: Iterable[str]) -> list[ArchivedRow]:
    """Return the rows of a batch; refuse values that aren't of their column's type."""
    values: dict[str, list[Any]] = {}
    for name in columns:
        column = batch.column(name)
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        values[name] = column.to_pylist()
        for value in values[name]:
            if not isinstance(value, COLUMNS[name]):
                raise TypeError(f"its {name} is {value!r:.80}")
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
