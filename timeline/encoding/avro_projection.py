"""Projection of Avro records: only the wanted fields are decoded, the others are skipped.

A write stat has thirty fields, mostly nullable numbers. The fields up to the next string match one
regular expression, which skips many at once; a string is skipped by its length. That takes half the
time that fastavro needs for all fields.

Records of one commit are alike, mostly even in the lengths of their strings. A record's *shape* is
which strings are null, and the lengths of the others. A record of a known shape is read by one
regular expression, in a third of that time.

Source: Avro 1.11 specification, "Binary encoding".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from timeline.encoding import avro_binary
from timeline.encoding.avro_binary import Cursor, Fill, ValueReader

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_PATTERNS: Final[Mapping[str, bytes]] = {
    "null": b"",
    "boolean": rb"[\x00\x01]",
    "int": _VARINT,
    "long": _VARINT,
    "float": rb".{4}",
    "double": rb".{8}",
}

_PRESENT, _END = -2, -1
_Step = Callable[[Cursor, dict[str, Any]], int | None]
"""Advances over some fields of a record and stores those that are wanted.

Returns the length of the last field if it is a string, ``None`` if it is null, ``_PRESENT`` for a
value of another type, ``_END`` after the record's last field.
"""

_Shape = tuple[int | None, ...]
"""The results of a record's steps."""
_SHAPES_READ: Final = 4
"""The most shapes that get a separate reader."""
_SHAPES_SEEN: Final = 64
"""The most shapes that are counted."""
_REPLACED_AFTER: Final = 250
"""After this many records, a shape's reader replaces another one: file names grow longer over
time."""
_LONGEST: Final = 1024
"""The longest string in a shape that gets a reader."""


def reader_of(schema: Any, wanted: Mapping[str, Collection[str]]) -> ValueReader:
    """Return the function that reads a value of a schema with only some fields of its records.

    Args:
        schema: Parsed JSON.
        wanted: Name of a record, without namespace → the fields to return.
    """

    def special(record: Mapping[str, Any]) -> tuple[ValueReader, Fill] | None:
        fields = wanted.get(str(record["name"]).rpartition(".")[2])
        return None if fields is None else _record_reader(record, fields)

    return avro_binary.reader_of(schema, special)


def _record_reader(schema: Mapping[str, Any], wanted: Collection[str]) -> tuple[ValueReader, Fill]:
    """Return the reader of the wanted fields of a record, and what fills it."""
    steps: list[_Fields] = []
    seen: dict[_Shape, int] = {}
    # Threads share the tuple, so it is replaced, never modified. If two threads replace it at once,
    # one replacement is lost.
    readers: tuple[Callable[[Cursor], dict[str, Any] | None], ...] = ()
    values = len(wanted)

    def record(cursor: Cursor) -> dict[str, Any]:
        nonlocal readers
        cursor.values_left -= values  # ``count`` inlined for speed
        if cursor.values_left < 0:
            cursor.count(0)
        # Read once: another thread may replace the tuple during the loop.
        in_turn = readers
        for at, read_shape in enumerate(in_turn):
            known = read_shape(cursor)
            if known is not None:
                if at:  # move to front: the next record probably has the same shape
                    readers = (read_shape, *in_turn[:at], *in_turn[at + 1 :])
                return known
        found: dict[str, Any] = {}
        shape = tuple([step.move(cursor, found) for step in steps])
        # Threads may lose counts; these only decide when a shape gets a reader.
        times = seen.get(shape, 0) + 1
        due = 2 if len(in_turn) < _SHAPES_READ else _REPLACED_AFTER
        is_due = times >= due and _is_simple(shape)
        if is_due or len(seen) == _SHAPES_SEEN:
            seen.clear()
        if is_due:
            readers = (_shape_reader(steps, shape), *in_turn[: _SHAPES_READ - 1])
        else:
            seen[shape] = times
        return found

    def fill(read: Callable[[Any], ValueReader]) -> None:
        steps.extend(_steps(schema, wanted, read))

    return record, fill


def _is_simple(shape: _Shape) -> bool:
    return all(part is None or _PRESENT < part <= _LONGEST for part in shape)


@dataclass(frozen=True, slots=True)
class _Fields:
    """A run of fields that one regular expression skips, and the field after the run.

    Attributes:
        run: The pattern of the run.
        numbers: The names of the wanted fields in the run.
        key: The name of the field after the run, if it is wanted.
        move: The step over all of them.
    """

    run: bytes
    numbers: list[str]
    key: str | None
    move: _Step


