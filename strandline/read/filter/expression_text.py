"""The text of an expression of pyarrow's, which is all that it shows of itself."""

from __future__ import annotations

import pyarrow.compute as pc


def expression_text(condition: pc.Expression) -> str:
    """Return an expression as text, which may leave out parts of long lists and values.

    pyarrow shortens a long text in a list to a number of bytes, be it within a character; then
    ``str`` fails. The rest of that character is ``U+FFFD`` here.
    """
    try:
        return str(condition)
    except UnicodeDecodeError as exc:
        return exc.object.decode(errors="replace")
