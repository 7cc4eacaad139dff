"""``as_json`` and ``counted``: the forms that commands print; what native code prints is kept out.

Nothing here imports pyarrow; ``strandline.cli.rows_output`` prints rows.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

FORMATS: Final = ("table", "json", "jsonl", "csv", "arrow")

_CONTROLS: Final = re.compile("[\x7f-\x9f]")
"""Control characters that JSON allows within a text, and some terminals obey."""
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode


def as_json(value: Any) -> str:
    """Return a value as a line of JSON without control characters; other letters as they are."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", _ENCODE(value))


def counted(count: int, noun: str) -> str:
    """Return a number of things: ``1 file``, ``2 files``, ``2 properties``."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else many}"


@contextmanager
def native_output_to_stderr() -> Iterator[None]:
    """Have what native code prints to stdout within the block appear on stderr.

    Solvers print lines of their own, which would make the command's JSON unreadable. Python's own
    output is to be printed after the block.
    """
    if sys.__stdout__ is None or sys.__stderr__ is None:
        yield  # a closed descriptor can't be redirected, and nobody reads it
        return
    # C's buffer for stdout, which it otherwise writes at the end of the process.
    flush = ctypes.CDLL(None).fflush
    sys.__stdout__.flush()
    flush(None)
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        try:
            yield
        finally:
            flush(None)
            os.dup2(kept, 1)
    finally:
        os.close(kept)
