"""Recorded tables, step by step, with two servers that share a store and sync in turn.

They answer every recorded request as a view does that follows the table alone, in memory.
Define the ``new_place`` fixture.
"""

from __future__ import annotations

from contextlib import ExitStack

import orjson
import pytest

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.record.shared import kept_in
from fsview.store.stores import StoreOptions, Stores
from fsview.table_view import TableView
from tests.conformance.shared_place import NewPlace
from tests.conformance.view_suite import canonical
from tests.fsview.subject import BY_PATH, LocalClient
from tests.kit.tables import golden


class SteppingStorage(golden.GoldenStorage):
    """A golden table that goes from step to step under its clients."""

    def __init__(self, scenario: str, step: int) -> None:
        super().__init__(scenario, step)
        self._scenario = scenario

    def go_on(self, step: int) -> None:
        # In place, as storage for another cause shares the mappings.
        now = golden.GoldenStorage(self._scenario, step)
        for mine, its in ((self._contents, now._contents), (self._children, now._children)):
            mine.clear()
            mine.update(its)


class SharedGoldenSuite:
    """Every recorded table."""

    @pytest.mark.property
    @pytest.mark.parametrize("scenario", golden.scenarios())
    def test_two_servers_in_turn_answer_as_one_alone(
        self, scenario: str, new_place: NewPlace
    ) -> None:
        steps, recorded = golden.steps(scenario), set(golden.recorded_steps(scenario))
        asked, url = 0, new_place().url
        with ExitStack() as stack:
            storages = [SteppingStorage(scenario, steps[0]) for _ in range(3)]
            counted = Metrics()
            views = []
            for storage in storages[:2]:
                stores = Stores(StoreOptions("sql", urls=(url,)))
                stack.callback(stores.close)
                store = stores.open(TableView(storage).table_id)
                view = TableView(storage, metrics=counted, record=kept_in(store))
                stack.callback(view.close)
                views.append(view)
            alone = TableView(storages[2])
            for number, step in enumerate(steps):
                for storage in storages:
                    storage.go_on(step)
                in_turn = views[:: (-1) ** number]
                for view in (*in_turn, alone):
                    view.sync()
                for view in (*in_turn, alone):
                    LocalView.newest(view).load_all_partitions()
                if step not in recorded:
                    continue
                clients = [LocalClient(view) for view in (*in_turn, alone)]
                for exchange in golden.recording(scenario, step).exchanges:
                    answers = [
                        client.ask(exchange.method, exchange.path, exchange.params)
                        for client in clients
                        if (exchange.method, exchange.path.rstrip("/")) in BY_PATH
                    ]
                    shown = [(s, canonical(orjson.loads(b)) if s == 200 else b) for s, b in answers]
                    assert all(each == shown[-1] for each in shown), exchange.n
                    asked += bool(shown)
        assert asked or not recorded
        assert counted.get("adoptions") or len(steps) == 1
