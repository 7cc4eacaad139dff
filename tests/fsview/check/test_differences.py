"""What the check of a followed partition finds, and what a reload makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fsview.check.partition_checker import SLICE, Checked, Discrepancies, Discrepancy
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.fsview.check.checked_table import VERSIONS, a_table, newest_file, opened
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.storage.troubled_storage import TroubledStorage
from tests.kit.tables import golden
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StorageUnavailableError, ViewBehindError
from timeline.instant import DELTA_COMMIT


def put(storage: MemoryStorage, path: str, size: int) -> None:
    """Write a file without an instant."""
    storage.files[path] = (b"x" * size, 0)


def told(checked: Checked) -> list[str]:
    """Return the differences in words."""
    return [str(difference) for difference in checked.differences.found]


def deleted(table: SmallTable) -> str:
    file = newest_file(table)
    del table.storage.files[file.path]
    return f"partition 'a': {file.name} is held and doesn't exist"


def grown(table: SmallTable) -> str:
    file = newest_file(table)
    put(table.storage, file.path, file.size + 7)
    return f"partition 'a': {file.name} is held with {file.size} bytes and has {file.size + 7}"


def added(table: SmallTable) -> str:
    name = f"new-0_0-1-0_{newest_file(table).instant}.parquet"
    put(table.storage, f"a/{name}", 5)
    return f"partition 'a': {name} of 5 bytes exists and isn't held"


@VERSIONS
@pytest.mark.parametrize("damage", [deleted, grown, added])
def test_a_file_changed_behind_the_table_is_found_and_right_after_a_reload(
    version: int, damage: Callable[[SmallTable], str]
) -> None:
    table = a_table(version)
    metrics = Metrics()
    view = opened(table, metrics)
    pinned = view.newest().client_timeline
    table.write(("b", "f3-0"))
    view.sync()
    said = damage(table)
    assert told(view.check("a")) == [said]
    assert [str(d) for d in differences_from_rebuilt(view.newest(), table.storage).found]
    assert differences_from_rebuilt(view.newest(), table.storage)
    assert not differences_from_rebuilt(view.newest(), table.storage, ["b"])
    view.reload("check-failed")
    assert metrics.get("reloads", cause="check-failed") == 1
    LocalView.newest(view).load_all_partitions()
    assert view.check("a").outcome == "equal"
    right = [(file.name, file.size) for file in LocalView.newest(opened(table)).all_base_files("a")]
    assert [(file.name, file.size) for file in LocalView.newest(view).all_base_files("a")] == right
    # A client that is behind isn't answered from what was held either.
    assert pinned.last is not None
    then = LocalView.at(view, pinned.last.requested_time, pinned.hash)
    assert [(file.name, file.size) for file in then.all_base_files("a")] == right


def test_a_log_that_shrank_or_vanished_is_found() -> None:
    """Before version 8 a write in flight may append to a log, so logs may grow but not shrink."""
    scenario, partition = "rollback_mor_v6", "2024-01-01"
    storage = TroubledStorage(scenario, 9)  # a delta commit is in flight, and has written logs
    table = TableView(storage)
    LocalView.newest(table).load_all_partitions()
    snapshot = table.newest()
    assert any(i.action == DELTA_COMMIT and not i.is_completed for i in snapshot.active)
    version = snapshot.files.versions[partition]
    log = next(file for file in version.files() if ".log." in file.name)
    more = {**vars_of(log), "size": log.size + 1}
    snapshot.files.versions[partition] = version.with_changes([type(log)(**more)])
    assert told(table.check(partition)) == [
        f"partition '{partition}': {log.name} is held with {log.size + 1} bytes and has {log.size}"
    ]
    less = {**vars_of(log), "size": log.size - 1}
    snapshot.files.versions[partition] = version.with_changes([type(log)(**less)])
    assert table.check(partition).differences == Discrepancies(unnamed=frozenset({log.name}))


def vars_of(file: Any) -> dict[str, Any]:
    """Return a slotted dataclass's fields."""
    return {name: getattr(file, name) for name in file.__dataclass_fields__}


def test_a_log_that_an_instant_names_is_no_leftover() -> None:
    scenario, partition = "mor_basic_v6", "2024-01-01"
    last = golden.steps(scenario)[-1]
    for step in range(last):
        storage = TroubledStorage(scenario, step)
        table = TableView(storage)
        LocalView.newest(table).load_all_partitions()
        snapshot = table.newest()
        version = snapshot.files.versions[partition]
        logs = [file.name for file in version.files() if ".log." in file.name]
        snapshot.files.versions[partition] = version.with_changes((), logs)
        lost = [name for name in logs if f"{name} of" in str(table.check(partition).differences)]
        if logs:
            assert lost == sorted(logs)[: len(lost)]
            assert lost
            return
    pytest.fail(f"{scenario} has no logs in {partition}")


