"""Deduces a table's schema after a write, from its own and that of the rows.

The rows' columns are first aligned with the table's: they take the table's order, a column that is
nullable on one side becomes nullable, and the table's type replaces a narrower one. Then, by the
options:

* neither: all columns of the table must be among the rows'; new and wider ones change the table.
* ``set_null``: missing columns become nullable and are null in the rows.
* ``reconcile``: if the table has all columns of the rows, its schema stays, missing columns are
  null, and wider types are refused; otherwise the rows' schema becomes the table's, if none is
  missing.
* ``validate`` or ``allow_drop``: the rows' schema becomes the table's. ``validate`` checks that
  stored rows can be read by it; ``allow_drop`` alone checks nothing, and drops missing columns.

Columns are addressed by dotted names, so all this holds inside structs, lists and maps.

``columns_after`` gives the columns of a write: the table's schema after it, and the schema that its
rows are cast to. ``_hoodie_is_deleted`` is optional in both: a table gets it from its first write
only.

Source: Hudi 1.2.0 ``HoodieSchemaUtils.deduceWriterSchema``, ``AvroSchemaEvolutionUtils``,
``SchemaChangeUtils``, ``HoodieSchemaCompatibilityChecker``, ``HoodieSchemaProjectionChecker``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from strandline.records.meta_fields import IS_DELETED, without_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro, avro_to_arrow
from strandline.records.schema.avro_type import (
    AvroType,
    Column,
    DecimalType,
    ItemsType,
    RecordType,
    dump_record,
    parse_record,
)
from strandline.records.schema.column_change import (
    casts,
    casts_all,
    is_one_kind,
    is_wider,
    reads,
    reads_primitive,
    refuse_other_cases,
    refuse_other_types,
    type_text,
)
from strandline.records.schema.columns import check_names, check_nesting, column_of, nullable_inside
from strandline.settings.setting import TableSetting
from timeline.errors import InputError

RECONCILE: Final = TableSetting(
    "hoodie.datasource.write.reconcile.schema",
    False,
    "Whether the table keeps its schema where it has all columns of the rows: missing columns are"
    " null, wider types are refused. Deprecated by Hudi.",
)
SET_NULL: Final = TableSetting(
    "hoodie.write.set.null.for.missing.columns",
    False,
    "Whether columns of the table that the rows lack become nullable and are null in the rows."
    " Without effect beside the other options of schemas.",
)
VALIDATE: Final = TableSetting(
    "hoodie.avro.schema.validate",
    False,
    "Whether the rows' schema becomes the table's if stored rows can be read by it.",
)
ALLOW_DROP: Final = TableSetting(
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
    False,
    "Whether columns that the rows lack are dropped from the table.",
)

_SAME_TEXT: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
"""Old and new types between which values keep their text and order."""


@dataclass(frozen=True, slots=True)
class EvolutionRules:
    """Values of the settings that decide how a write may change the table's schema.

    Attributes:
        reconcile: ``RECONCILE``.
        set_null: ``SET_NULL``.
        validate: ``VALIDATE``.
        allow_drop: ``ALLOW_DROP``.
    """

    reconcile: bool = RECONCILE.field()
    set_null: bool = SET_NULL.field()
    validate: bool = VALIDATE.field()
    allow_drop: bool = ALLOW_DROP.field()


def evolved(rows: RecordType, table: RecordType, rules: EvolutionRules) -> RecordType:
    """Return the table's schema after a write.

    Args:
        rows: Schema of the write's rows, without meta columns, with the table's record name.
        table: The table's schema, without meta columns.
        rules: The write's options.

    Raises:
        InputError: Hudi refuses the rows by these rules; the message names the columns.
    """
    refuse_other_cases(rows, table)
    result = _deduced(rows, table, rules)
    if rules.validate or not rules.allow_drop:
        _check_table(result, table, rules)
    # If Hudi's rules don't compare types, its tasks fail, or stored values can't be read.
    _require_castable(rows, result)
    _require_stored_castable(table, result)
    return result


def _deduced(rows: RecordType, table: RecordType, rules: EvolutionRules) -> RecordType:
    """Return the schema that Hudi deduces; errors as in ``evolved``."""
    aligned = _aligned(rows, table, in_table_order=not rules.reconcile)
    if rules.reconcile:
        return _reconciled(aligned, table, validate=rules.validate)
    if rules.validate or rules.allow_drop:
        return aligned
    result = _merged(aligned, table) if rules.set_null else aligned
    missing = list(_missing(result, table, ""))
    if missing:
        raise _missing_error(missing, f"{SET_NULL.name}=true writes nulls")
    _require_readable(result, table, check_names=False)
    return result


def _aligned(rows: RecordType, table: RecordType, *, in_table_order: bool) -> RecordType:
    """Return the rows' record with the table's nullability, wider types and, if asked, order."""
    columns = [
        # Stored rows lack it. Spark's literals, for one, aren't nullable.
        replace(each, nullable=True) if table.column(each.name) is None else each
        for each in rows.columns
    ]
    if in_table_order:
        places = {column.name: place for place, column in enumerate(table.columns)}
        columns.sort(key=lambda column: places.get(column.name, len(places)))
    return replace(
        rows,
        columns=tuple(
            each
            if (held := table.column(each.name)) is None
            else _align(each, held, in_table_order)
            for each in columns
        ),
    )


def _align(column: Column, held: Column, in_table_order: bool) -> Column:
    kind = _align_type(column.type, held.type, in_table_order)
    # Arrow columns have no documentation. Hudi would drop the table's.
    return replace(column, type=kind, nullable=column.nullable or held.nullable, doc=held.doc)


def _align_type(kind: AvroType, held: AvroType, in_table_order: bool) -> AvroType:
    match kind, held:
        case RecordType(), RecordType():
            return _aligned(kind, held, in_table_order=in_table_order)
        case ItemsType(), ItemsType() if kind.is_map == held.is_map:
            return replace(kind, item=_align(kind.item, held.item, in_table_order))
    return held if is_wider(held, kind) else kind


def _merged(rows: RecordType, table: RecordType) -> RecordType:
    """Return the table's record with the rows' new columns and wider types.

    Columns that the rows lack become nullable.
    """
    columns = [
        replace(held, nullable=True) if (given := rows.column(held.name)) is None
        # Nullability was aligned: a column that the rows made nullable stays required here.
        else replace(held, type=_merge_type(given.type, held.type, held.name))
        for held in table.columns
    ]  # fmt: skip
    known = {held.name for held in table.columns}
    added = [replace(each, nullable=True) for each in rows.columns if each.name not in known]
    # When Hudi changes a nested record, its name is lost.
    return replace(table, columns=(*columns, *added))


def _merge_type(kind: AvroType, held: AvroType, name: str) -> AvroType:
    match kind, held:
        case RecordType(), RecordType():
            return _merged(kind, held)
        case ItemsType(), ItemsType() if kind.is_map == held.is_map:
            inner = _merge_type(kind.item.type, held.item.type, f"{name}.{held.item.name}")
            return replace(held, item=replace(held.item, type=inner))
    if kind == held or is_wider(kind, held):
        return kind
    raise _mismatch(name, kind, held)


def _missing(rows: RecordType, table: RecordType, prefix: str) -> Iterator[str]:
    for held in table.columns:
        name = f"{prefix}{held.name}"
        given = rows.column(held.name)
        if given is None:
            yield name
        elif given.nullable == held.nullable:
            yield from _missing_inside(given.type, held.type, name)
        # Hudi compares a union with a plain type as different, and looks no further.


def _missing_inside(kind: AvroType, held: AvroType, name: str) -> Iterator[str]:
    match kind, held:
        case RecordType(), RecordType():
            yield from _missing(kind, held, f"{name}.")
        case ItemsType(), ItemsType() if kind.is_map == held.is_map:
            if kind.item.nullable == held.item.nullable:
                inside = f"{name}.{held.item.name}"
                yield from _missing_inside(kind.item.type, held.item.type, inside)


def _check_table(result: RecordType, table: RecordType, rules: EvolutionRules) -> None:
    """Refuse a schema of the table that lacks columns of the old one, or can't read its rows."""
    missing = [held.name for held in table.columns if result.column(held.name) is None]
    if missing and not rules.allow_drop:
        raise _missing_error(missing, f"{ALLOW_DROP.name}=true drops them from the table")
    if rules.validate:
        _require_readable(result, table, check_names=True)


