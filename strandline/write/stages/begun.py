"""``Begun``: a write has its instant, which other writers see, and the timeline for its look-ups.

Before that, in ``Ready``, the table exists, and failed writes are rolled back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from strandline.commit.completion_outcome import survived
from strandline.commit.markers import timeline_and_markers
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.settings import conflict_strategy
from strandline.commit.transaction import Transaction
from strandline.write.context import WriteContext, WriteRequest
from strandline.write.engine.base import Tally
from strandline.write.index.base import KeyedRows
from strandline.write.last_timeline import TimelineOutdatedError, is_left_with
from strandline.write.operation import Replaces
from strandline.write.stages.checked import Checked
from strandline.write.target import Target
from strandline.write.tasks.write_task import BegunFiles
from timeline.errors import (
    ConcurrentWriteError,
    StorageUnavailableError,
    StrandlineError,
    WriteConflictError,
)
from timeline.instant import Instant, State
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """A write whose table exists, without remains of failed writes.

    Attributes:
        rows: The rows with their keys.
        target: The table.
        rolled_back: Requested times of the failed writes that were rolled back.
    """

    rows: KeyedRows[Any]
    target: Target
    rolled_back: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """A write whose instant is requested.

    Attributes:
        rows: The rows with their keys.
        target: The table.
        rolled_back: As in ``Ready``.
        transaction: The instant, and the timeline that look-ups are pinned to.
        tally: Counts the storage calls of tasks.
        files: The data files that tasks in the driver's process may have created.
    """

    rows: KeyedRows[Any]
    target: Target
    rolled_back: tuple[str, ...]
    transaction: Transaction
    tally: Tally
    files: BegunFiles


def ready(request: WriteRequest, checked: Checked) -> Ready:
    """Create the table if it is new, drop its metadata table, and roll failed writes back.

    Raises:
        ConfigError: The table can't be created.
        TableError: The metadata table can't be dropped, or a failed write can't be rolled back.
        LockError: The lock can't be acquired, or was lost.
    """
    target = request.context.ready(checked.target)
    # The client's own last timeline has nothing to roll back.
    if target.is_left:
        return Ready(checked.rows, target, ())
    # Before the timeline for this write's look-ups is read.
    with request.account.timed("rollback"):
        rolled_back = tuple(request.context.rollbacks(target.meta).repair(target.timeline))
    return Ready(checked.rows, target, rolled_back)


def begun(request: WriteRequest, ready: Ready, heartbeat: Heartbeat, files: BegunFiles) -> Begun:
    """Request the instant; the caller ends the heartbeat if that fails, or a stage that follows.

    Args:
        request: The write.
        ready: The previous stage.
        heartbeat: The write's heartbeat, not started.
        files: Gets the data files that tasks in the driver's process may create.

    Raises:
        TimelineOutdatedError: The target's timeline is the one after the client's last write, and
            another writer, or one of its tasks, has been active since. The instant, if it was
            requested, is rolled back.
        ConcurrentWriteError: Another writer requested the same time, or a later one.
        LockError: The lock can't be acquired.
    """
    transaction = _requested(request, ready.target, heartbeat)
    tally = ready.rows.engine.tally()
    return Begun(ready.rows, ready.target, ready.rolled_back, transaction, tally, files)


@contextmanager
def until_committed(request: WriteRequest, begun: Begun) -> Iterator[None]:
    """End the heartbeat if the block fails, and roll back a commit that conflicts.

    Don't roll back while a data file may still appear: no later write would find it.
    """
    transaction = begun.transaction
    try:
        yield
    # On an interrupt, too: the heartbeat's thread would keep a dead write alive.
    except BaseException as failure:
        # Set before the heartbeat ends: another writer may then roll the write back at once.
        begun.files.is_left = True
        # Late unless storage says otherwise: a second interrupt may end the look at it.
        is_undone, late = False, True
        in_process = begun.rows.engine.in_process
        try:
            late = transaction.may_appear(failure, begun.files.unanswered, in_process=in_process)
            if late:
                transaction.explain_wait(failure)
            is_conflict = isinstance(failure, WriteConflictError) and not late
            is_undone = is_conflict and _roll_back(request, begun)
            if isinstance(failure, StorageUnavailableError):
                transaction.make_room()
        finally:
            if is_undone:
                with survived(f"the heartbeat of {transaction.instant} stays"):
                    transaction.end()
            else:
                transaction.fail(sorted(begun.files.created), late=late)
        raise


def _roll_back(request: WriteRequest, begun: Begun) -> bool:
    """Roll back a commit that conflicts; return whether this writer has done it."""
    instant = begun.transaction.instant
    try:
        return request.context.rollbacks(begun.target.meta).roll_back_own(instant)
    except StrandlineError as error:
        logger.warning("commit %s can't be rolled back: %s", instant.requested_time, error)
        return False


def _requested(request: WriteRequest, target: Target, heartbeat: Heartbeat) -> Transaction:
    """Request the instant; roll it back if it was requested from an outdated timeline."""
    context, operation = request.context, request.operation
    action = target.action_of(operation)
    planned = operation.name if operation.replaces is Replaces.NAMED else None
    try:
        with request.account.timed("commit"):
            return _request_pinned(context, target, heartbeat, action, planned)
    except TimelineOutdatedError:
        context.last_timeline.is_sole = False
        # Roll back at once: the repeated write may be refused before it repairs the table.
        heartbeat.give_up()
        own = Instant(heartbeat.instant, action, State.REQUESTED)
        with request.account.timed("rollback"):
            context.rollbacks(target.meta).roll_back_dead(own)
        raise


def _request_pinned(
    context: WriteContext, target: Target, heartbeat: Heartbeat, action: str, planned: str | None
) -> Transaction:
    """Request the instant and read the timeline; raise an error if the target's was outdated."""
    if not target.is_left:
        return _request(context, target, heartbeat, action, planned)
    has_markers = False

    def look() -> Timeline:
        nonlocal has_markers
        timeline, marked = timeline_and_markers(target.meta)
        has_markers = bool(marked)
        return timeline

    try:
        transaction = _request(context, target, heartbeat, action, planned, look)
    except ConcurrentWriteError as error:
        # The instant's time was chosen after the last timeline's, which may lack the newest.
        raise TimelineOutdatedError from error
    found, instant = transaction.timeline, transaction.instant
    if has_markers or not is_left_with(found, target.timeline, instant, target.config):
        raise TimelineOutdatedError
    return transaction


def _request(
    context: WriteContext,
    target: Target,
    heartbeat: Heartbeat,
    action: str,
    planned: str | None,
    look: Callable[[], Timeline] | None = None,
) -> Transaction:
    # The lock excludes other writers only while it is held. Since the target was opened, this write
    # may have waited for their instants, or rolled them back.
    is_known = target.is_left or not (context.lock.has_provider or target.timeline.pending())
    return Transaction(
        target.meta,
        context.times(target.config.timezone),
        context.lock,
        heartbeat,
        conflict_strategy(context.settings, by_bucket=target.index.is_bucket),
        action=action,
        operation=planned,
        seen=target.timeline if is_known else None,
        look=look,
    )
