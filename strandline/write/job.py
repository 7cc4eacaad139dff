"""``WriteJob``: one write from the caller's rows to the synced service, step by step.

    check table and rows → make the table if new → undo failed writes → request the instant, read
    the timeline → tag → assign buckets → inflight → write → complete → drop markers → sync → clean

Nothing is written before the rows are checked. A failure before the instant completes leaves it
pending, for the next write to roll back. After it the write *has* happened: what fails then is
logged, not raised.

Source: Hudi 1.2.0 ``SparkRDDWriteClient``, ``BaseCommitActionExecutor``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from executor_proxy.report import LookupReport
from fsview.sync.plan_reader import pending_clustering
from strandline.clean.policy import CleanSettings
from strandline.clean.run import Cleaner, CleanMemory, CleanResult
from strandline.records.commit_history import CommitHistory
from strandline.records.schema import PARTITION_PATH
from strandline.settings.setting import Settings
from strandline.write import keyed, tag
from strandline.write import settings as options
from strandline.write.bucket import Assignment, Sizing, UpdateGroup, assign
from strandline.write.columns import BUCKET, assigned_schema, keyed_schema, tagged_schema
from strandline.write.embedded import EmbeddedService
from strandline.write.engine import EngineContext
from strandline.write.keyed import KeyProfile, KeyProfileTask, KeyTask
from strandline.write.markers import delete_markers, delete_unreported
from strandline.write.result import WriteResult
from strandline.write.rollback import Rollbacks
from strandline.write.tag import TagProfile, TagProfileTask, TagTask
from strandline.write.target import Target, open_target
from strandline.write.task import STATUS_SCHEMA, AssignTask, WriteReport, WriteTask
from strandline.write.transaction import Transaction
from timeline.clock import Clock, TimeGenerator
from timeline.errors import ConfigError, InputError, StrandlineError, UnsupportedTableError
from timeline.storage.base import Storage

logger = logging.getLogger(__name__)

INSERT: Final = "INSERT"
UPSERT: Final = "UPSERT"
BULK_INSERT: Final = "BULK_INSERT"
DELETE: Final = "DELETE"

PARTS: Final = ("tag", "write", "commit", "sync", "clean", "rollback")


class Times:
    """The generator of instants' times for the zone that a table turns out to have."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._generators: dict[str, TimeGenerator] = {}

    def of(self, zone: str) -> TimeGenerator:
        """Return the generator for a zone; the same one each time."""
        if zone not in self._generators:
            self._generators[zone] = TimeGenerator(self._clock, zone)
        return self._generators[zone]


@dataclass(frozen=True)
class WriteContext:
    """What a client's writes have in common."""

    engine: EngineContext[Any]
    storage: Storage
    settings: Settings
    clean_settings: CleanSettings
    clock: Clock
    times: Times
    history: CommitHistory
    embedded: EmbeddedService
    clean_memory: CleanMemory = field(default_factory=CleanMemory)


@dataclass(frozen=True, slots=True)
class _Tagged:
    """Tagged rows and what the driver decided about them."""

    rows: Any
    assignment: Assignment


