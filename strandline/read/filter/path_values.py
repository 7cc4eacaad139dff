"""``PathRules`` give ``PathValues``: the values of partition columns that paths determine.

A path determines a column's value only if Hudi made it from the column's plain value: the key
generator is ``SIMPLE`` or ``COMPLEX``, there is one partition column or one segment for each, and
the text cast to the column's type gives the same text again. All rows then have that value,
whatever their files store: a global index may leave a key in its partition when the column changes,
and Hudi drops the leading slash of a path. So the values read agree with partition pruning.

Two kinds of text don't determine the value; then the stored value is used if it makes the path:

* A path shows only that a text is null or empty, but not which.
* ``slash.separated.date.partitioning`` writes each ``-`` of the one partition column as ``/``. The
  option isn't stored, only the extractor class that it implies; with hive style, not even that. A
  writer without the option may have added partitions with ``-``, so both forms may occur.

Source: Hudi 1.2.0 ``HoodieSparkUtils.parsePartitionColumnValues``, ``KeyGenUtils``,
``HoodieTableConfigUtils.getPartitionValueExtractorClass``, ``FSUtils.constructAbsolutePath``.
Unlike Hudi, which returns ``2024/03/01``, a date's text is read as it is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.key.generator import COMPLEX, DEFAULT_PARTITION, SIMPLE
from timeline.table.config import TableConfig
from timeline.table.property_name import (
    HIVE_STYLE,
    KEY_GENERATOR_CLASS,
    KEY_GENERATOR_TYPE,
    URL_ENCODE,
)

WITHOUT_VALUE: Final = ("", DEFAULT_PARTITION, "default")
"""Texts for nulls; the last one is used by releases before 0.12."""
_DAYS: Final = re.compile(r"-?[0-9]{1,7}")
"""A date's stored number of days, which writers that didn't convert it used as path."""
_YEAR_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class PathValues:
    """The values of partition columns that a path determines.

    Attributes:
        known: Column → the value of all rows, which may be null.
        blank: String columns that are null, empty or one of the texts for nulls in all rows.
        slashed: String column → its text with slashes, each of which may stand for ``-``.
    """

    known: Mapping[str, pa.Scalar] = field(default_factory=dict)
    blank: frozenset[str] = frozenset()
    slashed: Mapping[str, str] = field(default_factory=dict)

    @property
    def unsettled(self) -> frozenset[str]:
        """The columns whose value depends on both the stored value and the path."""
        return self.blank.union(self.slashed)

    @property
    def guarantee(self) -> pc.Expression:
        """A conjunction of comparisons of columns with values that is true for all rows."""
        found = pc.scalar(True)
        for name, value in self.known.items():
            column = pc.field(name)
            found &= (column == value) if value.is_valid else column.is_null()
        for name, text in self.slashed.items():
            column = pc.field(name)
            found &= (column >= text.replace("/", "-")) & (column <= text)
        return found

    def applied(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return a partition's rows with the values that its path determines.

        Args:
            rows: Rows as they are stored, with the columns of ``schema``; known ones may be
                missing.
            schema: The columns to return.

        Returns:
            The rows in the same order, with exactly the columns of ``schema``.
        """
        columns = [self._column(rows, name) for name in schema.names]
        return pa.Table.from_arrays(columns, schema=schema)

    def _column(self, rows: pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
        if (value := self.known.get(name)) is not None:
            return pa.repeat(value, rows.num_rows)
        stored = rows.column(name)
        return self._settled(name, stored) if name in self.blank or name in self.slashed else stored

    def _settled(self, name: str, stored: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a stored column, with the path's value where a stored value gives another path."""
        if name in self.blank:
            is_right = pc.is_in(stored, pa.array([*WITHOUT_VALUE, None], stored.type))
            return pc.if_else(is_right, stored, pa.scalar(None, stored.type))
        text = self.slashed[name]
        is_right = pc.equal(pc.replace_substring(stored, "-", "/"), text)
        return pc.if_else(pc.fill_null(is_right, False), stored, pa.scalar(text, stored.type))


@dataclass(frozen=True, slots=True)
class PathRules:
    """How the paths of a table's partitions determine values of columns; prepared once a scan.

    Attributes:
        fields: The partition columns, in the order of a path's segments.
        told: Those whose plain values are in paths → their types.
        hive_style: Whether segments are ``field=value``.
        url_encodes: Whether values are ``%XX``-encoded.
        slashes: Whether paths may have ``/`` where the one partition column has ``-``.
    """

    fields: tuple[str, ...]
    told: Mapping[str, pa.DataType]
    hive_style: bool
    url_encodes: bool
    slashes: bool

    @classmethod
    def of(cls, schema: pa.Schema, config: TableConfig) -> PathRules:
        """Return the rules for some columns of a table.

        Args:
            schema: Columns of the table; columns that aren't among them have no values.
            config: The table's properties.
        """
        rules = cls(
            config.partition_fields,
            {},
            config.hive_style_partitioning,
            config.url_encode_partitioning,
            config.may_slash_dates,
        )
        named = config.properties.keys() & {KEY_GENERATOR_TYPE, KEY_GENERATOR_CLASS}
        if not named or config.key_generator_type not in (SIMPLE, COMPLEX):
            return rules
        # Old writers stored neither property, whatever paths they made.
        if not config.properties.keys() >= {HIVE_STYLE, URL_ENCODE}:
            return rules
        # A number's sign would become a slash, which Hudi then drops.
        signs = rules.slashes and not rules.hive_style
        kinds = {n: schema.field(n).type for n in rules.fields if n in schema.names}
        told = {
            name: kind
            for name, kind in kinds.items()
            if _has_one_text(kind) and not (signs and pa.types.is_integer(kind))
        }
        return replace(rules, told=told)

    def values(self, path: str) -> PathValues:
        """Return the values that a partition's path, under the base path, determines."""
        fields = self.fields
        # One column has the whole path, a text with slashes.
        segments = [path] if len(fields) == 1 else path.split("/")
        if len(segments) != len(fields):  # a value with slashes, ambiguous
            return PathValues()
        known: dict[str, pa.Scalar] = {}
        blank, slashed = set(), {}
        for name, segment in zip(fields, segments, strict=True):
            text = self.text(name, segment) if name in self.told else None
            if text is None:
                continue
            kind = self.told[name]
            is_text = pa.types.is_string(kind)
            if text in WITHOUT_VALUE:
                if is_text:
                    blank.add(name)
                else:
                    known[name] = pa.scalar(None, kind)
            elif is_text and self.slashes and "/" in text and not self.url_encodes:
                slashed[name] = text
            else:
                plain = text.replace("/", "-") if self.slashes and not is_text else text
                if (value := typed_value(plain, kind)) is not None:
                    known[name] = value
        return PathValues(known, frozenset(blank), slashed)

    def text(self, name: str, segment: str) -> str | None:
        """Return the text of a column's value in a path segment; ``None`` if that is uncertain."""
        text = segment
        if self.hive_style:
            prefix = f"{name}="
            if not text.startswith(prefix):
                return None
            text = text.removeprefix(prefix)
        if self.url_encodes:
            if "/" in text and not self.slashes:
                return None
            # Slashes of the value are encoded, so one in the path was a ``-``.
            text = text.replace("/", "-")
            try:
                text = unquote(text, errors="strict")
            except UnicodeDecodeError:
                return None
        return text

    def is_open(self, name: str, text: str) -> bool:
        """Return whether the segments after one may belong to the same value.

        The one column may have slashes for ``-`` though no property says so.

        Args:
            name: The partition column.
            text: The text of its value in the segment.
        """
        kind = self.told[name]
        if pa.types.is_string(kind):
            return not self.url_encodes or len(self.fields) == 1
        # The year of a date, which can't be distinguished from a number of days.
        may_slash = self.slashes or (len(self.fields) == 1 and len(text) == _YEAR_DIGITS)
        return pa.types.is_date32(kind) and text.isdigit() and may_slash


def typed_value(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return the value from which a path's text was made; ``None`` if that is uncertain."""
    if pa.types.is_date32(kind) and _DAYS.fullmatch(text):
        return pa.scalar(int(text), pa.int32()).cast(kind)
    if pa.types.is_string(kind):
        return pa.scalar(text, kind)
    try:
        value = pa.scalar(text, pa.string()).cast(kind)
        back = value.cast(pa.string()).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return value if back == text else None


def _has_one_text(kind: pa.DataType) -> bool:
    """Return whether all writers convert values of a type to the same text."""
    types = pa.types
    return any(
        check(kind)
        for check in (types.is_string, types.is_integer, types.is_boolean, types.is_date32)
    )
