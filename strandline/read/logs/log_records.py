"""``LogRecords``: the decoded records of a slice's logs, oldest first, in memory or on disk.

The *head* of each record, the values that decide which record of a key is the newest, is kept apart
from its row. Heads can be read in parts, each with all records of its keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.block_rows import data_pieces, ordering_column
from strandline.read.logs.partial_updates import ColumnClasses, is_partial
from strandline.read.logs.spool import Spool, SpooledRows
from strandline.read.logs.temp_file import LogBudget, drop_pages
from strandline.records.key.text import key_hashes
from strandline.records.merge_rule import MergeProperties, lacking
from strandline.records.meta_fields import IS_DELETED, RECORD_KEY
from strandline.records.row_selection import Mask, Positions, one_chunk
from strandline.records.schema.cast import OnceMicros, corrected
from strandline.records.schema.columns import column_of, conform
from timeline.encoding.delete_block import DeletedRecord, DeleteVersionError, deleted_records
from timeline.encoding.log_block import DELETE
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.table.property_name import PARTIAL_UPDATE_MODE

OPERATION: Final = "_hoodie_operation"
"""Meta column of tables that keep the operations of change data; deletes are rows there."""
KEY, ROW, IS_DELETE, LACKS = "key", "row", "is_delete", "lacks"
"""Columns of heads: the record's key; the number of its row (int64), -1 if it has none; whether it
is a delete (bool); if records may lack values, whether it lacks each fillable column (list of
bool). The ordering columns follow, named by their numbers, in the table's types; null if absent."""

