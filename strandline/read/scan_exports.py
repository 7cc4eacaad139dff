"""``Exports``: rows for other libraries, as frames, lazy frames, views and streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from timeline.errors import ConfigError, InputError, UnsupportedTableError

if TYPE_CHECKING:
    import pandas
    import polars


class Exports(ABC):
    """Conversions of rows that can be read with Arrow.

    A subclass provides their schema and reads them; nothing else of it is used.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows, in order."""

    @abstractmethod
    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows with the columns of ``schema``; reads as it advances."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Read the rows into memory, with the columns of ``schema``."""

    @abstractmethod
    def to_dataset(self) -> ds.FileSystemDataset:
        """Return a pyarrow dataset with the rows.

        Raises:
            InputError, UnsupportedTableError: No dataset has exactly these rows.
        """

    @abstractmethod
    def _read_part(
        self, columns: Sequence[str], condition: pc.Expression | None, limit: int | None
    ) -> pa.RecordBatchReader:
        """Read some columns and rows; several threads may call it at once.

        Args:
            columns: Some of the schema's columns.
            condition: Rows for which it isn't true may be left out.
            limit: Only the first ``limit`` rows; given without a condition.
        """

    def to_pandas(self) -> pandas.DataFrame:
        """Read the rows into a pandas frame.

        Raises:
            ConfigError: pandas isn't installed.
        """
        optional_package("pandas", "to_pandas()")
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Read the rows into a Polars frame.

        Raises:
            ConfigError: Polars isn't installed.
        """
        library = optional_package("polars", "to_polars()")
        frame: polars.DataFrame = library.from_arrow(self.to_arrow())
        return frame

    def to_lazy(self) -> polars.LazyFrame:
        """Return a Polars lazy frame, which is read when it is collected.

        Polars pushes columns, limits and predicates into it, even if slices have logs. It stays at
        this scan's instant, and may be collected by several threads.

        Raises:
            ConfigError: Polars isn't installed, or too old for this.
        """
        optional_package("polars", "to_lazy()")
        lazy = optional_package("polars", "to_lazy()", "strandline.read.lazy_frame")
        frame: polars.LazyFrame = lazy.lazy_frame(self._read_part, self.schema)
        return frame

    def to_duckdb(self, name: str, connection: Any = None) -> Any:
        """Make the rows a view of a DuckDB connection, which reads them at each query.

        DuckDB pushes its filters and columns into files if the scan's slices have no logs, and the
        scan has no limit.

        Args:
            name: The view's name.
            connection: A ``duckdb.DuckDBPyConnection``; ``None`` for a new one, in memory.

        Returns:
            The connection.

        Raises:
            InputError: The name isn't text, or the connection isn't DuckDB's.
            ConfigError: There is no connection, and DuckDB isn't installed.
        """
        if not isinstance(name, str):
            raise InputError(f"name is {name!r}; allowed: text, the name of a view")
        if connection is None:
            connection = optional_package("duckdb", "to_duckdb() without a connection").connect()
        elif not callable(getattr(connection, "register", None)):
            raise InputError(f"connection is {connection!r}; allowed: None, or one of DuckDB's")
        source: Any = self
        with suppress(InputError, UnsupportedTableError):
            source = self.to_dataset()
        return connection.register(name, source)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow stream, which Polars, pandas and DuckDB read."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def optional_package(name: str, caller: str, module: str | None = None) -> Any:
    """Import a package for a method.

    Args:
        name: The package, as pip and Python name it.
        caller: The method that needs it, for the message.
        module: What is imported; ``None`` for the package itself.

    Raises:
        ConfigError: It can't be imported: it isn't installed, or too old.
    """
    try:
        return import_module(module or name)
    except ImportError as exc:
        raise ConfigError(
            f"{caller} needs {name}, which can't be imported: {exc}",
            hint=f"pip install -U {name}",
        ) from exc
