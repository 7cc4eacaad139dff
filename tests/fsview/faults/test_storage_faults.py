"""An error at any storage call leaves the view as it was, and the next request works.

Each sync of every golden table, and each building of a new view (start, discovery, loading), fails
at its first call, then at its second, and so on. After a failure no part of what was read is
visible; the next request gets the answers of a rebuilt view.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.kit.storage.troubled_storage import (
    IN_FLIGHT,
    TroubledStorage,
    answers,
    changed,
    changed_since,
    expected,
    held_answers,
    loaded,
    partitions_of,
    steps_of,
)
from tests.kit.tables import golden
from tests.kit.tables.products import ALL, Product
from timeline.errors import StorageUnavailableError

FAULTS = Product(dict.fromkeys(("sync", "start", "away"), ALL), least=110)


def failed_at_every_call(storage: TroubledStorage, work: Callable[[], object]) -> int:
    """Do something that fails at its first call, at its second, ... until none is left.

    Returns:
        How often it failed.
    """
    for nth in count(1):
        start = len(storage.log)
        with storage.failing(nth):
            try:
                work()
            except StorageUnavailableError as error:
                kind, path = storage.log[-1]
                if f"injected: {kind} {path}" not in str(error):
                    raise
                assert len(storage.log) == start + nth
            else:
                return nth - 1
    raise AssertionError("unreachable")


@pytest.mark.property
@pytest.mark.parametrize("scenario", FAULTS.scenarios("sync"))
def test_every_call_of_a_sync_may_fail(scenario: str) -> None:
    first, *later = steps_of(scenario)
    storage = TroubledStorage(scenario, first)
    table = loaded(storage, scenario)
    failures = 0
    for step in later:
        storage.step(step)
        held = LocalView.newest(table)
        said = held_answers(held, scenario)

        def sync_or_same(held: object = held.snapshot) -> None:
            try:
                table.sync()
            except StorageUnavailableError:
                assert table.newest() is held
                raise

        failures += failed_at_every_call(storage, sync_or_same)
        assert not changed_since(held_answers(held, scenario), said)
        assert answers(LocalView.newest(table), scenario) == expected(scenario, step)
    assert failures >= 2 * len(later)  # the timeline, and mostly an instant


@pytest.mark.parametrize("scenario", FAULTS.scenarios("start"))
def test_every_call_of_a_start_a_discovery_and_a_load_may_fail(scenario: str) -> None:
    partition = partitions_of(scenario)[0]
    for step in golden.steps(scenario):
        storage = TroubledStorage(scenario, step)
        table = TableView(storage)
        works: tuple[Callable[[], object], ...] = (
            table.newest,
            lambda view=table: LocalView.newest(view).all_file_slices(partition),
            lambda view=table: LocalView.newest(view).load_all_partitions(),
        )
        failures = [failed_at_every_call(storage, work) for work in works]
        assert sum(failures) >= 4, failures
        if step not in IN_FLIGHT.get(scenario, ()):
            assert answers(LocalView.newest(table), scenario) == expected(scenario, step)


@pytest.mark.parametrize("scenario", FAULTS.scenarios("away"))
def test_while_the_storage_is_away_what_is_held_is_answered(scenario: str) -> None:
    """Requests for loaded partitions neither wait for the storage nor fail while it is away."""
    first, second, *_ = steps_of(scenario)
    storage = TroubledStorage(scenario, first)
    table = loaded(storage, scenario)
    client = table.newest().client_timeline
    assert client.last is not None

    def away(_nth: int, kind: str, path: str) -> None:
        raise StorageUnavailableError(f"injected: {kind} {path}")

    storage.step(second)
    with storage.acting(away):
        calls = len(storage.log)
        view = LocalView.at(table, client.last.requested_time, client.hash)
        assert not changed(held_answers(view, scenario), expected(scenario, first))
        assert len(storage.log) == calls
        with pytest.raises(StorageUnavailableError, match="injected"):
            view.file_groups_in_pending_clustering()
        with pytest.raises(StorageUnavailableError, match="injected"):
            table.at("20991231000000000", "a hash of nobody's")
        assert not changed(
            held_answers(LocalView.newest(table), scenario), expected(scenario, first)
        )
    assert answers(LocalView.synced(table), scenario) == expected(scenario, second)
