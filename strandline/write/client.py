"""``WriteClient``: insert, upsert, overwrite and delete rows of a table, and its partitions.

Source: Hudi 1.2.0 ``SparkRDDWriteClient``, ``HoodieSparkSqlWriter``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from strandline.commit.conflict import FIRST_LOGS_OF_WRITERS
from strandline.commit.lock.base import Wait
from strandline.commit.lock.open import open_lock
from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.commit.settings import CLOCK_SKEW
from strandline.commit.stream_batch import BatchDoneError, StreamBatch
from strandline.read.state.changed_table import of_one_state
from strandline.records.commit_history import CommitHistory
from strandline.settings.read_limits import read_limits
from strandline.settings.setting import Refusals
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import ArchiveResult
from strandline.table_services.clean.execution import CleanResult, Progress
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.preview import CleanPreview
from strandline.table_services.compact.planner import CompactionResult
from strandline.table_services.compact.policy import CompactionSettings
from strandline.table_services.doctor.repair import Repair, repair
from strandline.table_services.rollback.policy import RollbackPolicy
from strandline.write.async_cleaner import AsyncClean, AsyncCleaner
from strandline.write.compaction import check_compactable, execute_all, execute_planned, plan
from strandline.write.context import WriteContext, WriteRequest
from strandline.write.embedded import EmbeddedService
from strandline.write.engine.base import EngineContext, no_engine
from strandline.write.job import write
from strandline.write.operation import (
    BULK_INSERT,
    DELETE,
    DELETE_PARTITION,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    OPERATIONS,
    UPSERT,
    Operation,
)
from strandline.write.options.client_options import option_warnings, parse_options
from strandline.write.options.settings import OPERATION, TABLE_NAME
from strandline.write.partition_choice import PartitionChoice
from strandline.write.result import WriteResult
from strandline.write.target import Target, may_write, open_for_table_service, open_target
from timeline.clock import Clock, SystemClock, TimeGenerator
from timeline.errors import ConfigError, InstantNotFoundError
from timeline.instant import COMPACTION
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.open import open_storage, path_text
from timeline.storage.table_id import absolute
from timeline.tracing import TABLE, span

if TYPE_CHECKING:
    from strandline.server.process.timeline_service import TimelineService

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


def _recorded(name: str) -> Callable[[F], F]:
    """Return a decorator of a client's method, which records its calls as spans of a name."""

    def decorated(method: F) -> F:
        @wraps(method)
        def recorded(self: WriteClient, *args: object, **kwargs: object) -> object:
            with span(name, {TABLE: self._context.storage.base_path}):
                return method(self, *args, **kwargs)

        return cast("F", recorded)

    return decorated


