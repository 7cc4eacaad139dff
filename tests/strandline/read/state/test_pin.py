"""Scans as of earlier instants: rows that Spark read, and what can't be read any more."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from strandline import Table
from strandline.read.iso_time import IsoTime
from strandline.read.state.pin import Pin, instant_time
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import FILE_ID, LogTable, block_of, row
from tests.strandline.read.state.test_earlier_instants import AT, STOPPED, texts
from timeline.errors import InputError
from timeline.instant import CLEAN, SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    ActionInstant,
    CleanerPlan,
    CleanMetadata,
    SavepointMetadata,
)
from timeline.storage.local import LocalStorage

CLEANED = [
    (scenario, instant)
    for scenario in golden.scenarios()
    if golden.has_final_table(scenario)
    for instant, rows in golden.truth(scenario)["as_of"].items()
    if not isinstance(rows, list)
]


@pytest.mark.parametrize(("scenario", "instant"), [at for at in AT if at not in STOPPED])
def test_rows_are_those_that_spark_read(scenario, instant, tmp_path):
    scan = Table(golden.build_final(scenario, tmp_path)).scan(as_of=instant)
    truth = texts(golden.truth(scenario)["as_of"][instant])
    shown = [name for name in scan.schema.names if name in truth[0]]
    assert texts(scan.to_arrow().select(shown).to_pylist()) == [
        {name: then[name] for name in shown} for then in truth
    ]
    assert scan.instant == instant
    assert scan.count() == len(truth)


def test_what_spark_refused_was_cleaned():
    assert len(CLEANED) > 20


@pytest.mark.parametrize(("scenario", "instant"), CLEANED)
def test_instants_that_were_cleaned_are_refused(scenario, instant, tmp_path):
    table = Table(golden.build_final(scenario, tmp_path))
    with pytest.raises(InputError, match=rf"as_of {instant} is before (\d+), the ea") as refused:
        table.scan(as_of=instant)
    earliest = str(refused.value).split(" is before ")[1][:17]
    assert table.earliest_instant() == earliest
    assert table.scan(as_of=earliest).count() > 0


def test_a_table_without_writes_has_no_earliest_instant(tmp_path):
    LogTable(LocalStorage(str(tmp_path)), schema=None)
    assert Table(tmp_path).earliest_instant() is None


def three_commits(storage) -> tuple[LogTable, list[str]]:
    """Return a table of three commits a second apart, each with a base file of one more row."""
    table = LogTable(storage)
    times = []
    for keys in ("a", "ab", "abc"):
        table.base([row(key, 1) for key in keys])
        times.append(table.meta.active_timeline().instants[-1].requested_time)
    return table, times


def test_an_as_of_between_commits_and_before_the_first(tmp_path):
    _, times = three_commits(LocalStorage(str(tmp_path)))
    table = Table(tmp_path)
    assert [table.scan(as_of=time).count() for time in times] == [1, 2, 3]
    between = str(int(times[1]) + 1)
    assert table.scan(as_of=between).instant == times[1]
    moment = datetime.strptime(between + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)
    assert table.scan(as_of=moment).instant == times[1]
    away = moment.astimezone(timezone(timedelta(hours=-7)))
    assert table.scan(as_of=away).instant == times[1]
    assert table.scan(as_of="20990101000000").instant == times[2]
    with pytest.raises(InputError, match=f"is before {times[0]}"):
        table.scan(as_of=str(int(times[0]) - 1))


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("begins", ["slice", "compaction"])
def test_a_write_that_was_inflight_while_a_later_slice_began(begins, version, tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)), version=version)
    table.base([row("a", 1, "base"), row("b", 1, "base")])
    late = table.begin()
    path, data = log_of(late, row("a", 2, "late"))
    table.storage.create(path, data)
    table.rows_log(row("b", 2, "log"))
    if begins == "compaction":
        table.plan_compaction()
    else:
        table.base([row("a", 1, "base"), row("b", 2, "log")])
    table.complete(late, path, len(data))
    scan = Table(tmp_path).scan(["id", "v"], as_of=late.requested_time)
    assert scan.to_arrow().to_pylist() == [{"id": "a", "v": "late"}, {"id": "b", "v": "base"}]
    (planned,) = scan.plan().to_pylist()
    assert planned["logs"] == [path]
    newest = Table(tmp_path).scan(["id", "v"]).to_arrow().to_pylist()
    assert newest == [{"id": "a", "v": "late"}, {"id": "b", "v": "log"}]


@pytest.mark.parametrize("version", [8, 9])
def test_a_group_whose_first_write_was_inflight_while_a_slice_began(version, tmp_path):
    table = LogTable(LocalStorage(str(tmp_path)), version=version)
    first = table.begin()
    path, data = log_of(first, row("a", 1, "first"))
    table.storage.create(path, data)
    table.base([row("b", 1, "base")])
    table.complete(first, path, len(data))
    scan = Table(tmp_path).scan(["id"], as_of=first.requested_time)
    assert scan.to_arrow().to_pylist() == [{"id": "a"}]


def log_of(instant: Instant, *rows: dict[str, Any]) -> tuple[str, bytes]:
    """Return the path and bytes of an instant's log."""
    time = instant.requested_time
    return f"p/.{FILE_ID}_{time}.log.1_0-0-0", block_of(time, *rows)


