"""``ServiceClient``: which address is asked how often, and when it is given up."""

from __future__ import annotations

import pickle

import pytest

from executor_proxy.circuit import Circuit
from executor_proxy.failover import Patience, ServiceClient
from executor_proxy.http import HttpSession
from timeline.errors import (
    BadAnswerError,
    ConfigError,
    RemoteFailureError,
    ServiceBusyError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    ViewBehindError,
)

A, B, C = "http://a:1", "http://b:1", "http://c:1"
TABLE, OTHER = "/t", "/other"
LOST = ServiceUnreachableError("nobody there")
LATE = ServiceTimeoutError("late")


def busy(seconds: float) -> ServiceBusyError:
    error = ServiceBusyError("loading")
    error.retry_after_s = seconds
    return error


class Scene:
    """A service whose addresses follow scripts, on a clock that moves by waits and by exchanges.

    Attributes:
        asked: Addresses in the order in which they were asked.
        limits: How long each exchange might take.
        waits: Waits between rounds.
    """

    def __init__(
        self, patience: Patience, *, insists: bool = False, **scripts: list[Exception | bytes]
    ) -> None:
        urls = {"a": A, "b": B, "c": C}
        self.scripts = {urls[name]: list(script) for name, script in scripts.items()}
        self.circuits = {
            (url, table): Circuit(url, begin=self._never)
            for url in self.scripts
            for table in (None, TABLE, OTHER)
        }
        self.now = 0.0
        self.exchange_s = self.overslept_s = 0.0
        self.asked: list[str] = []
        self.limits: list[float] = []
        self.waits: list[float] = []
        self.services = {
            table: ServiceClient(
                tuple(HttpSession(url) for url in self.scripts),
                lambda session, table: self.circuits[session.url, table],
                table,
                patience,
                insists=insists,
                clock=lambda: self.now,
                wait=self._wait,
                jitter=lambda: 1.0,
            )
            for table in (TABLE, OTHER)
        }

    @staticmethod
    def _never(_: object) -> None:
        """Begin no probing: what was opened stays open."""

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds + self.overslept_s

    def _send(self, session: HttpSession, within_s: float) -> bytes:
        self.asked.append(session.url)
        self.limits.append(within_s)
        self.now += min(self.exchange_s, within_s)
        script = self.scripts[session.url]
        outcome = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(outcome, bytes):
            return outcome
        raise outcome

    def ask(self, *, table: str = TABLE, is_safe: bool = True) -> bytes:
        return self.services[table].ask(self._send, is_safe=is_safe)

    @property
    def open(self) -> set[str]:
        return {
            url for (url, table), each in self.circuits.items() if each.state.failure and not table
        }

    @property
    def open_for_table(self) -> set[str]:
        return {url for (url, table), each in self.circuits.items() if each.state.failure and table}


def test_an_answer_is_an_answer():
    scene = Scene(Patience(), a=[b"1"])
    assert scene.ask() == b"1"
    assert scene.asked == [A]
    assert not scene.waits


def test_a_lost_connection_is_tried_again_after_growing_waits():
    scene = Scene(Patience(retries=3, first_wait_s=0.1), a=[LOST, LOST, b"1"])
    assert scene.ask() == b"1"
    assert scene.waits == pytest.approx([0.1, 0.2])
    assert not scene.open


def test_retries_are_bounded_and_the_next_question_makes_none():
    scene = Scene(Patience(retries=2), a=[LOST])
    with pytest.raises(ServiceUnreachableError, match="nobody there"):
        scene.ask()
    assert len(scene.asked) == 3
    assert scene.open == {A}
    not_asked = "is not asked until it answers a probe: nobody there"
    with pytest.raises(ServiceUnreachableError, match=not_asked):
        scene.ask()
    assert len(scene.asked) == 3


