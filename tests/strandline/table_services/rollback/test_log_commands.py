"""Commands in logs of table version 6: planned in any writer's form, appended once."""

from __future__ import annotations

from functools import partial

import pytest

from strandline.commit.slice_logs import slice_log_token, take_back
from strandline.table_services.rollback.log_command import LogCommand, append_commands
from strandline.table_services.rollback.plan import plan_rollback, planned_commands
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import golden
from timeline.encoding.log_block import (
    AVRO_DATA,
    COMMAND_TYPE,
    INSTANT_TIME,
    TARGET_INSTANT_TIME,
    block_bytes,
    read_blocks,
)
from timeline.errors import CorruptMetadataError, StorageUnavailableError
from timeline.instant import DELTA_COMMIT, ROLLBACK, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import InstantInfo, RollbackPlan, RollbackRequest
from timeline.storage.local import LocalStorage

BASE, TARGET, TIME = "20260101000000000", "20260101000000001", "20260101000000002"
ID = "8ae4c0a4-0000-0000-0000-000000000000-0"
append = partial(append_commands, rollback=TIME, target=TARGET, extensions=(".parquet",))


def log(version: int, token: str = "0-1-1") -> str:
    return f".{ID}_{BASE}.log.{version}_{token}"


def command(*names: str, partition: str = "eu") -> LogCommand:
    return LogCommand(partition, ID, BASE, dict.fromkeys(names, 1))


def test_logs_that_are_named_by_their_slice_are_undone_and_others_deleted():
    own = f".{ID}_{TARGET}.log.1_0-1-1"
    paths = [f"eu/{log(2)}", f"eu/{log(1)}", f"eu/{own}", f"us/{log(1)}"]
    target = Instant(TARGET, DELTA_COMMIT, State.INFLIGHT)
    plan = plan_rollback(target, paths, "/t", {f"eu/{log(1)}": 7, f"us/{log(1)}": 8})
    deleted = [path for each in plan.rollback_requests for path in each.files_to_be_deleted]
    assert deleted == [f"/t/eu/{own}"]
    assert planned_commands(plan) == (
        LogCommand("eu", ID, BASE, {log(1): 7, log(2): 1}),
        LogCommand("us", ID, BASE, {log(1): 8}),
    )


@pytest.mark.parametrize("scenario", ["rollback_mor_v6", "rollback_mor_v6_h0150"])
def test_hudis_plans_name_slices_whatever_they_call_the_logs(scenario):
    step = max(golden.steps(scenario))
    meta = TableMetaClient.open(golden.GoldenStorage(scenario, step))
    found = 0
    for rollback in meta.active_timeline().filter(lambda i: i.action == ROLLBACK):
        plan = meta.read_plan(rollback)
        commands = planned_commands(plan)
        parts = meta.read(rollback).partition_metadata.items()
        written = {
            (partition, path.rpartition("/")[2].partition(".log.")[0])
            for partition, done in parts
            for path in done.rollback_log_files
        }
        assert {(c.partition, f".{c.file_id}_{c.base_instant}") for c in commands} == written
        found += len(commands)
    assert found > 3


@pytest.mark.parametrize(
    ("partition", "file_id", "instant"),
    [
        ("", "", ""),
        ("eu", ID, ""),
        ("eu", ID, "x"),
        ("../u", ID, BASE),
        (".hoodie", ID, BASE),
        ("eu", "a/b", BASE),
        ("eu/", ID, BASE),
    ],
)
def test_what_is_no_slice_of_the_table_is_refused(partition, file_id, instant):
    request = RollbackRequest(partition, file_id, instant, (), {"x": 1})
    plan = RollbackPlan(InstantInfo(TARGET, DELTA_COMMIT), (request,))
    with pytest.raises(CorruptMetadataError, match="would append to a log of file group"):
        planned_commands(plan)


@pytest.mark.parametrize("partition", ["eu", ""])
def test_a_command_follows_all_logs_of_the_slice_and_is_there_once(tmp_path, partition):
    storage = LocalStorage(str(tmp_path))
    folder = f"{partition}/" if partition else ""
    for name in (log(9), log(10), f".{ID}_{TIME}.log.11_0-1-1"):
        storage.create(folder + name, block_bytes(AVRO_DATA, {INSTANT_TIME: TARGET}))
    commands = [command(log(10), log(12), partition=partition)]
    (done,) = append(storage, commands)
    assert done.name == log(11, slice_log_token("1-0-1", TIME))
    assert list(done.undone) == [log(10)]
    (block,) = read_blocks(storage.read(folder + done.name), done.name)
    assert block.header == {INSTANT_TIME: TARGET, TARGET_INSTANT_TIME: TARGET, COMMAND_TYPE: "0"}
    assert append(storage, commands) == (done,)


def test_a_slice_without_logs_needs_no_command(tmp_path):
    storage = LocalStorage(str(tmp_path))
    assert append(storage, [command(log(1))]) == ()
    assert list(storage.list("eu")) == []


def test_a_version_that_is_taken_meanwhile_is_followed_by_the_next(tmp_path):
    plain, rivals = LocalStorage(str(tmp_path)), []
    plain.create(f"eu/{log(1)}", b"")
    token = slice_log_token("1-0-1", TIME)

    def take(kind, path):
        # The same name, which no other writer chooses, but the same rollback by another one.
        if kind == "create" and token in path and not rivals:
            rivals.append(path)
            plain.create(path, b"theirs")

    (done,) = append(HookedStorage(tmp_path, take), [command(log(1))])
    assert rivals == [f"eu/{done.name}"]


def test_a_log_that_can_not_be_emptied_does_not_keep_the_others(tmp_path):
    class Full(LocalStorage):
        def replace(self, path, data):
            if path == f"eu/{log(1)}":
                raise StorageUnavailableError("no space left")
            super().replace(path, data)

    storage, paths = Full(str(tmp_path)), [f"eu/{log(n)}" for n in (1, 2)]
    for path in paths:
        storage.create(path, block_bytes(AVRO_DATA, {INSTANT_TIME: TARGET}))
    with pytest.raises(StorageUnavailableError, match="no space left"):
        take_back(storage, TARGET, paths)
    assert [storage.read(path) == b"" for path in paths] == [False, True]


def test_tokens_differ_between_writes_and_tasks():
    found = {
        slice_log_token(f"{p}-{s}-{a}", t)
        for p in "01"
        for s in "01"
        for a in "01"
        for t in (TIME, BASE)
    }
    assert len(found) == 16
    assert all(int(number) < 2**31 for token in found for number in token.split("-"))
