"""Which calls of ``JoinedThread`` go on.

A joined thread has made its call, but may still be listed among the threads for a moment.
"""

import threading

from timeline.threads import JoinedThread


def running_calls(prefix: str) -> set[threading.Thread]:
    """Return the threads, with names that begin so, whose call hasn't ended.

    A thread that hasn't begun its call is among them, unless it never will.
    """
    found = set()
    for thread in threading.enumerate():
        # A thread that has made its call no longer has a target.
        joined = getattr(getattr(thread, "_target", None), "__self__", None)
        if isinstance(joined, JoinedThread) and not joined.join(0):
            found.add(thread)
    return {thread for thread in found if thread.name.startswith(prefix)}
