"""Both writers of a table, with the same verbs: what they write, serve, fail at and undo."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from strandline import WriteClient
from strandline.table_services.rollback.policy import FOREIGN
from strandline.write.engine.local import LocalEngine
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
        self._clients: dict[tuple[bool, bool, str], WriteClient] = {}
        self._open = ExitStack()

    def close(self) -> None:
        """Close the clients."""
        self._open.close()

    def write(self, operation: str, rows: Sequence[Row], *, foreign: bool = False) -> str:
        """Write; ``foreign``: roll back writes without a heartbeat. Return how, in words."""
        small, index = self._rng.random() < 0.5, self._rng.choice(INDEXES)
        client = self._client(small, foreign=foreign, index=index)
        getattr(client, operation)(table_of(rows))
        return f"{index}, {'small files filled' if small else 'new files'}"

    def clean(self) -> None:
        """Clean."""
        self._client(small=False).clean()

    def rollback(self, instant: str) -> None:
        """Roll back a completed commit."""
        self._client(small=False).rollback(instant)

    def die(self, operation: str, rows: Sequence[Row]) -> str:
        """Write, and die at a storage call; return at which one. The write may be committed."""
        at, effect = self._rng.randint(1, CALLS), self._rng.choice(_DEATHS)
        doomed = FaultyStorage(open_storage(str(self._path)), [Fault(at, effect)])
        died = "after its last call"
        try:
            with WriteClient(LocalEngine(), str(self._path), self._options(small=True),
                             storage=doomed) as client:  # fmt: skip
                getattr(client, operation)(table_of(rows))
        except Crash as crash:
            died = str(crash)
        expire_heartbeats(self._path)
        # A killed writer's lock file stays until somebody deletes it.
        (self._path / ".hoodie/lock").unlink(missing_ok=True)
        return died

    def _options(self, *, small: bool, index: str = "SIMPLE") -> dict[str, str]:
        return self._form.our_options(self._beside, small=small, index=index)

    def _client(self, small: bool, *, foreign: bool = False, index: str = "SIMPLE") -> WriteClient:
        named = (small, foreign, index)
        if named not in self._clients:
            options = self._options(small=small, index=index) | {FOREIGN.name: str(foreign).lower()}
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

    def read(self) -> list[Row]:
        """Return what Hudi's query gives, with its metadata table if the table may have one."""
        use = str(self._form.metadata).lower()
        return self._hudi.read(self._path, hoodie_metadata_enable=use)

    def _write(self, operation: str, rows: Sequence[Row], options: dict[str, str]) -> None:
        options = options | {"hoodie.datasource.write.operation": operation}
        self._hudi.write(table_of(rows), self._path, options, partitions=1)

    def _options(self, *, small: bool = False, index: str = "SIMPLE") -> dict[str, str]:
        return self._form.hudi_options(small=small, index=index, release=self._hudi.release)

    def _call(self, method: str, *arguments: object) -> None:
        with self._client() as client:
            getattr(client, method)(*arguments)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """Open Hudi's write client."""
        spark: Any = self._hudi.spark
        options = self._options()
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
