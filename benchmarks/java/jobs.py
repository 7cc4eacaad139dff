"""A JVM that takes jobs, a line each on its standard input, and answers each with a line."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import IO

from benchmarks.java.server import JavaHudi
from benchmarks.servers.server import ServerError


class JavaJobs:
    """Runs a class of this folder that takes jobs; a context manager that ends it.

    Args:
        hudi: Java and its class path.
        main: The class.
        arguments: Its arguments.
        is_quiet: Whether its standard error is dropped.
    """

    def __init__(self, hudi: JavaHudi, main: str, *arguments: str, is_quiet: bool = False) -> None:
        self._main = main
        self._process = subprocess.Popen(
            hudi.command(main, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if is_quiet else None,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._jobs: IO[str] = self._process.stdin
        self._lines: IO[str] = self._process.stdout
        self._answer("ready")

    def __enter__(self) -> JavaJobs:
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.close()  # the end of its jobs ends it
        self._process.wait()
        self._lines.close()

    def run(self, *words: object) -> Sequence[str]:
        """Have it run a job; return the words of its answer behind ``done``."""
        print(*words, file=self._jobs, flush=True)
        return self._answer("done")

    def _answer(self, word: str) -> list[str]:
        """Return the words behind the first one of its next answer."""
        # Hudi's logging may write to standard output, too.
        for line in self._lines:
            first, *others = line.split() or [""]
            if first == word:
                return others
        raise ServerError(f"the JVM of {self._main} ended with {self._process.wait()}")
