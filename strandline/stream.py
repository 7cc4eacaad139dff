"""Micro-batches of a Spark stream, each committed to a table exactly once.

A commit records its batch in the form of Hudi's sink, so a query may go on from its checkpoint with
either sink. Executors need this package; Hudi's jar isn't needed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

try:
    from pyspark.errors import PySparkException, StreamingQueryException
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery
except ImportError as error:
    raise ImportError(
        f"{__name__} needs PySpark 3.5 or later: pip install 'strandline[spark]' ({error})"
    ) from error

from py4j.protocol import Py4JError

from strandline.settings.setting import shortened
from strandline.write.engine.arrow_rows import type_name
from strandline.write.engine.spark import SparkEngine
from strandline.write.engine.workers_python import refuse_connect
from strandline.write.options.settings import OPERATION
from strandline.write.stream_sink import BatchProgress, Progress, StreamSink
from timeline.errors import ConfigError, InputError
from timeline.storage.open import path_text
from timeline.storage.table_id import TableId
from timeline.threads import JoinedThread

__all__ = ["BatchProgress", "TableStream", "write"]

logger = logging.getLogger(__name__)

_MODES: Final = ("append", "update", "complete")
_TRIGGERS: Final = ("processingTime", "once", "availableNow")
_REPLACING: Final = "insert_overwrite_table"


class TableStream(StreamingQuery):  # type: ignore[misc]  # pyspark isn't followed
    """A running query that writes a table; its end closes the client of the table.

    ``stop`` and ``awaitTermination`` return when the client is closed, too: after a compaction that
    runs beside the stream has ended, or after 300 s. All else is as of Spark's ``StreamingQuery``.
    """

    def __init__(self, query: StreamingQuery, sink: StreamSink) -> None:
        super().__init__(query._jsq)
        self._sink = sink
        # The process needn't wait for a query that nobody has stopped.
        self._closing = JoinedThread(self._close, f"strandline-stream-{query.id}", daemon=True)
        self._closing.start()

    def stop(self) -> None:
        """Stop the query, and close the client of the table.

        The jobs of a batch that is being written are cancelled, and a pause before its next attempt
        ends; the batch is written again when the query is started again.
        """
        self._sink.stop()
        super().stop()
        self._closing.join()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query has ended, and the client of the table is closed.

        Args:
            timeout: Most seconds to wait for the query.

        Returns:
            As Spark's: with ``timeout``, whether the query has ended.

        Raises:
            StreamingQueryException: The query has failed; it names the error of the batch.
        """
        ended: bool | None = False
        try:
            ended = super().awaitTermination(timeout)
        except StreamingQueryException:
            self._closing.join()
            raise
        if ended is not False:
            self._closing.join()
        return ended

    def _close(self) -> None:
        try:
            super().awaitTermination()
        except (PySparkException, Py4JError) as error:
            logger.info("query %s has ended with an error, which its caller gets: %s", self, error)
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001 - the query has ended, and nothing depends on it
            logger.warning("the client of a stream wasn't closed: %s", error)


