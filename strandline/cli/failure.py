"""How commands fail: in one line on stderr, with exit code 2 for bad usage, else 1.

A traceback is shown with ``--debug`` only, whatever raised the error. ``UNTAKEN`` says why a
command of tables doesn't take an option that others take.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import click

from strandline.server.log_format import escaped
from timeline.errors import (
    ConfigError,
    InputError,
    InstantNotFoundError,
    StrandlineError,
    TableNotFoundError,
)

_USAGE = (ConfigError, InputError, TableNotFoundError, InstantNotFoundError)
"""What the arguments of a command cause."""

_NOW: Final = "it is about the table as it is now"
_OF_A_TIME: Final = f"{_NOW}; history --until TIME shows what was before"
_SINCE: Final = "incremental --since has the rows that later commits wrote, history --since these"
_NO_ROWS: Final = (
    "it lists neither rows nor partitions; other programs filter its --output jsonl or csv"
)
_ONE: Final = "it answers with one row"
_UNASKED: Final = "a service isn't asked for tables below a root"
_PREVIEWS: Final = ("archive", "clean", "compact")

UNTAKEN: Final[Mapping[str, Mapping[str, str]]] = {
    "--as-of": {
        "history": "it has all instants; --since and --until choose among them",
        "commit": "INSTANT chooses the commit; history --until TIME has those of a time",
        "incremental": "--until is the time at which its rows are read",
        "properties": "hoodie.properties has no earlier versions",
        "inspect": "it shows what is there now; slices --as-of, history --until are of a time",
        "tables": "it lists what is there now",
        **dict.fromkeys((*_PREVIEWS, "doctor", "pins", "why"), _OF_A_TIME),
    },
    "--since": {
        **dict.fromkeys(("count", "files", "partitions", "read", "slices", "stats"), _SINCE),
        **dict.fromkeys(("commit", "inspect"), "history --since lists what happened since"),
        **dict.fromkeys(("properties", "schema"), "they have no changes listed; see history"),
        "tables": "it lists what is there now",
        **dict.fromkeys((*_PREVIEWS, "doctor", "pins", "why"), _OF_A_TIME),
    },
    "--until": {
        **dict.fromkeys(
            ("count", "files", "partitions", "read", "schema", "slices", "stats"),
            "--as-of is the time that it is read at",
        ),
        **dict.fromkeys(("commit", "inspect"), "history --until lists what happened until then"),
        "properties": "hoodie.properties has no earlier versions",
        "tables": "it lists what is there now",
        **dict.fromkeys((*_PREVIEWS, "doctor", "pins", "why"), _OF_A_TIME),
    },
    "--filter": {
        "inspect": f"{_NO_ROWS}; --partition is for log-files",
        "properties": "NAMES choose the properties",
        "why": _ONE,
        **dict.fromkeys(
            (*_PREVIEWS, "commit", "doctor", "history", "pins", "schema", "tables"), _NO_ROWS
        ),
    },
    "--columns": {
        "count": "it prints a number",
        "properties": "NAMES choose the properties",
        "why": _ONE,
    },
    "--limit": {"properties": "NAMES choose the properties", "why": _ONE},
    "--service": {"tables": _UNASKED},
    "--token-file": {"tables": _UNASKED},
}
"""Option → command → why it doesn't take it."""


@contextmanager
def failures_in_a_line(*, debug: bool) -> Iterator[None]:
    """End the command in one line if the block raises an error.

    Args:
        debug: Whether the traceback is printed, too.
    """
    try:
        with _without_tracebacks(debug=debug):
            yield
    except (click.ClickException, click.exceptions.Exit, click.Abort, OSError) as error:
        if not isinstance(error, OSError) or error.filename is None:
            raise  # click's own, or of a stream, such as a pipe whose reader has gone
        raise _told(error, f"{error.strerror}: {error.filename}", debug=debug) from error
    except StrandlineError as error:
        told = _told(error, str(error), debug=debug)
        is_usage = isinstance(error, _USAGE)
        raise (click.UsageError(told.message) if is_usage else told) from error
    except Exception as error:
        more = "" if debug else "; strandline --debug shows where"
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise _told(error, f"unexpected {what}{more}", debug=debug) from error


def in_a_line(text: object) -> str:
    """Return text as one line without control characters."""
    return escaped(" ".join(str(text).split()))


def why_untaken(command: str, option: str) -> str:
    """Return the message for an option that a command doesn't take; ``""`` if nothing is known."""
    why = UNTAKEN.get(option, {}).get(command)
    return "" if why is None else f"{command} takes no {option}: {why}"


def _told(error: Exception, text: str, *, debug: bool) -> click.ClickException:
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    return click.ClickException(in_a_line(text))


@contextmanager
def _without_tracebacks(*, debug: bool) -> Iterator[None]:
    """Print one line for errors that are logged, or end a thread, unless ``debug``.

    Commands that configure logging themselves aren't affected.
    """
    last = logging.lastResort
    if debug or last is None:
        yield
        return
    formatter, hook = last.formatter, threading.excepthook

    def one_line(args: threading.ExceptHookArgs) -> None:
        kind = args.exc_type.__name__
        sys.stderr.write(in_a_line(f"Error: a thread ended with {kind}: {args.exc_value}") + "\n")

    last.setFormatter(_OneLine())
    threading.excepthook = one_line
    try:
        yield
    finally:
        last.setFormatter(formatter)
        threading.excepthook = hook


class _OneLine(logging.Formatter):
    """A message without its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message on one line."""
        return in_a_line(record.getMessage())
