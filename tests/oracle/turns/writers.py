"""Both writers of a table, with the same verbs: what they write, serve, fail at and undo."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from strandline import WriteClient
from strandline.table_services.compact.planner import CompactionResult
from strandline.table_services.rollback.policy import FOREIGN
from strandline.write.engine.local import LocalEngine
from strandline.write.result import WriteResult
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.oracle.hudi import Hudi
from tests.oracle.turns.row_model import Row
from tests.oracle.turns.table_form import AVRO, COMMIT, INDEXES, NAME, PAYLOADS, SCHEMA, TableForm
from tests.oracle.view.walk import REFUSE_COMMIT
from timeline.storage.open import open_storage

JAVA_ERRORS: Final = (Py4JJavaError, CapturedException)
COMPACTS: Final = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}
TO_DELETE: Final = "hoodie.datasource.write.partitions.to.delete"
CALLS: Final = 60
"""A write of ours dies at one of its first storage calls; small ones make about 40."""


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Return rows as an Arrow table."""
    return pa.Table.from_pylist([dict(row) for row in rows], SCHEMA)


class OurWriter:
    """Strandline's writer, whose clients stay open from one write to the next.

    Args:
        path: The table's base path.
        form: The table's form.
        rng: Draws what is left open.
        beside: The release of Hudi that writes as well.
    """

    def __init__(self, path: Path, form: TableForm, rng: random.Random, beside: str) -> None:
        self._path, self._form, self._rng, self._beside = path, form, rng, beside
        self._clients: dict[tuple[bool, bool, str, bool], WriteClient] = {}
        self._open = ExitStack()

    def close(self) -> None:
        """Close the clients."""
        self._open.close()

    def write(self, operation: str, rows: Sequence[Row], *, foreign: bool = False) -> str:
        """Write; ``foreign``: roll back writes without a heartbeat. Return how, in words."""
        small, index = self._rng.random() < 0.5, self._rng.choice(INDEXES)
        compacts = self._form.has_logs and self._rng.random() < 0.2
        client = self._client(small, foreign=foreign, index=index, compacts=compacts)
        result = self._written(client, operation, rows)
        how = f"{index}, {'small files filled' if small else 'new files'}"
        return f"{how}, compacts {result.compaction is not None}" if compacts else how

    def _written(self, client: WriteClient, operation: str, rows: Sequence[Row]) -> WriteResult:
        if operation != "delete_partition":
            return getattr(client, operation)(table_of(rows))
        if self._rng.random() < 0.5:
            return client.delete_partition([self._form.path_of(row) for row in rows])
        fields = self._form.partition_fields
        each = [reduce(and_, (pc.field(name) == row[name] for name in fields)) for row in rows]
        return client.delete_partition(reduce(or_, each))

    def schedule_compaction(self) -> str | None:
        """Plan a compaction; return its time."""
        return self._client(small=False).schedule_compaction()

    def compact(self) -> CompactionResult | None:
        """Execute what is planned; then plan a compaction, and execute it."""
        return self._client(small=False).compact()

    def clean(self) -> None:
        """Clean."""
        self._client(small=False).clean()

    def archive(self) -> None:
        """Archive."""
        self._client(small=False).archive()

    def rollback(self, instant: str) -> None:
        """Roll back a completed commit."""
        self._client(small=False).rollback(instant)

    def die(self, operation: str, rows: Sequence[Row]) -> str:
        """Write, and die at a storage call; return at which one. The write may be committed."""
        return self._die(lambda client: self._written(client, operation, rows))

    def die_compacting(self) -> str:
        """Compact, and die at a storage call; return at which one. It may have completed."""
        return self._die(WriteClient.compact)

    def _die(self, doing: Callable[[WriteClient], object]) -> str:
        at, effect = self._rng.randint(1, CALLS), self._rng.choice(_DEATHS)
        doomed = FaultyStorage(open_storage(str(self._path)), [Fault(at, effect)])
        died = "after its last call"
        try:
            with WriteClient(LocalEngine(), str(self._path), self._options(small=True),
                             storage=doomed) as client:  # fmt: skip
                doing(client)
        except Crash as crash:
            died = str(crash)
        expire_heartbeats(self._path)
        # A killed writer's lock file stays until somebody deletes it.
        (self._path / ".hoodie/lock").unlink(missing_ok=True)
        return died

    def _options(self, *, small: bool, index: str = "SIMPLE") -> dict[str, str]:
        return self._form.our_options(self._beside, small=small, index=index)

    def _client(
        self, small: bool, *, foreign: bool = False, index: str = "SIMPLE", compacts: bool = False
    ) -> WriteClient:
        named = (small, foreign, index, compacts)
        if named not in self._clients:
            options = self._options(small=small, index=index) | {FOREIGN.name: str(foreign).lower()}
            options |= COMPACTS if compacts else {}
            client = WriteClient(LocalEngine(), str(self._path), options)
            self._clients[named] = self._open.enter_context(client)
        return self._clients[named]


