"""The JSON text of rows and news, which may name files and partitions that aren't UTF-8."""

from __future__ import annotations

import json
from typing import Any

from timeline.encoding.json_text import dumps, loads, plain_loads


def text_of(value: Any) -> bytes:
    r"""Return plain values as JSON in UTF-8.

    Names may come from a file system whose names aren't all UTF-8. Python has the other bytes as
    lone surrogates, which are escaped as in ``\udce9``; only then is all else that isn't ASCII.
    """
    try:
        return dumps(value)
    except (TypeError, UnicodeEncodeError):  # what orjson and the standard library raise
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def value_of(text: bytes) -> Any:
    """Return the value of ``text_of``.

    Raises:
        ValueError: It isn't JSON.
    """
    try:
        return loads(text)
    except ValueError:
        if rb"\ud" not in text:
            raise
        return plain_loads(text)  # orjson refuses lone surrogates
