"""Watches whose store goes away, and calls that change the watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

import pytest

from strandline.fleet.state.watches import Poller, Watches
from tests.conformance.state_watch_suite import Told
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.running_calls import running_calls
from timeline.errors import StateUnavailableError


class Looks:
    """What a store has at each look; it can be away."""

    def __init__(self) -> None:
        self.there: Mapping[str, int] = {}
        self.is_away = False
        self.looked = threading.Semaphore(0)

    def __call__(self) -> Mapping[str, int]:
        self.looked.release()
        if self.is_away:
            raise StateUnavailableError("no store")
        return self.there

    def wait(self, looks: int) -> None:
        """Wait for so many looks from now on to begin."""
        while self.looked.acquire(blocking=False):
            pass
        for _ in range(looks):
            assert self.looked.acquire(timeout=PATIENCE_S)


def test_that_the_store_is_away_is_told_once_and_then_what_has_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    looks, watches, told = Looks(), Watches(), Told()
    watches.add("a", told)
    poller = Poller(looks, watches, 0.001, "the test's store")
    looks.is_away = True
    told.wait()
    looks.wait(3)
    assert told.calls.empty()
    looks.there = {"a": 1}
    looks.is_away = False
    told.wait()
    poller.stop()
    assert caplog.text.count("changes in the test's store aren't seen meanwhile") == 1
    assert caplog.text.count("changes in the test's store are seen again") == 1


@pytest.mark.property
@pytest.mark.parametrize("error", [StateUnavailableError("no store"), RuntimeError("a fault")])
def test_a_change_whose_report_was_lost_with_a_poll_is_told(error: Exception) -> None:
    """The next poll doesn't wait for a whole pause."""
    found: Iterator[Mapping[str, int] | Exception] = iter(({}, error, {"a": 1}))

    def look() -> Mapping[str, int]:
        one = next(found)
        if isinstance(one, Exception):
            raise one
        return one

    watches, told = Watches(), Told()
    watches.add("a", told)
    poller = Poller(look, watches, 3600.0, "the test's store")
    poller.hurry()
    for _ in ("the failure", "the change"):
        told.calls.get(timeout=PATIENCE_S)
    poller.stop()


def test_a_store_that_is_away_at_first_leaves_no_thread() -> None:
    looks = Looks()
    looks.is_away = True
    with pytest.raises(StateUnavailableError):
        Poller(looks, Watches(), 0.001, "the test's store")
    assert running_calls("strandline-state-watch") == set()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (["seats/1"], ["", "seats", "seats/1"]),
        (["seats"], ["", "seats"]),
        (["seats/10", "seats0", "seat"], ["", "seats"]),
        ([], []),
        (None, ["", "seats", "seats/1"]),
    ],
)
def test_whom_a_change_concerns(changed: list[str] | None, told: list[str]) -> None:
    watches, calls = Watches(), list[str]()
    for prefix in ("", "seats", "seats/1"):
        watches.add(prefix, lambda prefix=prefix: calls.append(prefix))
    watches.tell(changed)
    assert calls == told


def test_a_watch_that_an_earlier_call_cancels_is_not_told() -> None:
    watches, calls = Watches(), list[str]()
    cancels: list[Callable[[], None]] = []
    watches.add("", lambda: cancels[0]())
    cancels.append(watches.add("", lambda: calls.append("late")))
    watches.tell(["a"])
    assert calls == []