_DEATHS: Final = (Effect.CRASH_BEFORE, Effect.CRASH_AFTER, Effect.CRASH_TORN)


class HudiWriter:
    """Real Hudi's writer and its table services.

    Args:
        hudi: The session.
        path: The table's base path.
        form: The table's form.
        rng: Draws what is left open.

    Attributes:
        is_1: Whether this is a release 1.x.
    """

    def __init__(self, hudi: Hudi, path: Path, form: TableForm, rng: random.Random) -> None:
        self._hudi, self._path, self._form, self._rng = hudi, path, form, rng
        self.is_1 = hudi.is_1

    def write(self, operation: str, rows: Sequence[Row]) -> str:
        """Write; return how, in words."""
        small, index = self._rng.random() < 0.5, self._rng.choice(INDEXES)
        with_metadata = self._form.metadata and self._rng.random() < 0.4
        how = f"{index}, {'small files filled' if small else 'new files'}"
        options = self._options(small=small, index=index)
        if self._form.has_logs and self._rng.random() < 0.3:
            options |= COMPACTS
            how += ", compacts"
        if operation == "delete_partition":
            options |= {TO_DELETE: ",".join(map(self._form.path_of, rows))}
        if with_metadata:
            options |= {"hoodie.metadata.enable": "true"}
            how += ", metadata table"
        self._write(operation, rows, options)
        return how

    def fail(self, operation: str, rows: Sequence[Row]) -> None:
        """Write all files, and fail before the instant completes."""
        try:
            self._write(operation, rows, self._options() | REFUSE_COMMIT)
        except JAVA_ERRORS:
            expire_heartbeats(self._path)
            return
        raise AssertionError("Hudi's validator refused nothing")

    def clean(self) -> None:
        """Clean."""
        self._call("clean")

    def schedule_compaction(self) -> str | None:
        """Plan a compaction; return its time."""
        with self._client(COMPACTS) as client:
            nothing = self._hudi.jvm.org.apache.hudi.common.util.Option.empty()
            planned = client.scheduleCompaction(nothing)
            return planned.get() if planned.isPresent() else None

    def compact(self, instant: str) -> None:
        """Execute a planned compaction."""
        # The client of 0.15.0 completes it only if it completes all that it does.
        with self._client({} if self.is_1 else {"hoodie.auto.commit": "true"}) as client:
            client.compact(instant, *([True] if self.is_1 else []))

    def archive(self) -> None:
        """Archive."""
        self._call("archive")

    def rollback(self, instant: str) -> None:
        """Roll back a completed commit."""
        self._call("rollback", instant)

    def savepoint(self, instant: str) -> None:
        """Make a savepoint."""
        self._call("savepoint", instant, "walker", "walk")

    def delete_savepoint(self, instant: str) -> None:
        """Delete a savepoint."""
        self._call("deleteSavepoint", instant)

    def restore(self, instant: str) -> None:
        """Undo all commits after a savepoint."""
        self._call("restoreToSavepoint", instant)

    def _write(self, operation: str, rows: Sequence[Row], options: dict[str, str]) -> None:
        options = options | {"hoodie.datasource.write.operation": operation}
        self._hudi.write(table_of(rows), self._path, options, partitions=1)

    def _options(self, *, small: bool = False, index: str = "SIMPLE") -> dict[str, str]:
        return self._form.hudi_options(small=small, index=index, release=self._hudi.release)

    def _call(self, method: str, *arguments: object) -> None:
        with self._client() as client:
            getattr(client, method)(*arguments)

    @contextmanager
    def _client(self, more: Mapping[str, str] | None = None) -> Iterator[Any]:
        """Open Hudi's write client, with more options."""
        spark: Any = self._hudi.spark
        options = self._options() | dict(more or {})
        if not self._hudi.is_1:
            # The client doesn't know the data source's default.
            options.setdefault("hoodie.datasource.write.payload.class", PAYLOADS[COMMIT])
        client = self._hudi.jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
            spark._jsc, AVRO, str(self._path), NAME, options
        )
        try:
            yield client
        finally:
            client.close()


def expire_heartbeats(path: Path) -> None:
    """Make all heartbeats old: their writers were killed, though this process lives on."""
    folder = path / ".hoodie" / ".heartbeat"
    for heartbeat in folder.iterdir() if folder.is_dir() else ():
        if heartbeat.is_file():
            os.utime(heartbeat, (0, 0))
