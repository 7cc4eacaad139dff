"""What commits recorded about themselves, of tables that Hudi wrote and archived, and of ours."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from datetime import datetime

import pyarrow as pa
import pytest

from strandline import Table, WriteClient
from strandline.table_api.history import TableHistory, WrittenCounts
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import golden
from timeline.errors import CorruptMetadataError, InstantNotFoundError
from timeline.instant import WRITE_ACTIONS
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

ARCHIVED = ("archival_cow_v6", "archival_cow_v9", "archival_mor_v9")
COUNTS = list(asdict(WrittenCounts()))


def built(scenario, folder, step=None):
    """A golden table after a step, by default the last."""
    return golden.build(scenario, golden.steps(scenario)[-1] if step is None else step, folder)


def commits_of(base, *, archived=True):
    return {c.requested_time: c for c in Table(str(base)).commits(archived=archived)}


def archiving_steps(scenario, folder):
    """The base paths before and after the step in which most commits were archived."""
    steps = golden.steps(scenario)
    bases = [built(scenario, folder / str(step), step) for step in steps]
    active = [set(commits_of(base, archived=False)) for base in bases]
    number = max(range(1, len(steps)), key=lambda n: len(active[n - 1] - active[n]))
    assert len(active[number - 1] - active[number]) > 1
    return bases[number - 1], bases[number]


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_each_commit_of_the_history_has_a_summary(scenario, tmp_path):
    base = built(scenario, tmp_path)
    rows = {
        row["requested_time"]: row
        for row in Table(str(base)).history().to_pylist()
        if row["action"] in WRITE_ACTIONS and row["state"] == "COMPLETED"
    }
    commits = commits_of(base)
    assert list(commits) == sorted(rows)
    assert commits
    for time, commit in commits.items():
        row = rows[time]
        assert asdict(commit.total) == {name: row[name] for name in COUNTS}
        assert (commit.operation, commit.action) == (row["operation"], row["action"])
        assert (commit.completion_time, commit.archived) == (
            row["completion_time"],
            row["archived"],
        )
        assert commit == Table(str(base)).commit_metadata(time)
    assert Table(str(base)).commit_metadata() == commits[max(commits)]


@pytest.mark.parametrize("scenario", ARCHIVED)
def test_an_archived_commit_says_what_it_said_before(scenario, tmp_path):
    before, after = archiving_steps(scenario, tmp_path)
    then, now = commits_of(before), commits_of(after)
    moved = [time for time in then if now[time].archived and not then[time].archived]
    assert moved
    for time in moved:
        # In version 6 the completion time is the time of a file that is gone.
        completed = now[time].completion_time
        if scenario.endswith("_v9"):
            assert completed == then[time].completion_time
        assert now[time] == replace(then[time], archived=True, completion_time=completed)


def test_a_summary_has_the_numbers_of_the_file(tmp_path):
    base = built("cow_basic_v6", tmp_path)
    commits = commits_of(base)
    for time, commit in commits.items():
        stored = json.loads((base / ".hoodie" / f"{time}.commit").read_bytes())
        assert commit.operation == stored["operationType"]
        assert {**commit.extra_metadata, "schema": commit.avro_schema} == stored["extraMetadata"]
        assert {
            path: (counts.files_written, counts.bytes_written, counts.rows_updated)
            for path, counts in commit.partitions.items()
        } == {
            path: (
                len(stats),
                sum(stat["totalWriteBytes"] for stat in stats),
                sum(stat["numUpdateWrites"] for stat in stats),
            )
            for path, stats in stored["partitionToWriteStats"].items()
        }
    assert len(commits) > 3


@pytest.mark.parametrize("scenario", ["replace_cow_v6", "replace_cow_v9"])
def test_a_replacecommit_names_the_groups_it_replaced(scenario, tmp_path):
    replaced = [c for c in commits_of(built(scenario, tmp_path)).values() if c.replaced_file_ids]
    assert replaced
    assert {commit.action for commit in replaced} == {"replacecommit"}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_extra_metadata_comes_back(version, tmp_path):
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.write.table.version": str(version),
        "hoodie.embed.timeline.server": "false",
    }
    rows = pa.table({"id": ["a", "b"]})
    with WriteClient(LocalEngine(), str(tmp_path), options) as client:
        first = client.insert(rows, extra_metadata={"offset": "7"})
        second = client.delete(rows.slice(1))
    table = Table(str(tmp_path))
    assert table.commit_metadata(first.instant).extra_metadata == {"offset": "7"}
    newest = table.commit_metadata()
    assert (newest.requested_time, newest.operation) == (second.instant, "DELETE")
    assert newest.partitions[""].rows_deleted == 1


@pytest.mark.parametrize("scenario", ["savepoint_cow_v6", "savepoint_cow_v9"])
def test_a_commit_is_found_beside_its_savepoint(scenario, tmp_path):
    found = 0
    for step in golden.steps(scenario):
        table = Table(str(built(scenario, tmp_path / str(step), step)))
        for row in table.history().to_pylist():
            if row["action"] == "savepoint":
                found += 1
                assert table.commit_metadata(row["requested_time"]).action == "commit"
    assert found


@pytest.mark.parametrize("scenario", ARCHIVED)
def test_other_instants_are_refused_by_name(scenario, tmp_path):
    base = built(scenario, tmp_path)
    table = Table(str(base))
    with pytest.raises(InstantNotFoundError, match="no instant '2001', neither on the active"):
        table.commit_metadata("2001")
    others = [
        row
        for row in table.history().to_pylist()
        if row["action"] not in WRITE_ACTIONS and row["action"] != "savepoint"
    ]
    assert others
    for row in others:
        wanted = f"{row['requested_time']}.*__{row['action']}__COMPLETED.* is no commit"
        with pytest.raises(InstantNotFoundError, match=wanted):
            table.commit_metadata(row["requested_time"])


@pytest.mark.parametrize("scenario", ["cow_basic_v6", "cow_basic_v9"])
def test_a_pending_commit_is_refused_and_left_out(scenario, tmp_path):
    base = built(scenario, tmp_path)
    before = commits_of(base)
    meta = TableMetaClient.open(LocalStorage(str(base)))
    meta.transition_to_inflight(meta.create_requested("commit", "2" * 17))
    with pytest.raises(InstantNotFoundError, match=r"commit__INFLIGHT.* is pending"):
        Table(str(base)).commit_metadata("2" * 17)
    assert commits_of(base) == before


def test_a_table_without_commits(tmp_path):
    base = built("cow_basic_v9", tmp_path)
    shutil.rmtree(base / ".hoodie" / "timeline")
    (base / ".hoodie" / "timeline").mkdir()
    assert commits_of(base) == {}
    with pytest.raises(InstantNotFoundError, match="has no completed commit"):
        Table(str(base)).commit_metadata()


def test_an_empty_commit_file_is_corrupt(tmp_path):
    base = built("cow_basic_v6", tmp_path)
    newest = max(commits_of(base))
    (base / ".hoodie" / f"{newest}.commit").write_bytes(b"")
    for read in (Table(str(base)).commit_metadata, lambda: commits_of(base)):
        with pytest.raises(CorruptMetadataError, match=f"{newest}.*doesn't say what"):
            read()


@pytest.mark.parametrize("scenario", ARCHIVED)
@pytest.mark.parametrize("archived", [False, True])
def test_commits_archived_while_they_are_read_are_not_lost(scenario, archived, tmp_path):
    before, after = archiving_steps(scenario, tmp_path)
    wanted = set(commits_of(before, archived=archived))
    moved = wanted - set(commits_of(after, archived=False))
    assert moved
    storage = LocalStorage(str(before))
    reading = TableHistory(TableMetaClient.open(storage)).commits(archived=archived)
    found = [next(reading)]  # the timeline has been listed
    shutil.rmtree(before / ".hoodie")
    shutil.copytree(after / ".hoodie", before / ".hoodie")
    found += reading
    times = [commit.requested_time for commit in found]
    assert sorted(set(times)) == sorted(times)
    assert set(times) == wanted


def test_a_commit_rolled_back_while_they_are_read_is_left_out(tmp_path):
    base = built("cow_basic_v9", tmp_path)
    wanted = list(commits_of(base))
    reading = Table(str(base)).commits()
    found = [next(reading).requested_time]
    for file in (base / ".hoodie" / "timeline").glob(f"{wanted[-1]}*.commit"):
        file.unlink()
    found += [commit.requested_time for commit in reading]
    assert found == wanted[:-1]


def test_an_instant_of_14_digits_is_of_the_second_it_names(tmp_path):
    """Hudi before 0.11 named instants so; they mean the last millisecond."""
    base = built("cow_basic_v6", tmp_path)
    newest = max(commits_of(base))
    for path in (base / ".hoodie").glob(f"{newest}.*"):
        named = path.rename(path.with_name(path.name.replace(newest, newest[:14])))
        named.write_bytes(named.read_bytes().replace(newest.encode(), newest[:14].encode()))
    second = datetime.strptime(newest[:14], "%Y%m%d%H%M%S").isoformat()
    assert newest[:14] in Table(str(base)).history(second)["requested_time"].to_pylist()
