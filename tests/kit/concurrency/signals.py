"""A real signal that interrupts the main thread while it waits in a chosen function."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.kit.concurrency.patience import PATIENCE_S


class Interrupted(BaseException):
    """Raised by the signal's handler, as ``KeyboardInterrupt`` is."""


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Let ``interrupt`` raise ``Interrupted`` in the main thread, which runs the block.

    Yields:
        An event that is set when it was raised.
    """
    raised = threading.Event()

    def handle(*_: object) -> None:
        raised.set()
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield raised
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupt() -> None:
    """Interrupt the main thread; called by another one."""
    os.kill(os.getpid(), signal.SIGUSR1)


def wait_until_in(name: str, after: FrameType | None = None) -> FrameType:
    """Wait until the main thread runs a function, itself or by a call; return the function's frame.

    Args:
        name: The function's name.
        after: The frame of an earlier call that isn't meant: an interrupt may not have left it yet.
    """
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None:
            if frame.f_code.co_name == name and frame is not after:
                return frame
            frame = frame.f_back
        pause.wait(0.01)
    raise AssertionError(f"the main thread isn't in {name}")


def join_calls() -> None:
    """Wait for the storage calls on threads that have outlived their caller."""
    for thread in threading.enumerate():
        if thread.name.startswith("strandline-call-"):
            thread.join(PATIENCE_S)
