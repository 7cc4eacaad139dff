"""Micro-batches that commits record: which one is written, is done, or is refused."""

from __future__ import annotations

import json
from typing import cast

import pytest

from strandline.commit.stream_batch import RecordedBatch, StreamBatch, newest_batch, recorded_batch
from strandline.records.commit_history import STREAM_BATCH, STREAM_QUERY, CommitHistory
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.model import archiving
from tests.kit.tables.model.table import ModelTable
from tests.strandline.read.state.archiving import Archived
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock
from timeline.errors import ConfigError, CorruptMetadataError, InstantNotFoundError
from timeline.instant import SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import SavepointMetadata

BASE = "/memory/t"
WRITTEN, DONE, REFUSED = "written", "done", "refused"
LIMITS = {"clean__commits__retained": 1, "keep__min__commits": 2, "keep__max__commits": 3}


def verdict(batch: StreamBatch, recorded: RecordedBatch | None) -> str:
    try:
        return DONE if batch.is_done(recorded, "/lake/t") else WRITTEN
    except ConfigError:
        return REFUSED


def recorded(number: int, query: str = "q", instant: str = "1") -> RecordedBatch:
    return RecordedBatch(instant, number, query)


@pytest.mark.parametrize(
    ("number", "query", "newest", "expected"),
    [
        (0, "q", None, WRITTEN),
        (7, "q", None, WRITTEN),
        (8, "q", recorded(7), WRITTEN),
        (9, "q", recorded(7), WRITTEN),
        (7, "q", recorded(7), DONE),
        (6, "q", recorded(7), REFUSED),
        (0, "q", recorded(7), REFUSED),
        (0, "q", recorded(0), DONE),
        # Of a query of Hudi's sink, whose id nothing records.
        (8, "q", recorded(7, ""), WRITTEN),
        (7, "q", recorded(7, ""), DONE),
        (6, "q", recorded(7, ""), REFUSED),
        (0, "new", recorded(7, ""), REFUSED),
        # Another query.
        (0, "new", recorded(7), REFUSED),
        (0, "new", recorded(0), REFUSED),
        (7, "new", recorded(7), REFUSED),
        (8, "new", recorded(7), REFUSED),
    ],
)
def test_a_batch_is_compared_with_the_newest_one(
    number: int, query: str, newest: RecordedBatch | None, expected: str
) -> None:
    assert verdict(StreamBatch("orders", number, query), newest) == expected


def test_a_refusal_names_both_batches_and_what_to_do() -> None:
    newest = recorded(7, "old", "20240101000000000")
    with pytest.raises(ConfigError) as refused:
        StreamBatch("orders", 0, "new").is_done(newest, "/lake/t")
    text = str(refused.value)
    for part in (
        "hoodie.datasource.write.streaming.checkpoint.identifier is 'orders'",
        "commit 20240101000000000 of /lake/t",
        "batch 7 of query old",
        "batch 0 of query new",
        "an identifier of its own",
    ):
        assert part in text
    with pytest.raises(ConfigError, match="the checkpoint is older than the table"):
        StreamBatch("orders", 5, "old").is_done(newest, "/lake/t")


def test_missing_batches_are_a_warning() -> None:
    batch = StreamBatch("orders", 8, "q")
    assert batch.leaves_out(None) == batch.leaves_out(recorded(7)) == ""
    assert "batch 8 of stream 'orders' follows batch 5" in batch.leaves_out(recorded(5))


def test_a_batch_is_recorded_as_hudi_does_it() -> None:
    extra = StreamBatch('or"ders', 12, "q").extra_metadata
    assert json.loads(extra["_hudi_streaming_sink_checkpoint"]) == {'or"ders': "12"}
    assert json.loads(extra["_strandline_streaming_query"]) == {'or"ders': "q"}
    found = recorded_batch("5", extra[STREAM_BATCH], extra[STREAM_QUERY], 'or"ders', "file")
    assert found == RecordedBatch("5", 12, "q")
    assert recorded_batch("5", extra[STREAM_BATCH], "", 'or"ders', "file").query == ""
    assert recorded_batch("5", extra[STREAM_BATCH], "", "others", "file") is None
    assert recorded_batch("5", "", "", "orders", "file") is None
    # The form of Hudi 0.12, which has no identifier.
    assert recorded_batch("5", '{"12":"app-1"}', "", "orders", "file") is None


