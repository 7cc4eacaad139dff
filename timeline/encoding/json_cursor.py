"""JSON text taken one value after another, and a long array of objects a part at a time.

A text of a hundred megabytes is ten times that as values. Only what is taken at a time is parsed.
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
    """A position in JSON text; takes one value after another."""

    def __init__(self, data: bytes, batch_bytes: int) -> None:
        self._data = data
        self._batch_bytes = batch_bytes
        self._pos = 0

    def members(self) -> Iterator[str]:
        """Yield each key of the object that begins here; the caller takes its value meanwhile."""
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
        """Take the next value, whatever it is."""
        self._next()
        return self._parsed(self._pos, self._after(self._pos, 0))

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
            # What looks like an end may lie within a text or an item. Then the items up to it are
            # no JSON: a part of an array that is balanced ends where an item ends.
            try:
                items = self._items(self._pos, stop)
            except ValueError:
                stop = self._after(self._pos, 1) - 1
                items = self._items(self._pos, stop)
                end = stop
            yield items
            self._pos = stop + 1

    def end(self) -> None:
        """Make sure that nothing follows.

        Raises:
            ValueError: Something does.
        """
        if self._next():
            raise ValueError(f"more at offset {self._pos}")

    def _next(self) -> bytes:
        """Skip spaces; return the byte that follows them, none at the end."""
        space = _SPACE.match(self._data, self._pos)
        self._pos = self._pos if space is None else space.end()
        return self._data[self._pos : self._pos + 1]

    def _take(self, mark: bytes) -> None:
        if self._next() != mark:
            raise ValueError(f"no {mark.decode()} at offset {self._pos}")
        self._pos += 1

    def _after(self, start: int, depth: int) -> int:
        """Return the offset behind the value that begins (or, at depth 1, has begun) here."""
        for token in _TOKEN.finditer(self._data, start):
            first = token[0][:1]
            depth += (first in b"[{") - (first in b"]}")
            if depth <= 0:
                return token.end()
        raise ValueError(f"the value at offset {start} has no end")

    def _closing(self) -> int:
        """Return the offset of the next bracket that follows an object."""
        at = self._pos
        while (at := self._data.find(b"]", at)) >= 0:
            if self._data[max(self._pos, at - 64) : at].rstrip()[-1:] == b"}":
                return at
            at += 1
        raise ValueError(f"the array at offset {self._pos} has no end")

    def _items(self, start: int, stop: int) -> list[Any]:
        items: list[Any] = bounded_loads(b"[%b]" % self._data[start:stop])
        return items

    def _parsed(self, start: int, stop: int) -> Any:
        self._pos = stop
        return bounded_loads(self._data[start:stop])
