"""The operations that the fault tests break off at each of their storage calls."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fsview.load.metadata_table import FOLDER
from strandline.records.meta_fields import IS_DELETED
from strandline.write.client import WriteClient
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, give_metadata_table, row, table
from timeline.clock import Clock
from timeline.errors import CommitOutcomeUnknownError, ConcurrentWriteError, StrandlineError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.table.config_file import BACKUP_PATH, read_table_config

Options = dict[str, Any]
Look = Callable[[], Path]
"""Returns the local folder with the table's files, for the reader."""
Write = Callable[[WriteClient, Look], object]


class RemoteStorage(LocalStorage):
    """A local storage on which calls that don't depend on each other are made by threads."""

    is_remote = True


def _write_nothing(c: WriteClient, look: Look) -> None:
    c.upsert(table())


@dataclass(frozen=True)
class Scenario:
    """A table, and an operation on it.

    Attributes:
        prepare: Makes the table at a path, with the options.
        write: The operation.
        options: The client's options.
        effects: The effects that are tried; fewer where other scenarios make the same calls.
        again: What a client does that knows the operation has happened; ``write`` if ``None``.
        is_write: Whether an error that is ``retryable`` says that it did not happen.
        settled: What is as it must be once nothing is left to do.
        storage: Makes the storage at a path.
    """

    prepare: Callable[[Path, Options], object]
    write: Write
    options: Options
    effects: tuple[Effect, ...] = tuple(Effect)
    again: Write | None = None
    is_write: bool = True
    settled: Callable[[Path], object] = reader.rows
    storage: Callable[[str], Storage] = LocalStorage

    @property
    def has_memory(self) -> bool:
        """Whether a service remembers what was done; else all that counts is in the files."""
        return "embed__timeline__server" in self.options

    def attempt(self, storage: Storage, look: Look, clock: Clock) -> bool | None:
        """Run the operation; return whether it happened as its client knows.

        ``None`` if the client doesn't know: it died, or the operation isn't all or nothing.
        """
        # A client that died releases nothing any more.
        with suppress(Crash), self.client(storage, clock) as c:
            try:
                self.write(c, look)
            except CommitOutcomeUnknownError as error:
                return error.instant in reader.committed(look())
            except StrandlineError as error:
                if not error.retryable:
                    raise
                return False if self.is_write else None
            return True
        return None

    def finish(self, storage: Storage, look: Look, clock: Clock, *, happened: bool) -> None:
        """Do what a client does next: the operation again, unless it has happened."""
        with self.client(storage, clock) as c:
            (self.again if happened and self.again else self.write)(c, look)

    def client(self, storage: Storage, clock: Clock) -> WriteClient:
        """Return a client of the table."""
        return client(storage.base_path, storage, clock=clock, **self.options)


# Tables.


def no_table(base: Path, options: Options) -> None:
    """Leave the folder missing."""


def one_commit(base: Path, options: Options) -> None:
    with client(base, **options) as c:
        c.upsert(table(row("a"), row("b"), row("c", "us")))


def two_commits(base: Path, options: Options) -> None:
    with client(base, **options) as c:
        c.upsert(table(row("a"), row("b"), row("c", "us")))
        c.upsert(table(row("b", ts=2)))


def four_commits(base: Path, options: Options) -> None:
    with client(base, **options) as c:
        for ts in range(1, 5):
            c.upsert(table(row("a", ts=ts), row("c", "us", ts=ts)))


def with_metadata_table(base: Path, options: Options) -> None:
    two_commits(base, options)
    give_metadata_table(base)


def broken_off(scenario: Scenario, ending: str) -> Callable[[Path, Options], None]:
    """Return what prepares a table whose writer died before it created a file of a name."""

    def prepare(base: Path, options: Options) -> None:
        scenario.prepare(base, options)
        kept = base.with_name("kept")
        shutil.copytree(base, kept)
        learned = FaultyStorage(LocalStorage(str(base)))
        with client(base, learned, **options) as c:
            scenario.write(c, lambda: base)
        shutil.rmtree(base)
        kept.rename(base)
        at = next(
            n
            for n, (kind, path) in enumerate(learned.log, 1)
            if kind == "create" and path.endswith(ending)
        )
        dying = FaultyStorage(LocalStorage(str(base)), [Fault(at, Effect.CRASH_BEFORE)])
        with pytest.raises(Crash), client(base, dying, **options) as c:
            scenario.write(c, lambda: base)
        assert reader.leftovers(base)

    return prepare


