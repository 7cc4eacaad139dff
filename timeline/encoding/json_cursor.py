"""Incremental parsing of JSON: one value after another, and a long array of objects in batches.

A text of a hundred megabytes takes ten times that as Python values, so only one part is parsed at a
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from timeline.encoding.json_text import bounded_loads

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