def _reconciled(rows: RecordType, table: RecordType, *, validate: bool) -> RecordType:
    """Return the table's record if the rows' is a projection of it, else the rows'."""
    if not _has_all(table, rows):
        if validate:
            _require_readable(rows, table, check_names=True)
        return rows
    if validate:
        _require_readable(table, rows, check_names=True, by_table=True)
    return table


def _has_all(table: RecordType, rows: RecordType) -> bool:
    """Whether a record has all columns of another, each of a type that one can widen to."""
    return all(
        (held := table.column(each.name)) is not None and _projects(held, each)
        for each in rows.columns
    )


def _projects(held: Column, given: Column) -> bool:
    if held.nullable != given.nullable:  # Hudi doesn't look into a union and a plain type
        return is_one_kind(held.type, given.type)
    match held.type, given.type:
        case RecordType() as table, RecordType() as rows:
            return _has_all(table, rows)
        case ItemsType(item, is_map), ItemsType(other, to_map) if is_map == to_map:
            return _projects(item, other)
        case DecimalType(), DecimalType():
            return True
        case str() as old, str() as new if "timestamp" in new:
            return "timestamp" in old
    return is_one_kind(held.type, given.type) or reads_primitive(given.type, held.type)


def _require_readable(
    reader: RecordType, written: RecordType, *, check_names: bool, by_table: bool = False
) -> None:
    """Refuse a record by which what another one has written can't be read.

    Args:
        reader: The record to read by.
        written: The other one.
        check_names: Whether records must have one name, at the top and in nullable columns.
        by_table: Whether the table's record reads the write's rows; otherwise the other way round.
    """
    if check_names and reader.name != written.name:
        rows, table = (written, reader) if by_table else (reader, written)
        raise InputError(f"the record of the rows is {rows.name}; in the table it is {table.name}")
    for column in reader.columns:
        held = written.column(column.name)
        if not column.nullable and (held is None or held.nullable):
            lacking = "missing from" if held is None else "nullable in"
            raise InputError(f"column {column.name!r} is required, but {lacking} the rows")
        if held is not None and not reads(column, held, check_names, column.nullable):
            given, kept = (held, column) if by_table else (column, held)
            raise _mismatch(column.name, given.type, kept.type)


