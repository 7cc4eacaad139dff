"""``Spool``: collects rows in memory, or in a temporary file if they are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Final

import numpy as np
import pyarrow as pa

from strandline.read.logs.temp_file import LogBudget, TempFile, drop_pages
from strandline.records.row_selection import Positions, compact, take_rows

_PIECE_BYTES: Final = 16 << 20
"""Minimum size of a piece: taking rows from a piece costs a few calls per column."""


@dataclass(frozen=True, slots=True)
class SpooledRows:
    """Rows in pieces.

    Attributes:
        schema: Their columns.
        pieces: The rows, in order.
        nbytes: Their size, computed before they were written: summing mapped pieces would load
            them.
        mapped: The file that contains them; ``None``: they are in memory.
    """

    schema: pa.Schema
    pieces: Sequence[pa.Table]
    nbytes: int
    mapped: mmap | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(piece.num_rows for piece in self.pieces)

    def select(self, names: Sequence[str]) -> SpooledRows:
        """Return some columns, without copying; ``nbytes`` remains the size of all columns."""
        pieces = [piece.select(names) for piece in self.pieces]
        schema = pa.schema([self.schema.field(name) for name in names])
        return SpooledRows(schema, pieces, self.nbytes, self.mapped)

    def whole(self) -> pa.Table:
        """Return all rows in order, with the columns of ``schema``, without copying."""
        return pa.concat_tables([self.schema.empty_table(), *self.pieces])

    def take(self, at: Positions) -> pa.Table:
        """Return the rows at some positions, in that order, with the columns of ``schema``.

        Cost: memory for these rows, twice unless the pieces are visited in order, and for the pages
            of one piece. pyarrow's ``take`` would concatenate the pieces.
        """
        if len(self.pieces) == 1:
            return self._taken(0, at)
        starts = np.cumsum([0, *(piece.num_rows for piece in self.pieces)])[:-1]
        piece_of = np.searchsorted(starts, at, "right") - 1
        in_order = bool((piece_of[1:] >= piece_of[:-1]).all())
        order = np.argsort(piece_of, kind="stable")
        used, first = np.unique(piece_of[order], return_index=True)
        by_piece = np.split(at[order], first[1:]) if len(used) else []
        parts = [
            self._taken(number, positions - starts[number])
            for number, positions in zip(used.tolist(), by_piece, strict=True)
        ]
        if not parts:
            return self.schema.empty_table()
        if in_order:
            return pa.concat_tables(parts)
        back = np.empty(len(at), np.int64)
        back[order] = np.arange(len(at))
        return take_rows(pa.concat_tables(parts), back)

    def _taken(self, number: int, at: Positions) -> pa.Table:
        """Return rows of one piece, whose pages are released before those of the next are read."""
        taken = take_rows(self.pieces[number], at)
        self.drop_pages()
        return taken

    def drop_pages(self) -> None:
        """Release the pages that were read from resident memory, if the rows are in a file."""
        drop_pages(self.mapped)


class Spool:
    """Collects rows; used by one thread. A context manager, which closes the file.

    Args:
        schema: Their columns.
        budget: Gives the folder for files.
        piece_bytes: Rows are concatenated to pieces of at least this size.

    Attributes:
        nbytes: The size of all rows so far.

    Raises:
        StorageError: The file can't be made or written; raised by all methods.
    """

    def __init__(
        self, schema: pa.Schema, budget: LogBudget, piece_bytes: int = _PIECE_BYTES
    ) -> None:
        self._schema = schema
        self._budget = budget
        self._piece_bytes = min(piece_bytes, budget.size)
        self._file: TempFile | None = None
        self._spans: list[tuple[int, int]] = []
        self._pieces: list[pa.Table] = []
        self._added: list[pa.Table] = []
        self._added_bytes = 0
        self.nbytes = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: pa.Table) -> None:
        """Add rows with exactly the columns of ``schema``."""
        if not rows.num_rows:
            return
        self._added.append(rows)
        self._added_bytes += rows.nbytes
        self.nbytes += rows.nbytes
        if self._added_bytes >= self._piece_bytes:
            self._put_together()

    def spill(self) -> None:
        """Keep all rows in a file, later ones included, if Arrow's format supports their types.

        It doesn't support types nested 64 levels deep.
        """
        if self._file is None and _is_storable(self._schema):
            self._file = TempFile(self._budget)
            self._pieces.reverse()
            while self._pieces:
                self._write(self._pieces.pop())

    def end(self) -> SpooledRows:
        """Return the rows, which outlive the spool; the spool must not be used afterwards."""
        self._put_together()
        if self._file is None or not self._spans:
            return SpooledRows(self._schema, tuple(self._pieces), self.nbytes)
        mapped = self._file.mapped()
        data = pa.py_buffer(mapped)
        pieces = [
            pa.ipc.open_stream(data.slice(begin, end - begin)).read_all()
            for begin, end in self._spans
        ]
        return SpooledRows(self._schema, pieces, self.nbytes, mapped)

    def _put_together(self) -> None:
        if not self._added:
            return
        rows = self._added[0] if len(self._added) == 1 else pa.concat_tables(self._added)
        self._added, self._added_bytes = [], 0
        piece = compact(rows)
        if self._file is None:
            self._pieces.append(piece)
        else:
            self._write(piece)

    def _write(self, piece: pa.Table) -> None:
        assert self._file is not None
        begin = self._file.end
        _encode(piece, self._file)
        self._spans.append((begin, self._file.end))


def _encode(rows: pa.Table, sink: TempFile | pa.NativeFile) -> None:
    """Write rows as a stream of Arrow's format, without a copy of their values in memory."""
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)


def _is_storable(schema: pa.Schema) -> bool:
    """Return whether rows with these columns can be encoded."""
    nulls = [pa.nulls(1, column.type) for column in schema]
    try:
        _encode(pa.Table.from_arrays(nulls, schema=schema), pa.BufferOutputStream())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
