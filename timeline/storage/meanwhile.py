"""``meanwhile`` makes storage calls on other threads while the caller makes its own.

A call to an object store is mostly waiting, so independent calls overlap. On a local disk a thread
costs more than a call, so calls are made one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from timeline.joined_thread import JoinedThread, join_all
from timeline.storage.base import Storage

logger = logging.getLogger(__name__)


@contextmanager
def meanwhile(storage: Storage, *calls: Callable[[], object]) -> Iterator[None]:
    """Make calls while the block runs if the storage is remote, else before the block.

    If no thread can be started, a call is made before the block, too.

    The calls and the block must not depend on each other: after a crash or an error any of them may
    have taken effect without the others. All have ended when this returns or raises.

    Args:
        storage: The storage that the calls go to.
        calls: The calls; each gets a thread.

    Raises:
        BaseException: The error of the first call that failed, as if the calls were made before the
            block; an error of the block is its context. If no call failed, the error of the block.
            An interrupt of the block or of the wait for the calls takes precedence over other
            errors; a second interrupt ends the wait.
    """
    if not storage.is_remote:
        for call in calls:
            call()
        yield
        return
    # Changed by atomic calls: a lock could stay locked after an interrupt.
    failures: list[BaseException] = []
    made = [partial(_run, call, failures) for call in calls]
    threads = [JoinedThread(call, f"strandline-call-{number}") for number, call in enumerate(made)]
    try:
        for thread, call in zip(threads, made, strict=True):
            try:
                thread.start()
            except RuntimeError as error:
                logger.warning("there is no thread for a call, so it is made first: %s", error)
                call()
        yield
        join_all(threads)
    except BaseException as error:
        # The block's error, or an interrupt; a second interrupt may end this wait early.
        join_all(threads)
        if failures and isinstance(error, Exception):
            raise failures.pop(0)  # noqa: B904 - neither error caused the other
        for failure in failures:
            logger.info("a call made at the same time failed, too: %r", failure)
        raise
    if failures:
        # Remove it from the list, as the error's traceback refers to this frame.
        raise failures.pop(0)


def _run(call: Callable[[], object], failures: list[BaseException]) -> None:
    try:
        call()
    except BaseException as failure:  # noqa: BLE001 - raised by the calling thread
        failures.append(failure)