@pytest.mark.parametrize("is_completed", [False, True])
@pytest.mark.parametrize("by_commits", [False, True])
def test_a_clean_ends_what_can_be_read(by_commits, is_completed, tmp_path):
    table, times = three_commits(LocalStorage(str(tmp_path)))
    retained = times[1] if by_commits else ""
    first = ActionInstant(retained, "deltacommit", "COMPLETED") if by_commits else None
    meta = table.meta
    clean = meta.create_requested(CLEAN, str(int(times[2]) + 1), CleanerPlan(first))
    clean = meta.transition_to_inflight(clean)
    if is_completed:
        done = CleanMetadata(earliest_commit_to_retain=retained, total_files_deleted=1)
        meta.complete(clean, done, str(int(times[2]) + 2))
    readable = times[1:] if by_commits else times[2:]
    scanned = Table(tmp_path).scan
    for time in times:
        if time in readable:
            assert scanned(as_of=time).instant == time
            continue
        with pytest.raises(InputError, match=f"is before {readable[0]}.*commits.retained"):
            scanned(as_of=time)


def test_a_savepoint_keeps_its_commit_readable(tmp_path):
    table, times = three_commits(LocalStorage(str(tmp_path)))
    meta = table.meta
    save(meta, times[0])
    scanned = Table(tmp_path).scan
    assert scanned(as_of=times[0]).count() == 1
    first = ActionInstant(times[2], "deltacommit", "COMPLETED")
    meta.create_requested(CLEAN, str(int(times[2]) + 1), CleanerPlan(first))
    assert scanned(as_of=times[0]).count() == 1
    saved = rf"is before {times[2]}.*savepoints can, too: {times[0]}"
    for time in (str(int(times[0]) + 1), times[1]):
        with pytest.raises(InputError, match=saved):
            scanned(as_of=time)
    assert Table(tmp_path).earliest_instant() == times[2]


def test_a_savepoint_that_is_inflight_keeps_nothing(tmp_path):
    table, times = three_commits(LocalStorage(str(tmp_path)))
    meta = table.meta
    meta.transition_to_inflight(Instant(times[0], SAVEPOINT, State.REQUESTED))
    first = ActionInstant(times[2], "deltacommit", "COMPLETED")
    meta.create_requested(CLEAN, str(int(times[2]) + 1), CleanerPlan(first))
    with pytest.raises(InputError, match=rf"is before {times[2]}.* can be read"):
        Table(tmp_path).scan(as_of=times[0])


