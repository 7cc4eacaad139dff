"""Look-ups by Hudi's own REMOTE view in a JVM, as its tasks make them (``RemoteLookups.java``)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import IO

from benchmarks.java.server import JavaHudi
from benchmarks.servers.server import ServerError


class JavaLookups:
    """A JVM that looks up in a table; a context manager that ends it."""

    def __init__(self, hudi: JavaHudi, base_path: str) -> None:
        """Start it and have it read the table's timeline."""
        self._process = subprocess.Popen(
            hudi.command("RemoteLookups", base_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._jobs: IO[str] = self._process.stdin
        self._lines: IO[str] = self._process.stdout
        self._answer("ready")

    def __enter__(self) -> JavaLookups:
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.close()  # the end of its jobs ends it
        self._process.wait()
        self._lines.close()

    def job(self, port: int, tasks: Sequence[Sequence[str]]) -> tuple[float, int]:
        """Look up each task's partitions in the server at a port.

        Returns:
            Seconds, and the number of files that were found.
        """
        print(port, *map(",".join, tasks), file=self._jobs, flush=True)
        nanoseconds, files = self._answer("done")
        return int(nanoseconds) / 1e9, int(files)

    def _answer(self, word: str) -> list[str]:
        """Return the words behind the first one of its next answer."""
        # Hudi's logging may write to standard output, too.
        for line in self._lines:
            first, *others = line.split()[:3] or [""]
            if first == word:
                return others
        raise ServerError(f"the JVM with Hudi's view ended with {self._process.wait()}")
