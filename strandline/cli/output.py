"""What commands print: rows as a table, as JSON or as lines of JSON; errors in one line."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from strandline.server.log_format import escaped
from timeline.errors import ConfigError, InputError, StrandlineError, TableNotFoundError

FORMATS: Final = ("table", "json", "jsonl")

_BELOW: Final = "  "
_CONTROLS: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""Control characters that JSON allows within a text, and some terminals obey."""


def as_json(value: Mapping[str, Any]) -> str:
    """Return a value as a line of JSON without control characters; other letters as they are."""
    return json.dumps(value, ensure_ascii=False).translate(_CONTROLS)


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--output`` to a command."""
    return click.option(
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Columns for people (on a terminal that is too narrow, a line for each value), one"
        " JSON object, or a JSON object a line.",
    )(command)


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


def print_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    output: str,
    head: Mapping[str, Any],
    name: str,
) -> None:
    """Print rows to stdout.

    A table that is wider than the terminal is printed with a line for each value; into a pipe or a
    file it isn't, so that a script finds the same columns everywhere.

    Args:
        rows: The rows.
        columns: Their columns, in order.
        output: One of ``FORMATS``. As one object: ``head``, and the rows as a list; the other forms
            have the rows alone.
        head: What holds for all rows.
        name: Name of the list.
    """
    if output == "json":
        click.echo(as_json({**head, name: [dict(row) for row in rows]}))
    elif output == "jsonl":
        for row in rows:
            click.echo(as_json(dict(row)))
    else:
        cells = [[_cell(row[c]) for c in columns] for row in rows]
        lines = list(_as_table(cells, columns))
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns
            if any(len(line) > width for line in lines):
                lines = list(_as_records(cells, columns, width))
        for line in lines:
            click.echo(line)


def counted(count: int, noun: str) -> str:
    """Return a number of things: ``1 file``, ``2 files``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _cell(value: Any) -> str:
    return "" if value is None else escaped(str(value))


def _as_table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> Iterator[str]:
    """Yield lines of columns that are as wide as their longest cell; none without rows."""
    if not rows:
        return
    lines = [columns, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _as_records(rows: Sequence[Sequence[str]], columns: Sequence[str], width: int) -> Iterator[str]:
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


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """End the command with an error of the block in one line: 2 for bad usage, else 1."""
    try:
        yield
    except (ConfigError, InputError, TableNotFoundError) as error:
        raise click.UsageError(_in_a_line(error)) from error
    except StrandlineError as error:
        raise click.ClickException(_in_a_line(error)) from error


def _in_a_line(error: StrandlineError) -> str:
    return escaped(" ".join(str(error).split()))
