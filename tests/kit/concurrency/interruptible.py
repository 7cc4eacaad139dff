"""Child processes that react to SIGINT and SIGHUP however the tests were started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Start child processes with the default handlers; call on the main thread.

    A shell starts background jobs (``nohup tox &``) with SIGINT ignored, ``nohup`` ignores SIGHUP,
    and children inherit both. A handled signal is reset to the default in a child, an ignored one
    isn't.
    """
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, hang_up)
        signal.signal(signal.SIGINT, interrupt)
