"""The columns of a write: the table's schema after it, and the schema that its rows are cast to.

``_hoodie_is_deleted`` is optional in both the table and the write: a table gets it from its first
write only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from strandline.records.meta_fields import IS_DELETED, without_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro, avro_to_arrow
from strandline.records.schema.avro_type import Column, RecordType, dump_record, parse_record
from strandline.records.schema.columns import check_names, check_nesting, column_of, nullable_inside
from strandline.records.schema.new_column import refuse_other_cases, refuse_other_types
from strandline.records.schema.schema_evolution import EvolutionRules, evolved
from timeline.errors import InputError

_SAME_TEXT: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
"""Old and new types between which values keep their text and order."""


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
    """Return a dictionary's field with the type of its values, from which keys are made."""
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
