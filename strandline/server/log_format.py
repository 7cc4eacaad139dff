"""Log lines of a service: text or JSON, one event a line, without control characters.

Base paths, marker names and other text from clients end up in logs. So characters that aren't
printable are escaped: a client can't forge a line or send a terminal commands. In text a traceback
follows its line, indented; in JSON it is a field::

    2026-11-21 20:04:33,118 WARNING strandline.server.api.readiness: not ready: root s3://lake: …
    {"time": "2026-11-21T20:04:33.118Z", "level": "WARNING", "logger": "strandline.…", "message": …}

The root logger has the only handler, so log lines of libraries, Python's warnings and uncaught
exceptions have the same form.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from datetime import datetime, timezone
from types import TracebackType
from typing import IO, Final

logger = logging.getLogger(__name__)

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CHILD: Final = "%(levelname)s %(name)s: %(message)s"
"""For a driver's child: the driver logs its lines with a time."""

LONGEST: Final = 8192
"""Most characters of a message: a request line alone may have millions."""

_INDENT: Final = "    "
_NOT_ASCII: Final = re.compile(r"[^ -~]")


def escaped(text: str) -> str:
    r"""Return text with characters that aren't printable as ``\n``, ``\xNN``, ``\uNNNN``."""
    return _NOT_ASCII.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}... ({len(text) - LONGEST} characters more)"


class TextFormatter(logging.Formatter):
    """Lines of text; tracebacks are indented, so that none of their lines looks like an event."""

    def __init__(self, pattern: str = TEXT) -> None:
        super().__init__(pattern)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the event's line."""
        record.message = _shortened(record.message)
        return escaped(super().formatMessage(record))

    def formatException(  # noqa: N802 - logging's name
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        """Return the traceback, each line indented."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return the stack, each line indented."""
        return _indented(stack_info)


class JsonFormatter(logging.Formatter):
    """One ASCII JSON object a line.

    Fields: ``time`` (UTC, milliseconds), ``level``, ``logger``, ``thread``, ``message``, and
    ``exception`` with the traceback if there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the event's line."""
        at = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": escaped(_shortened(record.getMessage())),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields)


def _indented(text: str) -> str:
    return "\n".join(_INDENT + escaped(line) for line in text.split("\n"))


def log_to(
    stream: IO[str], level: str, form: str = "text", pattern: str = TEXT
) -> logging.Formatter:
    """Send everything that is logged in this process to a stream.

    Args:
        stream: Destination.
        level: Lowest level that is logged.
        form: ``"text"`` or ``"json"``.
        pattern: Format of text lines.

    Returns:
        The formatter, for ``event``.
    """
    formatter = JsonFormatter() if form == "json" else TextFormatter(pattern)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    return formatter


def event(formatter: logging.Formatter, name: str, message: str) -> str:
    """Return the line of an event that is printed whatever the level is."""
    return formatter.format(
        logging.LogRecord(name, logging.INFO, "", 0, message, None, None, "serve")
    )


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logger.critical("uncaught exception", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = "a thread" if args.thread is None else args.thread.name
    error = args.exc_value or args.exc_type()
    info = (args.exc_type, error, args.exc_traceback)
    logger.critical("uncaught exception in %s", name, exc_info=info)


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    error = args.exc_value or args.exc_type()
    info = (args.exc_type, error, args.exc_traceback)
    logger.error("%s: %r", args.err_msg or "exception ignored in", args.object, exc_info=info)