def write(
    frame: DataFrame,
    base_path: str | os.PathLike[str],
    options: Mapping[str, object],
    *,
    checkpoint: str | os.PathLike[str],
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> TableStream:
    """Start a query that writes a stream to a table; each micro-batch is one commit.

    A batch is written by ``hoodie.datasource.write.operation``, or as an upsert. Empty batches are
    commits, too. A batch that Spark repeats is not committed again. Started again with the same
    checkpoint, the query goes on where it was; with a new one, it needs an identifier of its own:
    ``hoodie.datasource.write.streaming.checkpoint.identifier``.

    Args:
        frame: A streaming DataFrame, such as of ``spark.readStream``.
        base_path: The table's base path, a path or a URL.
        options: As of ``WriteClient``, and those of streams.
        checkpoint: Where Spark keeps the query's checkpoint: a path or URL that Spark can write.
        output_mode: Spark's: ``append``, ``update``, or ``complete`` with
            ``insert_overwrite_table``.
        trigger: Arguments of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``;
            ``None``: a batch follows when the one before has ended.
        query_name: Spark's name of the query.
        progress: Called after each batch, on another thread than the caller's. If it raises, the
            query ends.
        storage_options: Options of fsspec.

    Returns:
        The query, running. Its first batch may fail when it is already returned.

    Raises:
        InputError: ``frame`` isn't a streaming DataFrame.
        ConfigError: An argument or an option's value isn't allowed, or the frame is of Spark
            Connect.

    A batch that can't be written ends the query: ``awaitTermination`` raises Spark's
    ``StreamingQueryException``, whose text has the error.
    """
    _check_frame(frame)
    folder = _checkpoint(checkpoint, base_path)
    _check_mode(output_mode, options)
    if progress is not None and not callable(progress):
        raise ConfigError(f"progress is {progress!r}; allowed: a function, or None")
    stream = frame.writeStream.outputMode(output_mode).option("checkpointLocation", folder)
    if query_name is not None:
        stream = stream.queryName(_named(query_name))
    if trigger is not None:
        _trigger(stream, trigger)
    sink = StreamSink(
        SparkEngine(frame.sparkSession),
        base_path,
        options,
        storage_options=storage_options,
        progress=progress,
    )
    return _begun(stream, sink)


def _begun(stream: Any, sink: StreamSink) -> TableStream:
    """Start a query that writes to a sink; close the sink if that fails.

    Args:
        stream: Spark's ``DataStreamWriter``.
        sink: The sink.
    """
    query_id: Future[str] = Future()

    def write_batch(rows: DataFrame, number: int) -> None:
        # The first batch may begin before ``start`` has returned.
        sink.write(rows, number, query_id.result())

    query: StreamingQuery | None = None
    try:
        query = stream.foreachBatch(write_batch).start()
        query_id.set_result(query.id)
        return TableStream(query, sink)
    except BaseException:
        try:
            # First, as the end of the query waits for its first batch, which may wait for this.
            query_id.cancel()
            if query is not None:
                query.stop()
        finally:
            sink.close()
        raise


def _check_frame(frame: object) -> None:
    """Check that a frame is a streaming one, of a classic session."""
    refuse_connect(frame)
    if not isinstance(frame, DataFrame):
        raise InputError(
            f"the rows are of type {type_name(frame)}; allowed: a streaming DataFrame, such as of"
            " spark.readStream"
        )
    if not frame.isStreaming:
        raise InputError(
            "the rows are a batch DataFrame; allowed: a streaming one, such as of spark.readStream",
            hint="WriteClient(spark, path, options).upsert(frame) writes a batch one",
        )


def _checkpoint(checkpoint: object, base_path: object) -> str:
    """Return the checkpoint's path as text."""
    if not isinstance(checkpoint, (str, os.PathLike)) or not os.fspath(checkpoint):
        raise ConfigError(
            f"checkpoint is {shortened(repr(checkpoint), 80)}; allowed: a path or URL that Spark"
            " can write, and that no other query uses"
        )
    folder = str(os.fspath(checkpoint))
    if TableId.of(folder).normal() == TableId.of(path_text(base_path)).normal():
        raise ConfigError(
            f"checkpoint is {folder}, the table's base path; allowed: a folder of its own"
        )
    return folder


def _check_mode(output_mode: object, options: object) -> None:
    """Check that the operation takes the rows of an output mode."""
    if output_mode not in _MODES:
        raise ConfigError(f"output_mode is {output_mode!r}; allowed: {', '.join(_MODES)}")
    given = options.get(OPERATION.name) if isinstance(options, Mapping) else None
    if output_mode == "complete" and str(given).lower() != _REPLACING:
        raise ConfigError(
            f"output_mode is complete, and {OPERATION.name} is {given or 'upsert'}; allowed:"
            f" {_REPLACING}, as each batch has all rows"
        )


def _named(query_name: object) -> str:
    """Return the query's name, checked."""
    if not isinstance(query_name, str) or not query_name.strip():
        raise ConfigError(f"query_name is {query_name!r}; allowed: text, or None")
    return query_name


def _trigger(stream: Any, trigger: object) -> None:
    """Set the query's trigger."""
    known = isinstance(trigger, Mapping) and len(trigger) == 1 and set(trigger) <= {*_TRIGGERS}
    try:
        if known:
            assert isinstance(trigger, Mapping)
            stream.trigger(**trigger)
    except (PySparkException, Py4JError, ValueError, TypeError) as error:
        raise _refused_trigger(trigger) from error
    if not known:
        raise _refused_trigger(trigger)


def _refused_trigger(trigger: object) -> ConfigError:
    return ConfigError(
        f"trigger is {trigger!r}; allowed: one of {{'processingTime': '10 seconds'}},"
        " {'once': True}, {'availableNow': True}",
    )
