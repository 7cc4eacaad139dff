"""Work that callers share, held up by the test."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Collection

from fsview import single_flight
from tests.kit.concurrency.patience import PATIENCE_S


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


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for another thread to reach a place that it doesn't signal."""
    event = threading.Event()
    for _ in range(int(PATIENCE_S * 1000)):
        if true():
            return
        event.wait(0.001)
    raise AssertionError("nobody came")


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


def waits_in(function: str) -> int:
    """Return how many threads are below a function of this name of the module under test."""
    return sum(
        any(
            frame.f_code.co_name == function and frame.f_code.co_filename == single_flight.__file__
            for frame, _ in traceback.walk_stack(top)
        )
        for top in sys._current_frames().values()
    )