def save(meta: TableMetaClient, time: str) -> None:
    """Complete a savepoint of a commit."""
    inflight = meta.transition_to_inflight(Instant(time, SAVEPOINT, State.REQUESTED))
    meta.complete(inflight, SavepointMetadata(), str(int(time) + 999))


def test_a_clean_that_deleted_nothing_ends_nothing(tmp_path):
    table, times = three_commits(LocalStorage(str(tmp_path)))
    meta = table.meta
    clean = meta.create_requested(CLEAN, str(int(times[2]) + 1), CleanerPlan())
    meta.complete(meta.transition_to_inflight(clean), CleanMetadata(), str(int(times[2]) + 2))
    assert Table(tmp_path).scan(as_of=times[0]).count() == 1


def test_a_clean_while_files_are_listed(tmp_path):
    table, times = three_commits(LocalStorage(str(tmp_path)))

    def clean(kind: str, path: str) -> None:
        if (kind, path) != ("list", "p"):
            return
        first = ActionInstant(times[1], "deltacommit", "COMPLETED")
        table.meta.create_requested(CLEAN, str(int(times[2]) + 1), CleanerPlan(first))
        (old,) = tmp_path.glob(f"p/*_{times[0]}.parquet")
        old.unlink()

    meta = TableMetaClient.open(HookedStorage(tmp_path, before=clean))
    with pytest.raises(InputError, match=f"is before {times[1]}"):
        Pin.at(meta, times[0])


def test_times_that_are_refused(subtests):
    for as_of, message in [
        (datetime(2026, 1, 31), "without a time zone"),
        ("2026-1-31", "allowed: an instant of 17 or 14 digits.*; an ISO date or time"),
        ("2026-02-30", "as_of is '2026-02-30', which is no time"),
        ("2026-01-31T25:00:00", "which is no time"),
        ("2026-01-31T00:00:00+25:00", "which is no time"),
        ("", "as_of is ''"),
        (20260131000000000, "as_of is 20260131000000000"),
        ("٢٠٢٦٠١٣١٠٠٠٠٠٠", "as_of is '٢"),
        (True, "as_of is True"),
        (
            "20261301000000000",
            "as_of is '20261301000000000', which is no time; allowed: an instant",
        ),
        ("20260229000000", "as_of is '20260229000000', which is no time"),
        ("20260131240000000", "which is no time"),
    ]:
        with subtests.test(as_of=as_of), pytest.raises(InputError, match=message):
            instant_time(as_of, "UTC")


def test_iso_times_are_in_the_tables_zone_unless_they_have_one(subtests):
    for as_of, zone, text in [
        ("2024-01-02", "UTC", "20240102000000000"),
        ("2024-01-02", "LOCAL", "20240102000000000"),
        ("2024-01-02T03:04", "LOCAL", "20240102030400000"),
        ("2024-01-02 03:04:05.678", "UTC", "20240102030405678"),
        ("2024-01-02T03:04:05.6789999Z", "UTC", "20240102030405678"),
        ("2024-01-02T03:04:05+01:00", "UTC", "20240102020405000"),
        ("2024-01-02T03:04:05-0730", "UTC", "20240102103405000"),
        ("2024-01-02T00:30:00+01", "UTC", "20240101233000000"),
    ]:
        with subtests.test(as_of=as_of, zone=zone):
            assert instant_time(as_of, zone) == text
    # A fraction of a minute isn't taken for one of a second.
    assert IsoTime.parse("2024-01-02T03:04.5") is None
    away = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1)))
    assert instant_time("2024-01-02T03:04:05+01:00", "LOCAL") == instant_time(away, "LOCAL")


def test_a_table_is_read_as_of_an_iso_time(tmp_path):
    _, times = three_commits(LocalStorage(str(tmp_path)))
    second = datetime.strptime(times[1] + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)
    assert Table(tmp_path).scan(as_of=second.isoformat()).count() == 2
    day = (second + timedelta(days=1)).date().isoformat()
    assert Table(tmp_path).scan(as_of=day).count() == 3
    assert Table(tmp_path).incremental(second.isoformat()).next_since is not None
