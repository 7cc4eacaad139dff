"""Run the code of a document: its Python and shell blocks, in order, and compare what they print.

A block `text` is what the code since the last such block prints, with ``...`` for what differs from
run to run. A block `py` is Python that needs Spark; without Spark
neither it runs nor is what it prints compared.

Commands of `strandline` that need no shell run in this process, which saves a start;
everything else, such as servers in the background, runs in bash, and ends with the page.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NamedTuple

from click.testing import CliRunner

from strandline.__main__ import main

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(python|py|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NEEDS_BASH = re.compile(r"[|&><$;`]|^(?!strandline (?!serve\b|fleet\b)|#|$)", re.MULTILINE)
_COMMAND = f"""#!/bin/sh
exec {shlex.quote(sys.executable)} -m strandline "$@"
"""
_LONGEST_S = 60
"""A page's shell blocks take a few seconds each."""


class Block(NamedTuple):
    """A block of a document: its language, its text, and the line at which it begins."""

    language: str
    code: str
    line: int


def blocks(
    document: str, places: Mapping[str, str] | None = None, *, on_spark: bool = False
) -> list[Block]:
    """Return the blocks of a document that run or are compared.

    Args:
        document: Its Markdown.
        places: Texts in the code, such as folders and ports → those of this run.
        on_spark: Whether those that need Spark are among them.
    """
    found = []
    left_out = False
    for match in _BLOCK.finditer(document):
        language, code = match.groups()
        left_out = not on_spark and (language == "py" or (left_out and language == "text"))
        if left_out:
            continue
        for place, here in (places or {}).items():
            code = code.replace(place, here)
        found.append(Block(language, code, document.count("\n", 0, match.start()) + 2))
    return found


def run(
    found: list[Block], names: dict[str, Any] | None = None, name: str = "page"
) -> dict[str, Any]:
    """Run the blocks of a page.

    Args:
        found: The blocks.
        names: Names that the Python code finds.
        name: Of the page, for tracebacks.

    Returns:
        All names after the last block.

    Raises:
        AssertionError: A command failed, or printed something else.
    """
    names = {"__name__": name, **(names or {})}
    printed = StringIO()
    with _group_of_processes() as run_in_bash:
        for block in found:
            if block.language == "text":
                _compare(block, printed.getvalue())
                printed = StringIO()
            elif block.language in ("python", "py"):
                lines = "\n" * (block.line - 1) + block.code
                with redirect_stdout(printed):
                    exec(compile(lines, name, "exec"), names)
            elif _NEEDS_BASH.search(_joined(block.code)):
                printed.write(run_in_bash(block.code))
            else:
                printed.write(_run_here(block.code))
    return names


def _joined(code: str) -> str:
    return code.replace("\\\n", " ")


def _run_here(code: str) -> str:
    """Run commands of `strandline` in this process; return their stdout."""
    printed = ""
    for line in _joined(code).splitlines():
        _, *arguments = shlex.split(line, comments=True) or [""]
        if arguments:
            done = CliRunner().invoke(main, arguments, prog_name="strandline")
            assert done.exit_code == 0, f"{line}: {done.output}"
            printed += done.stdout
    return printed


@contextmanager
def _group_of_processes() -> Iterator[Callable[[str], str]]:
    """Yield a function that runs bash and returns its stdout; end what it leaves running."""
    groups = []
    folder = TemporaryDirectory()
    command = Path(folder.name, "strandline")
    command.write_text(_COMMAND, "utf-8")
    command.chmod(0o700)
    path = f"{folder.name}{os.pathsep}{os.environ['PATH']}"
    # Whatever started the tests, as `nohup` does: an ignored signal stays so in all commands.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # A service refuses variables `STRANDLINE_*` that are none of its settings; tests have some.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STRANDLINE_")}
    environ = {**kept, "PYTHONPATH": str(ROOT), "PATH": path}

    def run_in_bash(code: str) -> str:
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            # Files, as what stays in the background would keep a pipe open.
            started = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", code],
                stdout=out,
                stderr=err,
                env=environ,
                start_new_session=True,
            )
            groups.append(started.pid)
            try:
                failed = str(started.wait(_LONGEST_S) or "")
            except subprocess.TimeoutExpired as error:
                failed = str(error)
            out.seek(0)
            err.seek(0)
            assert not failed, f"{failed}: {code}\n{err.read()}"
            return out.read()

    try:
        yield run_in_bash
    finally:
        signal.signal(signal.SIGHUP, before)
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
        folder.cleanup()


def _compare(wanted: Block, printed: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    same = doctest.OutputChecker().check_output(wanted.code, printed, flags)
    assert same, f"line {wanted.line}: printed\n{printed}\ninstead of\n{wanted.code}"
