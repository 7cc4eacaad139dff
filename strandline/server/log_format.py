"""Log lines of a service: text or JSON, one event a line, without control characters; their writer.

Base paths, marker names and other text from clients end up in logs. So characters that aren't
printable are escaped: a client can't forge a line or send a terminal commands. In text a traceback
follows its line, indented; in JSON it is a field::

    2026-11-21 20:04:33,118 WARNING strandline.server.api.readiness: not ready: root s3://lake: …
    {"time": "2026-11-21T20:04:33.118Z", "level": "WARNING", "logger": "strandline.…", "message": …}

The root logger has the only handler, so log lines of libraries, Python's warnings and uncaught
exceptions have the same form.

Logging never waits for the log's reader: ``LogWriter`` queues lines, and a thread writes them. A
pipe that nobody reads, or a stopped terminal, would otherwise block every thread that logs, the
event loop among them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, Final

logger = logging.getLogger(__name__)

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CHILD: Final = "%(levelname)s %(name)s: %(message)s"
"""For a driver's child: the driver logs its lines with a time."""

LONGEST: Final = 8192
"""Most characters of a message: a request line alone may have millions."""

STDERR: Final = 2
QUEUED_BYTES: Final = 1 << 20
"""Bytes of lines that wait to be written; further ones are dropped."""
FLUSH_S: Final = 0.5
"""How long the end of a process waits until its last lines are written."""

REQUEST: Final[ContextVar[str]] = ContextVar("request", default="")
"""The id of the request that a thread, or a task of the loop, works for; empty: none. The lines of
all that is logged meanwhile have it."""

_INDENT: Final = "    "
_NOT_ASCII: Final = re.compile(r"[^ -~]")


@contextlib.contextmanager
def of_request(request_id: str) -> Iterator[None]:
    """Have all that the block logs carry a request's id."""
    before = REQUEST.set(request_id)
    try:
        yield
    finally:
        REQUEST.reset(before)


def escaped(text: str) -> str:
    r"""Return text with characters that aren't printable as ``\n``, ``\xNN``, ``\uNNNN``."""
    return _NOT_ASCII.sub(_escape, text)


def hanging_line(row: Mapping[str, Any]) -> str:
    """Return a row of ``HangingRequests.status`` as a line for people."""
    calls = (
        f"{each['kind']} for {each['cause']}, {each['seconds']:.0f} s" for each in row["calls"]
    )
    return (
        f"{row['table']}: a request has held a thread for {row['seconds']:.0f} s; calls to its"
        f" storage: {'; '.join(calls) or 'none that takes long'};"
        f" waited for by {', '.join(row['clients']) or 'nobody'}"
    )


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
        if request := REQUEST.get():
            record.message += f" [request {request}]"
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

    Fields: ``time`` (UTC, milliseconds), ``level``, ``logger``, ``thread``, ``message``,
    ``request`` with the id of the request that it was logged for, and ``exception`` with the
    traceback, if there are any.
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
        if request := REQUEST.get():
            fields["request"] = request
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields)


def _indented(text: str) -> str:
    return "\n".join(_INDENT + escaped(line) for line in text.split("\n"))


class LogWriter(logging.Handler):
    """Writes log lines to a descriptor from a thread of its own; never blocks a caller.

    Lines beyond ``QUEUED_BYTES``, and those that can't be written, are dropped and counted. Once
    there is room again, a line reports their number. ``_changed`` guards the queue and the
    counters; it is re-entrant, as a signal handler may log while its thread does, and never held
    during a write.

    Attributes:
        dropped: Lines that were dropped since the start.
    """

    def __init__(self, descriptor: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.dropped = 0
        self._form = formatter
        self._descriptor = descriptor
        self._changed = threading.Condition(threading.RLock())
        self._lines: deque[bytes] = deque()
        self._bytes = 0  # of queued lines, and of those that are being written
        self._told = 0  # of the dropped lines
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of an event."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a wrong format string must not fail its caller
            line = self._form.format(_event(__name__, f"can't be formatted: {record.msg!r}"))
        self.write(line)

    def write(self, line: str) -> None:
        """Queue a line, whatever the level is."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        with self._changed:
            if self._is_closed:
                # The interpreter ends, and may have stopped the thread.
                _write_now(self._descriptor, data)
            elif self._bytes + len(data) > QUEUED_BYTES:
                self.dropped += 1
            else:
                self._lines.append(data)
                self._bytes += len(data)
                self._changed.notify_all()

    def status(self) -> dict[str, int]:
        """Return figures for the service's status."""
        return {"dropped": self.dropped}

    def flush(self) -> None:
        """Wait until all lines are written, at most ``FLUSH_S`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._bytes, FLUSH_S)

    def close(self) -> None:
        """Write further lines directly, as far as that doesn't block."""
        with self._changed:
            self._is_closed = True
        super().close()

    def _run(self) -> None:
        is_written = True
        while True:
            lines, missed = self._wait(tells=is_written)
            size, count = sum(map(len, lines)), len(lines)
            if missed:
                message = f"{missed} log lines were dropped: nobody read the log, or it was full"
                told = self._form.format(_event(__name__, message, logging.WARNING))
                lines.append(told.encode() + b"\n")
            is_written = self._write_all(b"".join(lines))
            with self._changed:
                self._bytes -= size
                if is_written:
                    self._told += missed
                else:
                    self.dropped += count
                self._changed.notify_all()

    def _wait(self, *, tells: bool) -> tuple[list[bytes], int]:
        """Wait for lines, or if ``tells``, for drops; return the lines and unreported drops."""
        with self._changed:
            # After a failed write the number goes with the next line: a full disk stays full.
            self._changed.wait_for(lambda: self._lines or (tells and self.dropped > self._told))
            lines = list(self._lines)
            self._lines.clear()
            return lines, self.dropped - self._told

    def _write_all(self, data: bytes) -> bool:
        """Write bytes, waiting as long as it takes; return whether they could be written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # The descriptor is shared with processes that made it non-blocking.
                _can_write(self._descriptor, None)
            except OSError:
                return False
        return True


def _can_write(descriptor: int, wait_ms: int | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(wait_ms))


def _write_now(descriptor: int, data: bytes) -> None:
    """Write bytes as far as that doesn't block."""
    with contextlib.suppress(OSError):
        while data and _can_write(descriptor, 0):
            # As many as a pipe with room takes at once.
            data = data[os.write(descriptor, data[: select.PIPE_BUF]) :]


def log_to(descriptor: int, level: str, form: str = "text", pattern: str = TEXT) -> LogWriter:
    """Send everything that is logged in this process to an open file.

    Args:
        descriptor: Of the file, such as ``STDERR``.
        level: Lowest level that is logged.
        form: ``"text"`` or ``"json"``.
        pattern: Format of text lines.
    """
    formatter = JsonFormatter() if form == "json" else TextFormatter(pattern)
    writer = LogWriter(descriptor, formatter)
    logging.basicConfig(level=level, handlers=[writer], force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    return writer


def event(form: str, name: str, message: str, *, has_time: bool = True) -> str:
    """Return the line of an event that is logged whatever the level is.

    Args:
        form: ``"text"`` or ``"json"``.
        name: Of the logger.
        message: The event.
        has_time: Whether a line of text has time, level and logger, like all others of the log;
            otherwise it is the message alone.
    """
    if form == "json":
        return JsonFormatter().format(_event(name, message))
    return TextFormatter().format(_event(name, message)) if has_time else escaped(message)


def _event(name: str, message: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, message, None, None, "serve")


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
