"""``spark.read.format("strandline")``: a Python data source of PySpark 4.

Spark makes the source at ``load``, which fixes the instant, in a Python process beside the driver;
it pickles it for each query, whose reader leaves out partitions and rows by Spark's filters. A task
reads some file slices, as in ``strandline.spark``. Spark tells a source no columns; they are named
by an option or a schema.

Spark pickles the source into tasks, too, which need its name only. So it doesn't keep its options,
among which may be the token of a timeline service, nor its slices once it has made a reader.

Spark keeps NaN as the greatest number, and checks all filters again itself: what is pushed only has
to follow from them (``strandline.read.filter.nan_comparisons``).
"""

from __future__ import annotations

import datetime as dt
import json
import operator
import pickle
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

try:
    from pyspark.sql import datasource
except ImportError as error:
    raise ImportError(
        f"{__name__} needs PySpark 4 or later: pip install 'strandline[spark]' 'pyspark>=4'"
        f" ({error})"
    ) from error
from pyspark.sql.types import StructType

from strandline.read.filter.nan_comparisons import NEGATED, Compare, among, compared
from strandline.read.scan import Scan
from strandline.spark import scan_of, spark_schema, task_rows, task_slices
from strandline.table_api.table import Table
from timeline.errors import InputError

PATH: Final = "path"
AS_OF: Final = "as_of"
COLUMNS: Final = "columns"
READ_OPTIMIZED: Final = "read_optimized"
SINCE: Final = "since"
UNTIL: Final = "until"
PUSH_FILTERS: Final = "push_filters"
STORAGE_OPTIONS: Final = "storage_options"
SERVICE: Final = "service"
TOKEN: Final = "token"  # noqa: S105 - an option's name
OPTIONS: Final = (
    PATH,
    AS_OF,
    COLUMNS,
    READ_OPTIMIZED,
    SINCE,
    UNTIL,
    PUSH_FILTERS,
    STORAGE_OPTIONS,
    SERVICE,
    TOKEN,
)

_CAN_PUSH: Final = hasattr(datasource.DataSourceReader, "pushFilters")
"""From PySpark 4.1 on."""

_TYPES: Final = (
    (pat.is_boolean, bool),
    (pat.is_integer, int),
    (pat.is_floating, float),
    (pat.is_decimal, Decimal),
    (pat.is_date, dt.date),
    (pat.is_timestamp, dt.datetime),
    (pat.is_string, str),
    (pat.is_binary, bytes),
)
"""Kinds of columns, and what their values are in Spark's filters."""


class StrandlineDataSource(datasource.DataSource):  # type: ignore[misc]
    """A table's rows at the instant of ``load``.

    Register it by ``session.dataSource.register(StrandlineDataSource)``. Options are texts; those
    of ``Table.scan`` are ``as_of``, ``columns`` (names with commas between) and ``read_optimized``
    (``true`` or ``false``), those of ``Table.incremental`` ``since`` and ``until``;
    ``storage_options`` is a JSON object for fsspec; ``service`` and ``token`` are those of
    ``Table``. ``push_filters`` says whether Spark's filters are checked where files are read, which
    Spark must allow by its setting ``spark.sql.python.filterPushdown.enabled`` (PySpark 4.1).

    A schema given to Spark names the columns, too; their types must be the table's.

    Errors are those of ``strandline.spark.read``, and ``InputError`` for an option that there is
    not, or whose text isn't allowed; Spark puts them into its own.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Fix the instant."""
        super().__init__({})
        self._scan = _scan(options)
        self._pushes = _flag(options, PUSH_FILTERS)
        self._is_planned = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the slices once there is a reader, whose partitions have them."""
        kept = self._scan.of_slices(()) if self._is_planned else self._scan
        return self.__dict__ | {"_scan": kept}

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "strandline"

    def schema(self) -> StructType:
        """Return the columns."""
        return spark_schema(self._scan.schema)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """Return a reader of the columns of a schema."""
        if not schema.names:
            # Spark would take each batch for empty, and count no rows.
            raise InputError("the schema has no column; allowed: one of the table's, or more")
        scan = self._scan.narrowed(schema.names)
        found = spark_schema(scan.schema)
        for asked, had in zip(schema, found, strict=True):
            if asked.dataType != had.dataType:
                raise InputError(
                    f"the schema has column {asked.name!r} as {asked.dataType.simpleString()};"
                    f" in the table it is {had.dataType.simpleString()}"
                )
        self._is_planned = True
        return (_PushingReader if self._pushes else _Reader)(scan)


class _Slices(datasource.InputPartition):  # type: ignore[misc]
    """The pickled file slices of a task, so that those of others aren't unpickled with it."""