@pytest.mark.parametrize(
    "text",
    [
        *("12", '{"orders":12}', '{"orders":"x"}', '{"orders":"-1"}', '{"orders":"٣"}', "{", "[]"),
        pytest.param('{"orders":"%s"}' % ("9" * 5000), id="too many digits"),
        pytest.param("[" * 100_000, id="nested too deeply"),
    ],
)
def test_a_record_that_is_none_is_damage(text: str) -> None:
    with pytest.raises(CorruptMetadataError, match=r"^file: _hudi_streaming_sink_checkpoint"):
        recorded_batch("5", text, "", "orders", "file")


class Stream:
    """A table in memory whose commits record batches."""

    def __init__(self, version: int, **options: object) -> None:
        self.storage = MemoryStorage(BASE, now_ms=SystemClock().now_ms)
        self.options = {"write__table__version": version, **options}

    def commit(self, number: int | None, identifier: str = "orders") -> str:
        extra = {}
        if number is not None:
            extra = StreamBatch(identifier, number, "q").extra_metadata
        with client(BASE, self.storage, **self.options) as c:
            rows = table(row("a", ts=1 + (number or 0)))
            return c.upsert(rows, extra_metadata=extra).instant

    def meta(self) -> TableMetaClient:
        return TableMetaClient.open(self.storage)

    def newest(self, identifier: str = "orders") -> RecordedBatch | None:
        meta = self.meta()
        return newest_batch(meta, CommitHistory(), meta.active_timeline(), identifier)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_the_newest_record_is_found_among_other_commits(version: int) -> None:
    stream = Stream(version)
    stream.commit(None)
    assert stream.newest() is None
    stream.commit(0)
    instant = stream.commit(1)
    other = stream.commit(0, "others")
    stream.commit(None)
    assert stream.newest() == RecordedBatch(instant, 1, "q")
    assert stream.newest("others") == RecordedBatch(other, 0, "q")
    assert stream.newest("none") is None


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_the_newest_record_is_found_in_the_archive(version: int) -> None:
    stream = Stream(version, **LIMITS, clean__automatic="true")
    stream.commit(0)
    instant = stream.commit(1)
    for _ in range(8):
        stream.commit(None)
    meta = stream.meta()
    assert meta.active_timeline().find(instant) is None
    assert stream.newest() == RecordedBatch(instant, 1, "q")
    assert stream.newest("none") is None


def test_only_what_has_completed_since_is_looked_at() -> None:
    stream = Stream(9)
    stream.commit(4)
    meta = stream.meta()
    seen, history = meta.active_timeline(), CommitHistory()
    assert newest_batch(meta, history, seen, "orders", seen) is None
    instant = stream.commit(5)
    now = meta.active_timeline()
    assert newest_batch(meta, history, now, "orders", seen) == RecordedBatch(instant, 5, "q")
    # It was pending when it was seen: it may have completed and been archived.
    pending = Instant("20000101000000000", "commit", State.INFLIGHT)
    found = newest_batch(meta, history, seen, "orders", seen.with_instant(pending))
    assert found is None
    archived = Archived(meta, stream.storage)
    commits = [i for i in now if i.is_completed][-1:]
    archiving.archive(cast("ModelTable", archived), commits)
    left = meta.active_timeline()
    gone = left.with_instant(Instant(instant, "commit", State.INFLIGHT))
    assert newest_batch(meta, history, left, "orders", gone) == RecordedBatch(instant, 5, "q")


