"""Golden tables followed step by step: each state is as recorded, and nothing is listed twice."""

from __future__ import annotations

from collections import Counter

import pytest

from fsview.check.partition_checker import Discrepancies
from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from tests.conformance.view_suite import replay, servers, told
from tests.fsview.subject import LocalClient
from tests.kit.storage.troubled_storage import IN_FLIGHT, UNSAID_SIZES, TroubledStorage
from tests.kit.tables import golden
from tests.kit.tables.rebuilt import differences_from_rebuilt

pytestmark = pytest.mark.property


def data_folders(listed: Counter[str]) -> dict[str, int]:
    """Return how often each directory outside ``.hoodie`` was listed."""
    return {path: n for path, n in listed.items() if not path.startswith(".hoodie")}


def not_as_rebuilt(table: TableView, scenario: str, step: int) -> Discrepancies:
    """Compare a table's newest view with one built anew at a step, everything loaded."""
    view = LocalView.newest(table)
    view.load_all_partitions()
    return differences_from_rebuilt(view.snapshot, golden.GoldenStorage(scenario, step))


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_following_every_step_answers_as_recorded_and_lists_nothing_twice(scenario: str) -> None:
    storage = TroubledStorage(scenario)
    metrics = Metrics()
    table = TableView(storage, metrics=metrics)
    client = LocalClient(table)
    LocalView.newest(table).load_all_partitions()
    (server,) = servers(scenario)
    recorded = golden.recorded_steps(scenario, server)
    for step in golden.steps(scenario):
        storage.step(step)
        table.sync()
        in_flight = step in IN_FLIGHT.get(scenario, ())
        found = not_as_rebuilt(table, scenario, step)
        assert not found, f"step {step}: {found}"
        assert bool(found.unnamed) == in_flight, f"step {step}: nothing names {found.unnamed}"
        if step in recorded and not in_flight:
            table.loaded.clear()  # each recording begins with a fresh server
            recording = golden.recording(scenario, step, server, base=client.base_path)
            wrong = replay(client, recording, f"{scenario}/{step:02d}", times=False)
            assert not wrong, told(wrong)
    if scenario in UNSAID_SIZES:
        relisted = sum(data_folders(storage.listed).values()) - len(data_folders(storage.listed))
        assert metrics.get("partition_reloads", cause="files-unclear") == relisted == 4
    else:
        assert set(data_folders(storage.listed).values()) == {1}
        assert metrics.get("partition_reloads") == 0
    assert metrics.get("reloads") == 0


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_from_any_step_to_any_later_one_nothing_is_loaded_anew(scenario: str) -> None:
    """However much happened between two syncs, and however much of it was archived."""
    steps = golden.steps(scenario)
    for first in steps:
        for last in steps[first + 1 :]:
            storage = TroubledStorage(scenario, first)
            metrics = Metrics()
            table = TableView(storage, metrics=metrics)
            LocalView.newest(table).load_all_partitions()
            storage.step(last)
            table.sync()
            way = f"{first} to {last}"
            assert metrics.get("reloads") == 0, f"{way}: {metrics.counts()}"
            found = not_as_rebuilt(table, scenario, last)
            assert not found, f"{way}: {found}"
            # A write that failed in between was never seen to begin.
            assert not found.unnamed or scenario in IN_FLIGHT, f"{way}: {found.unnamed}"
            if scenario not in UNSAID_SIZES:
                assert max(data_folders(storage.listed).values()) == 1, way


@pytest.mark.parametrize("scenario", ["cow_basic_v6", "cow_basic_v9", "replace_cow_v9"])
def test_a_sync_reads_the_new_instants_and_lists_the_timeline_once(scenario: str) -> None:
    storage = TroubledStorage(scenario)
    table = TableView(storage)
    LocalView.newest(table).load_all_partitions()
    for step in golden.steps(scenario)[1:]:
        storage.step(step)
        before, was = storage.calls.snapshot(), table.newest().active
        table.sync()
        now = table.newest().active
        new = [i for i in now if not was.contains(i)]
        calls = Counter(storage.calls.snapshot())
        calls.subtract(before)
        assert calls["list", "sync"] == 1
        # A clean is read with its plan, a clustering has its plan read when it is requested.
        assert calls["read", "sync"] <= len(new) + sum(i.action == "clean" for i in new)
        assert calls["stat", "sync"] == 1  # the properties, should the table have been upgraded
        assert sum(calls.values()) == 1 + calls["list", "sync"] + calls["read", "sync"]
