"""An interrupt of a caller leaves its work to the others that wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from fsview.single_flight import Shared, SharedLoads, SingleFlight
from tests.fsview.shared_work import Loading, Work, wait_until, waits_in
from tests.kit.concurrency.patience import PATIENCE_S

T = TypeVar("T")


class InterruptedHereError(BaseException):
    """Raised by a signal in the main thread, like ``KeyboardInterrupt``."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Return a function that interrupts the main thread, which runs the test, once."""
    main = threading.get_ident()
    interrupted = threading.Event()

    def handle(_number: int, _frame: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise InterruptedHereError

    def send() -> None:
        # A signal that comes just before a thread goes to sleep doesn't wake it.
        while not interrupted.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)
            interrupted.wait(0.001)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield send
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupted(ask: Callable[[], object], meanwhile: Callable[[], T]) -> T:
    """Ask in this thread until ``meanwhile`` interrupts it; return what ``meanwhile`` did."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(meanwhile)
        with pytest.raises(InterruptedHereError):
            ask()
        return running.result(PATIENCE_S)


class Aside:
    """A caller in its own daemon thread, whose outcome is waited for with a limit."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self._outcome: Future[object] = Future()
        self._ask = ask
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._outcome.set_result(self._ask())
        except BaseException as exc:
            self._outcome.set_exception(exc)

    def result(self) -> object:
        return self._outcome.result(PATIENCE_S)


def test_an_interrupted_waiter_passes_the_lead_on(
    interrupt: Callable[[], None],
) -> None:
    flight: SingleFlight[int] = SingleFlight()
    work = Work()
    first = Aside(lambda: flight.run(work))
    assert work.began.acquire(timeout=PATIENCE_S)

    def join_and_interrupt() -> Aside:
        wait_until(lambda: waits_in("run") == 2)
        waiter = Aside(lambda: flight.run(work))
        wait_until(lambda: waits_in("run") == 3)
        interrupt()
        return waiter

    waiter = interrupted(lambda: flight.run(work), join_and_interrupt)
    assert work.runs == 1, "nothing runs beside the first run"
    work.may_end.release(3)
    assert first.result() == 1
    assert waiter.result() == 2
    assert Aside(lambda: flight.run(work)).result() == 3


def test_an_interrupt_of_the_only_one_queued_leaves_nothing_behind(
    interrupt: Callable[[], None],
) -> None:
    flight: SingleFlight[int] = SingleFlight()
    work = Work()
    first = Aside(lambda: flight.run(work))
    assert work.began.acquire(timeout=PATIENCE_S)

    def interrupt_queued() -> None:
        wait_until(lambda: waits_in("run") == 2)
        interrupt()

    interrupted(lambda: flight.run(work), interrupt_queued)
    work.may_end.release(2)
    assert first.result() == 1
    assert Aside(lambda: flight.run(work)).result() == 2


@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupt_of_the_run_reaches_no_waiter(
    interrupt: Callable[[], None], shared: bool
) -> None:
    single: SingleFlight[int] = SingleFlight()
    by_key: Shared[int] = Shared()

    def run(work: Work) -> int:
        return by_key.run("key", work) if shared else single.run(work)

    mine, others = Work(), Work()
    others.may_end.release(2)

    def join_and_interrupt() -> list[Aside]:
        assert mine.began.acquire(timeout=PATIENCE_S)
        waiters = [Aside(lambda: run(others)) for _ in range(2)]
        wait_until(lambda: waits_in("run") == 3)
        interrupt()
        return waiters

    waiters = interrupted(lambda: run(mine), join_and_interrupt)
    # The second may have come when the first was through.
    assert {waiter.result() for waiter in waiters} <= {1, 2}


def test_an_interrupt_before_loading_all_passes_the_lead_on(
    interrupt: Callable[[], None],
) -> None:
    loads, one, late = SharedLoads(), Loading(), Loading()
    late.may_end.release(2)
    everything: list[str] = []
    first = Aside(lambda: loads.run(["a"], one))
    assert one.began.acquire(timeout=PATIENCE_S)

    def join_and_interrupt() -> Aside:
        wait_until(lambda: waits_in("run_all") == 1)
        waiter = Aside(lambda: loads.run_all(lambda: everything.append("all")))
        wait_until(lambda: waits_in("run_all") == 2)
        interrupt()
        return waiter

    waiter = interrupted(
        lambda: loads.run_all(lambda: everything.append("interrupted")), join_and_interrupt
    )
    assert everything == [], "all are loaded after what is being loaded"
    one.may_end.release()
    assert first.result()
    waiter.result()
    assert everything == ["all"]
    assert Aside(lambda: loads.run(["b"], late)).result()
    assert Aside(lambda: loads.run_all(lambda: everything.append("again"))).result() is None
    assert (everything, late.loaded) == (["all", "again"], ["b"])


def test_an_interrupt_of_a_load_leaves_its_names_to_others(
    interrupt: Callable[[], None],
) -> None:
    loads, mine = SharedLoads(), Loading()
    loaded: list[str] = []

    def join_and_interrupt() -> Aside:
        assert mine.began.acquire(timeout=PATIENCE_S)
        waiter = Aside(lambda: loads.run(["b", "c"], loaded.extend))
        wait_until(lambda: loaded == ["c"])
        interrupt()
        return waiter

    assert interrupted(lambda: loads.run(["a", "b"], mine), join_and_interrupt).result() is False
    assert Aside(lambda: loads.run(["a", "b"], loaded.extend)).result() is True
    assert loaded == ["c", "a", "b"]


def test_an_interrupt_of_loading_one_name_is_no_outcome(interrupt: Callable[[], None]) -> None:
    loads, mine = SharedLoads(), Loading()

    def join_and_interrupt() -> Aside:
        assert mine.began.acquire(timeout=PATIENCE_S)
        waiter = Aside(lambda: loads.run_one("a", mine))
        wait_until(lambda: waits_in("_wait_for") == 1)
        interrupt()
        return waiter

    assert interrupted(lambda: loads.run_one("a", mine), join_and_interrupt).result() is False
