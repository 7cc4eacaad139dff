"""Reads base files of any writer: Parquet with the meta columns first and Hudi's footer keys.

``strandline.records.file.base_file_writer`` writes them.

The footer has the number of rows of the file, of each row group, and of each column in a group.
This module checks that they agree: pyarrow reads a column with a negative number as empty.

Source: Hudi 1.2.0 ``HoodieBloomFilterWriteSupport``, ``ParquetUtils``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from strandline.records.meta_fields import FILE_NAME, RECORD_KEY
from strandline.records.schema.cast import OnceMicros, corrected
from strandline.records.schema.columns import conform
from timeline.encoding.column_chunk import check_chunks
from timeline.errors import InputError, TableError
from timeline.storage.base import Storage, mapped_errors

EXTENSION: Final = ".parquet"
MIN_KEY: Final = "hoodie_min_record_key"
MAX_KEY: Final = "hoodie_max_record_key"

_BEYOND_U_FFFF: Final = r"[\x{10000}-\x{10FFFF}]"
_PIECE_ROWS: Final = 131_072
_LEAN_ROWS: Final = 16_384
_LEAN_BYTES: Final = 8 << 20
"""Most rows, and about the bytes, encoded, of a piece of a lean reader."""
_LEAN_BUFFER: Final = 1 << 20
"""Bytes of a column that a lean reader reads at once."""


def read_base_file(storage: Storage, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a base file of any writer.

    Args:
        storage: The table's storage.
        path: Path under the base path.
        columns: Columns to read, in this order; ``None`` for all.

    Returns:
        The rows in file order, with these columns in the types as stored (96-bit timestamps as
        timestamp[us]); all columns are the five string columns ``META_FIELDS``, then the table's.

    Raises:
        PathNotFoundError: There is no such file.
        TableError: The file isn't readable Parquet, lacks a requested column, or has one twice.
    """
    with _opened(storage, path) as file:
        return _read(file, columns, path)


def read_stored_schema(storage: Storage, path: str) -> pa.Schema:
    """Return a base file's columns as ``read_base_file`` returns them; same errors.

    Cost: one open; reads the footer.
    """
    with _opened(storage, path) as file:
        return file.schema_arrow


