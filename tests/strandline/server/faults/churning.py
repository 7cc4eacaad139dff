"""Jobs that write tables in all ways, and clients that ask a service about them meanwhile."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest

from executor_proxy.failover import ServiceClient
from executor_proxy.http import HttpSession
from executor_proxy.remote_view import RemoteView
from executor_proxy.worker_state import this_worker
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.model.acting import PARTITIONS
from tests.kit.tables.model.asking import NotedStorage, Pin, questions
from tests.kit.tables.model.moving import MOVES, MovingMachine
from tests.kit.tables.model.table import SLOTS, ModelTable
from tests.kit.tables.model.truth import Truth
from timeline.errors import RemoteFailureError, ServiceUnreachableError, ViewBehindError
from timeline.instant import State
from timeline.storage.base import FileInfo

pytestmark = pytest.mark.property
TABLES: Final = {
    "cow9": (9, "COPY_ON_WRITE"),
    "mor9": (9, "MERGE_ON_READ"),
    "mor6": (6, "MERGE_ON_READ"),
}
SPELLINGS: Final = ("{}", "{}/", "file:{}", "file://{}")
NOT_CLEANED: Final = ("completed", "compactions", "log_compactions", "clusterings")
"""What of a truth no clean changes."""
BEGINNINGS: Final = ("begin", "plan", "plan", "cluster", "go on", "go on")
IDLE: Final = ("left over", "restore")
"""Moves that do nothing here: no attempt fails and nothing is saved."""
OFTEN: Final = (
    *(move for move in MOVES if move not in IDLE),
    *BEGINNINGS,
    *("write", "write", "write", "complete", "end", "end"),
)


class SharedStorage(NotedStorage):
    """A table's storage as the service sees it while another thread writes.

    A partition is listed between two steps of the writer, so that what was in flight is known;
    all else goes on at any time.
    """

    def __init__(self, table: ModelTable, step: threading.Lock) -> None:
        super().__init__(table)
        self._step = step

    def for_cause(self, cause: str) -> SharedStorage:
        other = object.__new__(SharedStorage)
        other.__dict__.update(self.__dict__)
        other._cause = cause
        return other

    def list(self, path: str) -> tuple[FileInfo, ...]:
        if path.startswith(".hoodie") or not path:
            return MemoryStorage.list(self, path)
        with self._step:
            return super().list(path)


@dataclass
class Client:
    """A client that stays at an instant, with counts of what had happened to the table by then.

    Attributes:
        pin: The instant.
        followed: Whether the service was asked at that very instant.
        removals: How many cleans and rollbacks had begun.
        archivals: How many times instants had been archived.
    """

    pin: Pin
    followed: bool
    removals: int
    archivals: int


def insisted(ask: Callable[[], Any]) -> Any:
    """Ask until there is a service that answers."""
    while True:
        try:
            return ask()
        except ServiceUnreachableError:
            continue
        except RemoteFailureError as exc:
            if "stopping" not in str(exc):
                raise


class Answers:
    """A service's answers about a partition, given again when asked again."""

    def __init__(self, view: RemoteView, partition: str, as_of: str) -> None:
        self._said: dict[tuple[str, tuple[Any, ...]], Any] = {}
        for name, arguments in questions(as_of):
            ask = partial(getattr(view, name), partition, *arguments)
            try:
                self._said[name, arguments] = insisted(ask)
            except ViewBehindError:
                self._said[name, arguments] = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(_partition: str, *arguments: Any) -> Any:
            said = self._said[name, arguments]
            if said is None:
                raise ViewBehindError(f"{name} was refused")
            return said

        return answer


def names_in(answer: list[Any]) -> set[str]:
    """Return the names of the files in an answer of plain tuples."""
    found = set()
    for item in answer:
        files = [item] if len(item) == 2 else [*([item[2]] if item[2] else []), *item[3]]
        found.update(name for name, _ in files)
    return found


