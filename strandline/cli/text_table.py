"""Rows of cells as lines of text: columns for a pipe, a table or a line per value for a terminal.

Cells are text without control characters. Blocks of rows are laid out one after the other, so that
rows of any number are printed with the memory of one block; a column gets wider where a later block
needs it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

Cells = Sequence[Sequence[str]]
"""The rows of a block, each with a cell for each column."""

_GAP: Final = "  "
_BELOW: Final = "  "
_FOLDED: Final = 32
"""Characters of a column that a terminal's table folds at least; narrower ones aren't folded."""


def as_columns(columns: Sequence[str], blocks: Iterable[Cells]) -> Iterator[str]:
    """Yield a line of names and a line a row, in columns as wide as the longest cell so far.

    Args:
        columns: Names of the columns.
        blocks: The rows; without any there is no line.
    """
    widths = [len(name) for name in columns]
    is_first = True
    for rows in blocks:
        if not rows:
            continue
        widths = [max(width, *(len(r[at]) for r in rows)) for at, width in enumerate(widths)]
        for line in [columns, *rows] if is_first else rows:
            yield _GAP.join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip()
        is_first = False


def on_terminal(
    columns: Sequence[str], blocks: Iterable[Cells], width: int, numbers: Collection[str] = ()
) -> Iterator[str]:
    """Yield lines that fit a terminal.

    Rows are a table, whose long cells are folded, with ``rich``. If the first block's columns would
    get narrower than ``_FOLDED``, there is a line for each value instead, so that names can be
    copied.

    Args:
        columns: Names of the columns.
        blocks: The rows.
        width: Of the terminal, in characters.
        numbers: The columns that are aligned to the right.
    """
    is_table: bool | None = None
    for rows in filter(None, blocks):
        is_first = is_table is None
        if is_table is None:
            is_table = _fits(columns, rows, width)
        if is_table:
            yield from _folded(columns, rows, width, numbers)
        else:
            yield from () if is_first else ("",)
            yield from as_records(columns, rows, width)


def _fits(columns: Sequence[str], rows: Cells, width: int) -> bool:
    """Return whether the columns fit if those wider than ``_FOLDED`` are folded."""
    least = (
        min(_FOLDED, max(map(len, (*_in_parts(name), *(row[at] for row in rows)))))
        for at, name in enumerate(columns)
    )
    return sum(least) + len(_GAP) * (len(columns) - 1) <= width


def _in_parts(name: str) -> list[str]:
    """Return the lines of a column's name where it is folded: ``rows_``, ``inserted``."""
    return re.findall("[^_]*_+|[^_]+", name) or [name]


def _folded(
    columns: Sequence[str], rows: Cells, width: int, numbers: Collection[str]
) -> Iterator[str]:
    # Imported here because rich takes a twentieth of a second, which pipes save.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
    natural = (max(map(len, (name, *(row[at] for row in rows)))) for at, name in enumerate(columns))
    is_wide = sum(natural) + len(_GAP) * (len(columns) - 1) > width
    for name in columns:
        justify: Any = "right" if name in numbers else "left"
        header = "\n".join(_in_parts(name)) if is_wide else name
        table.add_column(Text(header), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(table)
    yield from (line.rstrip() for line in captured.get().splitlines())


def as_records(columns: Sequence[str], rows: Cells, width: int) -> Iterator[str]:
    """Yield the values that aren't empty, each with its column's name, wrapped at spaces.

    A value with a word that doesn't fit beside the name begins below it. Rows are separated by an
    empty line.
    """
    indent = max(map(len, columns)) + 2
    for at, row in enumerate(rows):
        if at:
            yield ""
        for name, cell in zip(columns, row, strict=True):
            fits = all(len(word) <= width - indent for word in cell.split())
            if cell and not fits:
                yield name
            if cell:
                yield from textwrap.wrap(
                    cell,
                    width,
                    initial_indent=f"{name:<{indent}}" if fits else _BELOW,
                    subsequent_indent=" " * indent if fits else _BELOW,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
