"""Hudi's plans of cleans in a JVM with local Spark (``CleanPlans.java``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.java.jobs import JavaJobs
from benchmarks.java.server import JavaHudi


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


class JavaCleans(JavaJobs):
    """A JVM that plans cleans."""

    def __init__(self, hudi: JavaHudi) -> None:
        super().__init__(hudi, "CleanPlans", is_quiet=True)

    def schedule(self, base_path: str, options: Mapping[str, str]) -> Scheduled:
        """Plan a clean of a table by a client with these options of Hudi."""
        pairs = (f"{name}={value}" for name, value in options.items())
        instant, *numbers = self.run(base_path, *pairs)
        took, cpu, lists, stats, reads = map(int, numbers)
        calls = {"list": lists, "stat": stats, "read": reads}
        return Scheduled(instant.strip("-"), took / 1e9, cpu / 1e9, calls)
