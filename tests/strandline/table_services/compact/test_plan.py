"""Which file groups a plan takes by each strategy, and the slices of a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsview.model.file_group import BaseFile, FileSlice, LogFile
from strandline.table_services.compact.plan import (
    chosen_partitions,
    plan_compaction,
    planned_slice,
)
from strandline.table_services.compact.policy import (
    BOUNDED_IO,
    BY_DAY,
    BY_LOG_NUMBER,
    BY_LOG_SIZE,
    UNBOUNDED,
    CompactionSettings,
)
from timeline.errors import ConfigError, CorruptMetadataError

MIB = 1 << 20
T = "20260101000000000"


def log(file_id: str, number: int, size: int = 100) -> LogFile:
    time = f"2026010100000{number}000"
    return LogFile("p", f".{file_id}_{time}.log.1_0-0-0", size, 0, file_id, time, 1, "0-0-0")


def group(file_id: str, base_mib: int | None, *sizes: int, partition: str = "p") -> FileSlice:
    logs = tuple(log(file_id, n, size) for n, size in enumerate(sizes, 1))[::-1]
    base = (
        None
        if base_mib is None
        else BaseFile(partition, f"{file_id}_0-0-0_{T}.parquet", base_mib * MIB, 0, file_id, T)
    )
    return FileSlice(partition, file_id, T, base, logs)


GROUPS = [
    group("a", 10, 5 * MIB),
    group("b", 20, MIB, MIB, MIB),
    group("c", 30),
    group("d", 40, 9 * MIB, 9 * MIB),
    group("e", None, 100),
]


def taken(settings: CompactionSettings, *without: str) -> str:
    left_out = {("p", each) for each in without}
    plan = plan_compaction(GROUPS, left_out, settings, 120 * MIB)
    return "".join(each.file_id for each in plan.operations)


@pytest.mark.parametrize(
    ("names", "more", "expected"),
    [
        ((UNBOUNDED,), {}, "abde"),
        ((UNBOUNDED,), {"target_mib": 1}, "abde"),
        ((BOUNDED_IO,), {}, "abde"),
        ((BOUNDED_IO,), {"target_mib": 25}, "a"),
        ((BOUNDED_IO,), {"target_mib": 26}, "ab"),
        ((BOUNDED_IO,), {"target_mib": 1}, "a"),
        ((BY_LOG_SIZE,), {}, "dabe"),
        ((BY_LOG_SIZE,), {"log_bytes": 3 * MIB}, "dab"),
        ((BY_LOG_SIZE,), {"target_mib": 99}, "da"),
        ((BY_LOG_NUMBER,), {}, "bdae"),
        ((BY_LOG_NUMBER,), {"logs": 2}, "bd"),
        ((BY_LOG_NUMBER, BY_LOG_SIZE), {"logs": 2}, "db"),
        ((BY_LOG_SIZE, BY_LOG_NUMBER), {"log_bytes": 4 * MIB, "target_mib": 1000}, "da"),
    ],
)
def test_strategies(names, more, expected):
    assert taken(CompactionSettings(strategies=names, **more)) == expected


def test_groups_of_pending_plans_are_left_out():
    assert taken(CompactionSettings(strategies=(UNBOUNDED,)), "a", "d") == "be"


def test_operations_are_as_hudis():
    b, e = plan_compaction(
        [GROUPS[1], GROUPS[4]], (), CompactionSettings(strategies=(UNBOUNDED,)), 120 * MIB
    ).operations
    assert b.delta_file_paths == tuple(f".b_2026010100000{n}000.log.1_0-0-0" for n in (1, 2, 3))
    assert (b.data_file_path, b.base_instant_time) == (f"b_0-0-0_{T}.parquet", T)
    assert b.metrics == {
        "TOTAL_LOG_FILES": 3.0,
        "TOTAL_IO_READ_MB": 23.0,
        "TOTAL_IO_WRITE_MB": 20.0,
        "TOTAL_IO_MB": 43.0,
        "TOTAL_LOG_FILES_SIZE": 3.0 * MIB,
    }
    assert (e.data_file_path, e.metrics["TOTAL_IO_WRITE_MB"]) == (None, 120.0)


def test_newest_days_come_first():
    paths = ["2026/01/31", "2026/2/1", "2025/12/31", "2026/01/09"]
    settings = CompactionSettings(strategies=(BY_DAY,), days=3)
    assert chosen_partitions(paths, settings) == ["2026/2/1", "2026/01/31", "2026/01/09"]
    hive = ["y=2026/m=01/d=02", "y=2026/m=01/d=10"]
    assert chosen_partitions(hive, settings) == hive[::-1]
    with pytest.raises(ConfigError, match=r"partition 'eu' isn't a day.*yyyy/MM/dd"):
        chosen_partitions(["2026/01/01", "eu"], settings)
    assert chosen_partitions(["eu"], CompactionSettings()) == ["eu"]


def operation(found: FileSlice):
    settings = CompactionSettings(strategies=(UNBOUNDED,))
    (made,) = plan_compaction([found], (), settings, MIB).operations
    return made


def test_later_logs_are_left_to_the_next_compaction():
    planned = operation(group("a", 1, 10, 10))
    now = group("a", 1, 10, 10, 10)
    found = planned_slice(planned, now, "plan")
    assert found == group("a", 1, 10, 10)


def test_before_version_8_all_logs_of_the_planned_slice_are_taken():
    """Readers leave them out once the compaction has completed, in the plan or not."""
    planned = operation(group("a", 1, 10))
    now = group("a", 1, 10, 10, 10)
    later, beside, named = now.log_files
    now = replace(now, log_files=(later, replace(beside, instant=T), named))
    found = planned_slice(planned, now, "plan", whole=True)
    assert found == replace(now, log_files=now.log_files[1:])


def test_a_group_of_emptied_logs_alone_is_not_planned():
    settings = CompactionSettings(strategies=(UNBOUNDED,))
    groups = [group("a", None, 0, 0), group("b", None, 0, 10)]
    (found,) = plan_compaction(groups, (), settings, MIB).operations
    assert found.file_id == "b"


def test_logs_that_were_rolled_back_are_left_out():
    planned = operation(group("a", 1, 10, 10))
    assert planned_slice(planned, group("a", 1, 10), "plan") == group("a", 1, 10)
    only_logs = operation(group("e", None, 10))
    assert planned_slice(only_logs, replace(group("e", None), log_files=()), "plan") is None


def test_a_group_whose_logs_were_rolled_back_may_have_been_rewritten_since():
    planned = operation(group("a", 1, 10))
    base = group("a", 1).base_file
    assert base is not None
    later = replace(base, name="later.parquet", instant="20991231000000000")
    known = replace(group("a", 1), base_file=later, base_instant=later.instant)
    assert planned_slice(planned, known, "plan") is None
    with_log = replace(known, log_files=group("a", 1, 10).log_files)
    with pytest.raises(CorruptMetadataError, match=r"which has later\.parquet"):
        planned_slice(planned, with_log, "plan")


def test_plans_of_version_1_name_paths():
    found = group("a", 1, 10)
    planned = operation(found)
    old = replace(
        planned,
        data_file_path=f"s3://b/t/p/{planned.data_file_path}",
        delta_file_paths=tuple(f"s3://b/t/p/{name}" for name in planned.delta_file_paths),
    )
    assert planned_slice(old, found, "plan") == found


@pytest.mark.parametrize("base_mib", [None, 2])
def test_another_base_file_is_an_error(base_mib):
    planned = operation(group("a", 1, 10))
    other = group("a", base_mib, 10)
    if other.base_file is not None:
        other = replace(other, base_file=replace(other.base_file, name="x.parquet"))
    with pytest.raises(CorruptMetadataError, match=r"t.requested names base file a_.*group a"):
        planned_slice(planned, other, "t.requested")
