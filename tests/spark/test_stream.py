"""Streams of Spark into tables: restarted, with batches repeated, refused, compacted beside."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import Table
from strandline.records.commit_history import STREAM_BATCH, STREAM_QUERY
from strandline.write.engine.local import LocalEngine
from strandline.write.stream_sink import StreamSink
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables import reader
from tests.strandline.write.tables import OPTIONS, client, row, table
from timeline.errors import ConfigError, InputError

pytestmark = pytest.mark.spark

COLUMNS = "id string, region string, ts long, name string"
LOGS = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.parquet.small.file.limit": "0",
}
EXECUTORS = {"strandline.write.driver.max.rows": "0"}
INSERT = {"hoodie.datasource.write.operation": "insert"}
OPERATION = "hoodie.datasource.write.operation"


class Feed:
    """Files that a stream reads one a batch, and the table it writes."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.base, self.checkpoint = spark, folder / "t", folder / "checkpoint"
        self.folder = folder / "feed"
        self.folder.mkdir()
        self.number = 0
        self.progress: list[Any] = []

    def add(self, *rows: dict[str, Any]) -> None:
        path = self.folder / f"{self.number:03}.parquet"
        pq.write_table(table(*rows), path)
        # Spark reads the oldest first.
        os.utime(path, (1e9 + self.number, 1e9 + self.number))
        self.number += 1

    def frame(self) -> Any:
        source = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return source.parquet(str(self.folder))

    def start(self, options: Mapping[str, object] = {}, frame: Any = None, **given: Any) -> Any:
        from strandline import stream

        return stream.write(
            self.frame() if frame is None else frame,
            self.base,
            {**OPTIONS, **options},
            **{
                "checkpoint": self.checkpoint,
                "trigger": {"availableNow": True},
                "progress": self.progress.append,
                **given,
            },
        )

    def run(self, *args: Any, **given: Any) -> Any:
        query = self.start(*args, **given)
        query.awaitTermination()
        return query

    def forget_last_batch(self) -> None:
        """Leave the checkpoint as if Spark had ended before it recorded the last batch."""
        commits = self.checkpoint / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)

    def batches(self) -> list[tuple[int, str]]:
        """Return batch and query of each commit that records them."""
        found = Table(self.base)
        extras = [found.commit_metadata(c.requested_time).extra_metadata for c in found.commits()]
        texts = [
            (each[STREAM_BATCH], each[STREAM_QUERY]) for each in extras if STREAM_BATCH in each
        ]
        identifier = "default_single_writer"
        return [(int(json.loads(b)[identifier]), json.loads(q)[identifier]) for b, q in texts]


@pytest.fixture
def feed(spark: Any, tmp_path: Path) -> Iterator[Feed]:
    yield Feed(spark, tmp_path)
    # Spark's state of a query that the test left running would outlive its folder.
    assert not spark.streams.active
    names = [each.name for each in threading.enumerate()]
    assert not any(name.startswith(("strandline-stream", "strandline-async")) for name in names)


@pytest.mark.covering
@pytest.mark.parametrize("options", [{}, EXECUTORS, LOGS], ids=["driver", "executors", "logs"])
def test_a_repeated_batch_is_not_committed_again(feed: Feed, options: dict[str, str]) -> None:
    """Inserts of one key: only the record of the batch keeps them apart."""
    inserts = {**options, **INSERT}
    feed.add(row("x", ts=0))
    feed.add(row("x", ts=1))
    query = feed.run(inserts)
    feed.forget_last_batch()
    feed.add(row("x", ts=2))
    again = feed.run(inserts)
    assert again.id == query.id
    assert again.runId != query.runId
    assert feed.batches() == [(number, query.id) for number in range(3)]
    done = [(each.batch, each.query, each.result is not None) for each in feed.progress]
    assert done == [(n, query.id, is_new) for n, is_new in ((0, 1), (1, 1), (1, 0), (2, 1))]
    assert Table(feed.base).to_arrow()["name"].to_pylist().count("x@1") == 1
    assert reader.leftovers(feed.base) == []


def test_a_query_with_a_new_checkpoint_is_refused(feed: Feed) -> None:
    from pyspark.errors import StreamingQueryException

    feed.add(row("a"))
    old = feed.run()
    before = reader.state(feed.base)
    shutil.rmtree(feed.checkpoint)
    new = feed.start()
    with pytest.raises(StreamingQueryException) as refused:
        new.awaitTermination()
    text = str(refused.value)
    assert "ConfigError: hoodie.datasource.write.streaming.checkpoint.identifier" in text
    assert f"batch 0 of query {old.id}" in text
    assert f"batch 0 of query {new.id}" in text
    assert reader.state(feed.base) == before
    feed.run({"hoodie.datasource.write.streaming.checkpoint.identifier": "another"})
    assert len(list(Table(feed.base).commits())) == 2


