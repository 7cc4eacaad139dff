"""Hudi's plans of cleans in a JVM with local Spark (``CleanPlans.java``)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from benchmarks.java.server import JavaHudi
from benchmarks.servers.server import ServerError


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A clean that was planned, and put on the timeline as requested.

    Attributes:
        instant: Its requested time; empty if nothing was planned.
        seconds: How long it took.
        cpu_s: CPU seconds of all threads of the process meanwhile.
        calls: Calls of storage by kind: list, stat, read.
    """

    instant: str
    seconds: float
    cpu_s: float
    calls: Mapping[str, int]


class JavaCleans:
    """A JVM that plans cleans; a context manager that ends it."""

    def __init__(self, hudi: JavaHudi) -> None:
        self._process = subprocess.Popen(
            hudi.command("CleanPlans"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._jobs: IO[str] = self._process.stdin
        self._lines: IO[str] = self._process.stdout
        self._answer("ready")

    def __enter__(self) -> JavaCleans:
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.close()  # the end of its jobs ends it
        self._process.wait()
        self._lines.close()

    def schedule(self, base_path: str, options: Mapping[str, str]) -> Scheduled:
        """Plan a clean of a table by a client with these options of Hudi."""
        pairs = (f"{name}={value}" for name, value in options.items())
        print(base_path, *pairs, file=self._jobs, flush=True)
        instant, *numbers = self._answer("done")
        took, cpu, lists, stats, reads = map(int, numbers)
        calls = {"list": lists, "stat": stats, "read": reads}
        return Scheduled(instant.strip("-"), took / 1e9, cpu / 1e9, calls)

    def _answer(self, word: str) -> list[str]:
        """Return the words behind the first one of its next answer."""
        # Hudi's logging may write to standard output, too.
        for line in self._lines:
            first, *others = line.split()[:7] or [""]
            if first == word:
                return others
        raise ServerError(f"the JVM with Hudi's cleaner ended with {self._process.wait()}")
