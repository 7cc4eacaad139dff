"""The rule that decides which of two rows with one key is kept, for batches and stored rows alike.

A merge compares an *older* row with a *newer* one: a stored row with a row of the write, or two
rows of one write in their order.

* By commit time the newer row wins.
* By event time the newer row wins if its ordering value is equal or greater, column by column, as
  Java compares them; a null is less than any value.
* A delete without an ordering value wins over everything older and loses to everything newer.
  Deletes by key alone are such deletes. So is a row that ``_hoodie_is_deleted`` flags if all its
  ordering values are null, or if it has one ordering column, of 32-bit integers or dates, with the
  value 0 (for dates 1970-01-01): Hudi's ``OrderingValues.isDefault`` compares with Java's
  ``Integer`` 0, which equals no ``Long``, ``Double`` or ``String`` and no list of values.

Hudi reads a null as that ``Integer`` 0: for integers and dates, which are ``Integer`` in Spark, it
is 0 and the day 0. For other types Hudi fails with a ``ClassCastException`` or a
``NullPointerException``; here a null of these types is less than any value.

The row that is kept, newer or older, may take single values from the other one: those that it
*lacks* (``strandline.records.merge_rule``). Neither is a delete.

``tests/kit/answers/merge_answers.json`` has real Hudi's answers to some hundred cases.

``MergeProperties`` are table properties that give single values a meaning when rows are merged.
Hudi 1.2.0 stores them when a table of version 9 is created with a payload class for partial updates
or change data, and applies them from then on, whatever a writer's options are.

* ``hoodie.table.partial.update.mode``: the row that wins may *lack* values, which it takes from the
  row that loses; neither is a delete. With ``IGNORE_DEFAULTS`` it lacks the values that equal their
  column's default in the table's Avro schema; with ``FILL_UNAVAILABLE`` the text and bytes that
  equal ``hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value``. Values
  nested in a column are ignored.
* ``hoodie.record.merge.property.hoodie.payload.delete.field`` and ``….marker``, also without the
  prefix: a row whose column has that text is a delete, like one flagged by ``_hoodie_is_deleted``.

Hudi compares a value with the default by ``==``, the identity of Java objects. So only nulls and
values that Java caches as one object are equal: booleans, and integers that fit a byte. Every other
value differs from an equal default.

Source: Hudi 1.2.0 ``BufferedRecordMergerFactory``, ``OrderingValues``,
``DefaultHoodieRecordPayload``, ``EventTimeBasedAvroRecordMerger``.

Source of the properties: Hudi 1.2.0 ``PartialUpdateHandler``, ``DeleteContext``,
``HoodieTableConfig.getTableMergeProperties``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.records.meta_fields import IS_DELETED, META_FIELDS, PARTITION_PATH, RECORD_KEY
from strandline.records.row_selection import (
    Mask,
    Positions,
    as_mask,
    one_array,
    one_chunk,
    take_column,
    take_rows,
)
from strandline.records.schema.cast import float_text
from strandline.records.schema.columns import column_of
from timeline.errors import UnsupportedTableError
from timeline.table.config import TableConfig
from timeline.table.property_name import MERGE_PROPERTY, PARTIAL_UPDATE_MODE, SHOWN, listed

ROW_NUMBER: Final = "_strandline_row_number"
"""Integer column: number of a row in the caller's batch; the later of two rows has the greater."""
_HOODIE_KEY: Final = (RECORD_KEY, PARTITION_PATH)
"""Columns that identify a record; Hudi includes the partition path unless the index is global."""
_JAVA_INTEGERS: Final = (pa.int32(), pa.date32())
"""Types whose values are Java's ``Integer``; Hudi treats a null as its 0."""

Sources = npt.NDArray[np.int64]
"""For each row or key, and each class of columns, the number of a row; -1 if there is none."""

