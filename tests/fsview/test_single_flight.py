"""Callers share a run of work, and each name is loaded once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fsview.single_flight import Shared, SharedLoads, SingleFlight
from tests.fsview.shared_work import Loading, Work, wait_until, waits_in
from tests.kit.concurrency.patience import PATIENCE_S


def asked(pool: ThreadPoolExecutor, ask: Callable[[], int], times: int) -> list[Future[int]]:
    """Have ``times`` threads ask."""
    return [pool.submit(ask) for _ in range(times)]


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


def test_who_joined_a_run_with_a_stale_error_has_it_done_once_more() -> None:
    shared: Shared[int] = Shared()
    began, may_end = threading.Event(), threading.Event()
    runs: list[int] = []

    def fails() -> int:
        runs.append(1)
        began.set()
        assert may_end.wait(PATIENCE_S)
        raise FileNotFoundError("injected")

    def ask(stale: type[Exception]) -> int:
        return shared.run("p", fails, stale=(stale,))

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, OSError)
        assert began.wait(PATIENCE_S)
        joined = pool.submit(ask, OSError)
        wait_until(lambda: waits_in("run") == 2)
        may_end.set()
        assert isinstance(first.exception(PATIENCE_S), FileNotFoundError)
        assert isinstance(joined.exception(PATIENCE_S), FileNotFoundError)
        assert len(runs) == 2
        began.clear()
        may_end.clear()
        first = pool.submit(ask, OSError)
        assert began.wait(PATIENCE_S)
        joined = pool.submit(ask, ValueError)
        wait_until(lambda: waits_in("run") == 2)
        may_end.set()
        assert isinstance(joined.exception(PATIENCE_S), FileNotFoundError)
    assert len(runs) == 3


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