def test_empty_batches_and_deletes_are_commits(feed: Feed) -> None:
    for number in range(3):
        feed.add(row("a", ts=number), row(f"b{number}", ts=number))
    feed.run(frame=feed.frame().where("ts <> 1"))
    results = [each.result for each in feed.progress]
    assert [each.rows_inserted for each in results] == [2, 0, 1]
    gone = Feed(feed.spark, feed.folder)
    gone.base = feed.base
    gone.add(row("a"))
    gone.add(row("missing"))
    identifier = {"hoodie.datasource.write.streaming.checkpoint.identifier": "deletes"}
    gone.run({OPERATION: "delete", **identifier})
    gone.forget_last_batch()
    gone.run({OPERATION: "delete", **identifier})
    deletes = [each.result and each.result.rows_deleted for each in gone.progress]
    assert deletes == [1, 0, None]
    assert {each["id"] for each in reader.rows(feed.base)} == {"b0", "b2"}


@pytest.mark.parametrize("options", [{}, EXECUTORS], ids=["driver", "executors"])
def test_compactions_run_beside_the_stream(feed: Feed, options: dict[str, str]) -> None:
    every_2 = {"hoodie.compact.inline.max.delta.commits": "2", **LOGS, **options}
    for number in range(4):
        feed.add(row("a", ts=number), row(f"b{number}", "us", ts=number))
    feed.run(every_2)
    for number in range(4, 6):
        feed.add(row("a", ts=number), row(f"b{number}", "us", ts=number))
    feed.run(every_2)
    assert [number for number, _ in feed.batches()] == list(range(6))
    assert not any(each.result.warnings for each in feed.progress)
    ended = [each for progress in feed.progress for each in progress.compactions]
    assert not any(each.error for each in ended)
    names = reader.timeline_names(feed.base)
    compacted = [name.partition("_")[0] for name in names if name.endswith(".commit")]
    planned = [each.result.planned_compaction for each in feed.progress]
    assert compacted
    assert set(compacted) <= set(planned)
    expected = {"a@5", *(f"b{number}@{number}" for number in range(6))}
    assert {each["name"] for each in reader.rows(feed.base)} == expected
    optimized = Table(feed.base).scan(read_optimized=True).to_arrow()["name"].to_pylist()
    assert "a@0" not in optimized
    assert reader.leftovers(feed.base) == []


def test_spark_s_listener_gets_the_progress_of_each_batch(feed: Feed) -> None:
    from pyspark.sql.streaming import StreamingQueryListener

    told: list[tuple[int, int]] = []
    ended: list[str] = []
    is_ended = threading.Event()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event):  # noqa: N802
            pass

        def onQueryProgress(self, event):  # noqa: N802
            told.append((event.progress.batchId, event.progress.numInputRows))

        def onQueryIdle(self, event):  # noqa: N802
            pass

        def onQueryTerminated(self, event):  # noqa: N802
            ended.append(str(event.id))
            is_ended.set()

    listener = Listener()
    feed.spark.streams.addListener(listener)
    try:
        feed.add(row("a"), row("b"))
        feed.add(row("c"))
        query = feed.run(query_name="listened")
        assert is_ended.wait(60)
    finally:
        feed.spark.streams.removeListener(listener)
    assert query.name == "listened"
    assert ended == [query.id]
    assert told == [(0, 2), (1, 1)]
    assert [each["batchId"] for each in query.recentProgress] == [0, 1]


def test_a_query_is_stopped_and_goes_on(feed: Feed) -> None:
    written = threading.Event()

    def tell(progress: Any) -> None:
        feed.progress.append(progress)
        written.set()

    feed.add(row("a"))
    query = feed.start(trigger=None, progress=tell)
    assert written.wait(60)
    assert query.awaitTermination(0.01) is False
    query.stop()
    assert not query.isActive
    with pytest.raises(RuntimeError, match="is closed"):
        query._sink.write(table(), 1, query.id)
    feed.add(row("b"))
    feed.run()
    assert Counter(number for number, _ in feed.batches()) == {0: 1, 1: 1}


def test_a_wait_with_a_wrong_timeout_is_an_error_at_once(feed: Feed) -> None:
    feed.add(row("a"))
    query = feed.start(trigger={"processingTime": "1 hour"})
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            query.awaitTermination(-1)
        except ValueError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(PATIENCE_S)
    has_ended = not waiting.is_alive()
    query.stop()
    assert has_ended
    assert "timeout" in str(errors[0])


def test_an_interrupt_right_after_the_start_stops_the_query(tmp_path: Path) -> None:
    """Its first batch waits for the query's id, and the query ends after that batch."""
    from strandline import stream

    class Query:
        def __init__(self, batch: threading.Thread) -> None:
            self.batch, self.is_stopped = batch, False

        @property
        def id(self) -> str:
            raise KeyboardInterrupt

        def stop(self) -> None:
            self.batch.join(PATIENCE_S)
            self.is_stopped = not self.batch.is_alive()

    class Writer:
        query: Query

        def foreachBatch(self, write: Any) -> Writer:  # noqa: N802
            def first() -> None:
                with pytest.raises(CancelledError):
                    write(None, 0)

            self.query = Query(threading.Thread(target=first, daemon=True))
            return self

        def start(self) -> Query:
            self.query.batch.start()
            return self.query

    writer = Writer()
    with pytest.raises(KeyboardInterrupt):
        stream._begun(writer, StreamSink(LocalEngine(1), tmp_path / "t", OPTIONS))
    assert writer.query.is_stopped


