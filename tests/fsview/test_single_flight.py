"""Work that several callers need and one of them does."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fsview import single_flight
from fsview.single_flight import Shared, SharedLoads, SingleFlight
from tests.kit.patience import PATIENCE_S


class Work:
    """Work that runs until the test ends it; counts its runs."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.runs = 0
        self.at_once = 0

    def __call__(self) -> int:
        self.at_once += 1
        assert self.at_once == 1
        self.runs += 1
        number = self.runs
        self.began.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        self.at_once -= 1
        return number


def asked(pool: ThreadPoolExecutor, ask: Callable[[], int], times: int) -> list[Future[int]]:
    """Have ``times`` threads ask."""
    return [pool.submit(ask) for _ in range(times)]


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for another thread to reach a place that it doesn't signal."""
    event = threading.Event()
    for _ in range(int(PATIENCE_S * 1000)):
        if true():
            return
        event.wait(0.001)
    raise AssertionError("nobody came")


def test_callers_during_a_run_share_the_next_one() -> None:
    flight: SingleFlight[int] = SingleFlight()
    work = Work()
    with ThreadPoolExecutor(8) as pool:
        (first,) = asked(pool, lambda: flight.run(work), 1)
        assert work.began.acquire(timeout=PATIENCE_S)
        later = asked(pool, lambda: flight.run(work), 6)
        wait_until(lambda: flight._queued is not None)
        work.may_end.release()
        assert first.result(PATIENCE_S) == 1
        assert work.began.acquire(timeout=PATIENCE_S)
        work.may_end.release(7)
        results = [future.result(PATIENCE_S) for future in later]
    # All six share the second run, but for one that came after it had begun.
    assert set(results) <= set(range(2, 9))
    assert results.count(2) >= 1
    assert work.runs <= 8


def test_an_error_goes_to_the_waiters_only() -> None:
    flight: SingleFlight[int] = SingleFlight()

    def fails() -> int:
        raise OSError("injected")

    for _ in range(2):
        with pytest.raises(OSError, match="injected"):
            flight.run(fails)
    assert flight.run(lambda: 7) == 7


def test_one_key_is_worked_on_once_at_a_time() -> None:
    shared: Shared[int] = Shared()
    work = Work()
    with ThreadPoolExecutor(8) as pool:
        (first,) = asked(pool, lambda: shared.run("p", work), 1)
        assert work.began.acquire(timeout=PATIENCE_S)
        others = asked(pool, lambda: shared.run("p", work), 3)
        assert shared.run("q", lambda: 42) == 42
        work.may_end.release(4)
        results = {future.result(PATIENCE_S) for future in (first, *others)}
    assert 1 in results
    assert shared.run("p", lambda: 9) == 9


