"""The machine of ``test_machine`` with every store, and with services that are restarted.

Beside each service, another view follows the table in memory and is never restarted; their answers
are equal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from fsview.local_view import LocalView
from fsview.store.stores import KINDS
from tests.fsview.sync.test_machine import PARTITIONS, TableMachine
from tests.kit.servers.stores import OTHER_KINDS, Restarted
from tests.kit.short_runs import examples
from tests.kit.tables.model.asking import Watcher, questions, shape
from tests.kit.tables.model.clouds import may_show_in_flight, without
from tests.kit.tables.model.table import ModelTable
from tests.kit.tables.model.truth import Truth
from timeline.errors import ViewBehindError

pytestmark = pytest.mark.property


class StoredWatcher(Watcher):
    """A service that keeps what it read in a store, and may be restarted.

    Attributes:
        in_memory: Follows the same table.
    """

    def __init__(
        self,
        table: ModelTable,
        retained: int,
        kind: str,
        directory: Path,
        url: str | None = None,
    ) -> None:
        super().__init__(table, retained)
        self._service = Restarted(
            kind, directory, self.storage, metrics=self.metrics, retained=retained, url=url
        )
        self.view = self._service.view
        self.in_memory = Watcher(table, retained)

    def restart(self) -> None:
        self._service.restart()
        self.view = self._service.view

    def close(self) -> None:
        self._service.close()

    def listed_or_loaded_anew(self) -> tuple[dict[str, int], int, int]:
        """Return how often each directory was listed, and the counts of reloads."""
        listed = {path: count for path, count in self.storage.listed.items() if path in PARTITIONS}
        return listed, self.metrics.get("reloads"), self.metrics.get("partition_reloads")

    def unlike_memory(self, truth: Truth) -> Iterator[tuple[str, Any, Any]]:
        """Yield how the newest view's answers differ from those of the one in memory.

        Of files in flight they may know different ones: that depends on when they listed them.
        """
        here, there = LocalView.newest(self.view), LocalView.newest(self.in_memory.view)
        upgraded = there.snapshot.config.version != self.storage.table.meta.config.version
        if here.timeline != there.timeline or upgraded:
            there = LocalView.synced(self.in_memory.view)
        now = self.storage.table.meta.active_timeline().server_timeline()
        if not here.timeline == there.timeline == now:
            event("moved on since the service looked")
            return
        held = self.view.held_partitions()
        there.load_partitions(held)  # only then is it known what it saw in flight
        as_of = max(truth.completed, default="0")
        for partition in held:
            clouds = {*self.clouds(truth, partition), *self.in_memory.clouds(truth, partition)}
            for name, arguments in questions(as_of):
                left_out = clouds if may_show_in_flight(name, truth) else set[str]()
                ours = _asked(here, name, partition, arguments)
                theirs = _asked(there, name, partition, arguments)
                if ours is None or theirs is None:
                    event(f"refused: {'both' if ours == theirs else 'one'}")
                elif without(ours, left_out) != without(theirs, left_out):
                    yield f"{name}{arguments} of {partition}", ours, theirs


def _asked(
    view: LocalView, name: str, partition: str, arguments: tuple[Any, ...]
) -> list[Any] | None:
    try:
        return list(shape(getattr(view, name)(partition, *arguments)))
    except ViewBehindError:
        return None


class StoredMachine(TableMachine):
    """Every store ≡ memory, whatever happens to the table and whenever services are restarted.

    Attributes:
        kind: The kind of store.
        is_alone: Whether no other service changes a service's record.
    """

    kind: str
    is_alone = True

    def __init__(self) -> None:
        super().__init__()
        self.ending = ExitStack()
        self.folder = Path(self.ending.enter_context(tempfile.TemporaryDirectory()))
        self.started = 0
        self.steps = 0

    @initialize(steps=st.sampled_from([1, 3, 100]))
    def restart_every(self, steps: int) -> None:
        self.restarts_every = steps

    def start_service(self) -> Watcher:
        self.started += 1
        directory = self.folder / str(self.started)
        service = StoredWatcher(self.table, self.retained, self.kind, directory)
        self.ending.callback(service.close)
        return service

    def services(self) -> list[StoredWatcher]:
        return [w for w in (self.watcher, *self.late) if isinstance(w, StoredWatcher)]

    @rule(number=st.integers(0, 2), ask=st.booleans())
    def restarted(self, number: int, ask: bool) -> None:
        """End a service, and begin another that is asked at once or later."""
        running = self.services()
        service = running[number % len(running)]
        # What is nothing isn't remembered.
        versions = service.view.newest().files.versions
        held = [p for p in service.view.held_partitions() if not versions[p].is_empty]
        before = service.listed_or_loaded_anew()
        if service is self.watcher:
            self.held.clear()  # views end with their service
            if not KINDS[self.kind].lasts:  # who comes later can't know of an upgrade
                self.listed_anew += 1
                self.pins = [p for p in self.pins if p.versions == self.table.versions]
        service.restart()
        if ask and self.is_alone and KINDS[self.kind].lasts:
            LocalView.newest(service.view).load_partitions(held)
            listed, *anew = service.listed_or_loaded_anew()
            if anew == list(before[1:]):
                event("resumed")
                assert listed == before[0]
                assert set(service.view.held_partitions()) >= set(held)

    @invariant()
    def every_store_is_memory(self) -> None:
        self.steps += 1
        if self.steps % self.restarts_every == 0:
            self.restarted(number=self.steps, ask=bool(self.steps % 2))
        for service in self.services():
            for wrong in service.unlike_memory(self.table.truth):
                raise AssertionError((self.kind, *wrong))

    def teardown(self) -> None:
        with self.ending:
            super().teardown()


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_store_is_memory(kind: str) -> None:
    machine = type(f"Machine of {kind}", (StoredMachine,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(25),
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            report_multiple_bugs=False,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
