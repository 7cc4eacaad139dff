"""Work that many want and one does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fsview.single_flight import Shared, SharedLoads, SingleFlight

PATIENCE_S = 10.0


class Work:
    """Work that runs until it is told to end; counts its runs."""

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
    """Wait for another thread to get somewhere that nothing signals."""
    event = threading.Event()
    for _ in range(int(PATIENCE_S * 1000)):
        if true():
            return
        event.wait(0.001)
    raise AssertionError("nobody came")


def test_who_comes_during_a_run_shares_the_next_one() -> None:
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


def test_an_error_goes_to_those_who_waited_and_to_nobody_else() -> None:
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


def test_each_name_is_loaded_by_one_and_awaited_by_all_who_want_it() -> None:
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


def test_an_error_of_a_load_is_for_who_ran_it() -> None:
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