@pytest.mark.parametrize(
    ("scenario", "name"),
    [
        ("mor_basic_v9", "pending_compaction"),
        ("bucket_mor_v6", "pending_compaction"),
        ("replace_cow_v9", "pending_clustering"),
        ("replace_cow_v6", "replaced"),
    ],
)
def test_wrong_pending_and_replaced_groups_are_found(scenario: str, name: str) -> None:
    for step in golden.steps(scenario):
        storage = TroubledStorage(scenario, step)
        table = TableView(storage)
        LocalView.newest(table).load_all_partitions()
        snapshot = table.newest()
        groups = getattr(snapshot, name)
        if groups:
            break
    else:
        pytest.fail(f"no step of {scenario} has {name}")
    partition = table.held_partitions()[0]
    count = sum(map(len, groups.values())) if name == "replaced" else len(groups)
    groups.clear()
    checked = table.check(partition)
    assert checked.outcome == "different"
    where = "replaced groups" if name == "replaced" else name.replace("_", " ")
    assert [found.where for found in checked.differences.found] == [where] * count
    assert all("nothing is held" in found.what for found in checked.differences.found)
    table.reload("check-failed")
    LocalView.newest(table).load_all_partitions()
    assert table.check(partition).outcome == "equal"


def test_a_partition_that_is_known_and_gone_or_there_and_unknown_is_found() -> None:
    table = a_table()
    view = opened(table)
    snapshot = view.newest()
    assert snapshot.files.known == {"a", "b"}
    snapshot.files.known = frozenset({"b"})
    assert told(view.check("a")) == ["partition 'a': exists and isn't known"]
    snapshot.files.known = frozenset({"a", "b", "c"})
    words = "partition 'c': is known and doesn't exist"
    assert list(map(str, differences_from_rebuilt(snapshot, table.storage).found)) == [words]
    table.begin([("d", "f4-0")])  # in flight: it has made its partition
    snapshot.files.known = frozenset({"a", "b"})
    found = differences_from_rebuilt(view.sync(), table.storage)
    assert not found
    assert len(found.unnamed) == 1


def test_another_timeline_is_a_difference_with_its_hashes() -> None:
    table = a_table()
    view = opened(table)
    held = view.newest()
    table.write(("b", "f3-0"))
    found = differences_from_rebuilt(held, table.storage, ["a"])
    assert [difference.where for difference in found.found] == ["timeline", "hashes"]
    assert "exists and isn't held" in found.found[0].what


def test_differences_say_the_first_and_count_the_rest() -> None:
    found = Discrepancies(tuple(Discrepancy("here", str(n)) for n in range(5)))
    assert str(found) == "here: 0; here: 1; here: 2; and 2 more"
    assert str(Discrepancies(found.found[:1])) == "here: 0"
    assert bool(found)
    assert not Discrepancies(unnamed=frozenset({"x"}))


# Reloads.


def test_a_failed_reload_answers_no_request_and_is_retried() -> None:
    table = a_table()
    metrics = Metrics()
    view = opened(table, metrics)
    pinned = view.newest().client_timeline
    assert pinned.last is not None
    known = pinned.last.requested_time, pinned.hash
    grown(table)

    def fail(kind: str, path: str) -> None:
        raise StorageUnavailableError("out of order")

    table.storage.fail.append(fail)
    asks = (lambda: view.reload("check-failed"), view.newest, lambda: view.at(*known))
    assert view.held(*known) is not None
    for ask in asks:
        with pytest.raises(StorageUnavailableError):
            ask()
        assert view.held(*known) is None
    table.storage.fail.remove(fail)
    file = newest_file(table)
    latest = {found.name: found.size for found in LocalView.at(view, *known).latest_base_files("a")}
    assert latest[file.name] == file.size + 7
    assert view.held(*known) is not None


def test_a_reload_keeps_no_snapshot_that_was_suspect() -> None:
    table = a_table()
    view = opened(table)
    write = table.begin([("a", "f1-0")])
    pins = []
    table.complete(write)
    for _ in range(3):
        timeline = view.sync().client_timeline
        assert timeline.last is not None
        pins.append((timeline.last.requested_time, timeline.hash))
        table.write(("a", "f1-0"))
    view.sync()
    view.reload("check-failed")
    assert [view.held(*pin) for pin in pins] == [None, None, None]
    assert view.status()["snapshots"] == 1
    for pin in pins:  # read back from the timeline
        assert LocalView.at(view, *pin).latest_base_files("a")
    with pytest.raises(ViewBehindError):
        view.at(pins[0][0], "no such hash")


# What it costs.


def test_a_check_books_its_calls_and_syncs_only_for_news() -> None:
    table = a_table()
    metrics = Metrics()
    view = opened(table, metrics)
    before = Counter(table.storage.calls.snapshot())
    syncs = metrics.get("syncs")
    assert view.check("a").outcome == "equal"
    made = Counter(table.storage.calls.snapshot()) - before
    assert {cause for _, cause in made} == {"check"}
    assert made["list", "check"] == 2
    assert metrics.get("syncs") == syncs
    table.write(("a", "f1-0"))
    assert view.check("a").outcome == "equal"
    assert metrics.get("syncs") == syncs + 1


def test_a_large_partition_is_compared_in_slices_that_may_break_off() -> None:
    table = SmallTable()
    count = 2 * SLICE + 1
    table.write(*(("a", f"f{n}-0") for n in range(count)))
    view = opened(table)
    pauses = []
    assert view.check("a", lambda: pauses.append(1)).outcome == "equal"
    assert len(pauses) == 4

    def end() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        view.check("a", end)
