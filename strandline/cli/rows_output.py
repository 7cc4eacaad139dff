"""``print_rows``: rows of Arrow to stdout, as a table, JSON, lines of JSON, CSV or an Arrow stream.

Rows are printed batch by batch, so that memory doesn't depend on their number. JSON and CSV are
UTF-8 whatever the locale is. What JSON has no type for is text: dates and times in ISO 8601,
decimals, and numbers that aren't finite (``NaN``, ``Infinity``, ``-Infinity``); bytes are base64.
CSV has lists, structs and maps as JSON. Values that Python's types can't hold, such as times after
the year 9999, are Arrow's text; of text that isn't UTF-8 the wrong bytes are replaced.
"""

from __future__ import annotations

import base64
import io
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.types as types

from strandline.cli.output import as_json
from strandline.cli.text_table import as_columns, on_terminal
from strandline.server.log_format import escaped
from strandline.settings.setting import nearest
from timeline.errors import InputError

_BLOCK: Final = 10_000
"""Rows that are laid out, or made text, at a time."""
_BLANK_LINE: Final = re.compile(rb"(?m)^(?=\n)")
_TIMESPEC: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}


def print_rows(
    rows: Any,
    output: str,
    *,
    name: str = "rows",
    head: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
) -> int:
    """Print rows to stdout; return their number.

    A table on a terminal fits it; into a pipe or a file its columns are as wide as their cells.

    Args:
        rows: A ``pyarrow.Table``, a ``Scan``, or a ``pyarrow.RecordBatchReader``.
        output: One of ``FORMATS`` (``strandline.cli.output``).
        name: Name of the rows' list in ``json``.
        head: What ``json`` says before the list, of all rows.
        columns: The columns to print, in this order; ``None`` for all.
        limit: Most rows that are printed; ``None`` for all.

    Raises:
        InputError: There is no such column; the message names the nearest.
    """
    reader = rows.to_reader() if hasattr(rows, "to_reader") else rows
    schema = _selected(reader.schema, columns)
    printed = _Counted(_limited(reader, limit), schema)
    sys.stdout.flush()
    stdout = sys.stdout.buffer
    if output == "arrow":
        _print_arrow(printed, schema, stdout)
    elif output == "csv":
        _print_csv(printed, schema, stdout)
    else:
        _write(_lines(printed, schema, output, name, head or {}), output, stdout)
    stdout.flush()
    return printed.rows


def print_row(row: Mapping[str, Any], output: str) -> None:
    """Print one row that isn't Arrow's; ``json`` is the row itself, as is ``jsonl``."""
    print_rows(pa.Table.from_pylist([dict(row)]), "jsonl" if output == "json" else output)


def checked_columns(names: Iterable[str], known: Sequence[str]) -> None:
    """Check that columns exist.

    Raises:
        InputError: One doesn't; the message names the nearest, or all.
    """
    for column in names:
        if column not in known:
            near = nearest(column, known)
            hint = f"the nearest is {near!r}" if near else f"allowed: {', '.join(known)}"
            raise InputError(f"there is no column {column!r}; {hint}")


class _Counted:
    """Batches of some columns, and how many rows were taken so far."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self.rows = 0
        self._batches = batches
        self._names = schema.names

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            for begin in range(0, batch.num_rows, _BLOCK):
                block = batch.slice(begin, _BLOCK)
                self.rows += block.num_rows
                yield block.select(self._names)


def _selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    checked_columns(columns, schema.names)
    return pa.schema([schema.field(name) for name in columns])


def _limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    if left == 0:
        return
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        if left is not None:
            left -= batch.num_rows
            if left <= 0:
                return


def _print_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, stdout: IO[bytes]) -> None:
    # What is written is taken out after each batch, so errors of stdout are Python's own.
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            _take(buffer, stdout)
    _take(buffer, stdout)


def _take(buffer: io.BytesIO, stdout: IO[bytes]) -> None:
    stdout.write(buffer.getvalue())
    buffer.seek(0)
    buffer.truncate()


def _print_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, stdout: IO[bytes]) -> None:
    is_shown = sys.stdout.isatty()
    texts = {field.name: _csv_text(field.type, is_shown) for field in schema}
    names = [escaped(name) if is_shown else name for name in schema.names]
    stdout.write(_csv_line(names))
    for batch in batches:
        arrays = [
            column
            if (text := texts[name]) is None
            else pa.array(map(text, _values(column)), pa.string())
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        buffer = io.BytesIO()
        block = pa.RecordBatch.from_arrays(arrays, batch.schema.names)
        pacsv.write_csv(block, buffer, pacsv.WriteOptions(include_header=False))
        lines = buffer.getvalue()
        if len(schema) == 1:
            lines = _without_blank_lines(lines, arrays[0])
        stdout.write(lines)


def _without_blank_lines(lines: bytes, column: pa.Array) -> bytes:
    """Return the lines of a lone column with nulls as empty texts: readers skip blank lines."""
    if column.null_count == 0:
        return lines
    if not _is_text(column.type):
        return _BLANK_LINE.sub(b'""', lines)
    buffer = io.BytesIO()
    filled = pa.table([pc.fill_null(column, "")], ["filled"])
    pacsv.write_csv(filled, buffer, pacsv.WriteOptions(include_header=False))
    return buffer.getvalue()


def _csv_line(names: Sequence[str]) -> bytes:
    quoted = ('"' + name.replace('"', '""') + '"' for name in names)
    return (",".join(quoted) + "\n").encode("utf-8", "backslashreplace")


def _csv_text(kind: pa.DataType, is_shown: bool) -> Callable[[Any], str | None] | None:
    """Return what makes a value's text; ``None`` if Arrow's own is right.

    Args:
        kind: The column's type.
        is_shown: Whether a terminal shows it.
    """
    if _is_text(kind) and not is_shown:
        return None
    if not (
        _is_text(kind) or types.is_nested(kind) or _is_bytes(kind) or types.is_dictionary(kind)
    ):
        return None
    form = _json_form(kind) or _same
    shown: Callable[[str], str] = escaped if is_shown else str
    return lambda value: None if value is None else shown(_cell(form(value)))


def _write(lines: Iterable[str], output: str, stdout: IO[bytes]) -> None:
    """Write pieces of text; a character that the encoding lacks is escaped."""
    encoding = (sys.stdout.encoding or "utf-8") if output == "table" else "utf-8"
    for line in lines:
        stdout.write(line.encode(encoding, "backslashreplace"))


def _lines(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    output: str,
    name: str,
    head: Mapping[str, Any],
) -> Iterator[str]:
    blocks = _json_rows(batches, schema)
    if output == "jsonl":
        yield from (f"{as_json(row)}\n" for rows in blocks for row in rows)
    elif output == "json":
        # The text of the whole object, whose list is the last and still empty.
        yield as_json({**head, name: []})[:-2]
        before = ""
        for rows in blocks:
            for row in rows:
                yield f"{before}{as_json(row)}"
                before = ", "
        yield "]}\n"
    else:
        cells = (
            [[escaped(_shown(value)) for value in row.values()] for row in rows]
            for rows in _whole_blocks(blocks)
        )
        columns = [escaped(column) for column in schema.names]
        lines = as_columns(columns, cells)
        if sys.stdout.isatty():
            numbers = {field.name for field in schema if _is_number(field.type)}
            lines = on_terminal(columns, cells, shutil.get_terminal_size().columns, numbers)
        yield from (f"{line}\n" for line in lines)


def _whole_blocks(blocks: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """Yield blocks of at least ``_BLOCK`` rows, but for the last, for columns that are aligned."""
    held: list[dict[str, Any]] = []
    for rows in blocks:
        held += rows
        if len(held) >= _BLOCK:
            yield held
            held = []
    if held:
        yield held


def _cell(value: Any) -> str:
    """Return the text of a value that JSON can have."""
    if value is None:
        return ""
    return value if isinstance(value, str) else as_json(value)


def _shown(value: Any) -> str:
    """Return a value's text for people: texts of a list are separated by commas."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return _cell(value)