def _require_castable(rows: RecordType, result: RecordType) -> None:
    """Refuse a record to which Hudi's tasks, or ours, can't cast the rows of a write."""
    for column in result.columns:
        given = rows.column(column.name)
        if given is None and not column.nullable:
            raise _empty(column, "the rows")
        if given is not None and not casts(given.type, column.type):
            raise InputError(
                f"column {column.name!r} of the rows can't be cast: {_change(given, column)}"
            )


def _require_stored_castable(table: RecordType, result: RecordType) -> None:
    """Refuse a record to which not every stored value of a table can be cast."""
    for column in result.columns:
        held = table.column(column.name)
        if held is None and not column.nullable:
            raise _empty(column, "the table")
        if held is not None and not casts_all(held, column):
            raise InputError(
                f"column {column.name!r} would change for stored values, which may not fit:"
                f" {_change(held, column)}",
                hint=f"cast it to {type_text(held.type)}",
            )


def _empty(column: Column, where: str) -> InputError:
    return InputError(f"column {column.name!r} has no values in {where}, but must not be null")


def _change(given: Column, column: Column) -> str:
    return f"{type_text(given.type)} to {type_text(column.type)}"


def _missing_error(missing: list[str], hint: str) -> InputError:
    return InputError(f"columns {missing} of the table are missing from the rows", hint=hint)


def _mismatch(name: str, kind: AvroType, held: AvroType) -> InputError:
    return InputError(
        f"column {name!r} is {type_text(kind)}; in the table it is {type_text(held)}",
        hint=f"cast it to {type_text(held)}",
    )