def test_an_error_of_the_listener_ends_the_query_after_the_commit(feed: Feed) -> None:
    from pyspark.errors import StreamingQueryException

    def fail(progress: Any) -> None:
        raise LookupError(f"batch {progress.batch}")

    feed.add(row("a"))
    with pytest.raises(StreamingQueryException, match="LookupError: batch 0"):
        feed.run(progress=fail)
    feed.run()
    assert [each.result for each in feed.progress] == [None]


@pytest.fixture
def few_partitions(spark: Any) -> Iterator[None]:
    """Two partitions of a shuffle: a stream keeps the state of each in files."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("few_partitions")
def test_all_rows_of_each_batch_replace_the_table(feed: Feed) -> None:
    feed.add(row("a", ts=1), row("b", ts=2))
    feed.add(row("a", ts=3))
    counts = feed.frame().groupBy("id").count()
    rows = counts.selectExpr("id", "'all' as region", "count as ts", "id as name")
    given = {OPERATION: "insert_overwrite_table"}
    feed.run(given, frame=rows, output_mode="complete")
    found = Table(feed.base).to_arrow(["id", "ts"]).to_pylist()
    assert {each["id"]: each["ts"] for each in found} == {"a": 2, "b": 1}
    with pytest.raises(ConfigError, match=r"output_mode is complete, and .*operation is upsert"):
        feed.start(frame=rows, output_mode="complete")


def test_the_options_of_hudi_s_quick_start_are_taken(feed: Feed) -> None:
    from strandline import stream

    options = {
        "hoodie.table.name": "hudi_trips_cow_streaming",
        "hoodie.datasource.write.recordkey.field": "uuid",
        "hoodie.datasource.write.partitionpath.field": "partitionpath",
        "hoodie.datasource.write.table.name": "hudi_trips_cow_streaming",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.upsert.shuffle.parallelism": 2,
        "hoodie.insert.shuffle.parallelism": 2,
    }
    feed.add(row("a", ts=2), row("a", ts=1), row("b"))
    trips = feed.frame().selectExpr("id as uuid", "region as partitionpath", "ts", "name")
    given: dict[str, Any] = {"checkpoint": feed.checkpoint, "trigger": {"once": True}}
    stream.write(trips, feed.base, options, **given).awaitTermination()
    found = Table(feed.base).to_arrow(["uuid", "ts"]).to_pylist()
    assert {each["uuid"]: each["ts"] for each in found} == {"a": 2, "b": 1}


def test_wrong_arguments_are_refused_by_name(feed: Feed, subtests: pytest.Subtests) -> None:
    static = feed.spark.createDataFrame([("a",)], "id string")
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"frame": static}, InputError, "the rows are a batch DataFrame; allowed: a streaming"),
        ({"frame": pa.table({})}, InputError, "the rows are of type pyarrow.lib.Table; allowed"),
        ({"checkpoint": None}, ConfigError, "checkpoint is None; allowed: a path or URL"),
        ({"checkpoint": ""}, ConfigError, "checkpoint is ''; allowed: a path or URL"),
        ({"checkpoint": feed.base}, ConfigError, "the table's base path; allowed: a folder of"),
        ({"trigger": {"continuous": "1 s"}}, ConfigError, "trigger is {'continuous': '1 s'}; al"),
        ({"trigger": {"processingTime": 5}}, ConfigError, "trigger is {'processingTime': 5}; al"),
        ({"trigger": "once"}, ConfigError, "trigger is 'once'; allowed"),
        ({"output_mode": "all"}, ConfigError, "output_mode is 'all'; allowed: append, update, c"),
        ({"query_name": ""}, ConfigError, "query_name is ''; allowed: text, or None"),
        ({"progress": 5}, ConfigError, "progress is 5; allowed: a function, or None"),
        ({"options": {"hoodie.compact.inlin": "true"}}, ConfigError, "did you mean hoodie.compact"),
    ]
    for given, kind, message in cases:
        with subtests.test(message), pytest.raises(kind) as refused:
            feed.start(given.pop("options", {}), **given)
        assert message in str(refused.value)
    from strandline import stream

    with pytest.raises(TypeError, match="required keyword-only argument: 'checkpoint'"):
        stream.write(feed.frame(), feed.base, OPTIONS)  # type: ignore[call-arg]
    assert not feed.base.exists()


def test_a_query_that_spark_does_not_start_leaves_no_client(feed: Feed) -> None:
    from pyspark.errors import PySparkException

    frame = feed.frame().groupBy("id").count()
    with pytest.raises(PySparkException, match="watermark"):
        feed.start(frame=frame)
    with client(feed.base) as c:
        c.upsert(table(row("a")))
