"""``WriteClient``: insert, upsert, bulk-insert and delete rows of a copy-on-write table.

Source: Hudi 1.2.0 ``SparkRDDWriteClient``, ``HoodieSparkSqlWriter``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from strandline.clean.policy import CleanSettings
from strandline.clean.run import Cleaner, CleanResult
from strandline.records.commit_history import CommitHistory
from strandline.settings.read_limits import read_limits
from strandline.write.embedded import EmbeddedService
from strandline.write.engine import EngineContext
from strandline.write.job import (
    BULK_INSERT,
    DELETE,
    INSERT,
    UPSERT,
    Times,
    WriteContext,
    WriteJob,
)
from strandline.write.result import WriteResult
from strandline.write.rollback import Rollbacks
from strandline.write.settings import parse_options
from strandline.write.target import Target, open_target
from timeline.clock import Clock, SystemClock
from timeline.storage.base import Storage
from timeline.storage.open import open_storage

if TYPE_CHECKING:
    from strandline.service.process.timeline_service import TimelineService


class WriteClient:
    """Writes one table. One writer a table at a time; a client is used by one thread.

    Args:
        spark_or_engine: A ``pyspark.sql.SparkSession``, or an ``EngineContext`` such as
            ``LocalEngine()``.
        base_path: The table's: a path or a URL.
        options: ``hoodie.*`` options; ``strandline.write.settings`` lists them.
        storage: The table's storage, in place of the one that ``base_path`` asks for; must pickle.
        storage_options: For fsspec.
        clock: Where instants' times come from.

    Raises:
        ConfigError: An option has a value that isn't allowed, or the session is one of Spark
            Connect.
    """

    def __init__(
        self,
        spark_or_engine: object,
        base_path: str,
        options: Mapping[str, object],
        *,
        storage: Storage | None = None,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = parse_options(options)
        engine = _engine_of(spark_or_engine)
        limits = read_limits(settings)
        storage = storage or open_storage(_absolute(base_path), storage_options, limits)
        clock = clock or SystemClock()
        embedded = EmbeddedService(settings, storage, storage_options or {}, engine.driver_host)
        self._context = WriteContext(
            engine=engine,
            storage=storage,
            settings=settings,
            clean_settings=CleanSettings.parse(options),
            clock=clock,
            times=Times(clock),
            history=CommitHistory(),
            embedded=embedded,
        )

    def upsert(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Write rows over the stored rows of their keys; rows with new keys are inserted.

        Args:
            data: A DataFrame, or what the engine takes.
            extra_metadata: What the commit is to carry, such as how far a feed was read.

        Raises:
            InputError: Rows or columns can't be written; nothing was written.
            ConfigError: ``extra_metadata`` holds ``schema``, which is the table's.
            TableError: The table can't be written, or something in it can't be read.
            StorageError: The file system failed; the next write undoes what was written.
        """
        return WriteJob(self._context, UPSERT, extra_metadata).run(data)

    def insert(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Add rows without a look at stored keys, filling up small files; else as ``upsert``."""
        return WriteJob(self._context, INSERT, extra_metadata).run(data)

    def bulk_insert(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Add rows in new file groups only; errors as of ``upsert``."""
        return WriteJob(self._context, BULK_INSERT, extra_metadata).run(data)

    def delete(
        self, data: object, *, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Delete the stored rows of these keys.

        Args:
            data: Rows with at least the key and partition columns; the others don't matter.
            extra_metadata: As of ``upsert``.

        Raises:
            TableNotFoundError: There is no table; other errors as of ``upsert``.
        """
        return WriteJob(self._context, DELETE, extra_metadata).run(data)

    def clean(self) -> CleanResult | None:
        """Delete files that no reader of the retained commits needs.

        Returns:
            What was deleted; ``None`` when there was nothing to do.
        """
        context = self._context
        target = self._target()
        times = context.times.of(target.config.timezone)
        view = context.embedded.synced_view()
        settings, memory = context.clean_settings, context.clean_memory
        return Cleaner(target.meta, view, times, settings, memory).run()

    def rollback(self, instant: str) -> str:
        """Undo the newest completed commit, as if it had never been.

        Failed writes are undone first, and a rollback that died is finished.

        Args:
            instant: Its requested time.

        Returns:
            Requested time of the rollback.

        Raises:
            InstantNotFoundError: There is no such instant.
            IllegalTransitionError: It isn't the newest write, or not a commit, or saved.
        """
        context = self._context
        target = self._target()
        rollbacks = Rollbacks(target.meta, context.times.of(target.config.timezone), context.clock)
        rollback = rollbacks.repair(target.timeline).get(instant)
        if rollback is None:
            rollback = rollbacks.roll_back_completed(instant, target.meta.active_timeline())
        if context.embedded.service is not None:
            context.embedded.synced_view()
        return rollback

    @property
    def service(self) -> TimelineService | None:
        """The running timeline service; ``None`` when ``hoodie.embed.timeline.server`` is false."""
        self._context.embedded.replace_ended()
        return self._context.embedded.service

    def close(self) -> None:
        """Let go of the service; it ends with the last client that uses it."""
        self._context.embedded.close()

    def __enter__(self) -> WriteClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _target(self) -> Target:
        context = self._context
        context.embedded.replace_ended()
        return open_target(context.storage, context.settings, context.history, create=False)


def _absolute(base_path: str) -> str:
    """Return a base path that means the same in processes that work in other directories."""
    is_path = bool(base_path) and "://" not in base_path and not base_path.startswith("file:")
    return os.path.abspath(base_path) if is_path else base_path


def _engine_of(spark_or_engine: object) -> EngineContext[Any]:
    """Return the engine, or one on the Spark session."""
    if isinstance(spark_or_engine, EngineContext):
        return spark_or_engine
    from strandline.write.spark import SparkEngine  # noqa: PLC0415 - pyspark only where it is used

    return SparkEngine(spark_or_engine)
