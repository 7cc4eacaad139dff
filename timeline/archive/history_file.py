"""A file of a table's history as rows, within bounds on what becomes of it in memory.

Parquet says a value once for all rows that have it, so a few hundred kilobytes may be any number of
rows. What a file says of itself at its end is looked at before anything is read, and what comes is
counted batch by batch before it becomes Python's values; between batches other threads run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COLUMNS: Final[Mapping[str, tuple[type, ...]]] = {
    "instantTime": (str,),
    "completionTime": (str, type(None)),
    "action": (str,),
    "metadata": (bytes, type(None)),
    "plan": (bytes, type(None)),
}
"""The columns of a history file and what they hold."""

BYTES_PER_ROW: Final = 16
"""How many bytes of a file a row takes at least, on average. Hudi's take 90 or more; the times
alone, which differ from row to row, hardly take fewer."""
FEW_ROWS: Final = 1 << 12
"""So many rows may be in any file."""
FILE_ROWS: Final = 1 << 20
"""How many rows a file has at most: instants of two years, one a minute."""
INFLATION: Final = 200
"""How many times the size of a file its values may have together. Each row repeats an Avro schema,
so that Hudi's have up to forty times as much."""
SMALL_BYTES: Final = 16 << 20
"""So much may be in any file."""
GROUP_BYTES: Final = 512 << 20
"""How much is read at once, of a row group or of a few columns. Parquet's own limit of a row group
is a quarter of that."""

_FOOTER_ITEMS: Final = 1 << 16
"""How many row groups, or columns in a row group, the end of a file may tell of."""
_BATCH_ROWS: Final = 1 << 10

Row = Mapping[str, Any]


class HistoryFile:
    """One open file of the history.

    Attributes:
        bounds: First and last time that each row group may have.
    """

    def __init__(self, file: pa.NativeFile) -> None:
        """Read the end of a file.

        Raises:
            ValueError: It says that the file is more in memory than it may be.
            pa.ArrowException, OSError: It is no Parquet file.
        """
        self._file = file
        self._size: int = file.size()
        self._footer = pq.ParquetFile(file, thrift_container_size_limit=_FOOTER_ITEMS).metadata
        self._check_footer()
        self.bounds: Final[Sequence[tuple[str, str]]] = _bounds(self._footer)

    def read(
        self, columns: Sequence[str], groups: Iterable[int] | None = None
    ) -> tuple[list[Row], int]:
        """Return rows, and how many bytes their values have.

        Args:
            columns: Some of ``COLUMNS``.
            groups: Numbers of the row groups; ``None``: all.

        Raises:
            TypeError: The columns aren't what a history file has.
            ValueError: The rows or their values are more than may be.
            pa.ArrowException, OSError: The file is damaged.
        """
        self._check_columns(columns)
        found: list[Row] = []
        size = 0
        # A value that many rows have stays one until it is known how much they are together.
        file = pq.ParquetFile(
            self._file, metadata=self._footer, read_dictionary=[*columns], pre_buffer=False
        )
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
        said = [footer.row_group(number) for number in range(footer.num_row_groups)]
        self._check(max(footer.num_rows, sum(group.num_rows for group in said)), 0)
        for group in said:
            self._check(group.num_rows, group.total_byte_size)

    def _check(self, rows: int, size: int) -> None:
        """Refuse more than a file may have."""
        most_rows = min(FILE_ROWS, max(FEW_ROWS, self._size // BYTES_PER_ROW))
        most = min(GROUP_BYTES, max(SMALL_BYTES, INFLATION * self._size))
        if rows > most_rows or size > most:
            raise ValueError(
                f"{rows} rows or more, of {size} bytes, in {self._size} bytes;"
                f" allowed: at most {most_rows} rows and {most} bytes"
            )

    def _check_columns(self, columns: Iterable[str]) -> None:
        """Refuse columns whose rows may be lists, or are there twice."""
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
    """Return the first and last time that each row group may have."""
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    at = names.index("instantTime") if "instantTime" in names else -1
    found = []
    for number in range(metadata.num_row_groups):
        said = None if at < 0 else metadata.row_group(number).column(at).statistics
        if said is not None and said.has_min_max and isinstance(said.min, str):
            found.append((said.min, said.max))
        else:
            found.append(("", "~"))
    return found


def _bytes_in(column: pa.Array) -> int:
    """Return how many bytes the values of a column have, each counted as often as it is there."""
    if not isinstance(column, pa.DictionaryArray):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary)
    return pc.sum(lengths.take(column.indices)).as_py() or 0


def _checked(batch: pa.RecordBatch, columns: Iterable[str]) -> list[Row]:
    """Return the rows of a batch.

    Raises:
        TypeError: They aren't what a history file has in these columns.
    """
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