IGNORE_DEFAULTS: Final = "IGNORE_DEFAULTS"
FILL_UNAVAILABLE: Final = "FILL_UNAVAILABLE"
_MODES: Final = (IGNORE_DEFAULTS, FILL_UNAVAILABLE)
_FIRST_VERSION: Final = 9
"""Hudi ignores the mode in tables of earlier versions, and doesn't store it there."""
_DELETE_FIELD: Final = "hoodie.payload.delete.field"
_DELETE_MARKER: Final = "hoodie.payload.delete.marker"
_UNAVAILABLE: Final = "hoodie.write.partial.update.unavailable.value"
_KNOWN: Final = tuple(MERGE_PROPERTY + n for n in (_DELETE_FIELD, _DELETE_MARKER, _UNAVAILABLE))
_OURS: Final = "_strandline_"
"""Names of columns that the writer's tasks add begin with this."""
_INTEGERS: Final = ("int", "long")
_CACHED: Final = range(-128, 128)
"""Integers that Java caches as one object each (``Integer.valueOf``, ``Long.valueOf``)."""
_NO_DEFAULT: Final = object()
"""A default that equals no value."""


@dataclass(frozen=True, slots=True)
class MergeProperties:
    """The meaning of single values of a table's rows when rows are merged.

    Attributes:
        delete_field: Column that marks deletes, a dotted name addresses a field of a struct; empty:
            only ``_hoodie_is_deleted`` does.
        delete_marker: Its text in deletes.
        mode: ``IGNORE_DEFAULTS`` or ``FILL_UNAVAILABLE``; empty: the row that wins lacks nothing.
        unavailable: Text that stands for a missing value; empty: there is none.
        defaults: Columns whose default isn't null → the default, or a value that equals no other.
    """

    delete_field: str = ""
    delete_marker: str = ""
    mode: str = ""
    unavailable: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: TableConfig, avro_schema: str | None) -> MergeProperties:
        """Return the merge properties of a table.

        Args:
            config: The properties.
            avro_schema: The table's schema, for its columns' defaults; ``None``: all are null.

        Raises:
            UnsupportedTableError: A property isn't supported.
        """
        for reason in unknown_merge_properties(config):
            raise UnsupportedTableError(f"table {config.name} has {reason}")
        mode = config.properties.get(PARTIAL_UPDATE_MODE, "")
        return cls(
            delete_field=_value(config, _DELETE_FIELD),
            delete_marker=_value(config, _DELETE_MARKER),
            mode=mode,
            unavailable=_value(config, _UNAVAILABLE),
            defaults=_defaults(avro_schema) if avro_schema and mode == IGNORE_DEFAULTS else {},
        )

    @property
    def fills(self) -> bool:
        """Whether a row that wins may lack values."""
        return bool(self.mode)

    @property
    def delete_column(self) -> str:
        """The top-level column that contains the delete field; empty if there is none."""
        return self.delete_field.split(".")[0]

    def deletes(self, rows: pa.Table | pa.RecordBatch) -> Mask:
        """Return a mask of the deletes, by ``_hoodie_is_deleted`` or by the table's marker.

        Args:
            rows: Rows, with or without ``_hoodie_is_deleted`` (bool) and the delete field.

        Raises:
            UnsupportedTableError: The delete field has a type whose values have no unique text.
        """
        found = delete_flags(rows)
        names = rows.schema.names
        if not self.delete_field or not {self.delete_field, self.delete_column} & {*names}:
            return found
        text = _java_text(one_chunk(column_of(rows, self.delete_field)), self.delete_field)
        return found | as_mask(pc.fill_null(pc.equal(text, self.delete_marker), False))

    def fillable(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns whose value a row may lack."""
        if not self.mode:
            return ()
        own = [each for each in schema if each.name not in META_FIELDS]
        return tuple(
            column.name
            for column in own
            if not column.name.startswith(_OURS)
            and (self.mode == IGNORE_DEFAULTS or (self.unavailable and _is_text(column.type)))
        )

    def lacking(self, name: str, column: pa.Array | pa.ChunkedArray) -> Mask:
        """Return a mask of the rows that lack their value in ``column``, one of ``fillable``."""
        if self.mode == FILL_UNAVAILABLE:
            marker = pa.scalar(self.unavailable.encode(), pa.binary()).cast(column.type)
            return as_mask(one_chunk(pc.fill_null(pc.equal(column, marker), False)))
        default = self.defaults.get(name)
        if default is None:
            return as_mask(one_chunk(pc.is_null(column)))
        if default is _NO_DEFAULT:
            return np.zeros(len(column), np.bool_)
        values = one_chunk(column)
        stored = values if pa.types.is_boolean(values.type) else _as_number(values)
        return as_mask(pc.fill_null(pc.equal(stored, default), False))


def delete_flags(rows: pa.Table | pa.RecordBatch, name: str = IS_DELETED) -> Mask:
    """Return a mask of rows with a true bool column ``name``; all false if there is no column."""
    if name not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    return as_mask(pc.fill_null(one_chunk(rows.column(name)), False))


def _value(config: TableConfig, name: str) -> str:
    """Return the value of a merge property, trimmed as by Hudi; empty if it isn't set."""
    prefixed = config.properties.get(MERGE_PROPERTY + name)
    return config.properties.get(name, "") if prefixed is None else prefixed.strip()


def _defaults(avro_schema: str) -> dict[str, Any]:
    """Return columns whose default isn't null → the default, as Hudi compares it."""
    found = {}
    for column in json.loads(avro_schema)["fields"]:
        default = column.get("default")
        if default is None:
            continue
        # The default of a union is of its first type.
        kind = column["type"][0] if isinstance(column["type"], list) else column["type"]
        kind = kind["type"] if isinstance(kind, dict) else kind
        is_one = kind == "boolean" or (kind in _INTEGERS and default in _CACHED)
        found[column["name"]] = default if is_one else _NO_DEFAULT
    return found


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(types.is_string(kind) or types.is_large_string(kind) or is_bytes)


def _java_text(values: pa.Array, name: str) -> pa.Array:
    """Return the text that Java gives values, as they are stored; nulls stay null."""
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return _java_text(values.cast(kind.value_type), name)
    if types.is_string(kind) or types.is_large_string(kind):
        return values.cast(pa.string())
    if types.is_float32(kind) or types.is_float64(kind):
        return float_text(values)
    if types.is_boolean(kind) or types.is_signed_integer(kind):
        return values.cast(pa.string())
    if types.is_date32(kind) or types.is_timestamp(kind):
        return _as_number(values).cast(pa.string())
    raise UnsupportedTableError(
        f"column {name!r}, which marks deletes ({MERGE_PROPERTY}{_DELETE_FIELD}), has the type"
        f" {kind}; allowed: strings, booleans, signed integers, floats, dates, timestamps"
    )


def _as_number(values: pa.Array) -> pa.Array:
    """Return whole numbers; for dates and timestamps the stored numbers."""
    small = pa.types.is_date32(values.type)
    return values.cast(pa.int32()).cast(pa.int64()) if small else values.cast(pa.int64())


_PLAIN: Final = MergeProperties()


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The values of some rows that the rule compares.

    Attributes:
        values: Values of each ordering column, from ``_comparable``; empty by commit time.
        unordered: Where a row is a delete without an ordering value.
    """

    values: tuple[pa.Array, ...]
    unordered: Mask

    @classmethod
    def of(cls, columns: Sequence[pa.Array | pa.ChunkedArray], deletes: Mask) -> RowOrder:
        """Return the order of rows.

        Args:
            columns: The rows' ordering columns, in the types of the table; empty by commit time.
            deletes: Where a row is a delete.
        """
        unordered = deletes & _without_value(columns)
        return cls(tuple(_comparable(_null_as_zero(column)) for column in columns), unordered)

    def take(self, at: Positions) -> RowOrder:
        """Return the order of the rows at some positions."""
        where = pa.array(at)
        return RowOrder(tuple(value.take(where) for value in self.values), self.unordered[at])


def _comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values in a type that Arrow orders as Java does: floats become integers.

    Nulls stay null; the order of rows is kept.
    """
    values = one_chunk(column)
    if not pa.types.is_floating(values.type):
        return values
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    # Java's ``compareTo`` has one NaN, greater than all others, and puts -0.0 below 0.0; the bits
    # sort the same way.
    bits = np.where(np.isnan(floats), np.float64("nan"), floats).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bits)
    return pa.array(ordered, mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def _compare(left: pa.Array, right: pa.Array) -> tuple[Mask, Mask]:
    """Return where ``left`` is greater and where both are equal; arguments from ``_comparable``."""
    left_null, right_null = as_mask(pc.is_null(left)), as_mask(pc.is_null(right))
    greater = as_mask(pc.fill_null(pc.greater(left, right), False)) | (right_null & ~left_null)
    equal = as_mask(pc.fill_null(pc.equal(left, right), False)) | (right_null & left_null)
    return greater, equal


def newer_wins(newer: RowOrder, older: RowOrder) -> Mask:
    """Return for each pair of rows whether the newer one wins; both have the same columns."""
    wins: Mask = np.ones(len(newer.unordered), np.bool_)
    for new, old in zip(reversed(newer.values), reversed(older.values), strict=True):
        greater, equal = _compare(new, old)
        wins = greater | (equal & wins)
    return wins | newer.unordered | older.unordered


def winners(groups: Positions, order: RowOrder) -> Positions:
    """Return the positions of the winners if each group is folded by ``newer_wins``.

    One sort suffices: an unordered delete wins over all rows before it and loses to the row after
    it. So a group's winner is the greatest row after its last unordered delete, the last one among
    equals, or that delete if no row follows.

    Args:
        groups: Group of each row, rows from the oldest to the newest.
        order: Order of the rows.

    Cost: a sort of the rows.
    """
    rows = np.arange(len(groups))
    count = groups.max(initial=-1) + 1
    # If an index is repeated, numpy keeps the last value.
    last, reset = np.full(count, -1), np.full(count, -1)
    last[groups] = rows
    reset[groups[order.unordered]] = rows[order.unordered]
    after = rows > reset[groups]
    open_rows = np.flatnonzero(after | (rows == np.where(reset == last, reset, -1)[groups]))
    columns = [pa.array(groups[open_rows])]
    for value in order.take(open_rows).values:
        # By validity first, because a null is less than any value.
        columns += [pc.is_valid(value), value]
    columns.append(pa.array(open_rows))
    table = pa.table(columns, names=[str(at) for at in range(len(columns))])
    keys = [(name, "ascending") for name in table.column_names]
    sorted_rows = open_rows[pc.sort_indices(table, sort_keys=keys).to_numpy()]
    sorted_groups = groups[sorted_rows]
    is_last = np.append(sorted_groups[1:] != sorted_groups[:-1], True)[: len(sorted_rows)]
    won: Positions = sorted_rows[is_last]
    return won


def following_deletes(groups: Positions, order: RowOrder, by_key: Mask) -> RowOrder:
    """Return the order of a log's records, in which deletes by key may lose their ordering value.

    A delete by key directly after a delete without an ordering value has none either: Hudi keeps
    the earlier delete, which wins over the base file's row.

    Args:
        groups: Group of each record, records from the oldest to the newest.
        order: Order of the records.
        by_key: Where a record is a delete by key.

    Source: Hudi 1.2.0 ``BufferedRecordMergerFactory.deltaMergeDeleteRecord``.
    """
    places = np.argsort(groups, kind="stable")
    follows = (by_key & ~order.unordered)[places]
    if not follows.any() or not order.unordered.any():
        return order
    # For each record the last one of another kind at or before it.
    last = np.maximum.accumulate(np.where(follows, 0, np.arange(len(places))))
    sorted_groups, sorted_unordered = groups[places], order.unordered[places]
    same = sorted_groups[last] == sorted_groups
    unordered = order.unordered.copy()
    unordered[places[follows & same & sorted_unordered[last]]] = True
    return RowOrder(order.values, unordered)


def fold(
    groups: Positions, order: RowOrder, deletes: Mask, own: Sources, whole: Mask
) -> tuple[Positions, Sources]:
    """Fold each group by ``newer_wins``; the winner takes the values that it lacks.

    If rows lack nothing, ``winners`` suffices; to merge single columns one sort isn't enough.

    Args:
        groups: Group of each row, rows from the oldest to the newest; numbered from 0 without gaps.
        order: Order of the rows.
        deletes: Where a row is a delete.
        own: For each row, and each class of columns, the row's number; -1 where it lacks them.
        whole: Where a row is merged as a whole with the older one, as if it lacked nothing.

    Returns:
        The row of each group that won; and the rows that its columns come from.

    Cost: some calls of numpy for each row of the largest group.
    """
    count = int(groups.max(initial=-1)) + 1
    own = np.where(deletes[:, None], -1, own)
    won: Positions = np.full(count, -1)
    sources: Sources = np.full((count, own.shape[1]), -1)
    for newer in _turns(groups):
        group = groups[newer]
        theirs, older = own[newer], won[group]
        if older[0] < 0:  # the first round
            won[group], sources[group] = newer, theirs
            continue
        wins = newer_wins(order.take(newer), order.take(older))
        mine = sources[group]
        upper = np.where(wins[:, None], theirs, mine)
        lower = np.where(wins[:, None], mine, theirs)
        kept = deletes[newer] | deletes[older] | whole[newer]
        sources[group] = np.where((upper < 0) & ~kept[:, None], lower, upper)
        won[group] = np.where(wins, newer, older)
    return won, sources


def _turns(groups: Positions) -> Iterator[Positions]:
    """Yield the first row of each group, then the second, and so on."""
    places = np.argsort(groups, kind="stable")
    of_group = groups[places]
    begins = np.flatnonzero(np.append(True, of_group[1:] != of_group[:-1])[: len(places)])
    turn = np.arange(len(places)) - np.repeat(begins, np.diff(np.append(begins, len(places))))
    in_turns = np.argsort(turn, kind="stable")
    if len(turn):
        yield from np.split(places[in_turns], np.cumsum(np.bincount(turn))[:-1])


def lacking(rows: pa.Table, columns: Sequence[str], properties: MergeProperties) -> Mask:
    """Return a mask, rows by ``columns``: whether the row lacks its value in the column."""
    found: Mask = np.zeros((rows.num_rows, len(columns)), np.bool_)
    for number, name in enumerate(columns):
        found[:, number] = properties.lacking(name, rows.column(name))
    return found


def merged_pairs(
    newer: pa.Table, older: pa.Table, wins: Mask, properties: MergeProperties
) -> tuple[pa.Table, Mask]:
    """Merge pairs of rows, neither of them a delete.

    Args:
        newer: The newer row of each pair, with the columns of the result.
        older: The older one, with the same columns and types and perhaps others.
        wins: Whether the newer row wins.
        properties: Which values the winner lacks.

    Returns:
        One merged row per pair, in order, with the columns of ``newer``; and a mask of the pairs
        that differ from the older row: the newer one has won, or the older one took a value that it
        lacked, even if both lacked it.
    """
    changed, result = wins.copy(), older.select(newer.schema.names)
    count = len(wins)
    fillable = set(properties.fillable(newer.schema))
    for at, column in enumerate(newer.schema):
        new, old = newer.column(at), result.column(at)
        takes_newer = wins
        if column.name in fillable:
            lacks = properties.lacking(column.name, old) & ~wins
            takes_newer = lacks | (wins & ~properties.lacking(column.name, new))
            changed |= lacks
        both = pa.chunked_array([*new.chunks, *old.chunks], column.type)
        taken = take_column(both, np.arange(count) + np.where(takes_newer, 0, count))
        result = result.set_column(at, column, taken)
    return result, changed


def deduplicate(
    rows: pa.Table,
    ordering_fields: Sequence[str],
    key: Sequence[str] = _HOODIE_KEY,
    properties: MergeProperties = _PLAIN,
) -> pa.Table:
    """Keep the winning row of each record key and partition path.

    Args:
        rows: Rows with the key columns, the ordering columns, optionally ``_hoodie_is_deleted``
            (bool), and any others; in any order if they have the column ``ROW_NUMBER``, else oldest
            first.
        ordering_fields: Ordering columns; empty by commit time.
        key: Columns that identify a record instead of record key and partition path.
        properties: Which rows are deletes, and which values the winner takes from others.

    Returns:
        The winners in the order of ``rows``, with the same columns and types.

    Cost: a hash of each key; a sort of only the rows whose key is duplicated.
    """
    codes = _codes(rows, key)
    counts = np.bincount(codes) if len(codes) else np.zeros(0, np.int64)
    if counts.max(initial=0) <= 1:
        return rows
    duplicated = np.flatnonzero(counts[codes] > 1)
    if ROW_NUMBER in rows.schema.names:
        # A shuffle between executors delivers rows in any order.
        numbers = rows.column(ROW_NUMBER).to_numpy()[duplicated]
        duplicated = duplicated[np.argsort(numbers, kind="stable")]
    candidates = take_rows(rows, duplicated)
    columns = [column_of(candidates, name) for name in ordering_fields]
    deletes = properties.deletes(candidates)
    order = RowOrder.of(columns, deletes)
    keep = counts[codes] == 1
    fillable = properties.fillable(candidates.schema)
    if not fillable:
        keep[duplicated[winners(codes[duplicated], order)]] = True
        return rows.filter(pa.array(keep))
    _, groups = np.unique(codes[duplicated], return_inverse=True)
    numbers = np.arange(len(duplicated))
    own = np.where(lacking(candidates, fillable, properties), -1, numbers[:, None])
    won, sources = fold(groups, order, deletes, own, np.zeros(len(numbers), np.bool_))
    sources = np.where(sources < 0, won[:, None], sources)
    made = take_rows(candidates, won)
    for number, name in enumerate(fillable):
        at = made.schema.get_field_index(name)
        taken = take_column(candidates.column(name), sources[:, number])
        made = made.set_column(at, made.schema.field(at), taken)
    # A merged row takes the position of the winner.
    places = np.append(np.flatnonzero(keep), duplicated[won])
    both = pa.concat_tables([rows.filter(pa.array(keep)), made])
    return take_rows(both, np.argsort(places, kind="stable"))


def _without_value(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Mask | bool:
    """Return where all ordering values are null, or the only one is Java's ``Integer`` 0."""
    missing: Mask | bool = True
    for column in columns:
        missing = missing & as_mask(pc.is_null(one_chunk(column)))
    if len(columns) == 1 and columns[0].type in _JAVA_INTEGERS:
        zero = pc.equal(one_chunk(columns[0]), pa.scalar(0, columns[0].type))
        missing = missing | as_mask(pc.fill_null(zero, False))
    return missing


def _null_as_zero(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    has_zero = column.type in _JAVA_INTEGERS
    return pc.fill_null(column, pa.scalar(0, column.type)) if has_zero else column


def _codes(rows: pa.Table, key: Sequence[str]) -> Positions:
    """Return a number for each row: equal for equal keys, and below the number of rows."""
    codes: Positions = np.zeros(rows.num_rows, np.int64)
    for name in key:
        encoded = one_array(rows.column(name)).dictionary_encode(null_encoding="encode")
        part = encoded.indices.to_numpy().astype(np.int64)
        _, codes = np.unique(codes * len(encoded.dictionary) + part, return_inverse=True)
    return codes


def unknown_merge_properties(config: TableConfig) -> Iterator[str]:
    """Yield a reason, with name and value, for each merge property that isn't supported."""
    for name, value in config.properties.items():
        shown = f"{name}={value[:SHOWN]}"
        if name.startswith(MERGE_PROPERTY) and name not in _KNOWN:
            yield f"{shown}; allowed: {listed(_KNOWN)}"
    mode = config.properties.get(PARTIAL_UPDATE_MODE)
    if mode is not None and mode not in _MODES:
        yield f"{PARTIAL_UPDATE_MODE}={mode[:SHOWN]}; allowed: {listed(_MODES)}"
    elif mode is not None and config.version < _FIRST_VERSION:
        yield f"{PARTIAL_UPDATE_MODE}={mode} in version {config.version}; allowed: version 9"
    given = {name: _value(config, name) for name in (_DELETE_FIELD, _DELETE_MARKER)}
    if len(set(map(bool, given.values()))) > 1:
        alone = next(f"{name}={value[:SHOWN]}" for name, value in given.items() if value)
        yield f"{alone} alone; allowed: {' and '.join(given)} together"
