"""A pyarrow dataset of base files, into which query engines push filters and columns.

A dataset reads files itself, so it has only the rows of slices without logs. Each file has the
values that its partition's path determines as a guarantee, so that an engine's filters skip files
without opening them; pyarrow returns these values instead of the stored ones. If the path
determines a value only partly, the columns are compared with it when the file is opened. A dataset
would also cast columns by other rules than this reader. So a file with an older type of a column,
or with a value that contradicts its path, is rewritten in memory.

A file that can't be opened is passed to Arrow as an empty file, and the cause is logged. Arrow then
raises its own error, which names the path. A Python error could deadlock the process:
``Scanner.to_reader``, as DuckDB calls it, holds the GIL while it waits for a lock of Arrow. An
Arrow thread holds that lock while it formats the error, for which it needs the GIL.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from fsview.model.file_group import FileSlice
from strandline.read.filter.partition_filter import Guarantees
from strandline.read.filter.path_values import PathRules, PathValues
from strandline.read.filter.row_filter import RowFilter
from strandline.read.logs.log_blocks import needs_merge
from strandline.records.file.base_file import has_sound_statistics, read_errors, stored_rows
from strandline.records.schema.cast import OnceMicros
from timeline.encoding.column_chunk import check_chunks
from timeline.errors import InputError, UnsupportedTableError
from timeline.storage.base import Storage
from timeline.table.config import TableConfig

logger = logging.getLogger(__name__)

_HERE: Final = "./"


def dataset_of(
    storage: Storage,
    slices: Sequence[FileSlice],
    schema: pa.Schema,
    config: TableConfig,
    row_filter: RowFilter | None = None,
    once_micros: OnceMicros = frozenset,
) -> ds.FileSystemDataset:
    """Return a dataset with the rows of slices without logs.

    Its files are opened through the storage. Paths are under the table's base path.

    Args:
        storage: The table's storage.
        slices: The slices.
        schema: Columns of the dataset.
        config: The table's properties, which define the meaning of partition paths.
        row_filter: Which rows; ``None`` for all.
        once_micros: As in ``cast.corrected``.

    Raises:
        UnsupportedTableError: A slice has logs; the message names the slice.
        InputError: The filter is on columns that the dataset doesn't have, or on columns whose
            statistics pyarrow misinterprets, such as floats.

    Cost: opens no file; some 20 us for each partition. Each time the dataset opens a file, the
        footer is read once more; if a file has older types, these columns are in memory as Parquet.
    """
    logged = next((found for found in slices if needs_merge(found)), None)
    if logged is not None:
        raise UnsupportedTableError(
            f"file group {logged.file_id} in {logged.partition!r} of {storage.base_path} has logs,"
            " which a dataset can't merge",
            hint="read it with to_reader() or to_arrow(), or scan with read_optimized=True",
        )
    files = pafs.PyFileSystem(_BaseFiles(storage, schema, config, once_micros))
    parquet = ds.ParquetFileFormat()
    known = cache(Guarantees.of(schema, config).of_partition)
    fragments = [
        parquet.make_fragment(
            _arrow_path(base.path), files, known(each.partition), file_size=base.size
        )
        for each in slices
        for base in (each.base_file,)
        if base is not None
    ]
    found = ds.FileSystemDataset(fragments, schema, parquet, files)
    if row_filter is None:
        return found
    _refuse_unsound(row_filter, schema)
    return found.filter(row_filter.condition)


def _arrow_path(path: str) -> str:
    """Return a path in pyarrow's form, as pyarrow reads a leading ``~`` as a home directory."""
    return _HERE + path if path.startswith("~") else path


def _refuse_unsound(row_filter: RowFilter, schema: pa.Schema) -> None:
    unread = [name for name in row_filter.columns if name not in schema.names]
    if unread:
        raise InputError(
            f"the filter is on columns {unread}, which the scan doesn't read, so a dataset"
            " doesn't have them, either; read them, too, or use to_reader()"
        )
    kinds = {name: schema.field(name).type for name in row_filter.columns}
    unsound = [name for name, kind in kinds.items() if not has_sound_statistics(kind)]
    if unsound:
        raise InputError(
            f"the filter is on columns {unsound}; by their statistics a dataset may skip rows"
            " that match, such as NaN; use to_reader()"
        )


class _BaseFiles(pafs.FileSystemHandler):  # type: ignore[misc]
    """The base files of a table, read-only."""

    def __init__(
        self, storage: Storage, schema: pa.Schema, config: TableConfig, once_micros: OnceMicros
    ) -> None:
        self._storage = storage
        self._schema = schema
        self._paths = PathRules.of(schema, config)
        self._once_micros = once_micros

    def get_type_name(self) -> str:
        return "strandline"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        try:
            return self._opened(path.removeprefix(_HERE))
        except Exception as exc:  # noqa: BLE001 - Arrow raises another error instead
            logger.warning("a dataset can't read %s: %s", path, exc)
            return pa.BufferReader(b"")

    open_input_stream = open_input_file

    def get_file_info(self, paths: Iterable[str]) -> list[pafs.FileInfo]:
        return [self._info(path.removeprefix(_HERE)) for path in paths]

    def _opened(self, path: str) -> pa.NativeFile:
        """Open a base file, with the table's types and the values of its partition."""
        told = self._paths.values(path.rpartition("/")[0])
        file = self._storage.open_input(path)
        try:
            with read_errors(f"{path} under {self._storage.base_path}"):
                footer = pq.read_metadata(file)
                check_chunks(footer)
                if self._has_types_of(footer.schema.to_arrow_schema()) and self._agrees(path, told):
                    return file
        except BaseException:
            file.close()
            raise
        file.close()
        return self._conformed(path, told)

    def _info(self, path: str) -> pafs.FileInfo:
        found = self._storage.stat(path)
        if found is None:
            return pafs.FileInfo(path, pafs.FileType.NotFound)
        kind = pafs.FileType.Directory if found.is_dir else pafs.FileType.File
        return pafs.FileInfo(path, kind, size=None if found.is_dir else found.size)

    def _has_types_of(self, stored: pa.Schema) -> bool:
        """Return whether all columns are stored with the table's types, or missing and nullable."""
        names = stored.names
        return len(set(names)) == len(names) and all(
            stored.field(field.name).type == field.type if field.name in names else field.nullable
            for field in self._schema
        )

    def _agrees(self, path: str, told: PathValues) -> bool:
        """Return whether a file's columns agree with values that its path determines partly."""
        asked = pa.schema([self._schema.field(name) for name in sorted(told.unsettled)])
        if not asked.names:
            return True
        with stored_rows(self._storage, path, threads=False) as stored:
            return all(told.applied(piece, asked) == piece for piece in stored.conformed(asked))

    def _conformed(self, path: str, told: PathValues) -> pa.NativeFile:
        """Return a base file as a writer with the table's schema would have stored it."""
        target = pa.BufferOutputStream()
        with (
            stored_rows(self._storage, path, threads=False) as stored,
            pq.ParquetWriter(target, self._schema) as writer,
        ):
            for piece in stored.conformed(self._schema, once_micros=self._once_micros):
                writer.write_table(told.applied(piece, self._schema))
        return pa.BufferReader(target.getvalue())

    def _refuse(self, *arguments: Any) -> NoReturn:
        raise NotImplementedError("base files of a table can only be opened for reading")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse
