"""How a service logs: text or JSON, an event a line, nothing in it that a terminal would obey.

What clients send ends up in logs: base paths, names of markers. So a control character, or any
other that isn't printable, is written as an escape, in both forms: nobody can begin a line of his
own, or colour it. In text a traceback follows its line, indented; in JSON it is a field::

    2026-11-21 20:04:33,118 WARNING strandline.service.api.readiness: not ready: root s3://lake: …
    {"time": "2026-11-21T20:04:33.118Z", "level": "WARNING", "logger": "strandline.…", "message": …}

The root logger has the one handler, so lines of libraries, warnings of Python
and exceptions that nobody caught come the same way.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from types import TracebackType
from typing import IO, Final, Literal

logger = logging.getLogger(__name__)

Form = Literal["text", "json"]

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CHILD: Final = "%(levelname)s %(name)s: %(message)s"
"""Of a driver's child, whose lines the driver logs with a time of its own."""

LONGEST: Final = 8192
"""Characters of a message; a request line alone may have millions."""

_INDENT: Final = "    "
_SUSPECT: Final = re.compile(r"[^ -~]")
_ESCAPES: Final[Mapping[str, str]] = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str) -> str:
    r"""Return text on one line: what isn't printable as ``\n``, ``\xNN``, ``\uNNNN``."""
    return _SUSPECT.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable():
        return char
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}... ({len(text) - LONGEST} characters more)"


class TextFormatter(logging.Formatter):
    """Lines for people; a traceback is indented, so that no line of it looks like an event."""

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
    """One JSON object a line, in ASCII.

    Fields: ``time`` (UTC, milliseconds), ``level``, ``logger``, ``thread``, ``message``, and
    ``exception`` with the traceback where there is one.
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
    """Log everything to a stream from now on; for the process's owner, once.

    Args:
        stream: Where to.
        level: The least that is logged.
        form: ``"text"`` or ``"json"``.
        pattern: Of lines of text.
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
    """Return the line of an event that is said whatever the level."""
    return formatter.format(
        logging.LogRecord(name, logging.INFO, "", 0, message, None, None, "serve")
    )


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logger.critical("an error that nobody caught", exc_info=(kind, error, trace))


def _uncaught_in_thread(said: threading.ExceptHookArgs) -> None:
    name = "a thread" if said.thread is None else said.thread.name
    error = said.exc_value or said.exc_type()
    logger.critical(
        "an error that nobody caught in %s",
        name,
        exc_info=(said.exc_type, error, said.exc_traceback),
    )


def _unraisable(said: sys.UnraisableHookArgs) -> None:
    error = said.exc_value or said.exc_type()
    logger.error(
        "%s: %r",
        said.err_msg or "an error that can't be raised",
        said.object,
        exc_info=(said.exc_type, error, said.exc_traceback),
    )
