"""Values in a query string, as they are read on the server's loop."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

REMEMBERED_BYTES: Final = 512
"""Longer values are read each time: clients choose them, and what is remembered isn't counted."""


def unquoted(text: bytes) -> str:
    """Return a value without its escapes.

    Raises:
        UnicodeDecodeError: It isn't UTF-8.
    """
    if b"%" not in text and b"+" not in text:
        return text.decode("ascii")
    return unquote_to_bytes(text.replace(b"+", b" ")).decode()
