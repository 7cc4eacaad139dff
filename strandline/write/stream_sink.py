"""``StreamSink`` commits the micro-batches of one streaming query, each exactly once.

Which batches the table has is in its commits (``strandline.commit.stream_batch``). A batch that
fails is tried again. If its commit is in doubt, the next attempt waits until that is settled; if it
has taken effect, the batch is done.

Without options to the contrary, batches plan the compactions of a merge-on-read table, which run
beside them. Both threads need a lock then; without a provider it is that of this process.

Source: Hudi 1.2.0 ``HoodieStreamingSink``. Unlike there, a batch that can't be written ends the
query with its error, not the process.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.commit.lock.base import Wait
from strandline.commit.lock.open import IN_PROCESS
from strandline.commit.lock.settings import PROVIDER
from strandline.commit.stream_batch import StreamBatch
from strandline.table_services.compact.policy import SCHEDULE_INLINE
from strandline.write.async_compactor import AsyncCompaction, AsyncCompactor
from strandline.write.client import WriteClient
from strandline.write.engine.base import EngineContext
from strandline.write.options.stream_settings import StreamSettings
from strandline.write.result import WriteResult
from timeline.clock import Clock
from timeline.errors import (
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    ConfigError,
    StrandlineError,
)
from timeline.storage.base import Storage

logger = logging.getLogger(__name__)

_BACKOFF: Final = 2
"""Each pause between two attempts is so many times the one before."""


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What a stream has done with one micro-batch.

    Attributes:
        batch: Its number, from 0.
        query: Id of its query.
        result: The write; ``None`` if the table had the batch.
        attempts: Number of attempts, at least 1.
        compactions: The compactions beside the stream that have ended since the last batch.
    """

    batch: int
    query: str
    result: WriteResult | None
    attempts: int = 1
    compactions: tuple[AsyncCompaction, ...] = ()


Progress = Callable[[BatchProgress], None]


class StreamSink:
    """Writes one query's batches; used by one thread at a time.

    Args:
        engine: Runs the writes.
        base_path: The table's base path, a path or a URL.
        options: As of ``WriteClient``, and those of ``stream_settings``.
        storage: As of ``WriteClient``, as are the following two.
        storage_options: Options of fsspec.
        clock: Source of instants' times.
        progress: Called after each batch. If it raises, the query ends, with the batch committed.
        wait: Sleeps for a number of seconds; ``None`` sleeps until ``stop``.

    Raises:
        ConfigError: An argument or an option's value isn't allowed.
    """

    def __init__(
        self,
        engine: EngineContext[Any],
        base_path: str | os.PathLike[str],
        options: Mapping[str, object],
        *,
        storage: Storage | None = None,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
        wait: Wait | None = None,
    ) -> None:
        if not isinstance(options, Mapping):
            raise ConfigError(f"options are {options!r}; allowed: a mapping of names to values")
        self._settings = settings = StreamSettings.of(options)
        self._progress = progress
        self._wait = wait
        self._stopped = threading.Event()
        chosen: dict[str, object] = dict(options)
        if settings.compacts_beside:
            chosen[SCHEDULE_INLINE.name] = True
            if not settings.has_lock:
                chosen[PROVIDER.name] = IN_PROCESS

        def open_client(own: Storage | None) -> WriteClient:
            return WriteClient(
                engine,
                base_path,
                chosen,
                storage=own,
                storage_options=storage_options,
                clock=clock,
            )

        def open_beside() -> WriteClient:
            return open_client(None if storage is None else storage.with_own_calls())

        self._client = open_client(storage)
        purpose = f"compaction of {os.fspath(base_path)}"
        self._compactor = (
            AsyncCompactor(open_beside, lambda call: engine.beside(call, purpose))
            if settings.compacts_beside
            else None
        )
        # Of an earlier query, or of Hudi's, there may be plans.
        self._is_compaction_due = True

    def write(self, data: object, number: int, query: str) -> BatchProgress:
        """Commit a batch, unless the table has it.

        Args:
            data: Its rows, in a form that the engine adopts.
            number: Its number, from 0.
            query: Id of its query.

        Raises:
            ConfigError: It isn't the batch that follows the newest one of its stream.

        Other errors as of ``WriteClient.write_batch``, of the last attempt.
        """
        result, attempts = self._written(
            data, StreamBatch(self._settings.identifier, number, query)
        )
        done = BatchProgress(number, query, result, attempts, self._compacted(result))
        logger.info(
            "batch %d of query %s is %s",
            number,
            query,
            "in the table already" if result is None else f"commit {result.instant}",
        )
        if self._progress is not None:
            self._progress(done)
        return done

    def stop(self) -> None:
        """End a pause of ``write`` by an error, now and from now on; called by any thread."""
        self._stopped.set()

    def close(self) -> None:
        """Wait for a compaction that runs beside the stream, then close the client.

        Waits as ``AsyncCompactor.close``, and ``WriteClient.close``.
        """
        try:
            if self._compactor is not None:
                self._compactor.close()
        finally:
            self._client.close()

    def _written(self, data: object, batch: StreamBatch) -> tuple[WriteResult | None, int]:
        attempts, pause_s = 1, self._settings.pause_s
        while True:
            try:
                return self._client.write_batch(data, batch, self._pause), attempts
            except StrandlineError as error:
                # Of a commit in doubt the next attempt finds out.
                may_repeat = error.retryable or isinstance(error, CommitOutcomeUnknownError)
                is_last = attempts == self._settings.attempts or self._stopped.is_set()
                if is_last or not may_repeat:
                    raise
                logger.warning("batch %d is tried again in %g s: %s", batch.number, pause_s, error)
            self._pause(pause_s)
            attempts, pause_s = attempts + 1, pause_s * _BACKOFF

    def _pause(self, seconds: float) -> None:
        if self._wait is None:
            self._stopped.wait(seconds)
        else:
            self._wait(seconds)
        if self._stopped.is_set():
            raise ConcurrentWriteError(
                "the stream was stopped before its batch was committed",
                hint="the batch is written when the query is started again",
            )

    def _compacted(self, result: WriteResult | None) -> tuple[AsyncCompaction, ...]:
        """Start the compactions that are planned, unless some run; return those that have ended."""
        compactor = self._compactor
        if compactor is None:
            return ()
        ended = compactor.take()
        # A call that failed after the commit may have requested a plan nevertheless.
        is_planned = result is not None and bool(result.planned_compaction or result.warnings)
        is_left = any(each.error is not None or each.left for each in ended)
        self._is_compaction_due = self._is_compaction_due or is_planned or is_left
        if self._is_compaction_due and not compactor.is_running:
            try:
                compactor.start()
            # The batch is committed; the next one tries again.
            except Exception as error:
                logger.warning("no compaction was started beside the stream", exc_info=True)
                return (*ended, AsyncCompaction(None, error))
            self._is_compaction_due = False
        return ended
