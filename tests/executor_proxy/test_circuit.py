"""``Circuit``: when an address is asked, and how it is probed."""

from __future__ import annotations

import multiprocessing
import queue
import threading

import pytest

from executor_proxy.circuit import FIRST_PROBE_S, LONGEST_PROBE_S, MAX_PROBES, Circuit, Known
from executor_proxy.http import HttpSession
from executor_proxy.worker_state import MAX_CIRCUITS, Worker, this_worker
from tests.kit.concurrency.patience import PATIENCE_S
from timeline.errors import ServiceTimeoutError, ServiceUnreachableError

LOST = ServiceUnreachableError("nobody there")


class Waits:
    """Waits of the probing thread: each ends when the test says so, and tells its length."""

    def __init__(self) -> None:
        self.begun: queue.Queue[float] = queue.Queue()
        self._goes_on: queue.Queue[None] = queue.Queue()

    def __call__(self, seconds: float) -> None:
        self.begun.put(seconds)
        self._goes_on.get(timeout=PATIENCE_S)

    def end(self) -> float:
        """End the wait that has begun, or begins next; return its length."""
        seconds = self.begun.get(timeout=PATIENCE_S)
        self._goes_on.put(None)
        return seconds


class Probe:
    """Raises the errors of its script, then answers; ``answered`` is set by the first answer."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.answered = threading.Event()

    def __call__(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.answered.set()


@pytest.fixture
def waits() -> Waits:
    return Waits()


class ProbedCircuit(Circuit):
    """A circuit that knows the threads of earlier tests, which may probe for long."""

    def __init__(self, waits: Waits) -> None:
        super().__init__("http://h:1", wait=waits, jitter=lambda: 1.0)
        self.earlier = frozenset(threading.enumerate())


@pytest.fixture
def circuit(waits: Waits) -> ProbedCircuit:
    return ProbedCircuit(waits)


def closed(circuit: ProbedCircuit) -> bool:
    """Wait until no thread of this test probes any more; return whether the circuit is closed."""
    for thread in set(threading.enumerate()) - circuit.earlier:
        if thread.name == "strandline-probe":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    return circuit.state.failure is None


def test_a_circuit_is_open_from_a_failure_until_a_probe_is_answered(circuit, waits):
    assert circuit.state.failure is None
    circuit.failed(LOST, Probe(LOST, ServiceTimeoutError("late")))
    assert circuit.state.failure is not None
    assert [waits.end(), waits.end()] == [FIRST_PROBE_S, 2 * FIRST_PROBE_S]
    assert circuit.state.failure is not None
    waits.end()
    assert closed(circuit)


def test_waits_between_probes_are_bounded(circuit, waits):
    circuit.failed(LOST, Probe(*[LOST] * 9))
    lengths = [waits.end() for _ in range(10)]
    assert lengths == sorted(lengths)
    assert lengths[-1] == LONGEST_PROBE_S
    assert closed(circuit)


def test_failures_of_many_tasks_begin_one_thread_that_probes(circuit, waits):
    probe = Probe()
    for _ in range(50):
        circuit.failed(LOST, probe)
    assert waits.end() == FIRST_PROBE_S
    assert closed(circuit)
    assert waits.begun.empty()


def test_a_service_that_answers_probes_alone_is_probed_ever_later(circuit, waits):
    lengths = []
    for _ in range(3):
        circuit.failed(LOST, Probe())
        lengths.append(waits.end())
        assert closed(circuit)
    assert lengths == [FIRST_PROBE_S, 2 * FIRST_PROBE_S, 4 * FIRST_PROBE_S]
    circuit.answered()
    circuit.failed(LOST, Probe())
    assert waits.end() == FIRST_PROBE_S
    assert closed(circuit)


def test_a_circuit_that_nobody_could_probe_stays_closed():
    def begin(_):
        raise RuntimeError("can't start new thread")

    circuit = Circuit("http://h:1", begin=begin)
    circuit.failed(LOST, Probe())
    assert circuit.state.failure is None


def test_any_error_of_a_probe_counts_as_no_answer(circuit, waits):
    circuit.failed(LOST, Probe(RecursionError(), ValueError()))
    for _ in range(3):
        waits.end()
    assert closed(circuit)


def test_an_address_that_never_answers_is_not_probed_for_ever(circuit, waits):
    circuit.failed(LOST, Probe(*[LOST] * (2 * MAX_PROBES)))
    for _ in range(MAX_PROBES):
        waits.end()
    assert closed(circuit), "the next question finds out"


def test_a_circuit_remembers_that_a_call_was_answered_once(circuit):
    assert circuit.state.known is Known.NOTHING
    circuit.answered()
    assert circuit.state.known is Known.ANSWERED


def test_tasks_of_a_process_share_the_circuit_of_an_address():
    assert this_worker().circuit(HttpSession("http://shared:1")) is this_worker().circuit(
        HttpSession("http://shared:1")
    )
    assert this_worker().circuit(HttpSession("http://shared:1")) is not this_worker().circuit(
        HttpSession("http://shared:2")
    )


def test_a_worker_keeps_the_circuits_used_last_and_the_open_ones():
    worker, session = Worker(), HttpSession("http://many:1")
    address, opened, closed = (worker.circuit(session, table) for table in (None, "/o", "/c"))
    opened.state = opened.state.opened(LOST)
    for number in range(2 * MAX_CIRCUITS):
        worker.circuit(session, f"/t{number}")
        assert worker.circuit(session) is address
    assert worker.circuit(session, "/o") is opened
    assert worker.circuit(session, "/c") is not closed
    assert len(worker._circuits) == MAX_CIRCUITS


def test_the_circuits_of_a_worker_are_bounded_even_if_all_are_open():
    worker, session = Worker(), HttpSession("http://many:1")
    for number in range(MAX_CIRCUITS + 9):
        circuit = worker.circuit(session, f"/t{number}")
        circuit.state = circuit.state.opened(LOST)
    assert len(worker._circuits) == MAX_CIRCUITS


def _in_child(results):
    results.put(this_worker().circuit(HttpSession("http://forked:1")).state.known)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # 3.12: fork beside threads
def test_a_forked_process_finds_out_for_itself():
    this_worker().circuit(HttpSession("http://forked:1")).answered()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_in_child, args=(results,))
    child.start()
    assert results.get(timeout=PATIENCE_S) is Known.NOTHING
    child.join()
