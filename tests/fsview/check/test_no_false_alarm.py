"""The check of a followed partition finds no difference while the table moves on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fsview.check.partition_checker import Checked
from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.fsview.check.checked_table import VERSIONS, a_table, newest_file, opened
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.storage.troubled_storage import UNSAID_SIZES, TroubledStorage
from tests.kit.tables import golden
from tests.kit.tables.products import ALL, Product
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.kit.tables.small_table import SmallTable
from timeline.instant import CLEAN, RESTORE, ROLLBACK, State
from timeline.metadata.instant_metadata import CleanerPlan, InstantInfo, RestorePlan, RollbackPlan

RACES = Product({"at every call": ALL, "at one call": ALL}, least=70)


def outcomes_of_race(scenario: str, start: int, calls: Callable[[int], bool]) -> Iterator[Checked]:
    """Yield the outcomes of checks from a step on while the table moves on at some calls."""
    storage = TroubledStorage(scenario, start)
    table = TableView(storage)
    LocalView.newest(table).load_all_partitions()
    left = iter(golden.steps(scenario)[start + 1 :])

    def move_on(nth: int, _kind: str, _path: str) -> None:
        step = next(left, None) if calls(nth) else None
        if step is not None:
            storage.step(step)

    with storage.acting(move_on):
        for _ in range(2):
            for partition in table.held_partitions()[:2]:
                yield table.check(partition)


@pytest.mark.parametrize("scenario", RACES.scenarios("at every call"))
def test_a_table_that_moves_on_at_every_call_makes_no_difference(scenario: str) -> None:
    outcomes: Counter[str] = Counter()
    for start in golden.steps(scenario)[::3]:
        for checked in outcomes_of_race(scenario, start, lambda _: True):
            outcomes[checked.outcome] += 1
            assert checked.outcome != "different", f"from {start}: {checked}"
    assert outcomes["equal"] > outcomes["skipped"]


@pytest.mark.property
@pytest.mark.parametrize("scenario", RACES.scenarios("at one call"))
def test_a_change_at_any_one_call_makes_no_difference(scenario: str) -> None:
    for start in golden.steps(scenario):
        for call in range(1, 9):
            for checked in outcomes_of_race(scenario, start, lambda nth, at=call: nth == at):
                # A rollback that doesn't say a log's size has its partition unloaded.
                unloaded = scenario in UNSAID_SIZES and checked.outcome == "skipped"
                assert checked.outcome == "equal" or unloaded, (
                    f"from {start}, call {call}: {checked}"
                )


@contextmanager
def moving(storage: MemoryStorage, acts: Iterable[Callable[[], object]]) -> Iterator[None]:
    """Do the next of ``acts`` before each call that a storage answers; those left at the end."""
    left = iter(acts)
    busy = False

    def act(kind: str, path: str) -> None:
        nonlocal busy
        if busy or kind not in {"list", "read", "stat"}:
            return
        busy = True  # what an act does to the storage moves nothing
        try:
            for one in left:
                one()
                break
        finally:
            busy = False

    storage.fail.append(act)
    try:
        yield
    finally:
        storage.fail.remove(act)
    for one in left:
        one()


def a_busy_writer(table: SmallTable) -> Iterator[Callable[[], Any]]:
    """Yield the acts of a writer and a cleaner, one by one."""
    while True:
        write = table.begin([("a", "f1-0"), ("b", "f3-0")], leftover=True)
        yield lambda: None
        yield lambda w=write: table.complete(w)
        clean = table.begin_clean(table.to_clean())
        yield lambda: None
        yield lambda c=clean: table.finish_clean(*c)
        failed = table.begin([("a", "f2-0"), ("a", "f9-0")])
        yield lambda: None
        yield lambda w=failed: table.roll_back(w)
        yield lambda: table.write(("b", "o1-0"))


@pytest.mark.property
@VERSIONS
def test_a_writer_and_a_cleaner_at_work_make_no_difference(version: int) -> None:
    """One act before every call, so that files come and go before an instant names them."""
    table = a_table(version)
    view = opened(table)
    acts = (act for act, _ in zip(a_busy_writer(table), range(400), strict=False))
    outcomes: Counter[str] = Counter()
    with moving(table.storage, acts):
        for nth in range(60):
            checked = view.check("ab"[nth % 2])
            outcomes[checked.outcome] += 1
            assert checked.outcome != "different", f"check {nth}: {checked}"
    assert min(outcomes["equal"], outcomes["skipped"]) > 5, outcomes
    assert view.check("a").outcome == view.check("b").outcome == "equal"


# Skipped.


@VERSIONS
@pytest.mark.parametrize(
    ("action", "plan"),
    [
        (CLEAN, CleanerPlan()),
        (ROLLBACK, RollbackPlan(InstantInfo("20200101000000000", "commit"))),
        (RESTORE, RestorePlan((InstantInfo("20200101000000000", "commit"),))),
    ],
)
@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_while_files_are_removed_nothing_is_checked(
    version: int, action: str, plan: Any, state: State
) -> None:
    table = a_table(version)
    view = opened(table)
    pending = table.meta.create_requested(action, table.tick(), plan)
    if state is State.INFLIGHT:
        table.meta.transition_to_inflight(pending)
    del table.storage.files[newest_file(table).path]
    checked = view.check("a")
    assert checked.outcome == "skipped"
    assert checked.why == "a clean, rollback or restore is under way"


def test_a_table_that_never_rests_is_left_for_another_time() -> None:
    table = a_table()
    view = opened(table)

    def write(kind: str, path: str) -> None:
        if kind == "list":
            table.storage.fail.remove(write)
            table.write(("b", "f3-0"))
            table.storage.fail.append(write)

    table.storage.fail.append(write)
    checked = view.check("a")
    assert checked == Checked("skipped", why="the table changed 4 times while it was being checked")


def test_what_is_not_held_is_not_checked() -> None:
    table = a_table()
    view = TableView(table.storage)
    assert view.held_partitions() == ()
    assert view.check("a").why == "the table isn't held"
    view.newest()
    assert view.check("a").why == "the partition isn't loaded any more"


def test_a_path_that_is_no_partition_is_empty_on_both_sides() -> None:
    table = a_table()
    view = opened(table)
    assert not list(LocalView.newest(view).latest_base_files("x"))
    assert "x" in view.held_partitions()
    assert view.check("x").outcome == "equal"
    assert not differences_from_rebuilt(view.newest(), table.storage)


@pytest.mark.parametrize("partition", ["../x", "a//b", "x" * 5000, "a\0"])
def test_what_can_be_no_path_has_no_files_and_is_not_held(partition: str) -> None:
    table = a_table()
    view = opened(table)
    before = table.storage.calls.snapshot()
    assert not list(LocalView.newest(view).latest_base_files(partition))
    LocalView.newest(view).load_partitions([partition])
    assert partition not in view.held_partitions()
    assert partition not in view.loaded.in_order()
    assert table.storage.calls.snapshot() == before
