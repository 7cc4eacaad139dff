"""Suite: the machine of ``test_stores_machine`` with servers that share one database.

They sync and load in any turn, are restarted, and adopt from each other; each answers as the view
that follows in memory beside it. Define the ``new_place`` fixture.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from fsview.local_view import LocalView
from tests.conformance.shared_place import NewPlace
from tests.fsview.store.test_stores_machine import StoredMachine, StoredWatcher
from tests.kit.short_runs import examples
from tests.kit.tables.model.acting import PARTITIONS
from tests.kit.tables.model.asking import Watcher
from timeline.errors import ViewBehindError

totals: Counter[str] = Counter()


class SharedMachine(StoredMachine):
    """Two and more servers on one store ≡ memory."""

    kind = "sql"
    is_alone = False
    new_place: NewPlace

    def __init__(self) -> None:
        super().__init__()
        self.url = self.new_place().url

    def start_service(self) -> Watcher:
        service = StoredWatcher(self.table, self.retained, self.kind, self.folder, self.url)
        self.ending.callback(service.close)
        # What one has listed in flight the others show, too.
        if self.started:
            service.storage.seen_in_flight = self.seen_in_flight
        self.started += 1
        self.all_started = [*getattr(self, "all_started", ()), service]
        self.seen_in_flight = service.storage.seen_in_flight
        return service

    def others_reloads(self) -> int:
        counted = (service.metrics for service in self.all_started)
        return sum(m.get("reloads") + m.get("partition_reloads") for m in counted)

    @precondition(lambda self: len(self.late) < 2)
    @rule()
    def another_server_joins(self) -> None:
        self.late.append(self.start_service())

    @rule(order=st.permutations(range(3)))
    def all_sync_in_turn(self, order: list[int]) -> None:
        running = self.services()
        for number in order:
            running[number % len(running)].view.sync()

    @precondition(lambda self: self.late)
    @rule(partition=st.sampled_from([None, *PARTITIONS]), number=st.integers(0, 1))
    def another_looks(self, partition: str | None, number: int) -> None:
        watcher = self.late[number % len(self.late)]
        if partition is None:
            watcher.view.sync()
        else:
            with suppress(ViewBehindError):
                LocalView.newest(watcher.view).latest_base_files(partition)

    def teardown(self) -> None:
        if hasattr(self, "table"):
            for service in self.services():
                adoptions = service.metrics.get("adoptions")
                event(f"adopted: {bool(adoptions)}")
                totals["adoptions"] += adoptions
                totals["instants"] += service.metrics.get("adopted_instants")
        super().teardown()


class SharedMachineSuite:
    """Random steps of servers that share a store."""

    examples = 40

    @pytest.mark.property
    def test_servers_that_share_a_store_are_memory(self, new_place: NewPlace) -> None:
        totals.clear()
        machine = type("Machine", (SharedMachine,), {"new_place": staticmethod(new_place)})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples(self.examples),
                stateful_step_count=40,
                deadline=None,
                derandomize=True,
                report_multiple_bugs=False,
                phases=(Phase.explicit, Phase.generate),
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            ),
        )
        assert totals["adoptions"] > 5
        assert totals["instants"] > 5
