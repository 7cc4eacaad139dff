"""JSON by orjson if it is installed, else by the standard library, with the same results.

Spark's executors have no orjson, so no other module of ``timeline``, ``fsview`` and
``executor_proxy`` imports it.

``JsonCursor`` parses one value after another, and a long array of objects in batches: a text of a
hundred megabytes takes ten times that as Python values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final, NoReturn


def plain_dumps(value: Any) -> bytes:
    """Return the compact JSON text of plain values, in UTF-8, by the standard library."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def plain_loads(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8, by the standard library.

    Raises:
        ValueError: It isn't JSON. As for orjson, NaN, infinities, 1e999 and UTF-16 aren't.
    """
    try:
        return json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite)
    except RecursionError as exc:
        raise ValueError("lists or objects are nested too deeply") from exc


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


def _functions() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    try:
        orjson = import_module("orjson")
    except ImportError:
        return plain_dumps, plain_loads
    return orjson.dumps, orjson.loads


_dumps, _loads = _functions()

dumps: Final = _dumps
"""Returns the compact JSON text of plain values (no dataclasses), in UTF-8."""

loads: Final = _loads
"""Returns the value of a JSON text in UTF-8; raises ``ValueError`` for anything else."""

UNCHECKED_BYTES: Final = 4 << 20
"""Shorter texts, in bytes, aren't checked."""

BYTES_PER_VALUE: Final = 4
"""The minimum average bytes per value of a longer text. Commit metadata has ten or more; a text of
empty lists would take thirty times its size in memory."""


def bounded_loads(text: bytes) -> Any:
    """Return the value of an untrusted JSON text.

    Raises:
        ValueError: It isn't JSON, or would take far more memory than the text.
    """
    check_values(text)
    return loads(text)


def check_values(text: bytes) -> None:
    """Refuse a JSON text whose value would take far more memory than the text.

    Raises:
        ValueError: It has more values than its size allows.
    """
    if len(text) > UNCHECKED_BYTES:
        # An upper bound: commas and brackets within strings are counted, too.
        values = text.count(b",") + text.count(b"[") + text.count(b"{")
        if values * BYTES_PER_VALUE > len(text):
            raise ValueError(
                f"{values} values in {len(text)} bytes; allowed: one for each {BYTES_PER_VALUE}"
            )


_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN: Final = re.compile(_STRING + rb'|[\[{\]}]|[^\s"\[\]{},:]+', re.DOTALL)
_KEY: Final = re.compile(_STRING, re.DOTALL)
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_BETWEEN: Final = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{")


class JsonCursor:
    """A position in JSON text, advanced value by value; malformed text is a ``ValueError``.

    Args:
        data: The text.
        batch_bytes: About how much of an array is parsed at once.
    """

    def __init__(self, data: bytes, batch_bytes: int) -> None:
        self._data = data
        self._batch_bytes = batch_bytes
        self._pos = 0

    def members(self) -> Iterator[str]:
        """Yield each key of the object that begins here; the caller takes its value in between."""
        self._take(b"{")
        if self._next() == b"}":
            self._pos += 1
            return
        while True:
            self._next()
            key = _KEY.match(self._data, self._pos)
            if key is None:
                raise ValueError(f"no key at offset {self._pos}")
            self._pos = key.end()
            self._take(b":")
            yield bounded_loads(key[0])
            if self._next() != b",":
                break
            self._pos += 1
        self._take(b"}")

    def value(self) -> Any:
        """Take the next value."""
        self._next()
        start, self._pos = self._pos, self._end_of(self._pos, 0)
        return bounded_loads(self._data[start : self._pos])

    def null(self) -> bool:
        """Take a null if the next value is one."""
        if self._next() != b"n":
            return False
        return self.value() is None

    def batches(self) -> Iterator[list[Any]]:
        """Yield the items of the array of objects that begins here in batches, at least one."""
        self._take(b"[")
        if self._next() == b"]":
            self._pos += 1
            yield []
            return
        end = self._closing()
        while self._pos <= end:
            cut = _BETWEEN.search(self._data, self._pos + self._batch_bytes, end)
            stop = end if cut is None else cut.start(1)
            # The cut may lie within a string or a nested object. Then the part isn't valid JSON, as
            # only a cut between two items leaves brackets balanced; parse the whole rest instead.
            try:
                items = self._items(self._pos, stop)
            except ValueError:
                stop = end = self._end_of(self._pos, 1) - 1
                items = self._items(self._pos, stop)
            yield items
            self._pos = stop + 1

    def end(self) -> None:
        """Refuse text that follows."""
        if self._next():
            raise ValueError(f"more at offset {self._pos}")

    def _next(self) -> bytes:
        """Skip white space; return the byte after it, empty at the end."""
        space = _SPACE.match(self._data, self._pos)
        self._pos = self._pos if space is None else space.end()
        return self._data[self._pos : self._pos + 1]

    def _take(self, mark: bytes) -> None:
        if self._next() != mark:
            raise ValueError(f"no {mark.decode()} at offset {self._pos}")
        self._pos += 1

    def _end_of(self, start: int, depth: int) -> int:
        """Return the end of the value that begins (or, at depth 1, has begun) at ``start``."""
        for token in _TOKEN.finditer(self._data, start):
            first = token[0][:1]
            depth += (first in b"[{") - (first in b"]}")
            if depth <= 0:
                return token.end()
        raise ValueError(f"the value at offset {start} has no end")

    def _closing(self) -> int:
        """Return the offset of the next ``]`` that follows an object."""
        at = self._pos
        while (at := self._data.find(b"]", at)) >= 0:
            if self._data[max(self._pos, at - 64) : at].rstrip()[-1:] == b"}":
                return at
            at += 1
        raise ValueError(f"the array at offset {self._pos} has no end")

    def _items(self, start: int, stop: int) -> list[Any]:
        items: list[Any] = bounded_loads(b"[%b]" % self._data[start:stop])
        return items
