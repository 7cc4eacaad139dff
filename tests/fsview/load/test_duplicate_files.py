"""Of two base files of one group and instant, the one that the commit names is answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.files.partition import PartitionVersion
from fsview.load.duplicate_files import Names, RememberedNames, duplicates_of
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.model.file_group import BaseFile
from fsview.table_view import TableView
from tests.kit.servers.stores import ALL_KINDS, Restarted
from tests.kit.tables.model import archiving, cleaning, leftovers, services, undoing, writes
from tests.kit.tables.model.asking import Pin, shape
from tests.kit.tables.model.cases import GROUP, VERSIONS, a_table, assert_as_rebuilt
from tests.kit.tables.model.table import ModelTable, Write
from timeline.storage.base import FileInfo

TOKENS = pytest.mark.parametrize("token", ["0-0-", "0-9-"], ids=["before", "behind"])


def written(table: ModelTable, token: str) -> Write:
    """Write a base file, and with the beginning of another write token once more."""
    write = writes.begin(table, [(GROUP, "base")])
    writes.complete(table, write, late=token)
    return write


def written_in(table: ModelTable, partitions: str) -> Write:
    """Write a base file to each of some partitions, and each of them once more."""
    write = writes.begin(table, [((p, f"{p}0-0"), "base") for p in partitions])
    writes.complete(table, write)
    for file in write.files:
        leftovers.write_late(table, file, "0-9-")
    return write


def archived(table: ModelTable) -> None:
    """Archive all that may be archived, after two more writes, which may not."""
    for _ in range(2):
        writes.complete(table, writes.begin(table, [(("z", "z0-0"), "base")]))
    archiving.archive(table, archiving.to_archive(table))


def base_calls(view: TableView) -> int:
    """Return how many files a view read to look partitions up."""
    return view.storage.calls.snapshot().get(("read", "lookup"), 0)


@VERSIONS
@TOKENS
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_base_file_that_the_commit_names_is_served(
    version: int, token: str, kind: str, tmp_path: Path
) -> None:
    table = a_table(version)
    written(table, token)
    service = Restarted(kind, tmp_path, table.storage)
    view = LocalView.newest(service.view)
    assert shape(view.latest_base_files("a")) == table.truth.latest_base_files("a")
    assert base_calls(service.view) == 1
    LocalView.newest(service.view).latest_file_slices("a")
    assert base_calls(service.view) == 1
    service.restart()
    assert_as_rebuilt(service.view, table)
    service.close()


@VERSIONS
@TOKENS
def test_of_two_base_files_of_an_archived_commit_the_named_one_is_served(
    version: int, token: str
) -> None:
    table = a_table(version)
    write = written(table, token)
    for _ in range(4):
        writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    archived = archiving.to_archive(table)
    assert write.time in {instant.requested_time for instant in archived}
    archiving.archive(table, archived)
    view = TableView(table.storage)
    assert shape(LocalView.newest(view).all_base_files("a")) == table.truth.all_base_files("a")


@VERSIONS
@TOKENS
def test_one_of_two_base_files_that_a_clean_has_deleted_is_not_replaced_by_the_other(
    version: int, token: str
) -> None:
    """While the clean is under way, only its plan names the file that was answered before."""
    table = a_table(version)
    write = written(table, token)
    writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    client, right = Pin.of(table), table.truth.all_base_files("a")
    double = table.doubles[write.files[0].path]
    cleaning.begin_clean(table, [file for file in cleaning.to_clean(table) if file in write.files])
    table.storage.create(double, b"late")
    view = TableView(table.storage)
    view.sync()
    pinned = LocalView.at(view, client.last_instant, client.timeline_hash)
    version_held = view.loader.version(pinned.snapshot, "a")
    assert double.rpartition("/")[2] not in {file.name for file in version_held.files()}
    assert len(right) == len(list(version_held.files()))


@TOKENS
def test_the_duplicate_of_a_write_that_is_undone_goes_with_it(token: str) -> None:
    table = a_table(9)
    write = written(table, token)
    view = TableView(table.storage)
    LocalView.newest(view).load_partitions(["a"])
    undoing.uncomplete(table, write)
    undoing.begin_rollback(table, write)
    undoing.finish_rollback(table)
    assert_as_rebuilt(view, table)


@VERSIONS
@TOKENS
def test_a_check_takes_a_file_beside_the_one_that_is_named_for_no_difference(
    version: int, token: str
) -> None:
    """Followed from before, the table has one; on storage there are two."""
    table = a_table(version, "MERGE_ON_READ")
    view = TableView(table.storage, metrics=Metrics())
    LocalView.newest(view).load_partitions(["a"])
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    compaction = services.request_compaction(table, [GROUP], logs_only=False)
    services.start(table, compaction)
    writes.complete(table, compaction, late=token)
    view.sync()
    checked = view.check("a")
    assert checked.outcome == "equal", str(checked.differences)
    assert_as_rebuilt(view, table)


@VERSIONS
@TOKENS
def test_a_check_takes_a_file_that_outlived_the_named_one_for_no_difference(
    version: int, token: str
) -> None:
    """A clean deletes the file that its view shows; the other stays and is never answered."""
    table = a_table(version)
    write = written(table, token)
    view = TableView(table.storage)
    LocalView.newest(view).load_partitions(["a"])
    double = table.doubles[write.files[0].path]
    for _ in range(2):
        writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    cleaning.begin_clean(table, cleaning.to_clean(table))
    cleaning.finish_clean(table)
    table.storage.create(double, b"late")
    view.sync()
    assert view.check("a").outcome == "equal"


def test_a_file_beside_one_that_is_no_double_is_a_difference() -> None:
    """A file no commit wrote is expected only beside another of its group and instant."""
    table = a_table(9)
    write = written(table, "0-9-")
    view = TableView(table.storage)
    LocalView.newest(view).load_partitions(["a"])
    table.storage.create(f"a/x0-0_0-1-1_{write.time}.parquet", b"strange")
    assert view.check("a").outcome == "different"


def test_where_nothing_is_doubled_no_commit_is_read() -> None:
    table = a_table(9)
    writes.complete(table, writes.begin(table, [(GROUP, "base")]))
    view = TableView(table.storage)
    LocalView.newest(view).load_partitions(["a"])
    assert base_calls(view) == 0


@VERSIONS
@pytest.mark.parametrize("is_archived", [False, True])
def test_a_commit_with_doubles_in_many_partitions_is_read_once(
    version: int, is_archived: bool
) -> None:
    table = a_table(version)
    written_in(table, "abcd")
    if is_archived:
        archived(table)
    view = TableView(table.storage)
    for partition in "abcd":
        files = LocalView.newest(view).all_base_files(partition)
        assert shape(files) == table.truth.all_base_files(partition)
        if partition == "a":
            calls = base_calls(view)
    assert base_calls(view) == calls


@pytest.mark.parametrize("version", [8, 9])
def test_of_the_archive_only_what_may_hold_the_commit_is_read(version: int) -> None:
    table = a_table(version)
    for partition in "bcd":
        written_in(table, partition)
        archived(table)
    view = TableView(table.storage)
    view.newest()
    read: list[str] = []

    def note(kind: str, path: str) -> None:
        if kind == "read":
            read.append(path.rpartition(".")[2])

    table.storage.fail.append(note)
    assert shape(LocalView.newest(view).all_base_files("c")) == table.truth.all_base_files("c")
    assert read.count("parquet") == 1


@pytest.mark.parametrize("most", [0, 3, 4, 6])
def test_what_is_remembered_of_commits_is_bounded(most: int) -> None:
    remembered, read = RememberedNames(most), list[str]()

    def reader(name: str, files: int) -> Callable[[], Names]:
        def named() -> Names:
            read.append(name)
            return {"p": [str(number) for number in range(files)]}

        return named

    for name, files in (("a", 2), ("b", 1), ("a", 2), ("large", 9), ("a", 2), ("b", 1)):
        assert len(remembered.by(name, reader(name, files))["p"]) == files
    assert (
        read
        == {
            0: ["a", "b", "a", "large", "a", "b"],
            3: ["a", "b", "a", "large", "b"],
            4: ["a", "b", "a", "large", "b"],
            6: ["a", "b", "large"],
        }[most]
    )


@VERSIONS
def test_of_two_base_files_of_a_commit_that_cannot_be_read_the_last_counts(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    table = a_table(version)
    write = written_in(table, "ab")
    view = TableView(table.storage)
    view.newest()
    instant = table.meta.active_timeline().find(write.time)
    assert instant is not None
    table.storage.replace(table.meta.path_of(instant), b"Obj\x01damaged")
    for path, double in table.doubles.items():
        files = LocalView.newest(view).all_base_files(path[0])
        names = [file.name for file in files if file.instant == write.time]
        assert names == [max(path, double).rpartition("/")[2]]
    assert [r.getMessage().partition(", as")[0] for r in caplog.records] == [
        f"of two base files of one group and instant {write.time} in"
        f" {table.storage.base_path}, the last one counts"
    ]


_FILE = st.builds(
    "{}_{}_{}.parquet".format,
    st.sampled_from(["f-0", "0b4a9be8-3a2c-4b5d-9c3a-1d2e3f4a5b6c-0"]),
    st.sampled_from(["0-1-0", "0-2-0", "x"]),
    st.sampled_from(["20240101000000000", "20240101000000001", "20240101000000"]),
)
_LOG = st.builds(
    ".{}_{}.log.{}_0-1-0".format,
    st.sampled_from(["f-0", "0b4a9be8-3a2c-4b5d-9c3a-1d2e3f4a5b6c-0"]),
    st.sampled_from(["20240101000000000", "20240101000000001"]),
    st.integers(1, 2),
)


@given(st.sets(_FILE | _LOG))
def test_doubles_are_found_however_they_are_packed(names: set[str]) -> None:
    listing = [FileInfo(name, 1, 1) for name in sorted(names)]
    version = PartitionVersion.of_listing("p", listing, (".parquet",))
    groups: dict[tuple[str, str], set[str]] = {}
    for file in version.files():
        if isinstance(file, BaseFile):
            groups.setdefault((file.file_id, file.instant), set()).add(file.name)
    due = {(instant, frozenset(found)) for (_, instant), found in groups.items() if len(found) > 1}
    assert set(duplicates_of(version)) == due
