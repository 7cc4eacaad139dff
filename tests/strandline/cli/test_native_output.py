"""Lines that native code prints during a command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.serve_process import environment

PRINTS = """
import ctypes
import click
from strandline.cli.output import native_output_to_stderr

libc = ctypes.CDLL(None)
click.echo("before")
try:
    with native_output_to_stderr():
        libc.printf(b"buffered by C\\n")
        libc.write(1, b"at once\\n", 8)
        RAISES
finally:
    click.echo("after")
"""


@pytest.mark.parametrize("raises", ["pass", "raise SystemExit(0)"])
def test_it_is_on_stderr_and_the_command_s_own_on_stdout(raises: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PRINTS.replace("RAISES", raises)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE_S,
        check=True,
    )
    assert ended.stdout == "before\nafter\n"
    assert sorted(ended.stderr.splitlines()) == ["at once", "buffered by C"]
