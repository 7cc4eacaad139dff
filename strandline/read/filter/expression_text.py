"""The text of a pyarrow expression, which has no other way of inspection."""

from __future__ import annotations

import pyarrow.compute as pc


def expression_text(condition: pc.Expression) -> str:
    """Return an expression as text, which may leave out parts of long lists and values.

    pyarrow truncates a long text in a list at a number of bytes, maybe within a character; then
    ``str`` fails. Here the rest of that character becomes ``U+FFFD``.
    """
    try:
        return str(condition)
    except UnicodeDecodeError as exc:
        return exc.object.decode(errors="replace")
