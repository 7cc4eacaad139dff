"""Child processes that react to SIGINT however the tests were started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Start child processes with the default SIGINT handler; call on the main thread.

    A shell starts background jobs (``nohup tox &``) with SIGINT ignored, and children inherit that.
    A handled signal is reset to the default in a child, an ignored one isn't.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