# Operations.


def by_running_client(
    write: Write, meanwhile: Write = lambda c, look: None, before: int = 2
) -> Write:
    """Return a write by a client that starts from what its last write has left.

    Args:
        write: The write.
        meanwhile: Called with the client before the write.
        before: How many writes the client has made before.
    """

    def run(c: WriteClient, look: Look) -> None:
        try:
            for _ in range(before):
                _write_nothing(c, look)
        except CommitOutcomeUnknownError as error:
            raise ConcurrentWriteError("nothing of the write has happened") from error
        meanwhile(c, look)
        write(c, look)

    return run


def _by_another(c: WriteClient, look: Look) -> None:
    with client(look()) as other:
        other.upsert(table())


FRESH = table(row("new"), row("far", "asia"), row("c2", "us"))
NEXT = table(row("a", ts=3), row("new"), row("far", "asia"), row("c", "us", ts=0))
"""Rows of three partitions: an update, inserts, one into a new partition, and a late row."""
_FLAGGED = table(row("a", ts=3), row("c", "us", ts=2), row("new")).append_column(
    IS_DELETED, [[True, True, False]]
)


def _upsert(c: WriteClient, look: Look) -> None:
    c.upsert(NEXT)


def _upsert_by_service(c: WriteClient, look: Look) -> None:
    """Upsert once the service has started: a write that doesn't wait for it may list instead."""
    assert c.service
    _upsert(c, look)


def _roll_back(c: WriteClient, look: Look) -> None:
    """Roll the second commit back; if that is done, finish with a write without rows."""
    commits = sorted(reader.committed(look()))
    if len(commits) == 2:
        c.rollback(commits[-1])
    else:
        c.upsert(table())


def _kept_files(base: Path) -> object:
    return reader.rows(base), sorted(reader.base_files(base))


def _compacted(base: Path) -> object:
    """Return the rows, and what base files alone hold of them."""
    newest = reader.newest_files(base).items()
    stored = [reader.stored_rows(base / path / name) for (path, _), name in newest]
    kept = [
        {k: v for k, v in row.items() if k not in reader.META} for rows in stored for row in rows
    ]
    return reader.rows(base), sorted(map(str, kept)), len(list(reader.base_files(base)))


def _without_metadata_table(base: Path) -> object:
    config = read_table_config(LocalStorage(str(base)))
    left = [path for path in (FOLDER, BACKUP_PATH) if (base / path).exists()]
    return reader.rows(base), config.named_metadata_partitions, left


NOT_TORN = tuple(effect for effect in Effect if effect is not Effect.CRASH_TORN)
"""For operations that write no stream and delete files one by one."""
CRASHES = (Effect.CRASH_BEFORE, Effect.CRASH_AFTER, Effect.CRASH_TORN)
ANY_CALL = (Effect.ERROR_BEFORE, Effect.ERROR_AFTER, Effect.CRASH_BEFORE, Effect.CRASH_AFTER)
"""For operations whose calls have no fixed order, so that a fault may meet any of them."""
CLEAN = {"clean__automatic": True, "clean__commits__retained": 1}
LOCK = {
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    # A writer that died leaves its lock file; by `LaterClock` it has expired.
    "write__lock__filesystem__expire": 1,
    "write__lock__client__num_retries": 1,
    "write__lock__client__wait_time_ms_between_retry": 0,
    "write__lock__wait_time_ms": 0,
    "time__generator__max_expected_clock_skew_ms": 0,
}
LAZY = {**LOCK, **CLEAN, "clean__failed__writes__policy": "LAZY"}

LOGS = {"datasource__write__table__type": "MERGE_ON_READ"}

