"""Streams that are read ahead in threads: order, bounds, and that no thread is left behind."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.read import prefetch
from strandline.read.prefetch import in_order
from tests.kit.concurrency.interrupts import interrupted
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.signals import Interrupted, interrupt, interrupts, wait_until_in
from tests.kit.short_runs import examples
from timeline import threads


def running():
    """Return the threads that haven't ended, nor are about to."""
    threads = [t for t in threading.enumerate() if t.name.startswith("strandline-read-")]
    for thread in threads:
        thread.join(PATIENCE_S)
    return [thread.name for thread in threads if thread.is_alive()]


def stream(items):
    yield from items


def take_all(found, items):
    for item in items:
        found.append(item)


def endless(ended, number):
    try:
        for item in itertools.count():
            yield number, item
    finally:
        ended.append(number)


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 5), max_size=6), st.sampled_from([1, 2, 3, 9]), st.sampled_from([1, 9])
)
def test_items_come_in_order(lengths, threads, ahead_bytes):
    expected = [[(at, n) for n in range(length)] for at, length in enumerate(lengths)]
    streams = [partial(stream, each) for each in expected]
    found = list(in_order(streams, threads, lambda _: 1, ahead_bytes))
    assert found == list(itertools.chain.from_iterable(expected))
    assert running() == []


def test_as_many_streams_are_read_at_the_same_time_as_there_are_threads():
    together = threading.Barrier(3)

    def meeting(number):
        together.wait(PATIENCE_S)
        yield number, threading.current_thread().name

    found = list(in_order([partial(meeting, n) for n in range(3)], 3, lambda _: 1))
    assert [number for number, _ in found] == [0, 1, 2]
    assert len({name for _, name in found}) == 3


def test_no_more_streams_are_begun_than_threads_before_the_first_is_consumed():
    taken, begun = [], []

    def counted(number):
        begun.append((number, len(taken)))
        yield number

    for number in in_order([partial(counted, n) for n in range(9)], 3, lambda _: 1):
        taken.append(number)
    assert taken == list(range(9))
    assert all(before >= number - 2 for number, before in begun)


def test_a_stream_is_not_read_far_ahead():
    taken, distances = [], []

    def measured(number):
        for at in range(200):
            distances.append(number * 200 + at - len(taken))
            yield at

    for item in in_order([partial(measured, n) for n in range(2)], 2, lambda _: 10, 50):
        taken.append(item)
    assert len(taken) == 400
    # Of the second stream some are ahead while the first is read.
    assert max(distances) <= 200 + 6


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("taken", [0, 1, 50])
def test_a_consumer_that_leaves_ends_all(threads, taken):
    ended: list[int] = []
    streams = [partial(endless, ended, n) for n in range(6)]
    with closing(in_order(streams, threads, lambda _: 1, 10)) as items:
        assert [item for _, item in itertools.islice(items, taken)] == list(range(taken))
    assert running() == []
    assert (0 in ended) == (taken > 0)


def test_an_error_comes_after_all_items_before_it():
    ended: list[int] = []

    def failing():
        yield "last"
        raise KeyError("no")

    streams = [partial(stream, "ab"), failing, partial(endless, ended, 2)]
    found = []
    with pytest.raises(KeyError, match="no"):
        take_all(found, in_order(streams, 3, lambda _: 1, 10))
    assert found == ["a", "b", "last"]
    assert running() == []


@pytest.mark.property
def test_an_interrupt_at_any_step_leaves_no_thread_behind():
    for at in itertools.count(1):
        found: list[int] = []
        # So long that their threads wait for the consumer.
        streams = [partial(stream, range(5)) for _ in range(3)]
        work = lambda f=found, s=streams: take_all(f, in_order(s, 2, lambda _: 1, 2))  # noqa: E731
        was_interrupted = interrupted(work, at, (prefetch, threads))
        assert running() == [], f"a stream is read on after an interrupt at opcode {at}"
        if not was_interrupted:
            break
    assert at > 50
    assert found == [*range(5)] * 3


def test_an_interrupt_of_a_waiting_consumer_ends_all():
    ended: list[int] = []

    def slow():
        wait_until_in("_next")
        interrupt()
        yield from endless(ended, 0)

    items = in_order([slow, partial(endless, ended, 1)], 2, lambda _: 1, 10)
    with interrupts(), pytest.raises(Interrupted):
        take_all([], items)
    assert running() == []
    assert 1 in ended


def test_a_thread_may_close_the_consumer():
    """As a garbage collection does, which runs on any thread."""
    close, closed = threading.Event(), threading.Event()

    def closing_stream():
        assert close.wait(PATIENCE_S)
        items.close()
        closed.set()
        yield 1

    items = in_order([partial(stream, [0, 1]), closing_stream], 2, lambda _: 1)
    assert next(items) == 0
    close.set()
    assert closed.wait(PATIENCE_S)
    assert list(items) == []


def test_without_threads_the_consumer_reads(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    streams = [partial(stream, [n, n]) for n in range(3)]
    assert list(in_order(streams, 3, lambda _: 1)) == [0, 0, 1, 1, 2, 2]


PROCESS = """
import itertools, threading
from functools import partial
from strandline.read.prefetch import in_order

def stream(n):
    yield from range(n, n + 100)

items = in_order([partial(stream, n) for n in range(5)], 2, lambda _: 1, 10)
print(next(items))
"""
READS_ON = """
def read_on():
    threading.main_thread().join()
    print(sum(1 for _ in items))

threading.Thread(target=read_on).start()
"""


@pytest.mark.parametrize(("script", "printed"), [("", "0\n"), (READS_ON, "0\n499\n")])
def test_a_process_ends_with_streams_half_read(script, printed):
    """A thread that outlives the main thread reads all the same."""
    done = subprocess.run(
        [sys.executable, "-c", PROCESS + script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)