def columns_after(
    incoming: pa.Schema,
    avro_schema: str | None,
    table_name: str,
    rules: EvolutionRules,
    earlier: Iterable[str] = (),
) -> tuple[str, pa.Schema]:
    """Return the table's Avro schema after a write, and the schema to cast the write's rows to.

    Args:
        incoming: Schema of the write's rows; meta columns in it are ignored.
        avro_schema: The table's schema without the meta columns; ``None`` if it has none yet.
        table_name: The table's name, for its first schema.
        rules: How the write may change the schema.
        earlier: Schemas of the table's earlier commits, consumed only if the write adds columns.

    Returns:
        The Avro schema, as stored if the columns stay as they are. The columns are the table's, in
        its order, then ``_hoodie_is_deleted`` if only the write has it.

    Raises:
        InputError: A column is duplicated, can't be stored, or is refused by the rules.
    """
    check_nesting(incoming)
    own = without_meta_fields(incoming)
    check_names(own)
    if IS_DELETED in own.names and own.field(IS_DELETED).type != pa.bool_():
        raise InputError(f"column {IS_DELETED!r} is {own.field(IS_DELETED).type}; allowed: bool")
    if avro_schema is None:
        first = arrow_to_avro(nullable_inside(own), table_name)
        refuse_other_cases(parse_record(first), None)
        return first, avro_to_arrow(first)
    table = parse_record(avro_schema)
    rows = _with_flag_of(table, parse_record(arrow_to_avro(own, table_name, table.name)))
    after = evolved(rows, table, rules)
    refuse_other_types(after, table, earlier)
    result = avro_schema if after == table else dump_record(after)
    columns = avro_to_arrow(result)
    if IS_DELETED in own.names and IS_DELETED not in columns.names:
        columns = columns.append(pa.field(IS_DELETED, pa.bool_()))
    return result, columns


def columns_of_keys(
    incoming: pa.Schema, avro_schema: str | None, table_name: str, keys: Sequence[str]
) -> pa.Schema:
    """Return the schema to cast the keys of deletes to: the table's key and partition columns.

    Args:
        incoming: Schema of the write's rows, which has these columns; others are ignored.
        avro_schema: The table's schema without the meta columns; ``None`` if it has none yet.
        table_name: The table's name.
        keys: Key and partition columns; a dotted name addresses a field of a struct.

    Returns:
        The columns, nullable, in the types that an upsert would cast them to; none if the table has
        no schema.

    Raises:
        InputError: A column has a type that an upsert refuses.
    """
    if avro_schema is None:
        return pa.schema([])
    heads = (name if name in incoming.names else name.split(".")[0] for name in keys)
    names = list(dict.fromkeys(heads))
    given = pa.schema([_plain(incoming.field(name)) for name in names])
    rules = EvolutionRules(set_null=True)  # Deletes lack the table's other columns.
    after, columns = columns_after(given, avro_schema, table_name, rules)
    check_keys_kept(avro_to_arrow(avro_schema), avro_to_arrow(after), keys, ())
    return nullable_inside(pa.schema([columns.field(name).with_nullable(True) for name in names]))


def _plain(field: pa.Field) -> pa.Field:
    """Return a dictionary field with the type of its values, from which keys are made."""
    coded = pa.types.is_dictionary(field.type)
    return field.with_type(field.type.value_type) if coded else field


def _with_flag_of(table: RecordType, rows: RecordType) -> RecordType:
    """Return the rows' record with ``_hoodie_is_deleted`` if the table has it, else without."""
    columns = [column for column in rows.columns if column.name != IS_DELETED]
    held = table.column(IS_DELETED)
    if held is not None:
        given = [column.name for column in rows.columns]
        place = given.index(IS_DELETED) if IS_DELETED in given else len(columns)
        columns.insert(place, Column(IS_DELETED, held.type, nullable=True))
    return RecordType(rows.name, tuple(columns))


def check_keys_kept(
    before: pa.Schema, after: pa.Schema, keys: Iterable[str], ordering: Iterable[str]
) -> None:
    """Check that key, partition and ordering columns keep the text or order of their values.

    Hudi doesn't: if a key column widens from ``long`` to ``double``, the keys get another text, so
    that later rows with the same keys count as new ones.

    Args:
        before: The table's columns before the write.
        after: The table's columns after the write.
        keys: Key and partition columns.
        ordering: Ordering columns.

    Raises:
        InputError: A column's type changes otherwise than from ``int`` to ``long``, from ``float``
            to ``double``, to a longer decimal of the same scale, or, of a key or partition column,
            from a whole number to text.
    """
    stored, written = before.empty_table(), after.empty_table()
    for names, role in ((keys, "the keys or partitions of rows"), (ordering, "which row is newer")):
        for name in names:
            old, new = (column_of(rows, name).type for rows in (stored, written))
            as_text = names is keys and pa.types.is_integer(old) and pa.types.is_string(new)
            longer = pa.types.is_decimal(old) and pa.types.is_decimal(new)
            if old == new or as_text or (longer and old.scale == new.scale):
                continue
            if (old, new) not in _SAME_TEXT:
                raise InputError(
                    f"column {name!r} decides {role}, and would change from {old} to {new}",
                    hint=f"cast it to {old}",
                )
