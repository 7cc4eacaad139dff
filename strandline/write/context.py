"""``WriteContext``: state shared by a client's writes; ``WriteRequest``: one write."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from fsview.local_view import open_view
from fsview.model.file_system_view import FileSystemView
from strandline.commit.lock.base import TableLock, Wait
from strandline.commit.others_heartbeats import HeartbeatSettings
from strandline.commit.stream_batch import BatchDoneError, StreamBatch, newest_batch, settled
from strandline.read.state.reader_lease import Leases, held_from
from strandline.records.commit_history import CommitHistory
from strandline.settings.setting import Settings
from strandline.table_services.archive.plan import LastClean
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import ArchiveMemory, Archiver, ArchiveResult
from strandline.table_services.archive.run import is_idle as is_archive_idle
from strandline.table_services.clean.execution import CleanResult, Delete, Progress
from strandline.table_services.clean.history import CleanMemory, is_idle
from strandline.table_services.clean.planner import CleanPlanner
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.preview import CleanPreview, preview
from strandline.table_services.clean.run import Cleaner
from strandline.table_services.compact.policy import CompactionSettings
from strandline.table_services.metadata_table import drop_metadata_table
from strandline.table_services.rollback.policy import RollbackPolicy
from strandline.table_services.rollback.run import Rollbacks
from strandline.write.async_cleaner import AsyncCleaner
from strandline.write.embedded import EmbeddedService
from strandline.write.engine.base import EngineContext
from strandline.write.last_timeline import LastTimeline
from strandline.write.operation import Operation, Replaces
from strandline.write.options.settings import (
    MARKERS_TYPE,
    METADATA_TABLE,
    SMALL_FILE_LIMIT,
    SORT_MODE,
    TIMELINE_SERVER_BASED,
    UNSORTED,
)
from strandline.write.partition_choice import PartitionChoice
from strandline.write.result import WriteAccount
from strandline.write.target import Target, open_for_table_service
from strandline.write.tasks.delete_task import A_THREAD, delete_on
from timeline.clock import Clock, TimeGenerator
from timeline.errors import ConfigError, InputError, WriteConflictError
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.timeline import Timeline
from timeline.tracing import TABLE, child


@dataclass(frozen=True)
class WriteContext:
    """State and settings shared by all writes of a client.

    Attributes:
        times: Time zone → generator of instants' times, the same one each time.
        lock: The table's lock.
        heartbeats: How often writes renew their heartbeats.
        rollback_policy: Which writes may be rolled back.
        clean_memory: What cleans remember; not used while an asynchronous one runs.
        driver_deletes: As ``a_thread`` of ``delete_on``.
        async_cleaner: Runs cleans beside the writes; ``None``: a clean ends before its write.
        wait: Sleeps for a number of seconds while another writer may be alive.
    """

    engine: EngineContext[Any]
    storage: Storage
    settings: Settings
    clean_settings: CleanSettings
    archive_settings: ArchiveSettings
    compaction_settings: CompactionSettings
    clock: Clock
    times: Callable[[str], TimeGenerator]
    history: CommitHistory
    embedded: EmbeddedService
    lock: TableLock
    heartbeats: HeartbeatSettings
    rollback_policy: RollbackPolicy
    clean_memory: CleanMemory = field(default_factory=CleanMemory)
    archive_memory: ArchiveMemory = field(default_factory=ArchiveMemory)
    last_timeline: LastTimeline = field(default_factory=LastTimeline)
    driver_deletes: int = A_THREAD
    async_cleaner: AsyncCleaner | None = None
    wait: Wait = time.sleep

    def needs_service(self, operation: Operation, *, alone: bool) -> bool:
        """Whether a write uses the service for its markers or its look-ups.

        Args:
            operation: The kind of write.
            alone: Whether the driver holds the rows of a small batch, and may write them itself.
        """
        values = self.settings
        if values.get(MARKERS_TYPE) == TIMELINE_SERVER_BASED:
            return True
        if alone and not self.storage.is_remote:
            return False
        return (
            operation.needs_match
            or operation.replaces is not Replaces.NOTHING
            or (operation.fills_small_files and values.get(SMALL_FILE_LIMIT) > 0)
        )

    def rollbacks(self, meta: TableMetaClient) -> Rollbacks:
        """Return the object that rolls back the table's instants."""
        return self._rollbacks(meta, self.lock, self.wait)

    def _rollbacks(self, meta: TableMetaClient, lock: TableLock, wait: Wait) -> Rollbacks:
        times = self.times(meta.config.timezone)
        return Rollbacks(meta, times, self.clock, lock, self.rollback_policy, wait)

    def roll_back_before_clean(self, meta: TableMetaClient) -> bool:
        """Roll back failed writes if the policy is lazy; return whether there were any."""
        return self.rollback_policy.lazy and bool(self.rollbacks(meta).roll_back_failed())

    def clean(
        self, meta: TableMetaClient, view: FileSystemView, progress: Progress | None = None
    ) -> CleanResult | None:
        """Run a clean (``Cleaner.run``) under the table's lock.

        Args:
            meta: The table's meta client.
            view: The driver's view.
            progress: Called while files are deleted.

        Without the lock two writers would each treat the other's clean as crashed, finish it, and
        complete it twice: from version 8 on the two completed files have different names.
        """
        delete = self._delete(meta.storage)
        with self.lock.held("cleaning"):
            return self._cleaner(meta, view, delete, self.lock, progress=progress).run()

    def start_clean(self, config: TableConfig) -> None:
        """Start an asynchronous clean; with a lazy policy it rolls back failed writes first.

        Args:
            config: The table's properties.

        Raises:
            RuntimeError: No thread could be started.
        """
        cleaner = self.async_cleaner
        assert cleaner is not None
        lock, meta = cleaner.lock, TableMetaClient(cleaner.storage, config)
        location = self.embedded.newest_location()
        delete = self._delete(cleaner.storage, cleaner.proceed)
        # Not on the other thread, so that both use one generator of times.
        rollbacks = self._rollbacks(meta, lock, cleaner.wait)

        def clean() -> CleanResult | None:
            view = cleaner.view(location)
            if self.rollback_policy.lazy:
                rollbacks.roll_back_failed()
            with lock.held("cleaning"):
                view.sync()
                return self._cleaner(meta, view, delete, lock, releases=True).run()

        purpose = f"clean of {self.storage.base_path}"
        cleaner.start(clean, lambda call: self.engine.beside(call, purpose))

    def _cleaner(
        self,
        meta: TableMetaClient,
        view: FileSystemView,
        delete: Delete,
        lock: TableLock,
        *,
        releases: bool = False,
        progress: Progress | None = None,
    ) -> Cleaner:
        """Return a cleaner that runs under a lock, which it may release while it deletes files."""
        return Cleaner(
            *(meta, view, self.times(meta.config.timezone), self.clean_settings, self.clean_memory),
            delete=delete,
            progress=progress,
            lock=lock if releases else None,
            check_lock=lock.check,
        )

    def _delete(self, storage: Storage, proceed: Callable[[], object] = lambda: None) -> Delete:
        """Return the function that deletes files for the cleaner."""
        threads, counted = self.clean_settings.parallelism, storage.for_cause("clean")
        return delete_on(self.engine, counted, threads, proceed, self.driver_deletes)

    def clean_preview(self) -> CleanPreview:
        """Return what a clean would delete, without deleting it."""
        meta = open_for_table_service(self.storage, self.settings)
        with closing(open_view(self.storage)) as view:
            times = self.times(meta.config.timezone)
            planner = CleanPlanner(meta, view, times, self.clean_settings)
            return preview(planner, meta.active_timeline())

    def clean_is_idle(self, timeline: Timeline, zone: str) -> bool:
        """Return whether a clean would find nothing to do.

        Args:
            timeline: The active timeline. If the policy is lazy, the clean rolls back failed
                writes on it.
            zone: The time zone of its times.
        """
        if self.rollback_policy.lazy and timeline.pending():
            return False
        return is_idle(timeline, self.clean_settings, self.clean_memory, self.times(zone))

    def archive(self, meta: TableMetaClient) -> ArchiveResult | None:
        """Run an archival (``Archiver.run``) under the table's lock.

        Without the lock two archivers would write the same instants to the archive twice.
        """
        times = self.times(meta.config.timezone)
        leases = Leases(meta.storage.for_cause("archive"), self.clock, self.clean_memory.leases)
        attributes = {TABLE: self.storage.base_path}
        with self.lock.held("archiving"), child("execute archival", attributes):
            # With sweep, as only the storage's clock tells whether a lease has expired.
            since = held_from(leases.live(sweep=True))
            settings, cleans = self.archive_settings, self.clean_settings
            memory, check = self.archive_memory, self.lock.check
            return Archiver(meta, times, settings, cleans, since, memory, check).run()

    def archive_is_idle(self, timeline: Timeline, meta: TableMetaClient) -> bool:
        """Return whether an archival would find nothing to do.

        Args:
            timeline: The active timeline, with the last clean.
            meta: The table.
        """
        cleaned, known = self.clean_memory.last_clean, self.archive_memory.last_clean
        if cleaned is not None and (known is None or cleaned[0].requested_time >= known.time):
            known = LastClean.of(*cleaned, meta.path_of(cleaned[0]))
        return is_archive_idle(
            timeline,
            self.archive_settings,
            self.clean_settings,
            known,
            self.times(meta.config.timezone),
            meta.config,
        )

    def ready(self, target: Target) -> Target:
        """Return a target that may be changed: it exists, and has no metadata table.

        Raises:
            UnsupportedTableError: Its metadata table can't be dropped now.
            LockError: The lock can't be acquired, or was lost.
        """
        target = target.created()
        return replace(target, meta=self.without_metadata_table(target.meta))

    def without_metadata_table(self, meta: TableMetaClient) -> TableMetaClient:
        """Return a table's meta client after its metadata table, if it has one, was dropped.

        Raises:
            UnsupportedTableError: It can't be dropped now.
            LockError: The lock can't be acquired, or was lost.
        """
        # Without this option tables with a metadata table were refused when they were opened.
        if not self.settings.is_set(METADATA_TABLE):
            return meta
        return drop_metadata_table(meta, self.lock, self.rollback_policy, self.clock)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write as the caller requested it, with counters of its cost.

    Attributes:
        extra_metadata: Text to store in the commit next to the schema.
        partitions: The partitions that ``DELETE_PARTITION`` replaces; other operations have rows.
        batch: The micro-batch of a stream that the rows are, if they are one.
        wait: Sleeps while a commit of its stream is in doubt; ``None``: that of the context.
        files: The storage; it caches the ends of base files, which are opened to find keys, and
            soon again for the merge.
    """

    context: WriteContext
    operation: Operation
    extra_metadata: Mapping[str, str]
    account: WriteAccount
    files: Storage
    partitions: PartitionChoice | None = None
    batch: StreamBatch | None = None
    wait: Wait | None = None

    @classmethod
    def of(
        cls,
        context: WriteContext,
        operation: Operation,
        extra_metadata: Mapping[str, str] | None = None,
        partitions: PartitionChoice | None = None,
        batch: StreamBatch | None = None,
        wait: Wait | None = None,
    ) -> WriteRequest:
        """Return a request.

        Raises:
            ConfigError: ``extra_metadata`` has the key ``schema``, which is reserved.
            InputError: ``extra_metadata`` isn't a mapping of text to text.
        """
        extra = _checked_metadata(extra_metadata)
        if batch is not None:
            extra.update(batch.extra_metadata)
        account = WriteAccount(
            context.clock,
            context.storage.calls,
            context.embedded.report,
            in_process=context.engine.in_process,
        )
        files = context.storage.keeping_tails()
        return cls(context, operation, extra, account, files, partitions, batch, wait)

    @property
    def sort_mode(self) -> str:
        """How rows are sorted (``strandline.write.tasks.row_order``)."""
        return self.context.settings.get(SORT_MODE) if self.operation.sorts else UNSORTED

    def check_batch(self, target: Target) -> None:
        """Check that the rows are to be written, if they are a micro-batch.

        Args:
            target: The table, just opened.

        Raises:
            BatchDoneError: The table has the batch.
            ConfigError: It isn't the one that follows in its stream.

        Waits as ``settled``.

        Cost: as ``settled``, and ``newest_batch``.
        """
        if self.batch is None or not target.exists:
            return
        batch, context, meta = self.batch, self.context, target.meta
        where, wait = context.storage.base_path, self.wait or context.wait
        now = settled(
            *(meta, target.timeline, batch.identifier, context.heartbeats, context.clock, wait)
        )
        recorded = newest_batch(meta, context.history, now, batch.identifier)
        if recorded is not None and batch.is_done(recorded, where):
            raise BatchDoneError(recorded)
        if warning := batch.leaves_out(recorded):
            self.account.warn(warning)

    def check_batch_since(self, target: Target, now: Timeline) -> None:
        """Check that no other writer has written the micro-batch since ``check_batch``.

        Args:
            target: The table as it was then.
            now: The active timeline, read under the lock.

        Raises:
            WriteConflictError: It has.
            ConfigError: Another query writes to the stream.
        """
        if self.batch is None:
            return
        batch, where = self.batch, self.context.storage.base_path
        meta, history = target.meta, self.context.history
        recorded = newest_batch(meta, history, now, batch.identifier, target.timeline)
        if recorded is not None and batch.is_done(recorded, where):
            raise WriteConflictError(
                f"batch {batch.number} of stream {batch.identifier!r} of {where} was committed by"
                f" {recorded.instant} meanwhile",
                hint="the write is rolled back; its rows are in the table",
            )


def _checked_metadata(extra: Mapping[str, str] | None) -> dict[str, str]:
    """Return the text to store in a commit; errors as of ``WriteRequest.of``."""
    if not isinstance(extra or {}, Mapping):
        raise InputError(f"extra_metadata is {extra!r}; allowed: a mapping of text")
    checked = dict(extra or {})
    if "schema" in checked:
        raise ConfigError("extra_metadata holds 'schema'; allowed: any other name")
    for name, value in checked.items():
        if not all(isinstance(text, str) for text in (name, value)):
            raise InputError(f"extra_metadata holds {name!r}: {value!r}; allowed: text")
    return checked