def _json_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[list[dict[str, Any]]]:
    """Yield each batch as rows of values that JSON has."""
    found = {field.name: _json_form(field.type) for field in schema}
    forms = {name: form for name, form in found.items() if form is not None}
    for batch in batches:
        rows = _rows(batch)
        for row in rows:
            for name, form in forms.items():
                row[name] = form(row[name])
        yield rows


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = batch.to_pylist()
    except (OverflowError, ValueError):
        columns = [_values(column) for column in batch.columns]
        names = batch.schema.names
        found = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return found


class _ArrowText(str):
    """Arrow's text of a value that Python's types can't hold."""

    __slots__ = ()


def _values(column: pa.Array) -> list[Any]:
    """Return an array's values, with ``_ArrowText`` for those that Python's types can't hold."""
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        found = [_value(each) for each in column]
    return found


def _value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if types.is_dictionary(kind):
        return _value(scalar.value)
    if types.is_struct(kind):
        return {field.name: _value(scalar[at]) for at, field in enumerate(kind)}
    if types.is_map(kind):
        return [(_value(entry[0]), _value(entry[1])) for entry in scalar.values]
    if types.is_nested(kind):
        return [_value(each) for each in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if _is_text(kind):
            return scalar.as_buffer().to_pybytes().decode(errors="replace")
        return _ArrowText(scalar.cast(pa.string()).as_py().replace(" ", "T", 1))


def _json_form(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes a value of a type one that JSON has; ``None`` if each is one."""
    if types.is_dictionary(kind):
        return _json_form(kind.value_type)
    if types.is_map(kind):
        return _or_null(_map_form(kind))
    if types.is_struct(kind):
        forms = {field.name: _json_form(field.type) or _same for field in kind}
        return _or_null(lambda value: {name: forms[name](each) for name, each in value.items()})
    if types.is_nested(kind):
        form = _json_form(kind.value_type)
        return form and _or_null(lambda value: [form(each) for each in value])
    return _scalar_form(kind)


def _map_form(kind: pa.MapType) -> Callable[[Any], Any]:
    """Return what makes an object of a map, or pairs if its keys aren't text."""
    key, item = _json_form(kind.key_type) or _same, _json_form(kind.item_type) or _same
    if _is_text(kind.key_type):
        return lambda value: {each: item(of) for each, of in value}
    return lambda value: [[key(each), item(of)] for each, of in value]


def _scalar_form(kind: pa.DataType) -> Callable[[Any], Any] | None:
    if types.is_floating(kind):
        return _or_null(_number)
    if types.is_timestamp(kind):
        timespec = _TIMESPEC.get(kind.unit, "auto")
        return _or_null(lambda value: _iso(value, timespec))
    if types.is_date(kind) or types.is_time(kind):
        return _or_null(lambda value: value.isoformat())
    if _is_bytes(kind):
        return _or_null(lambda value: base64.b64encode(value).decode("ascii"))
    is_plain = types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)
    return None if is_plain or _is_text(kind) else _or_null(str)


def _iso(value: datetime, timespec: str) -> str:
    return value.isoformat(timespec=timespec)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _same(value: Any) -> Any:
    return value


def _or_null(form: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: value if value is None or isinstance(value, _ArrowText) else form(value)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
