"""``in_order``: reads several streams at once in threads, and yields their items in order.

Each thread reads one stream at a time, the first that no other thread reads, and waits while too
many of its bytes are ahead of the consumer. A consumer that stops early wakes all threads, and
waits until they have closed their streams. All state is in queues, and is changed by single atomic
calls: a lock could stay locked after an interrupt.

When the process ends, waiting threads pass their streams to the consumer, if it continues.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from timeline.threads import JoinedThread, join_all

logger = logging.getLogger(__name__)

AHEAD_BYTES: Final = 32 << 20
"""Most unconsumed bytes of a stream for which its thread continues to read."""
_LOOK_S: Final = 0.5
"""Interval at which a waiting thread checks whether the process is ending."""

T = TypeVar("T")


def in_order(
    streams: Sequence[Callable[[], Generator[T]]],
    threads: int,
    size: Callable[[T], int],
    ahead_bytes: int = AHEAD_BYTES,
) -> Generator[T]:
    """Yield the items of streams, one stream after the other, while threads read the next ones.

    Args:
        streams: Each begins a stream, a generator, and is called at most once.
        threads: Most streams that are read in parallel. No other stream is begun before the first
            of them is consumed. With 1, or for one stream, no thread is started.
        size: Returns the size of an item in bytes.
        ahead_bytes: As ``AHEAD_BYTES``; a single item may exceed it.

    Raises:
        BaseException: An error of a stream, after all earlier items. The threads have ended then,
            as after ``close``.
    """
    threads = min(threads, len(streams))
    ahead = _Ahead([_Stream(begin) for begin in streams], threads, size, ahead_bytes)
    try:
        if threads > 1:
            ahead.start()
        for stream in ahead.streams:
            yield from ahead.items(stream)
    finally:
        try:
            ahead.stop()
        except BaseException:
            # After an interrupt, too, no threads may be left.
            ahead.stop()
            raise


@dataclass(slots=True)
class _Stream(Generic[T]):
    """A stream that a thread passes to the consumer.

    Attributes:
        begin: Begins the stream.
        items: The items read, then the end of the stream.
        consumed: The sizes of consumed items; ``None`` to end early.
    """

    begin: Callable[[], Generator[T]]
    items: SimpleQueue[T | _End[T]] = field(default_factory=SimpleQueue)
    consumed: SimpleQueue[int | None] = field(default_factory=SimpleQueue)


@dataclass(frozen=True, slots=True)
class _End(Generic[T]):
    """The end of a stream on its thread: an error, or the unread rest.

    Attributes:
        error: The error that the stream raised.
        rest: The stream, if it hasn't ended.
    """

    error: BaseException | None = None
    rest: Generator[T] | None = None


class _Ahead(Generic[T]):
    """The threads that read streams."""

    def __init__(
        self, streams: list[_Stream[T]], threads: int, size: Callable[[T], int], most: int
    ) -> None:
        self.streams = streams
        self._size = size
        self._most = most
        self._stopped = threading.Event()
        self._waiting = iter(streams)
        self._turns: SimpleQueue[_Stream[T] | None] = SimpleQueue()
        # An item for each thread that runs.
        self._running: set[int] = set()
        self._idents: set[int] = set()
        self._threads = [
            JoinedThread(partial(self._work, number), f"strandline-read-{number}")
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads; fewer, or none, if the system has no more."""
        for number, thread in enumerate(self._threads):
            self._running.add(number)
            try:
                thread.start()
            except RuntimeError as error:
                self._running.discard(number)
                logger.warning("streams are read on %d threads, not more: %s", number, error)
                return
            self._give()

    def items(self, stream: _Stream[T]) -> Iterator[T]:
        """Yield the items of a stream, then allow the next one to begin."""
        while not isinstance(item := self._next(stream), _End):
            stream.consumed.put(self._size(item))
            yield item
        if item.rest is not None:
            yield from item.rest
        if item.error is not None:
            raise item.error
        self._give()

    def stop(self) -> None:
        """End all threads, and wait for them."""
        self._stopped.set()
        for stream in self.streams:
            stream.consumed.put(None)
        for _ in self._threads:
            self._turns.put(None)
        # Garbage collection may close the consumer on one of the threads.
        if threading.get_ident() not in self._idents:
            join_all(self._threads)

    def _next(self, stream: _Stream[T]) -> T | _End[T]:
        """Return a stream's next item, or its end: with the unread stream if no thread reads it."""
        while True:
            is_read = bool(self._running)
            try:
                return stream.items.get(is_read, _LOOK_S)
            except Empty:
                if not is_read:
                    return _End(rest=stream.begin())

    def _give(self) -> None:
        """Allow a thread to begin the next stream."""
        self._turns.put(next(self._waiting, None))

    def _work(self, number: int) -> None:
        self._idents.add(threading.get_ident())
        try:
            while not self._stopped.is_set() and (stream := _taken(self._turns)) is not None:
                stream.items.put(self._read(stream))
        finally:
            self._running.discard(number)

    def _read(self, stream: _Stream[T]) -> _End[T]:
        """Read a stream; return its end."""
        ahead = 0
        try:
            items = stream.begin()
            for item in items:
                ahead += self._size(item)
                stream.items.put(item)
                while ahead >= self._most and (size := _taken(stream.consumed)) is not None:
                    ahead -= size
                if self._stopped.is_set():
                    items.close()
                    break
                if ahead >= self._most:
                    return _End(rest=items)
        # Interrupts, too, which the consumer raises.
        except BaseException as error:  # noqa: BLE001 - raised by the consumer
            return _End(error)
        return _End()


def _taken(queue: SimpleQueue[T]) -> T | None:
    """Return the next item of a queue; ``None`` if the process is ending: its main thread has."""
    while True:
        try:
            return queue.get(timeout=_LOOK_S)
        except Empty:
            if not threading.main_thread().is_alive():
                return None
