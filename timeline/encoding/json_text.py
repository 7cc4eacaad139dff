"""JSON, by orjson where it can be imported, else by the standard library: same text, same values.

An executor has no orjson, so no other module of ``timeline``, ``fsview`` and ``executor_proxy``
imports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NoReturn


def plain_dumps(value: Any) -> bytes:
    """Return the compact JSON text of plain values, in UTF-8, by the standard library."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def plain_loads(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8, by the standard library.

    Raises:
        ValueError: It isn't any; NaN and infinities aren't, nor is UTF-16, as for orjson.
    """
    return json.loads(data.decode(), parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


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
"""Parses JSON in UTF-8; what isn't any is a ``ValueError``."""

UNCHECKED_BYTES: Final = 4 << 20
BYTES_PER_VALUE: Final = 4
"""How many bytes a value of a larger text takes at least, on average: a text of empty lists would
be thirty times its size in memory. Commit metadata has ten or more for each."""


def bounded_loads(text: bytes) -> Any:
    """Return the value of a JSON text that others wrote.

    Raises:
        ValueError: It isn't JSON, or would be far more in memory than it is as text.
    """
    if len(text) > UNCHECKED_BYTES:
        # Each value begins a list or an object, or follows a comma; texts may have these, too.
        values = text.count(b",") + text.count(b"[") + text.count(b"{")
        if values * BYTES_PER_VALUE > len(text):
            raise ValueError(
                f"{values} values in {len(text)} bytes; allowed: one for each {BYTES_PER_VALUE}"
            )
    return loads(text)
