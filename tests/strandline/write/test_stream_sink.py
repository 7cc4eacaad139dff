"""The stream sink without Spark: each batch once; options that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Table
from strandline.records.commit_history import STREAM_BATCH
from strandline.write.engine.local import LocalEngine
from strandline.write.stream_sink import BatchProgress, StreamSink
from tests.kit.tables import reader
from tests.strandline.write.streamed import (
    INSERT,
    LOCKED,
    LOGS,
    NO_COMPACTION,
    STREAMING,
    batches,
    opened,
    rows,
    sink,
)
from tests.strandline.write.tables import OPTIONS, client, row, table
from timeline.errors import (
    ConfigError,
)


@pytest.mark.parametrize("options", [{}, LOGS], ids=["copy-on-write", "merge-on-read"])
def test_a_repeated_batch_is_done_and_the_next_one_is_written(tmp_path: Path, options) -> None:
    base = tmp_path / "t"
    with opened(base, **options) as one:
        first = one.write(rows(0), 0, "q")
        assert (first.batch, first.query, first.attempts) == (0, "q", 1)
        assert first.result.rows_inserted == 2
        one.write(rows(1), 1, "q")
        assert one.write(rows(1), 1, "q").result is None
    with opened(base, **options) as two:
        assert two.write(rows(9), 1, "q").result is None
        assert two.write(rows(2), 2, "q").result.instant
    assert batches(base) == [0, 1, 2]
    assert {each["name"] for each in reader.rows(base)} == {"a@2", "b0@0", "b1@1", "b2@2"}


def test_a_new_query_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with opened(base) as one:
        one.write(rows(0), 0, "old")
    before = reader.state(base)
    with opened(base) as two:
        for number in (0, 1):
            with pytest.raises(ConfigError, match=f"batch {number} of query new"):
                two.write(rows(5), number, "new")
    assert reader.state(base) == before
    with opened(base, **{STREAMING + "checkpoint__identifier": "other"}) as three:
        assert three.write(rows(5), 0, "new").result is not None


def test_a_query_of_hudi_goes_on_here(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with client(base) as c:
        c.upsert(rows(3), extra_metadata={STREAM_BATCH: '{"default_single_writer":"3"}'})
    with opened(base) as here:
        assert here.write(rows(3), 3, "q").result is None
        assert here.write(rows(4), 4, "q").result is not None
    assert batches(base) == [3, 4]


def test_empty_batches_and_deletes_count(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with opened(base) as upserts:
        assert upserts.write(table(), 0, "q").result.rows_inserted == 0
        upserts.write(rows(1), 1, "q")
        upserts.write(table(), 2, "q")
        assert upserts.write(table(), 2, "q").result is None
    identifier = {STREAMING + "checkpoint__identifier": "deletes"}
    with opened(base, **identifier, datasource__write__operation="delete") as deletes:
        assert deletes.write(table(row("b1")), 0, "d").result.rows_deleted == 1
        with client(base) as c:
            c.upsert(table(row("b1", ts=7)))
        # Hudi would delete the row that has come since.
        assert deletes.write(table(row("b1")), 0, "d").result is None
    assert {each["name"] for each in reader.rows(base)} == {"a@1", "b1@7"}


def test_inserts_are_not_repeated(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with opened(base, **INSERT) as inserts:
        for number in (0, 1, 1, 2, 2):
            inserts.write(table(row("same", ts=number)), number, "q")
    found = Table(base).to_arrow()["name"].to_pylist()
    assert sorted(found) == ["same@0", "same@1", "same@2"]


@pytest.mark.property
def test_two_queries_write_one_table_under_a_lock(tmp_path: Path) -> None:
    base = tmp_path / "t"
    identifier = STREAMING + "checkpoint__identifier"
    with (
        opened(base, **LOCKED, **{identifier: "one"}) as one,
        opened(base, **LOCKED, **{identifier: "two"}) as two,
    ):
        for number in range(3):
            one.write(table(row("one", ts=number)), number, "1")
            two.write(table(row("two", "us", ts=number)), number, "2")
            assert one.write(table(row("one", ts=9)), number, "1").result is None
            assert two.write(table(row("two", "us", ts=9)), number, "2").result is None
    assert {each["name"] for each in reader.rows(base)} == {"one@2", "two@2"}


def test_a_gap_is_a_warning_of_the_write(tmp_path: Path) -> None:
    base = tmp_path / "t"
    with opened(base) as one:
        one.write(rows(0), 0, "q")
        undone = one.write(rows(1), 1, "q").result.instant
    with client(base) as c:
        c.rollback(undone)
    with opened(base) as two:
        result = two.write(rows(2), 2, "q").result
    (warning,) = result.warnings
    assert "batch 2 of stream 'default_single_writer' follows batch 0" in warning


def test_progress_is_told_after_the_commit(tmp_path: Path) -> None:
    told: list[BatchProgress] = []

    def tell(progress: BatchProgress) -> None:
        told.append(progress)
        if len(told) == 2:
            raise RuntimeError("the listener fails")

    made = StreamSink(LocalEngine(1), tmp_path / "t", OPTIONS, progress=tell)
    assert made.write(rows(0), 0, "q") == told[0]
    with pytest.raises(RuntimeError, match="the listener fails"):
        made.write(rows(1), 1, "q")
    assert made.write(rows(1), 1, "q").result is None
    made.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({STREAMING + "checkpoint__identifier": ""}, "checkpoint.identifier is ''; allowed"),
        (
            {STREAMING + "ignore__failed__batch": "true"},
            "ignore.failed.batch is 'true'; allowed: f",
        ),
        ({STREAMING + "retry__count": "0"}, "retry.count is '0'; allowed: integer, 1 or more"),
        ({STREAMING + "retry__interval__ms": "x"}, "retry.interval.ms is 'x'; allowed: integer"),
        ({"datasource__write__operation": "delete_partition"}, "is delete_partition, which takes"),
        (
            {**NO_COMPACTION, "compact__inline": "true"},
            "disable.compaction is true, and hoodie.compact.inline is true; allowed: one of them",
        ),
        ({"compact__inlin": "true"}, "did you mean hoodie.compact.inline"),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path: Path, options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sink(tmp_path / "t", **options)


def test_options_must_be_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="options are 5; allowed: a mapping"):
        StreamSink(LocalEngine(1), tmp_path / "t", 5)  # type: ignore[arg-type]
