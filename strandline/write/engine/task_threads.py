"""``run_in_threads`` runs a stage's tasks on threads of this process; the first failure stops all.

The calling thread runs tasks, too, so a stage of one task starts no thread, and the connections
that this thread keeps to the timeline service are reused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from timeline.threads import JoinedThread, join_all

logger = logging.getLogger(__name__)

R = TypeVar("R")


class StageStoppedError(Exception):
    """A task ended early because another task of its stage failed."""


def run_in_threads(run: Callable[[int, threading.Event], R], tasks: int, threads: int) -> list[R]:
    """Run a stage's tasks and return their results in the order of their numbers.

    Args:
        run: Runs the task with a number from 0 to ``tasks - 1``. If the event is set, another task
            has failed: ``run`` should then soon raise ``StageStoppedError``.
        tasks: Number of tasks.
        threads: Maximum number of tasks that run at the same time; fewer if no more threads can be
            started.

    Raises:
        BaseException: The error of the first task that failed, or an interrupt of the calling
            thread; all threads have ended by then, unless another interrupt ended that wait.
    """
    stop = threading.Event()
    # Change each by single atomic calls: a lock could stay locked after an interrupt.
    numbers = iter(range(tasks))
    results: dict[int, R] = {}
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set() and (number := next(numbers, None)) is not None:
                results[number] = run(number, stop)
        # An interrupt, too; only the main thread gets one.
        except BaseException as error:  # noqa: BLE001 - raised by the calling thread
            failures.append(error)
            stop.set()

    helpers = [
        JoinedThread(work, f"strandline-task-{number}") for number in range(1, min(tasks, threads))
    ]
    try:
        _start(helpers)
        work()
        join_all(helpers)
    except BaseException:
        # After an interrupt between the steps, too: the helpers end before their next file.
        stop.set()
        join_all(helpers)
        raise
    if failures:
        # Remove it from the list, as the error's traceback refers to this frame.
        raise failures.pop(0)
    return [results[number] for number in range(tasks)]


def _start(helpers: list[JoinedThread]) -> None:
    for number, helper in enumerate(helpers):
        try:
            helper.start()
        except RuntimeError as error:
            logger.warning("tasks run on %d threads, not more: %s", number + 1, error)
            return
