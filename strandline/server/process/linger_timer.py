"""``LingerTimer``: calls a function once an unused service has lingered long enough."""

from __future__ import annotations

import threading
from collections.abc import Callable


class LingerTimer:
    """At most one timer; all methods are called under a lock of the owner's.

    Attributes:
        thread: The timer that is set, or ``None``.
    """

    def __init__(self) -> None:
        self.thread: threading.Timer | None = None

    def start(self, seconds: float, function: Callable[[], None]) -> bool:
        """Set the timer; return whether it is set."""
        self.thread = threading.Timer(seconds, function)
        # The interpreter would wait for another thread; at its exit the child ends at once.
        self.thread.daemon = True
        try:
            self.thread.start()
        except RuntimeError:  # the interpreter exits, or has no more threads
            self.thread = None
        return self.thread is not None

    def cancel(self) -> None:
        """Cancel the timer, if one is set; its function may be waiting for the lock already."""
        thread, self.thread = self.thread, None
        if thread is not None:
            thread.cancel()

    def take(self) -> bool:
        """Whether the calling thread is the timer that is set, which it no longer is then."""
        if self.thread is not threading.current_thread():
            return False
        self.thread = None
        return True
