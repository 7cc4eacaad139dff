"""Children that an interrupt ends, however the tests were started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Have the processes that are started meanwhile take SIGINT as by default; on the main thread.

    A shell starts what runs in the background (``nohup tox &``) with SIGINT ignored, and so do its
    children inherit it. What is handled becomes the default in a child, what is ignored doesn't.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
