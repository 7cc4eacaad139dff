"""Real Hudi as one of several writers of the tables of ``write.concurrent.rounds``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError

from tests.kit.tables import reader
from tests.oracle.hudi import Hudi, Rows
from tests.strandline.write.concurrent.round_writer import Order
from tests.strandline.write.tables import OPTIONS, table

TOKEN = "rounds.token"
"""Key in the extra metadata of Hudi's commits; the data source doesn't tell a commit's instant."""
_CONFLICT = "HoodieWriteConflictException"
_ROLLBACK = "HoodieRollbackException"
_GONE = "Could not delete instant"
_POLL_S = 0.002


class HudiWriter:
    """Writes with real Hudi on a thread, one write at a time.

    Args:
        hudi: The session.
        base: The table's base path.
        options: Options of all writers of the table.
        threads: Runs the writes.
    """

    def __init__(
        self, hudi: Hudi, base: str, options: Mapping[str, str], threads: ThreadPoolExecutor
    ) -> None:
        self.hudi = hudi
        self._base = base
        self._threads = threads
        named = {**OPTIONS, **options}
        ordering = named.pop("hoodie.table.ordering.fields")
        self._options = {
            **named,
            "hoodie.datasource.write.precombine.field": ordering,
            "hoodie.write.auto.upgrade": "false",
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.datasource.write.commitmeta.key.prefix": TOKEN,
        }
        if hudi.is_1:
            self._options["hoodie.write.record.merge.mode"] = "EVENT_TIME_ORDERING"
        else:
            self._options["hoodie.datasource.write.payload.class"] = (
                "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
            )

    @classmethod
    @contextmanager
    def started(cls, hudi: Hudi, base: str, options: Mapping[str, str]) -> Iterator[HudiWriter]:
        """Have a writer within the block, which ends when its write has."""
        with ThreadPoolExecutor(1, "hudi") as threads:
            yield cls(hudi, base, options, threads)

    def begin(self, order: Order, **more: str) -> Future[str | None]:
        """Begin a write on the thread; the result is that of ``write``."""
        return self._threads.submit(self.write, order, **more)

    def write(self, order: Order, **more: str) -> str | None:
        """Write; return the commit's instant, or ``None`` if Hudi refused it for a conflict.

        Args:
            order: The write.
            **more: Options; ``hoodie_x_y`` is ``hoodie.x.y``.
        """
        token = str(uuid.uuid4())
        options = {
            **self._options,
            TOKEN: token,
            "hoodie.datasource.write.operation": order.operation,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        try:
            self.hudi.write(table(*order.rows), self._base, options, partitions=1)
        except Py4JJavaError as error:
            causes = _causes(error)
            if _CONFLICT in causes:
                return None
            # After its commit Hudi's clean looks for failed writes, first at the timeline, then at
            # their heartbeats, and may begin to roll back what another writer has just rolled back.
            if _ROLLBACK not in causes or _GONE not in str(error):
                raise
        return self._instant_with(token)

    def read(self) -> Rows:
        return self.hudi.read(self._base)

    def _instant_with(self, token: str) -> str:
        """Return the instant of the commit that has a token in its metadata."""
        folder = reader.timeline_folder(self._base)
        files = (folder / name for name in reader.timeline_names(self._base))
        (found,) = (
            file.name[:17]
            for file in files
            if file.suffix == ".commit" and token.encode() in file.read_bytes()
        )
        return found


def wait_until(reached: Callable[[], bool], running: Future[str | None]) -> None:
    """Wait until a write has come so far, or has ended."""
    while not (reached() or running.done()):
        wait([running], _POLL_S)


def _causes(error: Py4JJavaError) -> list[str]:
    """Return the names of a Java error's class and of its causes' classes."""
    names, cause = [], error.java_exception
    while cause is not None:
        names.append(cause.getClass().getSimpleName())
        cause = cause.getCause()
    return names