UPSERT = Scenario(two_commits, _upsert, {})
INSERT = replace(UPSERT, write=lambda c, look: c.insert(FRESH), again=_write_nothing)
OVERWRITE = replace(UPSERT, write=lambda c, look: c.insert_overwrite(FRESH))
BULK_INSERT = replace(INSERT, write=lambda c, look: c.bulk_insert(FRESH))
ROLLBACK = Scenario(two_commits, _roll_back, {}, is_write=False)
CLEANING = Scenario(
    four_commits,
    lambda c, look: c.clean(),
    {"clean__commits__retained": 1},
    is_write=False,
    effects=NOT_TORN,
    settled=_kept_files,
)
COMPACTION = Scenario(
    four_commits,
    lambda c, look: c.compact(),
    LOGS,
    is_write=False,
    settled=_compacted,
)
FAILED = broken_off(UPSERT, ".commit")
HALF_ROLLED_BACK = broken_off(ROLLBACK, ".rollback.inflight")
VERSION_6 = {"write__table__version": 6}
LOGS_6 = {**LOGS, **VERSION_6}
TINY_LOGS = {**LOGS, "logfile__max__size": 1, "logfile__data__block__format": "parquet"}
"""Each block is in a log of its own."""

SCENARIOS = {
    "first write": replace(UPSERT, prepare=no_table),
    "first insert": replace(INSERT, prepare=no_table, effects=CRASHES),
    "upsert": UPSERT,
    "insert": INSERT,
    "insert by a running client": replace(INSERT, write=by_running_client(INSERT.write)),
    "insert after another writer's": replace(
        INSERT, write=by_running_client(INSERT.write, _by_another), effects=CRASHES
    ),
    "bulk insert": BULK_INSERT,
    "overwrite": OVERWRITE,
    "overwrite of the table": replace(
        UPSERT, write=lambda c, look: c.insert_overwrite_table(FRESH), effects=CRASHES
    ),
    "delete a partition": replace(
        UPSERT, write=lambda c, look: c.delete_partition(["eu"]), effects=CRASHES
    ),
    "upsert after a failed overwrite": replace(
        UPSERT, prepare=broken_off(OVERWRITE, ".replacecommit"), effects=CRASHES
    ),
    "delete": replace(
        UPSERT, write=lambda c, look: c.delete(table(row("a"), row("b"), row("nobody", "us")))
    ),
    "flagged deletes": replace(UPSERT, write=lambda c, look: c.upsert(_FLAGGED)),
    "upsert after a failed write": replace(UPSERT, prepare=FAILED),
    "insert after a failed write": replace(INSERT, prepare=FAILED, effects=CRASHES),
    "upsert after half a rollback": replace(UPSERT, prepare=HALF_ROLLED_BACK),
    "upsert and clean": Scenario(
        four_commits,
        lambda c, look: c.upsert(table(row("a", ts=9), row("c", "us", ts=9))),
        CLEAN,
    ),
    "upsert by threads": replace(UPSERT, storage=RemoteStorage, effects=ANY_CALL),
    "upsert and clean by threads": Scenario(
        four_commits,
        lambda c, look: c.upsert(table(row("a", ts=9), row("c", "us", ts=9))),
        CLEAN,
        storage=RemoteStorage,
        effects=ANY_CALL,
    ),
    "upsert with the service's markers": replace(
        UPSERT,
        write=_upsert_by_service,
        options={"embed__timeline__server": True, "write__markers__type": "TIMELINE_SERVER_BASED"},
    ),
    "clean": CLEANING,
    "clean after half a clean": replace(CLEANING, prepare=broken_off(CLEANING, ".clean.inflight")),
    "rollback of a commit": ROLLBACK,
    "upsert, metadata table dropped": replace(
        UPSERT,
        prepare=with_metadata_table,
        options={"metadata__enable": "false"},
        settled=_without_metadata_table,
    ),
    "upsert, lock": replace(UPSERT, options=LOCK),
    "insert, lock": replace(INSERT, options=LOCK),
    "clean, lock": replace(CLEANING, options={**CLEANING.options, **LOCK}),
    "rollback of a commit, lock": replace(ROLLBACK, options=LOCK),
    "insert after a failed write, lazy": replace(INSERT, prepare=FAILED, options=LAZY),
    # The calls are the same, so the errors of one version stand for those of the others.
    # Updates and deletes go to logs; the inserts open groups, as the others have logs.
    "upsert, logs": replace(UPSERT, options=LOGS),
    "upsert, logs by threads": replace(
        UPSERT, options=LOGS, storage=RemoteStorage, effects=ANY_CALL[:2]
    ),
    "flagged deletes, tiny logs": replace(
        UPSERT, write=lambda c, look: c.upsert(_FLAGGED), options=TINY_LOGS
    ),
    "delete, logs": replace(
        UPSERT,
        write=lambda c, look: c.delete(table(row("a"), row("b"), row("nobody", "us"))),
        options=LOGS,
        effects=CRASHES,
    ),
    "upsert that moves a row, logs": replace(
        UPSERT,
        write=lambda c, look: c.upsert(table(row("a", "us", ts=9), row("c", "eu", ts=9))),
        options={**LOGS, "index__type": "GLOBAL_SIMPLE"},
        effects=CRASHES,
    ),
    # The groups have no logs, so that inserts rewrite the small file of each partition.
    "insert, logs": replace(INSERT, prepare=one_commit, options=LOGS, effects=CRASHES),
    "overwrite, logs": replace(OVERWRITE, options=LOGS, effects=CRASHES),
    "delete a partition, logs": replace(
        UPSERT,
        write=lambda c, look: c.delete_partition(["eu"]),
        options=LOGS,
        effects=CRASHES[:2],
    ),
    "upsert after a failed write, logs": replace(
        UPSERT,
        prepare=broken_off(replace(UPSERT, options=LOGS), ".deltacommit"),
        options=LOGS,
        effects=CRASHES,
    ),
    "rollback of a delta commit": replace(ROLLBACK, options=LOGS),
    "upsert and clean, logs": Scenario(
        four_commits,
        lambda c, look: c.upsert(table(row("a", ts=9), row("c", "us", ts=9))),
        {**CLEAN, **LOGS},
        effects=CRASHES,
    ),
    "compaction": COMPACTION,
    "compaction, lock": replace(COMPACTION, options={**LOGS, **LOCK}, effects=CRASHES),
    "compaction after a failed one": replace(
        COMPACTION, prepare=broken_off(COMPACTION, ".commit"), effects=CRASHES
    ),
    "compaction after half a rollback of one": replace(
        COMPACTION,
        prepare=broken_off(
            replace(COMPACTION, prepare=broken_off(COMPACTION, ".MERGE")), ".rollback"
        ),
        effects=CRASHES,
    ),
    "compaction after a planned one": replace(
        COMPACTION, prepare=broken_off(COMPACTION, ".compaction.inflight"), effects=CRASHES
    ),
    # A rollback appends commands to logs, which stay.
    "upsert, logs, version 6": replace(UPSERT, options=LOGS_6),
    "flagged deletes, tiny logs, version 6": replace(
        UPSERT,
        write=lambda c, look: c.upsert(_FLAGGED),
        options={**TINY_LOGS, **VERSION_6},
        effects=CRASHES,
    ),
    "upsert after a failed write, logs, version 6": replace(
        UPSERT, prepare=broken_off(replace(UPSERT, options=LOGS_6), ".deltacommit"), options=LOGS_6
    ),
    "rollback of a delta commit, version 6": replace(ROLLBACK, options=LOGS_6),
    "upsert and clean, logs, version 6": Scenario(
        four_commits,
        lambda c, look: c.upsert(table(row("a", ts=9), row("c", "us", ts=9))),
        {**CLEAN, **LOGS_6},
        effects=CRASHES[:2],
    ),
    "compaction, version 6": replace(COMPACTION, options=LOGS_6, effects=CRASHES),
    "compaction after a failed one, version 6": replace(
        COMPACTION,
        prepare=broken_off(replace(COMPACTION, options=LOGS_6), ".commit"),
        options=LOGS_6,
        effects=CRASHES[:2],
    ),
    "upsert, version 6": replace(UPSERT, options=VERSION_6, effects=CRASHES),
    "overwrite, version 6": replace(OVERWRITE, options=VERSION_6, effects=CRASHES),
    "insert, version 6": replace(INSERT, options=VERSION_6, effects=CRASHES),
    "rollback of a commit, version 6": replace(ROLLBACK, options=VERSION_6, effects=CRASHES),
    "clean, version 6": replace(
        CLEANING, options={**CLEANING.options, **VERSION_6}, effects=CRASHES[:2]
    ),
}