def test_until_it_has_answered_all_tries_share_one_bound():
    scene = Scene(Patience(first_s=3, retries=100, first_wait_s=0.5), a=[LOST])
    scene.exchange_s = 0.5
    with pytest.raises(ServiceUnreachableError):
        scene.ask()
    assert scene.now <= 3
    assert scene.limits == sorted(scene.limits, reverse=True)
    assert scene.limits[0] == 3


@pytest.mark.parametrize("addresses", [1, 2, 3])
@pytest.mark.parametrize("failure", [LOST, LATE])
def test_by_default_a_dead_service_costs_a_worker_less_than_three_seconds(failure, addresses):
    scene = Scene(Patience(), **{name: [failure] for name in "abc"[:addresses]})
    scene.exchange_s = 100
    with pytest.raises(type(failure)):
        scene.ask()
    asked = len(scene.asked)
    assert set(scene.asked) == set(scene.scripts)
    for table in (TABLE, OTHER, TABLE):  # later tasks don't wait
        for is_safe in (True, False):
            with pytest.raises(type(failure), match="is not asked until it answers a probe"):
                scene.ask(table=table, is_safe=is_safe)
    assert scene.now == pytest.approx(2.8)
    assert len(scene.asked) == asked


@pytest.mark.parametrize("failure", [LOST, LATE])
def test_what_is_sent_once_waits_no_longer_in_all(failure):
    """Markers, each of them sent to one address only."""
    scene = Scene(Patience(), a=[failure], b=[failure], c=[failure])
    scene.exchange_s = 100
    for _ in range(5):
        with pytest.raises(type(failure)):
            scene.ask(is_safe=False)
    assert scene.asked == [A, B, C]
    assert scene.now == pytest.approx(2.8)


def test_an_address_that_fails_at_once_leaves_its_share_to_the_next():
    scene = Scene(Patience(first_s=3), a=[LOST], b=[LATE], c=[b"1"])
    assert scene.ask() == b"1"
    assert scene.limits == [1, 1.5, 3]


def test_once_it_has_answered_an_exchange_may_take_longer():
    scene = Scene(Patience(first_s=3, deadline_s=100), a=[b"1"])
    scene.ask()
    scene.ask()
    assert scene.limits == [3, 100]


def test_a_late_answer_is_not_asked_for_again():
    scene = Scene(Patience(), a=[b"1", LATE, b"1"])
    scene.ask()
    with pytest.raises(ServiceTimeoutError):
        scene.ask()
    assert len(scene.asked) == 2
    assert scene.open_for_table == {A}
    assert not scene.open, "another table may be well"
    # Later tasks of the worker report the same cause: the address can be reached.
    with pytest.raises(ServiceTimeoutError, match="is not asked until it answers a probe: late"):
        scene.ask()
    assert scene.ask(table=OTHER)
    assert len(scene.asked) == 3


def test_an_address_that_was_late_first_is_asked_about_no_table_until_it_answers_a_probe():
    scene = Scene(Patience(), a=[LATE, LATE, b"1"])
    for table in (TABLE, OTHER):
        with pytest.raises(ServiceTimeoutError):
            scene.ask(table=table)
    assert scene.asked == [A]
    address = scene.circuits[A, None]
    address.state = address.state.closed(reached=True)  # as after a probe
    with pytest.raises(ServiceTimeoutError):
        scene.ask()
    assert scene.ask(table=OTHER) == b"1"
    assert scene.asked == [A] * 3


def test_what_is_not_safe_is_sent_once():
    scene = Scene(Patience(), a=[LOST], b=[b"1"])
    with pytest.raises(ServiceUnreachableError):
        scene.ask(is_safe=False)
    assert scene.asked == [A]


@pytest.mark.parametrize("error", [LOST, LATE])
def test_the_next_address_is_tried_at_once_and_the_first_left_alone(error):
    scene = Scene(Patience(), a=[error], b=[b"1"])
    assert scene.ask() == b"1"
    assert scene.asked == [A, B]
    assert not scene.waits
    assert scene.open | scene.open_for_table == {A}
    assert scene.ask() == b"1"
    assert scene.asked == [A, B, B]