_DAMAGE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors of the Avro and Parquet readers on damaged data. ``MemoryError`` isn't one: a block's size
bounds the memory for its rows."""
_MESSAGE_CHARACTERS: Final = 500
_PIECE_DELETES: Final = 16_384
_FOLD: Final = 8
"""Memory for folding heads, as a multiple of their size: hashes and sorts need several arrays."""


@dataclass(frozen=True, slots=True)
class LogRules:
    """How the records of logs are merged.

    Attributes:
        schema: The columns to read; among them the record key and the ordering columns.
        ordering_fields: Ordering columns; empty by commit time.
        budget: Memory limit.
        properties: Which rows are deletes, and which values rows lack.
        once_micros: As in ``cast.corrected``.
    """

    schema: pa.Schema
    ordering_fields: tuple[str, ...]
    budget: LogBudget = field(default_factory=LogBudget)
    properties: MergeProperties = field(default_factory=MergeProperties)
    once_micros: OnceMicros = frozenset

    @property
    def fillable(self) -> tuple[str, ...]:
        """The columns whose value a record may lack."""
        return self.properties.fillable(self.schema)

    @property
    def heads(self) -> pa.Schema:
        """The columns of heads, described at ``KEY``."""
        empty = self.schema.empty_table()
        columns = [(KEY, self.schema.field(RECORD_KEY).type), (ROW, pa.int64())]
        columns.append((IS_DELETE, pa.bool_()))
        if fillable := self.fillable:
            columns.append((LACKS, pa.list_(pa.bool_(), len(fillable))))
        for at, name in enumerate(self.ordering_fields):
            columns.append((str(at), column_of(empty, name).type))
        return pa.schema(columns)


@dataclass(frozen=True, slots=True)
class LogRecords:
    """The records of a slice's logs, oldest first.

    Attributes:
        heads: The heads of all records.
        rows: The rows of the records that aren't deletes by key, with the columns of the rules.
        budget: Memory limit.
        classes: The columns that the records have; ``None``: all columns, as no block has partial
            updates and no record lacks a value.
    """

    heads: SpooledRows
    rows: SpooledRows
    budget: LogBudget
    classes: ColumnClasses | None

    @classmethod
    def of(cls, blocks: Iterable[PlacedBlock], rules: LogRules) -> LogRecords:
        """Decode blocks, oldest first.

        Raises:
            CorruptMetadataError: A block is damaged, or a record has no key.
            UnsupportedTableError: A block can't be read by this release, or there are both blocks
                with partial updates and rows that lack values.
            StorageError: The records exceed the budget, and can't be written to disk.
        """
        budget, count, number = rules.budget, 0, 0
        first: int | None = None
        pieces: list[tuple[int, Collection[str]]] = []
        names_of: dict[frozenset[str], frozenset[str]] = {}
        with Spool(rules.heads, budget) as heads, Spool(rules.schema, budget) as rows:
            for placed in blocks:
                if first is None and is_partial(placed):
                    first = number
                    _refuse_two_kinds(placed, rules.properties)
                for piece in _decoded(placed, rules):
                    heads.add(piece.heads(rules, count))
                    rows.add(piece.rows)
                    count += piece.rows.num_rows
                    number += len(piece.keys)
                    pieces.append((number, names_of.setdefault(piece.columns, piece.columns)))
                    if heads.nbytes + rows.nbytes > budget.size:
                        heads.spill()
                        rows.spill()
                    drop_pages(placed.block.content)
            names, classes = rules.schema.names, None
            if rules.fillable:
                classes = ColumnClasses.of_fillable(names, rules.fillable)
            elif first is not None:
                classes = ColumnClasses.of(names, pieces, first)
            return cls(heads.end(), rows.end(), budget, classes)

    def parts(self) -> Iterator[tuple[Positions, pa.Table]]:
        """Yield the heads in parts; all records of a key are in one part.

        Yields:
            The numbers of some records, ascending; and their heads in that order, with the columns
            of ``LogRules.heads``.

        Cost: folding a part takes up to about the budget, half of it without partial updates. If
            there are several parts, keys are spread by their hashes, which takes two bytes a
            record, and each part reads all heads again.
        """
        heads = self.heads
        wanted = -(-heads.nbytes * _FOLD // max(self.budget.size, 1))
        count = min(wanted, heads.num_rows, np.iinfo(np.uint16).max)
        if count <= 1:
            yield np.arange(heads.num_rows), heads.whole()
            return
        hashed = []
        for piece in heads.pieces:
            hashed.append(_hashed(piece, count))
            heads.drop_pages()
        part_of = np.concatenate(hashed)
        for part in range(count):
            at = np.flatnonzero(part_of == part)
            if len(at):
                yield at, heads.take(at)


def _hashed(heads: pa.Table, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Return the part of each record."""
    keys = one_chunk(heads.column(KEY)).cast(pa.string())
    parts: np.ndarray[tuple[int], np.dtype[np.uint16]]
    parts = (key_hashes(keys).to_numpy() % count).astype(np.uint16)
    return parts


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some records of a block.

    Attributes:
        keys: Their keys.
        ordering: The values of each ordering column.
        deletes: Where a record is a delete.
        rows: The rows, with the columns of the rules; none for deletes by key.
        lacks: For each row, and each fillable column, whether the row lacks its value.
        columns: The names of the columns that the rows have.
    """

    keys: pa.Array | pa.ChunkedArray
    ordering: Sequence[pa.Array | pa.ChunkedArray]
    deletes: pa.Array
    rows: pa.Table
    lacks: Mask
    columns: frozenset[str] = frozenset()

    @classmethod
    def of_rows(cls, rows: pa.Table, rules: LogRules, *, has_all: bool = True) -> _Piece:
        flags = pa.array(rules.properties.deletes(rows))
        columns = frozenset(rows.schema.names)
        rows = conform(rows, rules.schema) if has_all else _widened(rows, rules)
        keys = rows.column(RECORD_KEY)
        if keys.null_count:
            raise ValueError(f"{keys.null_count} of {len(keys)} records have no key")
        ordering = [column_of(rows, name) for name in rules.ordering_fields]
        lacks = lacking(rows, rules.fillable, rules.properties)
        return cls(keys, ordering, flags, rows, lacks, columns)

    @classmethod
    def of_deletes(cls, records: Sequence[DeletedRecord], rules: LogRules) -> _Piece:
        heads = rules.heads
        keys = pa.array([record.key for record in records], heads.field(KEY).type)
        ordering = [
            ordering_column(records, at, heads.field(str(at)).type)
            for at in range(len(rules.ordering_fields))
        ]
        deletes = pa.array(np.ones(len(keys), np.bool_))
        lacks: Mask = np.zeros((len(keys), len(rules.fillable)), np.bool_)
        return cls(keys, ordering, deletes, rules.schema.empty_table(), lacks)

    def heads(self, rules: LogRules, first: int) -> pa.Table:
        """Return the heads of records whose rows are numbered from ``first``."""
        has_rows = self.rows.num_rows > 0
        numbers = np.arange(first, first + len(self.keys)) if has_rows else [-1] * len(self.keys)
        columns = [self.keys, pa.array(numbers, pa.int64()), self.deletes]
        if rules.fillable:
            flat = pa.array(self.lacks.reshape(-1))
            columns.append(pa.FixedSizeListArray.from_arrays(flat, self.lacks.shape[1]))
        columns += self.ordering
        return pa.Table.from_arrays(columns, schema=rules.heads)


def _decoded(placed: PlacedBlock, rules: LogRules) -> Iterator[_Piece]:
    """Yield the records of a block; errors as in ``LogRecords.of``."""
    with _placed_errors(placed):
        if placed.block.kind == DELETE:
            records = deleted_records(bytes(placed.block.content))
            while some := list(islice(records, _PIECE_DELETES)):
                yield _Piece.of_deletes(some, rules)
            return
        marks = {IS_DELETED, rules.properties.delete_column, OPERATION}
        for rows in data_pieces(placed.block, {*rules.schema.names, *marks}):
            if RECORD_KEY not in rows.schema.names:
                raise ValueError(f"its schema has no column {RECORD_KEY}")
            if OPERATION in rows.schema.names:
                break
            rows = corrected(rows, rules.schema, rules.once_micros, placed.place)
            yield _Piece.of_rows(rows, rules, has_all=not is_partial(placed))
        else:
            return
    raise UnsupportedTableError(
        f"{placed.place} has the column {OPERATION}, by which this release can't merge"
    )


def _refuse_two_kinds(placed: PlacedBlock, properties: MergeProperties) -> None:
    if properties.fills:
        raise UnsupportedTableError(
            f"{placed.place} has partial updates of some columns, in a table with"
            f" {PARTIAL_UPDATE_MODE}={properties.mode}: this release can't merge both"
        )


def _widened(rows: pa.Table, rules: LogRules) -> pa.Table:
    """Return partial updates with all columns of the rules; missing ones are null.

    Raises:
        UnsupportedTableError: They lack an ordering column.
    """
    names = rows.schema.names
    for name in rules.ordering_fields:
        if not {name, name.split(".")[0]}.intersection(names):
            raise UnsupportedTableError(f"partial updates without the ordering column {name!r}")
    fields = (f if f.name in names else f.with_nullable(True) for f in rules.schema)
    return pa.Table.from_arrays(conform(rows, pa.schema(fields)).columns, schema=rules.schema)


@contextmanager
def _placed_errors(placed: PlacedBlock) -> Iterator[None]:
    """Add the block's place to errors about damaged or unsupported content."""
    try:
        yield
    except DeleteVersionError as exc:
        raise UnsupportedTableError(f"{placed.place} has deletes of {exc}") from exc
    except UnsupportedTableError as exc:
        raise UnsupportedTableError(f"{placed.place} can't be read: {exc.message}") from exc
    except CorruptMetadataError as exc:
        raise CorruptMetadataError(f"{placed.place} can't be decoded: {exc.message}") from exc
    except _DAMAGE as exc:
        what = f"{type(exc).__name__}: {exc}"[:_MESSAGE_CHARACTERS]
        raise CorruptMetadataError(f"{placed.place} can't be decoded: {what}") from exc
