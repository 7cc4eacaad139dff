"""JSON by orjson if it is installed, else by the standard library, with the same results.

Spark's executors have no orjson, so no other module of ``timeline``, ``fsview`` and
``executor_proxy`` imports it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
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