def test_commits_that_were_seen_are_not_read_again() -> None:
    """Under the lock each read is waited for by other writers, and an old file may be damaged."""
    stream = Stream(9)
    stream.commit(4)
    meta = stream.meta()
    seen = meta.active_timeline()
    instant = stream.commit(5)
    stream.storage.replace(meta.path_of(seen[0]), b"damaged")
    found = newest_batch(meta, CommitHistory(), meta.active_timeline(), "orders", seen)
    assert found == RecordedBatch(instant, 5, "q")
    assert newest_batch(meta, CommitHistory(), seen, "orders", seen) is None


def test_after_a_failed_attempt_the_archive_is_not_read() -> None:
    stream = Stream(9)
    stream.commit(4)
    meta = stream.meta()
    failed = meta.transition_to_inflight(meta.create_requested("commit", "20240101000000000"))
    seen = meta.active_timeline()
    with client(BASE, stream.storage, **stream.options) as c:
        assert c._context.rollbacks(meta).roll_back_own(failed)

    class Unarchived(TableMetaClient):
        def archived_timeline(self, **_):
            raise AssertionError("the archive is read")

    meta = Unarchived(stream.storage, meta.config)
    assert newest_batch(meta, CommitHistory(), meta.active_timeline(), "orders", seen) is None


def test_an_archived_commit_without_content_is_a_warning(caplog) -> None:
    stream = Stream(9)
    stream.commit(3)
    meta = stream.meta()
    (commit,) = meta.active_timeline()
    stream.storage.replace(meta.path_of(commit), b"")
    archiving.archive(cast("ModelTable", Archived(meta, stream.storage)), [commit])
    assert stream.newest() is None
    assert "1 commits in the archive of /memory/t are without content" in caplog.text


@pytest.mark.parametrize("deleted", [False, True], ids=["savepoint", "deleted savepoint"])
@pytest.mark.parametrize("version", [6, 9])
def test_a_savepoint_hides_no_later_record_in_the_archive(version: int, deleted: bool) -> None:
    stream = Stream(version)
    times = [stream.commit(number) for number in range(4)]
    stream.commit(None)
    meta = stream.meta()
    saved = meta.transition_to_inflight(Instant(times[0], SAVEPOINT, State.REQUESTED))
    meta.complete(saved, SavepointMetadata(), meta.active_timeline().newest_completion or times[-1])
    assert stream.newest() == RecordedBatch(times[3], 3, "q")
    found = [i for i in meta.active_timeline().completed() if i.requested_time in times[1:]]
    archived = Archived(meta, stream.storage)
    archiving.archive(cast("ModelTable", archived), found)
    if deleted:
        for each in stream.storage.list(meta.layout.folder):
            if SAVEPOINT in each.name:
                stream.storage.delete(f"{meta.layout.folder}/{each.name}")
    assert (meta.active_timeline().find(times[0], SAVEPOINT) is None) == deleted
    assert stream.newest() == RecordedBatch(times[3], 3, "q")


def test_a_commit_that_is_archived_meanwhile_is_found_in_the_archive() -> None:
    stream = Stream(9)
    instant = stream.commit(3)
    meta = stream.meta()
    listed = meta.active_timeline()
    archived = Archived(meta, stream.storage)
    archiving.archive(cast("ModelTable", archived), list(listed.completed()))
    found = newest_batch(meta, CommitHistory(), listed, "orders")
    assert found == RecordedBatch(instant, 3, "q")


def test_a_commit_that_is_gone_for_good_is_an_error() -> None:
    stream = Stream(9)
    stream.commit(3)

    class Stale(TableMetaClient):
        """Lists a commit that isn't there."""

        def active_timeline(self):
            gone = Instant("20990101000000000", "commit", State.COMPLETED, "20990101000000001")
            return super().active_timeline().with_instant(gone)

    meta = Stale(stream.storage, stream.meta().config)
    with pytest.raises(InstantNotFoundError):
        newest_batch(meta, CommitHistory(), meta.active_timeline(), "orders")
