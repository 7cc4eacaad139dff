"""``strandline.server.log_format``: an event is one line, whatever its text."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys

import pytest

from strandline.server.log_format import (
    LONGEST,
    QUEUED_BYTES,
    JsonFormatter,
    LogWriter,
    TextFormatter,
    escaped,
)
from tests.kit.servers.serve_process import environment

FORGED = "/lake\n2026-11-21 20:00:00,000 ERROR strandline: all is lost\x1b[31m\r\u2028\x85"
HARMLESS = "/lake\\n2026-11-21 20:00:00,000 ERROR strandline: all is lost\\x1b[31m\\r\\u2028\\x85"


def record(message: str, *args: object, **more: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": "strandline.test",
            "levelname": "WARNING",
            "msg": message,
            "args": args,
            "created": 1795291473.118,
            "threadName": "requests_0",
            **more,
        }
    )


def failed(message: str) -> logging.LogRecord:
    def fail() -> None:
        raise ValueError(message)

    try:
        fail()
    except ValueError:
        return record("it failed", exc_info=sys.exc_info())
    raise AssertionError


def test_what_is_not_printable_is_escaped(subtests: pytest.Subtests) -> None:
    for text, shown in [
        ("", ""),
        ("plain ASCII, ~", "plain ASCII, ~"),
        ("Zürich 東京 🙂", "Zürich 東京 🙂"),
        ("\0\a\b\t\n\v\f\r\x1b\x7f", "\\x00\\x07\\x08\\t\\n\\x0b\\x0c\\r\\x1b\\x7f"),
        ("\x85\x9b\xa0\xad", "\\x85\\x9b\\xa0\\xad"),
        ("\u2028\u202e\ufeff\ud800", "\\u2028\\u202e\\ufeff\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ]:
        with subtests.test(text=text):
            assert escaped(text) == shown
            assert shown.isprintable()


def test_text_is_one_line() -> None:
    line = TextFormatter().format(record("%s: refused", FORGED))
    assert line.endswith(f" WARNING strandline.test: {HARMLESS}: refused")
    assert len(line.splitlines()) == 1


def test_in_text_a_traceback_is_indented_and_forges_nothing() -> None:
    first, *rest = TextFormatter("%(message)s").format(failed(FORGED)).split("\n")
    assert first == "it failed"
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "    Traceback (most recent call last):" in rest
    assert "    ValueError: /lake" in rest


def test_json_is_one_object_a_line_with_the_exception_as_a_field() -> None:
    line = JsonFormatter().format(failed(FORGED))
    assert line.isascii()
    assert line.isprintable()
    event = json.loads(line)
    trace = event.pop("exception")
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.endswith(f"ValueError: {FORGED}")
    assert event == {
        "time": "2026-11-21T20:04:33.118Z",
        "level": "WARNING",
        "logger": "strandline.test",
        "thread": "requests_0",
        "message": "it failed",
    }


def test_control_characters_are_escaped_in_json() -> None:
    event = json.loads(JsonFormatter().format(record("%s", FORGED)))
    assert event["message"] == HARMLESS
    assert "exception" not in event


@pytest.mark.parametrize("formatter", [TextFormatter("%(message)s"), JsonFormatter()])
def test_a_long_message_is_cut_off(formatter: logging.Formatter) -> None:
    line = formatter.format(record("%s", "x" * (LONGEST + 1000)))
    assert "x... (1000 characters more)" in line
    assert len(line) < LONGEST + 300


EVERYTHING = """
import asyncio, logging, sys, threading, warnings
from strandline.server.log_format import STDERR, log_to

log_to(STDERR, "INFO", sys.argv[1])
logging.getLogger("library.error").info("of a\\nlibrary")
warnings.warn("of Python")
thread = threading.Thread(target=lambda: 1 / 0, name="one")
thread.start()
thread.join()
class Unraisable:
    def __del__(self):
        raise KeyError("unraisable")
Unraisable()
raise RuntimeError("uncaught")
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_python_and_libraries_say_comes_the_same_way(form: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", EVERYTHING, form],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert told.stdout == ""
    lines = told.stderr.splitlines()
    if form == "text":
        events = [line for line in lines if not line.startswith("    ")]
        assert all(line.startswith("20") for line in events)
        assert "INFO library.error: of a\\nlibrary" in events[0]
        return
    events = [json.loads(line) for line in lines]
    assert [(event["level"], event["logger"]) for event in events] == [
        ("INFO", "library.error"),
        ("WARNING", "py.warnings"),
        ("CRITICAL", "strandline.server.log_format"),
        ("ERROR", "strandline.server.log_format"),
        ("CRITICAL", "strandline.server.log_format"),
    ]
    assert events[0]["message"] == "of a\\nlibrary"
    assert [event.get("exception", "").rpartition("\n")[2] for event in events[2:]] == [
        "ZeroDivisionError: division by zero",
        "KeyError: 'unraisable'",
        "RuntimeError: uncaught",
    ]


PLAIN = TextFormatter("%(message)s")


def test_a_log_that_nobody_reads_blocks_nobody_and_says_what_was_dropped() -> None:
    reading, writing = os.pipe()
    log = LogWriter(writing, PLAIN)
    # The first doesn't fit into the pipe, so that nothing is written before it is read.
    lines = [f"{number} {'x' * 1000}" for number in range(2 * QUEUED_BYTES // 1000)]
    lines[0] *= 200
    for line in lines:
        log.write(line)
    dropped = log.status()["dropped"]
    assert dropped > 0
    with os.fdopen(reading) as read:
        told, written = 0, []
        while told < dropped:  # in parts, if the thread began to write in between
            line = next(read).strip()
            found = re.fullmatch(r"(\d+) log lines were dropped: nobody read the log.*", line)
            told += int(found[1]) if found else 0
            written += [] if found else [line]
        assert (told, written) == (dropped, lines[: len(lines) - dropped])
        log.handle(record("read %s", "again"))
        assert next(read) == "read again\n"
    os.close(writing)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_lines_that_a_full_disk_does_not_take_are_counted() -> None:
    with open("/dev/full", "w") as full:
        log = LogWriter(full.fileno(), PLAIN)
        log.write("one")
        log.flush()
        log.write("two")
        log.flush()
        assert log.status() == {"dropped": 2}


def test_a_line_that_can_not_be_formatted_fails_no_caller() -> None:
    reading, writing = os.pipe()
    log = LogWriter(writing, PLAIN)
    log.handle(record("%d", "one"))
    log.flush()
    os.close(writing)
    with os.fdopen(reading) as read:
        assert read.read() == "can't be formatted: '%d'\n"