class Loading:
    """Loads names; each run waits until it may end."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.loaded: list[str] = []

    def __call__(self, names: Collection[str]) -> None:
        self.began.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        self.loaded += names


def test_each_name_is_loaded_once_for_all_callers() -> None:
    loads, first, second = SharedLoads(), Loading(), Loading()
    second.may_end.release()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(loads.run, ["a", "b"], first)
        assert first.began.acquire(timeout=PATIENCE_S)
        other = pool.submit(loads.run, ["b", "c"], second)
        assert second.began.acquire(timeout=PATIENCE_S)
        assert not other.done()
        first.may_end.release()
        assert one.result(PATIENCE_S)
        assert not other.result(PATIENCE_S)
    assert (first.loaded, second.loaded) == (["a", "b"], ["c"])


def test_loading_all_waits_for_what_is_being_loaded_and_others_wait_for_it() -> None:
    loads, one, late = SharedLoads(), Loading(), Loading()
    everything: list[str] = []
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(loads.run, ["a"], one)
        assert one.began.acquire(timeout=PATIENCE_S)
        all_of_them = pool.submit(loads.run_all, lambda: everything.extend(one.loaded))
        wait_until(lambda: loads._of_all is not None)
        after = pool.submit(loads.run, ["b"], late)
        one.may_end.release()
        assert first.result(PATIENCE_S)
        all_of_them.result(PATIENCE_S)
        assert not after.result(PATIENCE_S)
    assert (everything, late.loaded) == (["a"], [])


def test_an_error_of_a_load_is_raised_in_its_caller() -> None:
    loads = SharedLoads()

    def fails(names: Collection[str]) -> None:
        raise OSError(f"no {names}")

    with pytest.raises(OSError, match="no"):
        loads.run(["a"], fails)
    with pytest.raises(OSError, match="no"):
        loads.run_all(lambda: fails(()))
    loaded: list[str] = []
    assert loads.run(["a"], loaded.extend)
    assert loaded == ["a"]


def test_an_error_of_one_name_goes_to_all_its_waiters() -> None:
    loads, began, may_end = SharedLoads(), threading.Semaphore(0), threading.Event()

    def fails(_: Collection[str]) -> None:
        began.release()
        assert may_end.wait(PATIENCE_S)
        raise OSError("injected")

    loaded: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(loads.run_one, "a", fails)
        assert began.acquire(timeout=PATIENCE_S)
        others = [pool.submit(loads.run_one, "a", fails) for _ in range(2)]
        of_two = pool.submit(loads.run, ["a", "b"], loaded.extend)
        wait_until(lambda: waits_in("_wait_for") == 3)
        may_end.set()
        for one in (first, *others):
            with pytest.raises(OSError, match="injected"):
                one.result(PATIENCE_S)
        assert of_two.result(PATIENCE_S) is False, "it looks for what was loaded"
    assert not began.acquire(blocking=False), "nobody else tried"
    assert loaded == ["b"]
    assert loads.run_one("a", loaded.extend), "who comes later tries anew"


def test_an_error_of_loading_several_names_is_of_none_that_waits_for_one() -> None:
    loads, may_end, began = SharedLoads(), threading.Event(), threading.Event()

    def fails(_: Collection[str]) -> None:
        began.set()
        assert may_end.wait(PATIENCE_S)
        raise OSError("injected")

    with ThreadPoolExecutor(2) as pool:
        both = pool.submit(loads.run, ["a", "b"], fails)
        assert began.wait(PATIENCE_S)
        one = pool.submit(loads.run_one, "a", fails)
        wait_until(lambda: waits_in("_wait_for") == 1)
        may_end.set()
        with pytest.raises(OSError, match="injected"):
            both.result(PATIENCE_S)
        assert one.result(PATIENCE_S) is False


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


def waits_in(function: str) -> int:
    """Return how many threads are below a function of this name of the module under test."""
    return sum(
        any(
            frame.f_code.co_name == function and frame.f_code.co_filename == single_flight.__file__
            for frame, _ in traceback.walk_stack(top)
        )
        for top in sys._current_frames().values()
    )


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

    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(join_and_interrupt)
        with pytest.raises(InterruptedHereError):
            flight.run(work)
        waiter = joined.result(PATIENCE_S)
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
    with ThreadPoolExecutor(1) as pool:

        def interrupt_queued() -> None:
            wait_until(lambda: waits_in("run") == 2)
            interrupt()

        pool.submit(interrupt_queued)
        with pytest.raises(InterruptedHereError):
            flight.run(work)
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

    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(join_and_interrupt)
        with pytest.raises(InterruptedHereError):
            run(mine)
        waiters = joined.result(PATIENCE_S)
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

    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(join_and_interrupt)
        with pytest.raises(InterruptedHereError):
            loads.run_all(lambda: everything.append("interrupted"))
        waiter = joined.result(PATIENCE_S)
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

    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(join_and_interrupt)
        with pytest.raises(InterruptedHereError):
            loads.run(["a", "b"], mine)
        assert joined.result(PATIENCE_S).result() is False
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

    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(join_and_interrupt)
        with pytest.raises(InterruptedHereError):
            loads.run_one("a", mine)
        assert joined.result(PATIENCE_S).result() is False