class WriteJob:
    """One write; run once.

    Args:
        context: The client's.
        operation: One of the four names above, which are Hudi's.
        extra_metadata: What the commit is to carry beside the schema.

    Raises:
        ConfigError: ``extra_metadata`` holds ``schema``, which is the table's.
        InputError: ``extra_metadata`` holds something that is no text.
    """

    def __init__(
        self,
        context: WriteContext,
        operation: str,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._context = context
        self._engine = context.engine
        self._operation = operation
        self._extra_metadata = dict(extra_metadata or {})
        if "schema" in self._extra_metadata:
            raise ConfigError("extra_metadata holds 'schema'; allowed: any other name")
        for name, value in self._extra_metadata.items():
            if not all(isinstance(text, str) for text in (name, value)):
                raise InputError(f"extra_metadata holds {name!r}: {value!r}; allowed: text")
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._report = LookupReport()
        self._executor_calls: list[Mapping[tuple[str, str], int]] = []
        self._driver_calls = context.storage.calls.snapshot()
        self._driver_fallbacks = len(context.embedded.report.fallbacks)

    def run(self, data: object) -> WriteResult:
        """Do the write; see the module for the order of things."""
        context, engine = self._context, self._engine
        context.embedded.replace_ended()
        rows = engine.adopt(data)
        create = self._operation != DELETE
        target = open_target(context.storage, context.settings, context.history, create=create)
        incoming = engine.schema(rows)
        ordering = target.config.ordering_fields if target.event_time and create else ()
        keyed.check_columns(incoming, target.generator, ordering)
        columns = pa.schema([])
        if create:
            target, columns = target.columns_of(incoming)
        task = KeyTask(columns, target.generator, ordering)
        with self._timed("tag"):
            made = engine.transform(rows, task, keyed_schema(columns))
        with engine.persist(made) as keyed_rows:
            with self._timed("tag"):
                profile = engine.transform(keyed_rows, KeyProfileTask(), keyed.PROFILE_SCHEMA)
                partitions = KeyProfile.read(engine.collect(profile)).rows
            return self._write(target.created(), columns, keyed_rows, partitions)

    def _write(
        self, target: Target, columns: pa.Schema, rows: Any, partitions: Mapping[str, int]
    ) -> WriteResult:
        """Do the write of rows that can be written."""
        context = self._context
        times = context.times.of(target.config.timezone)
        sizing = target.sizing(context.settings, context.history)
        with self._timed("rollback"):
            rolled_back = Rollbacks(target.meta, times, context.clock).repair(target.timeline)
        with self._timed("commit"):
            transaction = Transaction(target.meta, times, target.timeline)
        with self._tagged(target, columns, rows, partitions, sizing, transaction) as tagged:
            with self._timed("commit"):
                transaction.start()
            with self._timed("write"):
                report = self._write_files(target, columns, tagged, transaction.time)
        self._executor_calls.append(report.calls)
        with self._timed("commit"):
            self._complete(target, transaction, report)
        cleaned = self._follow_up(target, times)
        return self._result(transaction.time, report, cleaned, rolled_back)

    # Steps before the files.

    @contextmanager
    def _tagged(
        self,
        target: Target,
        columns: pa.Schema,
        rows: Any,
        partitions: Mapping[str, int],
        sizing: Sizing,
        transaction: Transaction,
    ) -> Iterator[_Tagged]:
        """Tag the rows, keep them while the block runs, and assign their buckets."""
        task = self._tag_task(target, columns, sizing, transaction)
        if task is None or not partitions:
            assignment = assign((), partitions, {}, sizing, _new_file_id)
            yield _Tagged(rows, assignment)
            return
        engine = self._engine
        with self._timed("tag"):
            tagged = engine.transform(rows, task, tagged_schema(columns), by=PARTITION_PATH)
        with engine.persist(tagged) as tagged:
            with self._timed("tag"):
                counts = engine.transform(tagged, TagProfileTask(), tag.PROFILE_SCHEMA)
                profile = TagProfile.read(engine.collect(counts))
            self._report.merge(profile.report)
            self._executor_calls.append(profile.calls)
            yield _Tagged(tagged, self._assign(target, profile, sizing, transaction))

    def _tag_task(
        self, target: Target, columns: pa.Schema, sizing: Sizing, transaction: Transaction
    ) -> TagTask | None:
        """Return the task that tags the rows; ``None`` when all of them open new file groups."""
        inserting = self._operation in (INSERT, BULK_INSERT)
        combine = not inserting or self._context.settings.get(options.COMBINE_INSERT)
        looks = not inserting or (self._operation == INSERT and sizing.small_file_bytes > 0)
        if not combine and not looks:
            return None
        return TagTask(
            schema=columns,
            storage=self._context.storage,
            location=self._context.embedded.location(transaction.timeline) if looks else None,
            match=not inserting,
            combine=combine,
            ordering_fields=() if self._operation == DELETE else target.config.ordering_fields,
            only_stored=self._operation == DELETE,
        )

    def _assign(
        self, target: Target, profile: TagProfile, sizing: Sizing, transaction: Transaction
    ) -> Assignment:
        """Decide the buckets; keep away from groups that a clustering is about to replace."""
        clustered = pending_clustering(target.meta, transaction.timeline)
        for group in profile.updates:
            _refuse_clustered(group, clustered)
        stored = {
            partition: [file for file in files if (partition, file.file_id) not in clustered]
            for partition, files in profile.stored.items()
        }
        return assign(profile.updates, profile.inserts, stored, sizing, _new_file_id)

    # The files, and after.

    def _write_files(
        self, target: Target, columns: pa.Schema, tagged: _Tagged, instant: str
    ) -> WriteReport:
        if not tagged.assignment.buckets:
            return WriteReport()
        engine = self._engine
        form = assigned_schema(columns)
        assigned = engine.transform(tagged.rows, AssignTask(columns, tagged.assignment), form)
        task = WriteTask(
            storage=self._context.storage,
            buckets=tagged.assignment.buckets,
            schema=target.schema,
            avro_schema=target.avro_schema or "",
            instant=instant,
            ordering_fields=target.config.ordering_fields,
            event_time=target.event_time,
            delete=self._operation == DELETE,
            append=self._operation in (INSERT, BULK_INSERT),
            extension=target.config.base_file_extension,
            settings=options.base_file_settings(self._context.settings),
            attempt=engine.attempt,
        )
        statuses = engine.transform(assigned, task, STATUS_SCHEMA, by=BUCKET)
        return WriteReport.read(engine.collect(statuses))

    def _complete(self, target: Target, transaction: Transaction, report: WriteReport) -> None:
        """Complete the instant: the one step that readers see."""
        markers = self._context.storage.for_cause("marker")
        reported = frozenset(stat.path for stat in report.stats if stat.path)
        strays = delete_unreported(markers, transaction.time, reported) if report.stats else ()
        if strays:
            logger.info("deleted %d files of repeated task attempts", len(strays))
        metadata = transaction.complete(
            self._operation, report.stats, target.avro_schema or "", self._extra_metadata
        )
        self._context.history.remember(transaction.instant, metadata)
        with self._survived("deleting its markers"):
            delete_markers(markers, transaction.time)

    def _follow_up(self, target: Target, times: TimeGenerator) -> CleanResult | None:
        """Tell the service, then clean."""
        context = self._context
        cleaned: CleanResult | None = None
        automatic = context.clean_settings.automatic
        if context.embedded.service is None and not automatic:
            return None
        with self._survived("syncing and cleaning"):
            with self._timed("sync"):
                view = context.embedded.synced_view()
            if automatic:
                with self._timed("clean"):
                    settings, memory = context.clean_settings, context.clean_memory
                    cleaned = Cleaner(target.meta, view, times, settings, memory).run()
        return cleaned

    @contextmanager
    def _survived(self, what: str) -> Iterator[None]:
        """Log an error that came after the commit, which stands."""
        try:
            yield
        except StrandlineError as error:
            logger.warning("the commit is complete, but %s failed: %s", what, error)

    def _result(
        self,
        instant: str,
        report: WriteReport,
        cleaned: CleanResult | None,
        rolled_back: Iterable[str],
    ) -> WriteResult:
        own = self._context.embedded.report
        fallbacks = (*self._report.fallbacks, *own.fallbacks[self._driver_fallbacks :])
        if fallbacks:
            logger.warning(
                "%d views of this write listed storage instead of asking the timeline service: %s",
                len(fallbacks),
                fallbacks[0],
            )
        return WriteResult(
            instant=instant,
            operation=self._operation,
            rows_inserted=report.counts.inserts,
            rows_updated=report.counts.updates,
            rows_deleted=report.counts.deletes,
            files=len(report.stats),
            bytes_written=sum(stat.file_size_in_bytes for stat in report.stats),
            seconds=dict(self._seconds),
            lookup_seconds=self._report.lookup_seconds,
            fallbacks=fallbacks,
            storage_calls=self._storage_calls(),
            clean=cleaned,
            rolled_back=tuple(rolled_back),
        )

    def _storage_calls(self) -> dict[tuple[str, str], int]:
        """Return the calls of the driver during this write, and of the executors."""
        now = self._context.storage.calls.snapshot()
        total = {key: n - self._driver_calls.get(key, 0) for key, n in now.items()}
        # Tasks that ran in this process were counted by the driver's own storage.
        elsewhere = [] if self._engine.in_process else self._executor_calls
        for calls in (*elsewhere, self._report.storage_calls()):
            for key, number in calls.items():
                total[key] = total.get(key, 0) + number
        return {key: number for key, number in sorted(total.items()) if number}

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = self._context.clock.monotonic()
        try:
            yield
        finally:
            self._seconds[part] += self._context.clock.monotonic() - started


def _refuse_clustered(group: UpdateGroup, clustered: Mapping[tuple[str, str], Any]) -> None:
    instant = clustered.get((group.partition, group.file_id))
    if instant is not None:
        raise UnsupportedTableError(
            f"file group {group.file_id} of partition {group.partition!r} is in the pending"
            f" clustering {instant.requested_time}, and {group.rows} rows of this write belong"
            " to it",
            hint="let the clustering finish, or roll it back",
        )


def _new_file_id() -> str:
    return f"{uuid.uuid4()}-0"
