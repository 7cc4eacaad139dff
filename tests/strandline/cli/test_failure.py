"""No traceback reaches a terminal, whatever fails, except with ``--debug``."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import click
import pytest
from click.testing import CliRunner

from strandline.__main__ import main
from strandline.cli.failure import failures_in_a_line
from tests.kit.concurrency.patience import PROCESS_S
from timeline.errors import (
    CorruptMetadataError,
    InputError,
    InstantNotFoundError,
    TableNotFoundError,
)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("there is no\ncolumn \x1b[31m"), 2, "there is no column \\x1b[31m"),
        (TableNotFoundError("none", hint="look"), 2, "none (look)"),
        (InstantNotFoundError("none"), 2, "none"),
        (CorruptMetadataError("torn"), 1, "torn"),
        (KeyError("a"), 1, "unexpected KeyError: 'a'; strandline --debug shows where"),
        (MemoryError(), 1, "unexpected MemoryError; strandline --debug shows where"),
        (PermissionError(13, "Permission denied", "/t"), 1, "Permission denied: /t"),
    ],
)
def test_errors_are_one_line_with_their_exit_code(error, code, message):
    with pytest.raises(click.ClickException) as raised, failures_in_a_line(debug=False):
        raise error
    assert (raised.value.exit_code, raised.value.message) == (code, message)
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [click.Abort(), click.exceptions.Exit(3), BrokenPipeError(32, "x")]
)
def test_what_click_or_the_end_of_output_handle_passes(error):
    with pytest.raises(type(error)) as raised, failures_in_a_line(debug=False):
        raise error
    assert raised.value is error


@pytest.mark.parametrize("debug", [True, False])
def test_debug_shows_the_traceback(capsys, debug):
    error = pytest.raises(click.ClickException, match="unexpected ValueError: bad")
    with error, failures_in_a_line(debug=debug):
        raise ValueError("bad")
    assert ("Traceback" in capsys.readouterr().err) is debug


def test_the_end_of_a_thread_is_one_line(capsys):
    def fails() -> None:
        raise ValueError("in a\nthread")

    hook = threading.excepthook
    with failures_in_a_line(debug=False):
        thread = threading.Thread(target=fails)
        thread.start()
        thread.join()
    assert capsys.readouterr().err == "Error: a thread ended with ValueError: in a thread\n"
    assert threading.excepthook is hook


def test_what_is_logged_is_one_line_without_a_traceback(capsys):
    last = logging.lastResort
    assert last is not None
    with pytest.raises(ValueError, match="bad") as raised:
        int("bad")
    of_error = raised.type, raised.value, raised.tb
    record = logging.LogRecord("strandline", logging.WARNING, "", 0, "can't %s", ("see",), of_error)
    with failures_in_a_line(debug=False):
        last.handle(record)
    assert capsys.readouterr().err == "can't see\n"
    with failures_in_a_line(debug=True):
        last.handle(record)
    assert "Traceback" in capsys.readouterr().err


def test_debug_is_an_option_before_the_command(tmp_path):
    done = CliRunner().invoke(main, ["--debug", "pins", str(tmp_path)])
    assert done.exit_code == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: no table at ")


@pytest.mark.property
def test_a_process_shows_no_traceback(tmp_path):
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie" / "hoodie.properties").write_bytes(b"\\u12\xff=")
    command = [sys.executable, "-m", "strandline", "pins", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_S)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: ")
