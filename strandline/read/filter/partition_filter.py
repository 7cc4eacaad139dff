"""Which partitions may have rows that match a filter, by what their paths say of the rows.

A path's text says what a column holds only if Hudi made it of the column's plain value: the key
generator is ``SIMPLE`` or ``COMPLEX``, there is one segment for each partition column, and the text
cast to the column's type gives the same text again. Of a null or empty value it says nothing. The
meta column with the path is always that path.

A directory above partitions says less: a text that isn't encoded may have slashes, so its segment
is only where the text begins. The other way round, a filter that fixes the values of all partition
columns fixes the paths.

Source of the last: Hudi 1.2.0 ``SparkHoodieTableFileIndex.composeRelativePartitionPath``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from strandline.read.filter.fixed_values import fixed_values, satisfiable
from strandline.read.filter.row_filter import RowFilter
from strandline.records.key.generator import (
    COMPLEX,
    DEFAULT_PARTITION,
    SIMPLE,
    KeyGenerator,
    names_directories,
)
from strandline.records.key.text import key_text
from strandline.records.meta_fields import PARTITION_PATH
from timeline.errors import InputError
from timeline.table.config import TableConfig
from timeline.table.property_name import (
    HIVE_STYLE,
    KEY_GENERATOR_CLASS,
    KEY_GENERATOR_TYPE,
    URL_ENCODE,
)

MOST_FIXED: Final = 1024
"""The most paths that are made of values; of more, directories are searched."""

_WITHOUT_VALUE: Final = ("", DEFAULT_PARTITION, "default")
"""Text for nulls; the last is of releases before 0.12."""
_SLASHED_DATES: Final = "hoodie.datasource.write.slash.separated.date.partitioning"


@dataclass(frozen=True, slots=True)
class WantedPartitions:
    """The partitions that may have rows for which a filter is true.

    Attributes:
        row_filter: The filter.
        schema: All columns of the table.
        config: The table's properties.
        fixed: See ``fixed_partitions``.
    """

    row_filter: RowFilter
    schema: pa.Schema
    config: TableConfig
    fixed: tuple[str, ...] | None

    @classmethod
    def of(cls, row_filter: RowFilter, schema: pa.Schema, config: TableConfig) -> WantedPartitions:
        """Return the partitions that a filter leaves."""
        return cls(row_filter, schema, config, fixed_partitions(row_filter, schema, config))

    def matching(self, partitions: Sequence[str]) -> Collection[str]:
        """See ``matching_partitions``."""
        return matching_partitions(partitions, self.row_filter, self.schema, self.config)

    def leading(self, paths: Sequence[str]) -> Collection[str]:
        """See ``leading_directories``."""
        return leading_directories(paths, self.row_filter, self.schema, self.config)


def matching_partitions(
    partitions: Sequence[str], row_filter: RowFilter, schema: pa.Schema, config: TableConfig
) -> Collection[str]:
    """Return the partitions that may have rows for which a filter is true.

    Args:
        partitions: Paths under the base path.
        row_filter: The filter.
        schema: All columns of the table.
        config: The table's properties.

    Cost: about 30 us a partition.
    """
    told = _told_columns(schema, config)
    if not {*told, PARTITION_PATH}.intersection(row_filter.columns):
        return partitions
    guarantees = [guarantee(path, schema, config) for path in partitions]
    return {partitions[at] for at in satisfiable(row_filter.condition, guarantees, schema)}


def leading_directories(
    paths: Sequence[str], row_filter: RowFilter, schema: pa.Schema, config: TableConfig
) -> Collection[str]:
    """Return the directories that may be partitions with matching rows, or lead to some.

    Arguments and cost are as of ``matching_partitions``.
    """
    told = _told_columns(schema, config)
    if not {*told[:1], PARTITION_PATH}.intersection(row_filter.columns):
        return paths
    guarantees = [_guarantee_below(path, schema, config) for path in paths]
    return {paths[at] for at in satisfiable(row_filter.condition, guarantees, schema)}


def fixed_partitions(
    row_filter: RowFilter, schema: pa.Schema, config: TableConfig
) -> tuple[str, ...] | None:
    """Return the paths that matching rows can have; ``None`` if the filter leaves that open.

    None is there twice, and there needn't be such partitions.

    Args:
        row_filter: The filter.
        schema: All columns of the table.
        config: The table's properties.
    """
    fields = config.partition_fields
    if not fields:
        return None
    paths = _paths_in(row_filter, schema) if config.populate_meta_fields else None
    if paths is None and [*fields] == _told_columns(schema, config):
        paths = _paths_of_values(row_filter, schema, config)
    if paths is None or not all(map(names_directories, paths)):
        return None
    # Values with slashes may make one path in several ways.
    return tuple(dict.fromkeys(paths))


def _paths_in(row_filter: RowFilter, schema: pa.Schema) -> list[str] | None:
    """Return the values to which a filter fixes the meta column."""
    if PARTITION_PATH not in row_filter.columns:
        return None
    found = fixed_values(PARTITION_PATH, row_filter.condition, schema)
    return None if found is None else [value.as_py() for value in found]


def _paths_of_values(
    row_filter: RowFilter, schema: pa.Schema, config: TableConfig
) -> list[str] | None:
    """Return the paths of the values to which a filter fixes all partition columns."""
    fields, choices = config.partition_fields, []
    if not {*fields} <= {*row_filter.columns}:
        return None
    for name in fields:
        found = fixed_values(name, row_filter.condition, schema)
        if found is None or any(value.as_py() in _WITHOUT_VALUE for value in found):
            return None
        choices.append([text for value in found for text in _texts(value)])
    if prod(map(len, choices)) > MOST_FIXED:
        return None
    generator = KeyGenerator(
        (fields[0],),
        fields,
        COMPLEX,
        hive_style=config.hive_style_partitioning,
        url_encode=config.url_encode_partitioning,
    )
    rows = list(product(*choices))
    if not rows:
        return []
    columns = [pa.array(texts, pa.string()) for texts in zip(*rows, strict=True)]
    try:
        paths = generator.partition_paths(pa.table(columns, names=list(fields)))
    except InputError:  # a value that no directory can have
        return None
    return list(paths.to_pylist())


def _texts(value: pa.Scalar) -> Iterator[str]:
    """Yield the texts that a value may have in paths."""
    yield key_text(pa.array([value]), "", "partition column")[0].as_py()
    if pa.types.is_date32(value.type):  # the stored number, if the writer didn't convert it
        yield str(value.cast(pa.int32()).as_py())


def guarantee(path: str, schema: pa.Schema, config: TableConfig) -> pc.Expression:
    """Return an expression that is true for all rows of a partition.

    It is a conjunction of comparisons of columns with the values that all rows have in them.

    Args:
        path: The partition's path under the base path.
        schema: Columns of the table, of which the expression may be.
        config: The table's properties.
    """
    found = pc.scalar(True)
    if config.populate_meta_fields and PARTITION_PATH in schema.names:
        found = found & (pc.field(PARTITION_PATH) == path)
    fields, segments = config.partition_fields, path.split("/")
    if len(fields) != len(segments):  # a value with slashes
        return found
    told = _told_columns(schema, config)
    for name, segment in zip(fields, segments, strict=True):
        value = _value(segment, schema.field(name), config) if name in told else None
        if value is not None:
            found = found & (pc.field(name) == value)
    return found


def _guarantee_below(path: str, schema: pa.Schema, config: TableConfig) -> pc.Expression:
    """Return an expression that is true for all rows in a directory and below it."""
    found = pc.scalar(True)
    if not path:
        return found
    if config.populate_meta_fields:
        found = found & _begins(PARTITION_PATH, path)
    told = _told_columns(schema, config)
    for name, segment in zip(config.partition_fields, path.split("/"), strict=False):
        value = _value(segment, schema.field(name), config) if name in told else None
        is_open = name not in told or (
            pa.types.is_string(schema.field(name).type) and not config.url_encode_partitioning
        )
        if value is not None:
            found &= _begins(name, value.as_py()) if is_open else pc.field(name) == value
        if is_open:  # the next segment may be another part of the same text
            break
    return found


def _begins(name: str, text: str) -> pc.Expression:
    """Return an expression that is true if a column is a text, or that with a slash and more."""
    after = chr(ord("/") + 1)
    return (pc.field(name) >= text) & (pc.field(name) < text + after)


def _told_columns(schema: pa.Schema, config: TableConfig) -> list[str]:
    """Return the partition columns whose plain values are in paths."""
    named = config.properties.keys() & {KEY_GENERATOR_TYPE, KEY_GENERATOR_CLASS}
    if not named or config.key_generator_type not in (SIMPLE, COMPLEX):
        return []
    # Old writers stored neither, whatever paths they made.
    if not config.properties.keys() >= {HIVE_STYLE, URL_ENCODE}:
        return []
    if config.properties.get(_SLASHED_DATES, "").lower() == "true":
        return []
    return [
        name
        for name in config.partition_fields
        if name in schema.names and _has_one_text(schema.field(name).type)
    ]


def _has_one_text(kind: pa.DataType) -> bool:
    """Return whether values of a type have one text that all writers make of them."""
    types = pa.types
    return any(
        check(kind)
        for check in (types.is_string, types.is_integer, types.is_boolean, types.is_date32)
    )


def _value(segment: str, field: pa.Field, config: TableConfig) -> Any:
    """Return the value of which a path's segment was made; ``None`` if that isn't certain."""
    text = segment
    if config.hive_style_partitioning:
        prefix = f"{field.name}="
        if not text.startswith(prefix):
            return None
        text = text.removeprefix(prefix)
    if text in _WITHOUT_VALUE:
        return None
    if config.url_encode_partitioning:
        try:
            text = unquote(text, errors="strict")
        except UnicodeDecodeError:
            return None
    try:
        value = pa.scalar(text, pa.string()).cast(field.type)
        back = value.cast(pa.string()).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return value if back == text else None
