"""Look-ups by Hudi's own REMOTE view in a JVM, as its tasks make them (``RemoteLookups.java``)."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.java.jobs import JavaJobs
from benchmarks.java.server import JavaHudi


class JavaLookups(JavaJobs):
    """A JVM that looks up in a table."""

    def __init__(self, hudi: JavaHudi, base_path: str) -> None:
        """Start it and have it read the table's timeline."""
        super().__init__(hudi, "RemoteLookups", base_path)

    def job(self, port: int, tasks: Sequence[Sequence[str]]) -> tuple[float, int]:
        """Look up each task's partitions in the server at a port.

        Returns:
            Seconds, and the number of files that were found.
        """
        nanoseconds, files = self.run(port, *map(",".join, tasks))
        return int(nanoseconds) / 1e9, int(files)
