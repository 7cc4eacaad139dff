"""How commands fail: in one line on stderr, with exit code 2 for bad usage, else 1.

A traceback is shown with ``--debug`` only, whatever raised the error.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

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
