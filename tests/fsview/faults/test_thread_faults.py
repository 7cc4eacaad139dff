"""Many threads ask while the table moves on and its storage fails: each answer is of one state.

A barrier separates the rounds, and nothing is timed: what is asserted holds however the threads run
within a round.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.storage.troubled_storage import (
    ROLLED_BACK,
    UNCOMMITTED,
    TroubledStorage,
    answers,
    changed,
    changed_since,
    expected,
    partitions_of,
    steps_of,
)
from tests.kit.tables.products import ALL, Product
from timeline.errors import StorageUnavailableError, ViewBehindError

READERS = 6
# Of big_cow_v6 there are many partitions of one kind.
FAULTS = Product(
    {"threads": [name for name in ALL if name != "big_cow_v6" and name not in ROLLED_BACK]},
    least=30,
)
Answers = dict[str, object]


class Round:
    """The answers that are right during one step.

    Attributes:
        states: What a view of the newest may say: as before the step or as after.
        clients: Of each earlier state, what its client is pinned to and was told.
    """

    def __init__(self, states: list[Answers], clients: list[tuple[str, str, Answers]]) -> None:
        self.states = states
        self.clients = clients


Way = Callable[[random.Random, Round], list[str]]


class Readers:
    """Threads that ask in rounds; ``faults`` is how often the storage was away for one."""

    def __init__(self, table: TableView, scenario: str) -> None:
        self.table = table
        self.scenario = scenario
        self.barrier = threading.Barrier(READERS + 1, timeout=PATIENCE_S)
        self.round: Round | None = None
        self.wrong: list[str] = []
        self.answered = 0
        self.faults = 0
        self._lock = threading.Lock()

    def run(self, number: int) -> None:
        """Ask, round by round, until there is none."""
        rng = random.Random(number)
        ways: list[Way] = [self.ask_newest, self.ask_behind, self.ask_synced]
        while True:
            self.barrier.wait()
            asked = self.round
            if asked is None:
                return
            try:
                for way in rng.sample(ways, len(ways)):
                    self.note(way, rng, asked)
            finally:
                self.barrier.wait()

    def note(self, way: Way, rng: random.Random, asked: Round) -> None:
        """Count an answer, or that the storage was away; anything else is wrong."""
        what = way.__name__
        try:
            differs = way(rng, asked)
        except StorageUnavailableError as error:
            with self._lock:
                self.faults += 1
                if "injected" not in str(error) and "changed" not in str(error):
                    self.wrong.append(f"{what}: {error!r}")
        except Exception as error:
            with self._lock:
                self.wrong.append(f"{what}: {error!r}")
        else:
            with self._lock:
                self.answered += 1
                if differs:
                    self.wrong.append(f"{what}: {differs}")

    def closest(self, view: LocalView, states: list[Answers]) -> list[str]:
        said = answers(view, self.scenario)
        return min((changed_since(said, state) for state in states), key=len)

    def ask_newest(self, _rng: random.Random, asked: Round) -> list[str]:
        return self.closest(LocalView.newest(self.table), asked.states)

    def ask_synced(self, _rng: random.Random, asked: Round) -> list[str]:
        return self.closest(LocalView.synced(self.table), asked.states)

    def ask_behind(self, rng: random.Random, asked: Round) -> list[str]:
        last, timeline_hash, told = rng.choice(asked.clients)
        try:
            return self.closest(LocalView.at(self.table, last, timeline_hash), [told])
        except ViewBehindError:
            return []


def client_of(view: LocalView) -> tuple[str, str]:
    """Return the last instant and hash that a client of this view sends."""
    timeline = view.snapshot.client_timeline
    return ("0" if timeline.last is None else timeline.last.requested_time), timeline.hash


@pytest.mark.property
@pytest.mark.parametrize("scenario", FAULTS.scenarios("threads"))
def test_every_answer_is_of_a_state_that_was(scenario: str) -> None:
    first, *later = [n for n in steps_of(scenario) if n not in UNCOMMITTED.get(scenario, ())]
    storage = TroubledStorage(scenario, first)
    table = TableView(storage)
    readers = Readers(table, scenario)
    clients = [(*client_of(LocalView.newest(table)), expected(scenario, first))]
    rng = random.Random(scenario)
    before = first
    with ThreadPoolExecutor(READERS) as pool:
        running = [pool.submit(readers.run, number) for number in range(READERS)]
        for step in later:
            if rng.random() < 0.3:  # who asks in this round loads what it asks for
                table = readers.table = TableView(storage)
                table.newest()
            readers.round = Round([expected(scenario, s) for s in (before, step)], clients.copy())
            with storage.failing(rng.randrange(1, 12)):
                readers.barrier.wait()
                storage.step(step)
                readers.barrier.wait()
            table.sync()
            assert not changed(answers(LocalView.newest(table), scenario), expected(scenario, step))
            clients.append((*client_of(LocalView.newest(table)), expected(scenario, step)))
            before = step
        readers.round = None
        readers.barrier.wait()
        for future in running:
            future.result(PATIENCE_S)
    assert not readers.wrong, f"{len(readers.wrong)} of {readers.answered}: {readers.wrong[:4]}"
    assert readers.answered + readers.faults == 3 * READERS * len(later)
    assert readers.answered > readers.faults


def test_a_fault_reaches_all_waiters_and_no_later_caller() -> None:
    """Callers that wait for a shared sync get its error; the next caller starts another."""
    scenario = "cow_basic_v9"
    storage = TroubledStorage(scenario, 1)
    table = TableView(storage)
    LocalView.newest(table).load_partitions(partitions_of(scenario))
    storage.step(2)
    arrived = threading.Barrier(READERS, timeout=PATIENCE_S)
    outcomes: list[str] = []
    lock = threading.Lock()

    def ask() -> None:
        arrived.wait()
        try:
            table.sync()
            outcome = "synced"
        except StorageUnavailableError as error:
            outcome = str(error)
        with lock:
            outcomes.append(outcome)

    with storage.failing(2), ThreadPoolExecutor(READERS) as pool:
        for _ in range(READERS):
            pool.submit(ask)
    refused = [outcome for outcome in outcomes if outcome != "synced"]
    assert refused
    assert all("injected" in outcome for outcome in refused)
    assert not changed(answers(LocalView.synced(table), scenario), expected(scenario, 2))