@pytest.mark.parametrize(
    "error", [RemoteFailureError("500"), ViewBehindError("behind"), BadAnswerError("<html>")]
)
def test_an_answer_that_is_an_error_is_the_answer(error):
    scene = Scene(Patience(), a=[error], b=[b"1"])
    with pytest.raises(type(error)):
        scene.ask()
    assert scene.asked == [A]
    assert not scene.open


def test_a_service_at_work_is_asked_again_when_it_says():
    scene = Scene(Patience(first_s=3), a=[busy(2), busy(2), busy(2), b"1"])
    assert scene.ask() == b"1"
    assert len(scene.waits) == 3
    assert all(2 <= wait <= 2.5 for wait in scene.waits)
    assert not scene.open


def test_a_service_at_work_is_given_up_at_the_deadline():
    scene = Scene(Patience(deadline_s=10), a=[busy(2)])
    with pytest.raises(ServiceBusyError):
        scene.ask()
    assert scene.now <= 10
    assert not scene.open


@pytest.mark.parametrize("error", [busy(1), LOST])
def test_after_a_wait_beyond_the_deadline_the_last_error_is_raised(error):
    """As on a busy machine; a service that is only loading isn't unreachable."""
    scene = Scene(Patience(first_s=2, deadline_s=2), a=[error])
    scene.overslept_s = 2
    with pytest.raises(type(error)) as caught:
        scene.ask()
    assert caught.value is error
    assert scene.asked == [A]
    assert bool(scene.open) == (error is LOST)


def test_a_patience_of_nothing_is_refused(subtests):
    for name in ["first_s", "deadline_s", "first_wait_s", "longest_wait_s"]:
        with subtests.test(name=name), pytest.raises(ConfigError, match=f"{name} is 0"):
            Patience(**{name: 0})


def test_fewer_than_no_retries_are_refused():
    with pytest.raises(ConfigError, match="retries is -1"):
        Patience(retries=-1)


def test_a_service_without_addresses_is_refused():
    with pytest.raises(ConfigError, match="no address"):
        ServiceClient((), lambda session, table: Circuit("h"), "/t")


def test_patience_pickles():
    assert pickle.loads(pickle.dumps(Patience(retries=5))) == Patience(retries=5)


@pytest.mark.parametrize(
    "error", [RemoteFailureError("500"), ViewBehindError("behind"), BadAnswerError("<html>")]
)
def test_an_address_is_left_alone_when_a_later_one_answers_an_error(error):
    scene = Scene(Patience(), a=[LOST], b=[error])
    for _ in range(3):
        with pytest.raises(type(error)):
            scene.ask()
    assert scene.asked == [A, B, B, B]


def test_an_address_is_left_alone_when_a_later_one_is_busy():
    scene = Scene(Patience(), a=[LOST], b=[busy(1), busy(1), b"1"])
    assert scene.ask() == b"1"
    assert scene.asked == [A, B, B, B]


def test_a_service_that_asks_for_no_wait_is_not_asked_without_pause():
    scene = Scene(Patience(deadline_s=10), a=[busy(0)])
    with pytest.raises(ServiceBusyError):
        scene.ask()
    assert len(scene.asked) <= 101


def test_without_a_fallback_an_address_is_asked_in_spite_of_its_circuit():
    scene = Scene(Patience(retries=0), insists=True, a=[LOST, LOST, b"1"])
    for _ in range(2):
        with pytest.raises(ServiceUnreachableError, match="nobody there"):
            scene.ask()
    assert scene.ask() == b"1"


def test_without_a_fallback_an_address_that_failed_is_asked_the_last():
    scene = Scene(Patience(), insists=True, a=[LATE], b=[b"1", b"2", LOST], c=[LOST])
    for answer in (b"1", b"2"):
        assert scene.ask() == answer
    assert scene.asked == [A, B, B]
    with pytest.raises(ServiceTimeoutError):
        scene.ask()
    assert scene.asked[3:6] == [B, C, A], "it may answer again, and there is no other left"