def _shape_reader(
    steps: Iterable[_Fields], shape: _Shape
) -> Callable[[Cursor], dict[str, Any] | None]:
    """Return a reader of records of one shape; it returns ``None`` for any other."""
    pattern = b""
    names: list[tuple[str, bool]] = []
    nulls: list[str] = []
    for step, length in zip(steps, shape, strict=True):
        pattern += step.run
        names += [(name, True) for name in step.numbers]
        if length is None:
            pattern += rb"\x00"
            nulls += [] if step.key is None else [step.key]
        elif length != _END:
            text = rb"(.{%d})" if step.key is not None else rb".{%d}"
            head = bytearray(b"\x02")
            avro_binary.put_long(head, length)
            pattern += re.escape(bytes(head)) + text % length
            names += [] if step.key is None else [(step.key, False)]
    match = re.compile(pattern, re.DOTALL).match

    def read(cursor: Cursor) -> dict[str, Any] | None:
        passed = match(cursor.data, cursor.pos)
        if passed is None:
            return None
        found: dict[str, Any] = dict.fromkeys(nulls)
        for (name, is_number), value in zip(names, passed.groups(), strict=True):
            found[name] = _number(value) if is_number else value.decode()
        cursor.pos = passed.end()
        return found

    return read


def _steps(
    schema: Mapping[str, Any], wanted: Collection[str], read: Callable[[Any], ValueReader]
) -> Iterator[_Fields]:
    """Yield the steps over a record, each over a run of fields and the field after it."""
    run: bytes = b""
    numbers: list[str] = []
    for field in schema["fields"]:
        kind, name = field["type"], field["name"]
        key = name if name in wanted else None
        if key is not None and _may_be(kind, "int", "long"):
            pattern: bytes | None = rb"(?:\x00|\x02(%b))" % _VARINT
        else:
            pattern = _pattern(kind) if key is None else None
        if pattern is not None:
            run += pattern
            if key is not None:
                numbers.append(key)
            continue
        if _may_be(kind, "string"):
            yield _Fields(run, numbers, key, _text_step(run, numbers, key))
        else:
            step = _value_step(run, numbers, key, kind, read(kind))
            yield _Fields(run, numbers, key, step)
        run, numbers = b"", []
    if run:
        last = _value_step(run, numbers, None, "null", lambda _: None, _END)
        yield _Fields(run, numbers, None, last)


def _pattern(kind: Any) -> bytes | None:
    """Return the pattern of a type's values, ``None`` if they are length-prefixed."""
    if isinstance(kind, list):
        branches = [_pattern(branch) for branch in kind]
        if None in branches or len(branches) > 64:
            return None
        return b"(?:%b)" % b"|".join(
            re.escape(bytes((2 * at,))) + (branch or b"") for at, branch in enumerate(branches)
        )
    if isinstance(kind, dict):
        if kind["type"] == "record":
            fields = [_pattern(field["type"]) for field in kind["fields"]]
            return None if None in fields else b"".join(field or b"" for field in fields)
        return _pattern(kind["type"])
    return _PATTERNS.get(kind)


def _may_be(kind: Any, *types: str) -> bool:
    """Return whether a type is a union of null and one of these, in this order."""
    if not isinstance(kind, list) or len(kind) != 2 or kind[0] != "null":
        return False
    other = kind[1]["type"] if isinstance(kind[1], dict) else kind[1]
    return isinstance(other, str) and other in types


def _text_step(run: bytes, numbers: list[str], key: str | None) -> _Step:
    match = re.compile(run + rb"(?:\x00|\x02(%b))" % _VARINT, re.DOTALL).match
    behind = len(numbers) + 1

    def step(cursor: Cursor, found: dict[str, Any]) -> int | None:
        data = cursor.data
        passed = match(data, cursor.pos)
        if passed is None:
            raise ValueError(f"no such fields at offset {cursor.pos}")
        length = passed[behind]
        if numbers:
            found.update(zip(numbers, map(_number, passed.groups()), strict=False))
        start = end = passed.end()
        if length is not None:
            n = length[0] if len(length) == 1 else _long(length)
            end += n >> 1
            if n & 1 or end > len(data):
                raise ValueError(f"a text of {n >> 1} bytes at offset {start}")
        if key is not None:
            found[key] = None if length is None else data[start:end].decode()
        cursor.pos = end
        return None if length is None else end - start

    return step


def _value_step(
    run: bytes,
    numbers: list[str],
    key: str | None,
    kind: Any,
    read: ValueReader,
    present: int = _PRESENT,
) -> _Step:
    may_be_null = isinstance(kind, list) and kind[0] == "null"
    null = rb"(\x00)?" if may_be_null else b"(.){0}"
    match = re.compile(run + null, re.DOTALL).match
    behind = len(numbers) + 1

    def step(cursor: Cursor, found: dict[str, Any]) -> int | None:
        passed = match(cursor.data, cursor.pos)
        if passed is None:
            raise ValueError(f"no such fields at offset {cursor.pos}")
        if numbers:
            found.update(zip(numbers, map(_number, passed.groups()), strict=False))
        cursor.pos = passed.end()
        value = read(cursor) if passed[behind] is None else None
        if key is not None:
            found[key] = value
        return present if passed[behind] is None else None

    return step


def _number(varint: bytes | None) -> int | None:
    """Return the number of a varint."""
    if varint is None:
        return None
    value = _long(varint)
    if value >> 64:
        raise ValueError(f"no number of 64 bits: {varint!r}")
    return (value >> 1) ^ -(value & 1)


def _long(varint: bytes) -> int:
    """Return the number of a varint, before zigzag."""
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 0x7F
    return value