class _Reader(datasource.DataSourceReader):  # type: ignore[misc]
    """Reads a scan, in tasks of about 128 MiB."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the slices, which the tasks' partitions have."""
        return {"_scan": self._scan.of_slices(())}

    def partitions(self) -> list[datasource.InputPartition]:
        """Return the slices of each task."""
        return list(map(_Slices, task_slices(self._scan) or [pickle.dumps(())]))

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        return task_rows(self._scan, partition.value)


class _PushingReader(_Reader):
    """A reader that takes Spark's filters.

    Spark refuses to read with a class that has this method while its setting is off.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Narrow the scan; return all filters, as Spark has to check them again."""
        found = [necessary_condition(each, self._scan.schema) for each in filters]
        for condition in found:
            if condition is not None:
                self._scan = self._scan.narrowed(filter=condition)
        return filters


_COMPARISONS: Final[Mapping[str, Compare]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
"""By names of classes, which PySpark 4.0 doesn't have."""


def necessary_condition(
    pushed: Any, schema: pa.Schema, *, wanted: bool = True
) -> pc.Expression | None:
    """Return a condition that holds for all rows for which a filter is true.

    Args:
        pushed: A ``pyspark.sql.datasource.Filter``.
        schema: The columns.
        wanted: Whether the filter is true, or else false.

    Returns:
        The condition; ``None`` if nothing is known that pyarrow can check.
    """
    kind = type(pushed).__name__
    if kind == "Not":
        return necessary_condition(pushed.child, schema, wanted=not wanted)
    if len(pushed.attribute) != 1 or pushed.attribute[0] not in schema.names:
        return None
    field = schema.field(pushed.attribute[0])
    if kind in ("IsNull", "IsNotNull") and not pat.is_nested(field.type):
        column = pc.field(field.name)
        return column.is_null() if (kind == "IsNull") == wanted else column.is_valid()
    if kind in _COMPARISONS:
        value = _value(pushed.value, field.type)
        compare = _COMPARISONS[kind]
        return (
            None
            if value is None
            else compared(field, compare if wanted else NEGATED[compare], value)
        )
    if kind == "In":
        values = [_value(each, field.type) for each in pushed.value if each is not None]
        return None if None in values else among(field, values, wanted=wanted)
    return None


def _value(given: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Return a filter's value as one of a column's type; ``None`` if it isn't one exactly."""
    if not any(is_kind(kind) and type(given) is python for is_kind, python in _TYPES):
        return None
    if pat.is_timestamp(kind) and (given.tzinfo is None) != (kind.tz is None):
        return None
    try:
        value = pa.scalar(given, kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return None
    return value if value.as_py() == given else None


def _scan(options: Mapping[str, str]) -> Scan:
    """Return the scan that options mean."""
    for name in options:
        if name.lower() not in OPTIONS:
            raise InputError(
                f"the data source has no option {name!r}; allowed: {', '.join(OPTIONS)}"
            )
    if PATH not in options:
        raise InputError("no path, or several; allowed: load() with one path")
    if _flag(options, PUSH_FILTERS) and not _CAN_PUSH:
        raise InputError(f"option {PUSH_FILTERS} is 'true', which needs PySpark 4.1 or later")
    columns = options.get(COLUMNS)
    return scan_of(
        Table(
            options[PATH],
            _storage_options(options),
            service=options.get(SERVICE),
            token=options.get(TOKEN),
        ),
        None if columns is None else [name.strip() for name in columns.split(",")],
        as_of=options.get(AS_OF),
        read_optimized=_flag(options, READ_OPTIMIZED),
        since=options.get(SINCE),
        until=options.get(UNTIL),
    )


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false")
    if text.lower() not in ("true", "false"):
        raise InputError(f"option {name} is {text!r}; allowed: true, false")
    return text.lower() == "true"


def _storage_options(options: Mapping[str, str]) -> Mapping[str, Any] | None:
    text = options.get(STORAGE_OPTIONS)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"option {STORAGE_OPTIONS} isn't JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"option {STORAGE_OPTIONS} is JSON, but no object")
    return found