@dataclass
class Job:
    """A table, its writer, and its clients; to change or judge the table, ``step`` is held.

    Attributes:
        late: Whether partitions are loaded only when clients ask for them.
        forgets: Whether the service was restarted, and so lacks earlier clients' timelines.
        restart: Restarts the service; the writer calls it now and then.
        asked: Counts the clients' rounds; the writer waits for one before each of its steps.
        outcomes: Counts of the questions by outcome.
        wrong: The answers that were wrong.
    """

    name: str
    url: str
    machine: MovingMachine
    storage: SharedStorage
    step: threading.Lock
    late: bool = False
    forgets: bool = False
    restart: Callable[[], None] | None = None
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    clients: list[Client] = field(default_factory=list)
    states: list[Truth] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[Any] = field(default_factory=list)
    removals: int = 0
    archivals: int = 0
    done: bool = False

    @property
    def table(self) -> ModelTable:
        return self.machine.table

    def view(self, pin: Pin, spelling: str = "{}") -> RemoteView:
        """Return a client's view, over HTTP."""
        base = spelling.format(self.storage.base_path)
        service = ServiceClient((HttpSession(self.url, TOKEN),), this_worker().circuit, "/t")
        return RemoteView(service, base, pin.last_instant, pin.timeline_hash)

    # The writer.

    def write(self, seed: int, steps: int) -> None:
        """Do something to the table, again and again; now and then look at it through the
        service, as a driver does."""
        rng = random.Random(f"{self.name} {seed}")
        try:
            self.pin(followed=True)
            for number in range(steps):
                assert self.asked.acquire(timeout=PATIENCE_S)
                with self.step:
                    self._move(rng.choice(OFTEN), rng.randrange(4))
                self.pin(followed=number % 3 == 0)
                if self.restart is not None and number % 15 == 14:
                    self.restart()
        finally:
            self.done = True

    def _move(self, what: str, number: int) -> None:
        before = self.table.under_way
        instants = len(self.table.meta.active_timeline())
        if what in BEGINNINGS:
            self._begin(what, number)
        else:
            self.machine.move_on([(what, number)])
        under_way = self.table.under_way is not before and self.table.under_way is not None
        self.removals += under_way or what in ("clean", "roll back", "end", "fail")
        self.archivals += what == "archive" and len(self.table.meta.active_timeline()) < instants
        self.states.append(self.table.truth.copy())

    def _begin(self, what: str, number: int) -> None:
        """Begin an action that later steps may finish, or advance one by a state."""
        machine = self.machine
        if not machine.may_begin():
            return
        chosen = [(partition, number % SLOTS) for partition in PARTITIONS]
        far = (State.REQUESTED, State.INFLIGHT)[number % 2]
        if what == "begin":
            machine.write_begins(chosen, ["log", "base"], leftovers_in=None)
        elif what == "plan" and self.table.merges_on_read:
            machine.compaction(chosen, logs_only=number == 3, far=far)
        elif what == "cluster":
            machine.clustering(chosen[number % 2 :], far, leftovers=False)
        elif what == "go on" and self.table.writes:
            machine.goes_on(number, leftovers=False, late="")

    def pin(self, *, followed: bool) -> None:
        """Begin a client at this instant."""
        pin = Pin.of(self.table)
        view = self.view(pin)
        if followed and self.late:
            insisted(view.pending_compaction_operations)
        elif followed:
            for partition in PARTITIONS:
                insisted(partial(view.latest_file_slices, partition))
        self.clients.append(Client(pin, followed, self.removals, self.archivals))

    # The clients.

    def ask(self, seed: int, *, nth: int, of: int) -> None:
        """Ask as old and new clients until the writer is done.

        Then ask as each of them once, as the ``nth`` of several threads that share them.
        """
        rng = random.Random(f"{self.name} asks {seed}")
        while not self.done:
            if self.clients:
                self._ask_as(rng.choice(self.clients), rng.choice(PARTITIONS), rng)
            self.asked.release()
        for client in self.clients[nth::of]:
            for partition in PARTITIONS:
                self._ask_as(client, partition, rng)

    def _ask_as(self, client: Client, partition: str, rng: random.Random) -> None:
        truth = client.pin.truth
        as_of = max(truth.completed, default="0")
        view = self.view(client.pin, rng.choice(SPELLINGS))
        if rng.random() < 0.1:  # as somebody does who looks after services
            insisted(partial(HttpSession(self.url, TOKEN).get, "/v1/strandline/status", {}))
        if rng.random() < 0.1:  # as Java's drivers do, wherever they are
            insisted(view.sync if rng.random() < 0.5 else view.load_all_partitions)
            view = self.view(client.pin)
        answers = Answers(view, partition, as_of)
        with self.step:
            found = list(self.machine.watcher.differences(answers, truth, partition, as_of))
            self.outcomes["answered"] += len(questions(as_of)) - len(found)
            for wrong in found:
                outcome = self._judge(client, answers, partition, as_of, wrong)
                self.outcomes[outcome] += 1
                if "not" in outcome:
                    self.wrong.append((outcome, client.pin.last_instant, partition, *wrong))

    def _judge(
        self, client: Client, answers: Answers, partition: str, as_of: str, wrong: Any
    ) -> str:
        pin = client.pin
        if wrong[1] is None:
            return self._why_refused(client, partition, wrong[2])
        # Where nothing but cleans came since, the newest may be said instead.
        for state in self.states:
            if all(getattr(state, what) == getattr(pin.truth, what) for what in NOT_CLEANED):
                left = self.machine.watcher.differences(answers, state, partition, as_of)
                if wrong[0] not in [other[0] for other in left]:
                    return "answered as cleaned"
        return "not right"

    def _why_refused(self, client: Client, partition: str, right: list[Any]) -> str:
        truth = client.pin.truth
        if {*truth.compactions, *truth.log_compactions, *truth.completed} & self.table.undone:
            return "refused: undone"
        if client.followed and not self.late and not self.forgets:
            return "not to be refused"
        there = {file.name for file in self.table.files.values() if file.partition == partition}
        if not names_in(right) <= there:
            return "refused: files gone"
        if client.archivals != self.archivals:
            return "refused: archived"
        if client.removals != self.removals:
            return "refused: removals"
        # A log's name doesn't say who wrote it: one of a write under way can't be left out.
        clouds = self.machine.watcher.clouds(truth, partition)
        if clouds and not truth.logs_by_completion:
            return "refused: logs in flight"
        return "not to be refused"
