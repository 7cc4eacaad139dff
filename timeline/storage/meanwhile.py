"""``meanwhile`` makes storage calls on other threads while the caller makes its own.

Most of a call to an object store is waiting, so calls that don't depend on each other overlap. On a
local disk a thread costs more than a call, so there they are made one after the other.
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

    Where no thread can be started, a call is made before the block as well.

    The calls and the block must not depend on each other: after a crash or an error any of them may
    have taken effect without the others. All have ended when this returns or raises.

    Args:
        storage: The storage that they are made to.
        calls: The calls; each gets a thread.

    Raises:
        BaseException: What the first call to fail raised, as if the calls were made before the
            block; an error of the block is its context. Without one, what the block raised. An
            interrupt of the block or of the wait for the calls is raised whatever else failed; a
            second one ends the wait.
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
        # The block's error, or an interrupt, of which a second one may end this early.
        join_all(threads)
        if failures and isinstance(error, Exception):
            raise failures.pop(0)  # noqa: B904 - neither error caused the other
        for failure in failures:
            logger.info("a call made at the same time failed, too: %r", failure)
        raise
    if failures:
        # Taken out of the list, as the error's traceback refers to this frame.
        raise failures.pop(0)


def _run(call: Callable[[], object], failures: list[BaseException]) -> None:
    try:
        call()
    except BaseException as failure:  # noqa: BLE001 - raised by the calling thread
        failures.append(failure)