class WriteClient:
    """Writes one table; used by one thread.

    Args:
        spark_or_engine: A ``pyspark.sql.SparkSession``, or an ``EngineContext`` such as
            ``LocalEngine()``.
        base_path: The table's base path, a path or a URL.
        options: ``hoodie.*`` options, which docs/reference.md lists.
        storage: Storage to use instead of the one that ``base_path`` implies; must pickle.
        storage_options: Options of fsspec.
        clock: Source of instants' times.

    Raises:
        ConfigError: An argument or option isn't allowed, or the session is one of Spark Connect.
    """

    def __init__(
        self,
        spark_or_engine: object,
        base_path: str | os.PathLike[str],
        options: Mapping[str, object],
        *,
        storage: Storage | None = None,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        refusals = Refusals()
        settings = parse_options(options, refusals)
        engine = _engine_of(spark_or_engine)
        if not isinstance(storage_options or {}, Mapping):
            raise ConfigError(f"storage_options is {storage_options!r}; allowed: a mapping")
        limits = read_limits(settings)
        is_custom = storage is not None
        storage = storage or open_storage(absolute(path_text(base_path)), storage_options, limits)
        clock = clock or SystemClock()
        cleans = CleanSettings.of(settings)
        open_table_lock = partial(
            open_lock,
            settings,
            storage,
            table_name=settings.get(TABLE_NAME),
            clock=clock,
            among_threads=cleans.asynchronous,
        )
        # Before the service starts: without its lock the client is refused.
        with refusals.kept():
            lock = open_table_lock()
        refusals.raise_any()
        if lock.is_shared:
            storage = storage.as_only_creator()
        cleaner = None
        if cleans.asynchronous:
            cleaner = AsyncCleaner(storage, lambda wait: open_table_lock(wait=wait))
        # Each commit lists the timeline several times.
        storage = storage.keeping_listings()
        embedded = EmbeddedService(
            settings,
            storage,
            storage_options or {},
            engine.driver_host,
            engine.bind_address,
            is_custom=is_custom,
        )
        # Writers of one machine have one clock.
        skew_ms = settings.get(CLOCK_SKEW) if lock.is_shared else 0
        self._context = WriteContext(
            engine=engine,
            storage=storage,
            settings=settings,
            clean_settings=cleans,
            archive_settings=ArchiveSettings.of(settings),
            compaction_settings=CompactionSettings.of(settings),
            clock=clock,
            times=cache(partial(TimeGenerator, clock, skew_ms=skew_ms)),
            history=CommitHistory(),
            embedded=embedded,
            lock=lock,
            heartbeats=settings.read(HeartbeatSettings),
            rollback_policy=RollbackPolicy.of(settings),
            async_cleaner=cleaner,
        )
        self._is_closed = False
        self._warnings = option_warnings(settings)

    def __repr__(self) -> str:
        context = self._context
        state = "closed" if self._is_closed else f"service={context.embedded}"
        return f"WriteClient({context.storage.base_path!r}, {state})"

    def upsert(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Update the stored rows with the same keys; insert rows with new keys.

        Args:
            data: A Spark DataFrame on Spark; on any engine, rows with ``__arrow_c_stream__``.
            extra_metadata: Text to store in the commit, such as an offset in a feed.

        Raises:
            RuntimeError: The client is closed.
            InputError: Rows or columns can't be written; nothing was written.
            ConfigError: Options contradict table or call; or ``extra_metadata`` has a ``schema``.
            TableError: The table can't be written, or a file of it can't be read.
            StorageError: The storage failed; the next write rolls this one back.
            RowsChangedError: Spark computed the rows twice with different results.
            TaskFailedError: Spark gave up a task whose worker or executor ended repeatedly.
            ConcurrentWriteError: Another writer changed the same file groups, or considered this
                one dead; nothing was committed, and the write can be repeated.
            LockError: The table's lock wasn't acquired, or was lost; nothing was committed.
            CommitOutcomeUnknownError: Storage doesn't show whether the write was committed; the
                message says how to find out. Do that before repeating the write.
        """
        return self._write(UPSERT, data, extra_metadata)

    def insert(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Add rows without comparing keys, to small files first; otherwise as ``upsert``."""
        return self._write(INSERT, data, extra_metadata)

    def bulk_insert(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Add rows in new file groups, without comparing keys; otherwise as ``upsert``."""
        return self._write(BULK_INSERT, data, extra_metadata)

    def insert_overwrite(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Replace all rows of the given rows' partitions; otherwise as ``bulk_insert``.

        Rows that another writer adds to such a partition at the same time, in file groups of their
        own, aren't replaced.
        """
        return self._write(INSERT_OVERWRITE, data, extra_metadata)

    def insert_overwrite_table(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Replace all rows of the table, even with no rows; otherwise as ``insert_overwrite``."""
        return self._write(INSERT_OVERWRITE_TABLE, data, extra_metadata)

    def delete_partition(
        self, partitions: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Delete all rows of some partitions, whose files stay until a clean.

        Rows that another writer adds to such a partition at the same time, in file groups of their
        own, stay.

        Args:
            partitions: Paths of partitions, such as ``["region=eu"]``, or a condition on partition
                columns in the forms of ``Table.scan``: ``pyarrow.compute.field("region") == "eu"``,
                ``[("region", "=", "eu")]``. One that no partition fulfils deletes nothing.
            extra_metadata: As in ``upsert``.

        Raises:
            InputError: There is no such partition, or the condition isn't decided by the paths of
                partitions; nothing was deleted.
            TableNotFoundError: There is no table.
            UnsupportedTableError: A partition has a file group in a pending compaction or
                clustering; other errors as in ``upsert``.
        """
        choice = PartitionChoice.of(partitions)
        return self._write(DELETE_PARTITION, None, extra_metadata, choice)

    def delete(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Delete the stored rows with the same keys.

        Args:
            data: Rows with at least the key and partition columns; other columns are ignored.
            extra_metadata: As in ``upsert``.

        Raises:
            TableNotFoundError: There is no table; other errors as in ``upsert``.
        """
        return self._write(DELETE, data, extra_metadata)

    def write_batch(
        self, data: object, batch: StreamBatch, wait: Wait | None = None
    ) -> WriteResult | None:
        """Write a micro-batch of a stream, by the operation that the options name, or ``upsert``.

        The commit records the batch, so that it is written once; ``strandline.stream`` calls this.

        Args:
            data: As of the operation's method.
            batch: Which batch of which stream the rows are.
            wait: Sleeps for a number of seconds while a commit of the stream is in doubt. What it
                raises ends the write, of which nothing is written yet.

        Returns:
            The result; ``None`` if a commit has recorded the batch, so that nothing was written.

        Raises:
            ConfigError: It isn't the batch that follows the newest one of its stream.
            WriteConflictError: Another writer has committed it meanwhile, or may have.

        Other errors as of the operation's method. The batch may be written again after each of
        them, after ``CommitOutcomeUnknownError``, too: the next call waits until that commit has
        completed, or its heartbeat has expired, so the batch isn't committed twice.
        """
        named = self._open_context().settings.get(OPERATION).upper()
        operation = next((each for each in OPERATIONS if each.name == named), UPSERT)
        try:
            return self._write(operation, data, None, batch=batch, wait=wait)
        except BatchDoneError as done:
            logger.info("%s is done: %s", batch, done.recorded)
            return None

    @overload
    def clean(
        self, *, dry_run: Literal[False] = False, progress: Progress | None = None
    ) -> CleanResult | None: ...

    @overload
    def clean(self, *, dry_run: Literal[True]) -> CleanPreview: ...

    @_recorded("clean")
    def clean(
        self, *, dry_run: bool = False, progress: Progress | None = None
    ) -> CleanResult | CleanPreview | None:
        """Delete the files that the retention policy doesn't keep.

        An asynchronous clean of this client is waited for first, as in all methods but writes.

        Args:
            dry_run: Whether only to return what would be deleted; nothing is changed then.
            progress: Called while files are deleted, with the number of files deleted so far and
                the number of all; from any thread, one call at a time.

        Returns:
            The result, that of the asynchronous clean if it left nothing to delete, ``None`` if
            there was nothing; with ``dry_run`` a preview.

        Tables that this client doesn't write, like those with a custom payload, can be cleaned,
        too; failed writes to them are left to Hudi.

        Raises:
            RuntimeError: The client is closed.
            TableError: The table can't be cleaned, or its metadata can't be read.
            LockError: The table's lock wasn't acquired, or was lost; nothing was deleted, unless a
                crashed clean was finished first.
            StorageError: An instant can't be written; the next clean finishes this one.
        """
        context = self._open_context()
        beside = self._settled()
        if dry_run:
            return of_one_state(context.clean_preview)
        meta = self._opened_for_table_service()
        context.last_timeline.forget()
        if may_write(meta.config, context.storage.base_path):
            context.roll_back_before_clean(meta)
        done = context.clean(meta, context.embedded.synced_view(), progress)
        return beside.result if done is None and beside is not None else done

    @_recorded("archive")
    def archive(self) -> ArchiveResult | None:
        """Move old instants to the archive, except those that are still needed on the timeline.

        Returns:
            The result, ``None`` if there was nothing to archive.

        Raises:
            RuntimeError: The client is closed.
            TableError: The table can't be archived, or its metadata can't be read.
            LockError: The table's lock wasn't acquired, or was lost; the next archival continues.
            StorageError: A file can't be written or deleted; the next archival finishes this one.
        """
        context = self._open_context()
        self._settled()
        meta = self._opened_for_table_service()
        context.last_timeline.forget()
        return context.archive(meta)

    @_recorded("repair")
    def repair(self) -> tuple[Repair, ...]:
        """Put right what is wrong with the table and can be put right without changing a row.

        What that is, ``Table.doctor`` shows as ``fixable``: files of writes that a rollback has
        undone, extra base files of repeated tasks, forgotten markers, heartbeats and temporary
        files are deleted; a missing checksum and missing partition metadata are written. Nothing of
        a pending instant, and nothing younger than a day, is touched.

        Returns:
            What was done about each file, or why nothing was.

        Raises:
            RuntimeError: The client is closed.
            TableNotFoundError: There is no table.
            LockError: The table's lock wasn't acquired, or was lost, before anything was done; if
                it is lost later, the rest isn't done, and says so.
            StorageError: The table can't be examined.

        Cost: that of ``Table.doctor``; for each file two or three calls.
        """
        context = self._open_context()
        self._settled()
        context.last_timeline.forget()
        return repair(context.storage, context.lock, context.clock)

    @_recorded("schedule compaction")
    def schedule_compaction(self) -> str | None:
        """Plan a compaction of a merge-on-read table, for ``compact`` or Hudi to execute.

        It takes the file groups that ``hoodie.compaction.strategy`` chooses, whenever the last
        compaction was. Failed writes are rolled back first, but from table version 8 on, where they
        forbid no plan, a lazy policy leaves them to the clean.

        Returns:
            Requested time of the compaction; ``None`` if no file group has logs to compact, but for
            those of compactions planned before.

        Raises:
            RuntimeError: The client is closed.
            UnsupportedTableError: The table is copy-on-write, or can't be written.
            ConfigError: The strategy doesn't fit the table's partitions.
            ConcurrentWriteError: A live writer shares no lock, or a plan made now could lack rows.
            LockError: The table's lock wasn't acquired, or was lost; nothing was planned.
            StorageError: The storage failed.
        """
        target = self._compactable(self._target(), plans=True)
        instant = plan(self._context, target, if_due=False)
        return None if instant is None else instant.requested_time

    @_recorded("compact")
    def compact(self) -> CompactionResult | None:
        """Merge the logs of a merge-on-read table into its base files.

        Compactions that were planned before, by whichever writer, are executed, the oldest first;
        those that died are undone and executed again. Then a new one is planned and executed, as by
        ``schedule_compaction``. Other writers may write meanwhile, if they share a lock.

        Returns:
            The result of the last one; ``None`` if nothing was compacted, or others work on it, or
            a data file of one that failed may still appear.

        Raises:
            CorruptMetadataError: A plan can't be read; or names files that aren't there, and all
                others were executed. Each call raises it while the plan is there.
            CommitOutcomeUnknownError: Storage doesn't show whether a compaction has completed.

        Other errors as of ``schedule_compaction``; after each of them the next call goes on.
        """
        return execute_all(self._context, self._compactable(self._target(), plans=True))

    @_recorded("compact")
    def compact_planned(self) -> CompactionResult | None:
        """Execute the compactions that were planned before, the oldest first, and plan none.

        Returns:
            As ``compact``; ``None`` if the table is copy-on-write, too.

        Errors as of ``compact``.
        """
        target = self._target()
        if not target.merges_on_read:
            return None
        return execute_planned(self._context, self._compactable(target))

    def planned_compactions(self) -> tuple[str, ...]:
        """Return the requested times of the pending compactions, ascending.

        Raises:
            RuntimeError: The client is closed.
            TableError: The table can't be written, or its metadata can't be read.
        """
        pending = self._target().timeline.pending()
        return tuple(each.requested_time for each in pending if each.action == COMPACTION)

    def _compactable(self, target: Target, *, plans: bool = False) -> Target:
        """Check that a table can be compacted, and roll back failed writes to it.

        Those that a lazy policy leaves to the clean are rolled back, too, if they would forbid a
        plan: in table version 6. From version 8 on a pending rollback forbids one; those that dead
        writers of this package left are finished with each policy.
        """
        context = self._context
        check_compactable(target)
        context.last_timeline.forget()
        forbidden = plans and target.config.version < FIRST_LOGS_OF_WRITERS
        context.rollbacks(target.meta).repair(target.timeline, all_failed=forbidden)
        return target

    @_recorded("rollback")
    def rollback(self, instant: str) -> str:
        """Roll back the newest completed commit.

        Failed writes are rolled back and unfinished rollbacks finished first, with a lazy policy,
        too. It waits while a data file of the commit may still appear.

        Args:
            instant: Requested time of the commit.

        Returns:
            Requested time of the rollback.

        Raises:
            RuntimeError: The client is closed.
            InstantNotFoundError: There is no such instant.
            IllegalTransitionError: The instant isn't a commit or the newest write, has a savepoint,
                or needs files that a clean has deleted.
        """
        context = self._open_context()
        if not isinstance(instant, str):
            raise InstantNotFoundError(
                f"there is no instant {instant!r}; allowed: a requested time, as in"
                " WriteResult.instant"
            )
        target = self._target()
        context.last_timeline.forget()
        rollbacks = context.rollbacks(target.meta)
        rollback = rollbacks.repair(target.timeline, all_failed=True).get(instant)
        if rollback is None:
            rollback = rollbacks.roll_back_completed(instant)
        context.embedded.sync_ready()
        return rollback

    @property
    def service(self) -> TimelineService | None:
        """The timeline service; ``None`` if it is disabled or can't be started.

        Raises:
            RuntimeError: The client is closed.
        """
        embedded = self._open_context().embedded
        embedded.replace_ended()
        return embedded.service

    def close(self) -> None:
        """Release the lock and the service, which stops when its last client releases it.

        A closed client can't be used again. If closing failed, closing again releases the rest.
        An asynchronous clean is waited for, 5 minutes at most. Then it is stopped, and the next
        clean, of any writer, finishes it. If it fails, that is logged.
        """
        self._is_closed = True
        context = self._context
        with ExitStack() as held:
            held.callback(context.lock.close)
            held.callback(context.embedded.close)
            if context.async_cleaner is not None:
                context.async_cleaner.close()

    def __enter__(self) -> WriteClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(
        self,
        operation: Operation,
        data: object,
        extra_metadata: Mapping[str, str] | None,
        partitions: PartitionChoice | None = None,
        batch: StreamBatch | None = None,
        wait: Wait | None = None,
    ) -> WriteResult:
        context = self._open_context()
        named = context.settings.get(OPERATION)
        if named and named.upper() != operation.name:
            raise ConfigError(
                f"{OPERATION.name} is {named}, but {operation.name.lower()} is called; allowed: the"
                " operation that is called",
                hint="leave the option out",
            )
        request = WriteRequest.of(context, operation, extra_metadata, partitions, batch, wait)
        result = write(request, data)
        # Only for the first commit, which may have created the table without an option.
        warnings, self._warnings = self._warnings, ()
        return replace(result, warnings=(*warnings, *result.warnings)) if warnings else result

    def _open_context(self) -> WriteContext:
        """Return the context; refuse a closed client, which has released its lock."""
        if self._is_closed:
            raise RuntimeError(
                f"the client of {self._context.storage.base_path} is closed; make another"
                " WriteClient"
            )
        return self._context

    def _settled(self) -> AsyncClean | None:
        """Wait for an asynchronous clean, which the next write reports; return it, if any."""
        cleaner = self._context.async_cleaner
        return None if cleaner is None else cleaner.settle()

    def _opened_for_table_service(self) -> TableMetaClient:
        context = self._context
        context.embedded.replace_ended()
        meta = open_for_table_service(context.storage, context.settings)
        return context.without_metadata_table(meta)

    def _target(self) -> Target:
        """Return the table of an open client, once no asynchronous clean runs."""
        context = self._open_context()
        self._settled()
        context.embedded.replace_ended()
        found = open_target(context.storage, context.settings, context.history, create=False)
        return context.ready(found)


def _engine_of(spark_or_engine: object) -> EngineContext[Any]:
    """Return the engine, or a ``SparkEngine`` on the Spark session."""
    if isinstance(spark_or_engine, EngineContext):
        return spark_or_engine
    try:
        from strandline.write.engine.spark import SparkEngine  # noqa: PLC0415 - needs pyspark
    except ImportError as exc:
        raise no_engine(spark_or_engine, f"{exc}; pip install 'strandline[spark]'") from exc
    return SparkEngine(spark_or_engine)