class StoredRows:
    """The rows of an open base file, read once; used by one thread.

    ``stored_rows`` opens it. Errors of all methods as in ``read_base_file``, and a ``TableError``
    for record keys that are missing, null or no strings.
    """

    def __init__(
        self,
        file: pq.ParquetFile,
        source: pa.NativeFile,
        path: str,
        place: str,
        *,
        threads: bool = True,
        lean: bool = False,
    ) -> None:
        self._threads = threads
        self._lean = lean
        self._file = file
        self._source = source
        self._path = path
        self._place = place
        self._keys: pa.ChunkedArray | None = None
        self._keyed: Sequence[int] | None = None
        self._checked_names: set[str] = set()

    @property
    def num_rows(self) -> int:
        """Number of rows according to the footer."""
        return int(self._file.metadata.num_rows)

    @property
    def footer(self) -> Mapping[bytes, bytes]:
        """The footer's key-value pairs."""
        return self._file.metadata.metadata or {}

    @property
    def num_groups(self) -> int:
        """Number of row groups."""
        return int(self._file.num_row_groups)

    def keys(self, groups: Sequence[int] | None = None) -> pa.ChunkedArray:
        """Read the record keys of all rows; ``pieces`` of these rows doesn't read them again.

        Args:
            groups: Row groups to read, ascending, if not all.

        Returns:
            The column ``_hoodie_record_key``: string or large_string without nulls, one key a row,
            in file order.
        """
        with read_errors(self._place):
            columns = _checked(self._file, [RECORD_KEY], self._path)
            wanted = range(self.num_groups) if groups is None else groups
            keys = self._file.read_row_groups(wanted, columns).column(RECORD_KEY)
        check_read(len(keys), self._file.metadata, wanted, self._place)
        _check_keys(keys, self._path)
        self._keys, self._keyed = keys, wanted
        return keys

    def key_span(self, group: int) -> tuple[bytes, bytes] | None:
        """Return an inclusive lower and upper bound of a row group's record keys, in UTF-8.

        Parquet compares text by these bytes, and allows bounds that aren't values.

        Returns:
            The bounds in the footer's statistics; ``None`` without statistics.
        """
        schema, footer = self._file.schema, self._file.metadata
        for at in range(footer.num_columns):
            if schema.column(at).path == RECORD_KEY:
                if schema.column(at).physical_type != "BYTE_ARRAY":
                    return None
                self._check_statistics((RECORD_KEY,))
                found = footer.row_group(group).column(at).statistics
                if found is None or not found.has_min_max:
                    return None
                return found.min_raw, found.max_raw
        return None

    def groups_that_may_match(
        self, condition: pc.Expression, columns: pa.Schema, known: pc.Expression | None = None
    ) -> Sequence[int]:
        """Return the row groups that may have rows for which a condition is true.

        Uses the footer's statistics, which are trusted only for columns stored with the table's
        type. Returns all groups if the condition can't cast a value in these statistics.

        Args:
            condition: On some columns.
            columns: These columns, with the table's types.
            known: A condition that is true for all rows, whatever values the file stores: a
                conjunction of comparisons of columns with values. It overrides the statistics of
                its columns.

        Cost: parses the footer once more.
        """
        stored = self._file.schema_arrow
        if not all(
            has_sound_statistics(field.type)
            and field.name in stored.names
            and stored.field(field.name).type == field.type
            for field in columns
        ):
            return range(self.num_groups)
        self._check_statistics(columns.names)
        with read_errors(self._place):
            always = pc.scalar(True) if known is None else known
            fragment = ds.ParquetFileFormat().make_fragment(
                self._source, partition_expression=always
            )
            fragment.ensure_complete_metadata()
        try:
            return [group.id for group in fragment.subset(condition, schema=columns).row_groups]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return range(self._file.num_row_groups)

    def _check_statistics(self, names: Sequence[str]) -> None:
        """Refuse statistics that can't be read."""
        unchecked = set(names) - self._checked_names
        if not unchecked:
            return
        try:
            check_chunks(self._file.metadata, unchecked)
        except ValueError as exc:
            raise TableError(f"{self._place} can't be read: {exc}") from exc
        self._checked_names |= unchecked

    def pieces(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows in file order, in pieces.

        Args:
            columns: Columns to read; those that the file lacks are left out. ``None`` for all
                except ``_hoodie_file_name``; the record keys are then checked.
            groups: Row groups to read, ascending, if not all.

        Yields:
            Tables with these columns in the file's order, in the types as stored; see
            ``read_base_file``.
        """
        with read_errors(self._place):
            if columns is None:
                _checked(self._file, [RECORD_KEY], self._path)
            names = self._file.schema_arrow.names
            names = [n for n in names if (n != FILE_NAME if columns is None else n in columns)]
            key_at = names.index(RECORD_KEY) if RECORD_KEY in names else 0
            wanted = range(self.num_groups) if groups is None else groups
            known = self._keys if RECORD_KEY in names and wanted == self._keyed else None
            if known is not None:
                names.remove(RECORD_KEY)
            first = 0
            # Row group by row group, so that no more than one is buffered.
            for group in wanted:
                begin = first
                size = self._piece_rows(group)
                batches = self._file.iter_batches(size, [group], names, self._threads)
                for batch in batches:
                    piece = pa.Table.from_batches([batch])
                    if known is not None:
                        keys = known.slice(first, batch.num_rows)
                        piece = piece.add_column(key_at, RECORD_KEY, keys)
                    elif columns is None:
                        _check_keys(batch.column(RECORD_KEY), self._path)
                    first += batch.num_rows
                    yield piece
                if names:
                    check_read(first - begin, self._file.metadata, [group], self._place)

    def _piece_rows(self, group: int) -> int:
        """Return the most rows of a piece of a row group."""
        if not self._lean:
            return _PIECE_ROWS
        footer = self._file.metadata.row_group(group)
        fitting = _LEAN_BYTES * footer.num_rows // max(1, footer.total_byte_size)
        return max(1, min(_LEAN_ROWS, int(fitting)))

    def conformed(
        self,
        schema: pa.Schema,
        groups: Sequence[int] | None = None,
        once_micros: OnceMicros = frozenset,
    ) -> Iterator[pa.Table]:
        """Yield the rows in file order, in pieces with exactly the columns and types of ``schema``.

        Args:
            schema: The columns; nullable ones that the file lacks are null.
            groups: As in ``pieces``.
            once_micros: As in ``labelled``.

        Raises:
            TableError: A column, or a value of it, doesn't fit the table's type; the message has
                both types.
            UnsupportedTableError: As in ``labelled``.
        """
        for piece in self.pieces(schema.names, groups):
            try:
                rows = conform(self.labelled(piece, schema, once_micros), schema)
            except InputError as exc:
                raise TableError(f"{self._place} doesn't suit the table: {exc.message}") from exc
            yield rows

    def labelled(self, piece: pa.Table, schema: pa.Schema, once_micros: OnceMicros) -> pa.Table:
        """Return rows of ``pieces``, same columns, with timestamps in their true unit.

        Args:
            piece: The rows.
            schema: The table's columns.
            once_micros: As in ``cast.corrected``, as is the error.
        """
        return corrected(piece, schema, once_micros, self._place, self._of_96_bits)

    @cached_property
    def _of_96_bits(self) -> frozenset[str]:
        """The columns with 96-bit timestamps, whose unit is certain."""
        parquet = self._file.schema
        leaves = (parquet.column(at) for at in range(len(parquet)))
        return frozenset(
            leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"
        )


def has_sound_statistics(kind: pa.DataType) -> bool:
    """Return whether pyarrow may skip row groups by a column's statistics.

    Statistics of floats ignore NaN, but a condition may be true for NaN.
    """
    checks = (
        pa.types.is_integer,
        pa.types.is_string,
        pa.types.is_boolean,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_decimal,
    )
    return any(check(kind) for check in checks)


@contextmanager
def stored_rows(
    storage: Storage, path: str, *, threads: bool = True, lean: bool = False
) -> Iterator[StoredRows]:
    """Open a base file to read its rows in pieces; errors as in ``read_base_file``.

    Args:
        storage: The table's storage.
        path: Path under the base path.
        threads: Whether Arrow's threads may read pieces. False on a thread of Arrow: if all of them
            waited for each other, they would wait forever.
        lean: Whether pieces are small, and a local file is read through small buffers, so that a
            row group's encoded bytes aren't in memory. In a remote one each buffer is a request.
    """
    place = f"{path} under {storage.base_path}"
    buffer = _LEAN_BUFFER if lean and not storage.is_remote else 0
    with storage.open_input(path) as source:
        with read_errors(place):
            file = _parquet_file(source, place, threads=threads, buffer=buffer)
        yield StoredRows(file, source, path, place, threads=threads, lean=lean)


def read_keys_if(
    storage: Storage,
    path: str,
    is_wanted: Callable[[Mapping[bytes, bytes]], bool],
    columns: Sequence[str] = (),
) -> pa.Table | None:
    """Return a file's record keys if ``is_wanted`` accepts its footer; ``None`` otherwise.

    Errors as in ``StoredRows``.

    Args:
        storage: The table's storage.
        path: Path under the base path.
        is_wanted: Decides by the footer's key-value pairs.
        columns: Further columns to read.

    Returns:
        All rows in file order, with ``_hoodie_record_key`` (string or large_string, without
        nulls), then ``columns`` in the types as stored.

    Cost: one open; reads the footer and at most the columns.
    """
    with _opened(storage, path) as file:
        if not is_wanted(file.metadata.metadata or {}):
            return None
        found = _read(file, [RECORD_KEY, *columns], path)
        _check_keys(found.column(RECORD_KEY), path)
        return found


def footer_key_range(footer: Mapping[bytes, bytes]) -> tuple[bytes, bytes] | None:
    """Return a footer's least and greatest key as ``utf_16``; ``None`` if they can't be right."""
    least, greatest = footer.get(MIN_KEY.encode()), footer.get(MAX_KEY.encode())
    if least is None or greatest is None:
        return None
    try:
        low, high = utf_16(least.decode()), utf_16(greatest.decode())
    except UnicodeDecodeError:
        return None
    return (low, high) if low <= high else None


def _check_keys(keys: pa.Array | pa.ChunkedArray, path: str) -> None:
    if keys.type not in (pa.string(), pa.large_string()) or keys.null_count:
        raise TableError(
            f"{path} has record keys of type {keys.type}, {keys.null_count} of them null;"
            " allowed: strings without nulls"
        )


def read_footer(storage: Storage, path: str) -> dict[str, str]:
    """Return the footer's key-value pairs; errors as in ``read_base_file``."""
    with _opened(storage, path) as file:
        pairs = file.metadata.metadata or {}
        return {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in pairs.items()
        }


@contextmanager
def _opened(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    place = f"{path} under {storage.base_path}"
    with storage.open_input(path) as source, read_errors(place):
        yield _parquet_file(source, place)


def _parquet_file(
    source: pa.NativeFile, place: str, *, threads: bool = True, buffer: int = 0
) -> pq.ParquetFile:
    # Old Spark writers store 96-bit timestamps; read them as microseconds like the rest.
    file = pq.ParquetFile(
        source,
        buffer_size=buffer,
        pre_buffer=threads and not buffer,
        coerce_int96_timestamp_unit="us",
    )
    names = file.schema_arrow.names
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise TableError(f"{place} has duplicate columns {twice}")
    check_footer(file.metadata, place)
    return file


def _read(file: pq.ParquetFile, columns: Sequence[str] | None, path: str) -> pa.Table:
    """Read all rows of a file."""
    found = file.read(columns=_checked(file, columns, path))
    if found.num_columns:
        check_read(found.num_rows, file.metadata, range(file.num_row_groups), path)
    return found


@contextmanager
def read_errors(place: str) -> Iterator[None]:
    """Map errors of a base file that isn't readable Parquet to ``TableError``.

    Errors of the file system, which have an ``errno``, are mapped as by ``Storage.read``.
    """
    try:
        yield
    except OSError as exc:
        # A damaged footer may make pyarrow read at invalid offsets.
        if exc.errno not in (None, errno.EINVAL):
            with mapped_errors(place):
                raise
        raise TableError(f"{place} can't be read: {exc}") from exc
    # A damaged footer may have unknown types, and names that aren't UTF-8.
    except (pa.ArrowException, UnicodeDecodeError) as exc:
        raise TableError(f"{place} can't be read: {exc}") from exc


def _checked(file: pq.ParquetFile, columns: Sequence[str] | None, path: str) -> list[str] | None:
    if columns is None:
        return None
    missing = set(columns).difference(file.schema_arrow.names)
    if missing:
        raise TableError(f"{path} lacks the columns {sorted(missing)}")
    return list(columns)


def key_range(keys: pa.ChunkedArray) -> tuple[str, str]:
    """Return the least and greatest of some keys (strings, none null), ordered as Java's strings.

    Java compares UTF-16 code units.
    """
    if len(keys) == 1:
        only = keys[0].as_py()
        return only, only
    # UTF-8 bytes sort the same way unless a key has a character above U+FFFF: its surrogates sort
    # below U+E000 to U+FFFF, its UTF-8 bytes above them.
    ascii_only = pc.all(pc.string_is_ascii(keys)).as_py()
    if ascii_only or not pc.any(pc.match_substring_regex(keys, _BEYOND_U_FFFF)).as_py():
        ends = pc.min_max(keys).as_py()
        return str(ends["min"]), str(ends["max"])
    ordered = sorted(keys.to_pylist(), key=utf_16)
    return ordered[0], ordered[-1]


def utf_16(key: str) -> bytes:
    """Return a key in a form whose bytes sort as Java sorts strings."""
    return key.encode("utf-16-be")


def check_footer(footer: pq.FileMetaData, place: str) -> None:
    """Check that a file has as many rows as its row groups.

    Args:
        footer: Its footer.
        place: The file, for the error.

    Raises:
        TableError: The numbers differ.
    """
    in_groups = rows_of(footer, range(footer.num_row_groups))
    if footer.num_rows != in_groups:
        raise TableError(
            f"{place} has {footer.num_rows} rows by its footer, and {in_groups} in its row groups"
        )


def check_read(rows: int, footer: pq.FileMetaData, groups: Iterable[int], place: str) -> None:
    """Check that as many rows were read as the footer has for some row groups.

    Args:
        rows: The number of rows that were read.
        footer: The file's footer.
        groups: The row groups that were read.
        place: The file, for the error.

    Raises:
        TableError: The numbers differ.
    """
    expected = rows_of(footer, groups)
    if rows != expected:
        raise TableError(f"{place} has {rows} rows, and {expected} by its footer")


def rows_of(footer: pq.FileMetaData, groups: Iterable[int]) -> int:
    """Return the number of rows of some row groups, by their footer."""
    return sum(footer.row_group(number).num_rows for number in groups)
