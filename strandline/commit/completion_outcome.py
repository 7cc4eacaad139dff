"""Completing an instant so that its outcome is known: completed, not completed, or in doubt.

The completed file is the commit point, and creating it may fail in three ways: it wasn't created;
it was, but the response was lost; or the request is still under way and may create it later. An
object store's client repeats an unanswered request, so "exists already" may result from its own
success.

Only the writer that requested an instant completes it, so any completed file of the instant is its
own. A compaction's plan may be executed by several writers, one after the other, whose completed
files name different data files. From table version 8 on the file's name has the completion time, so
exclusive creation doesn't exclude a second file under a new time. A create is therefore repeated
under the same name only.

On a file system that doesn't write files as a whole, a create that fails may leave a torn file, on
a full disk an empty one. It puts the instant on the timeline as completed, but nobody can read what
it did. Its writer deletes it while it holds the lock: no other writer can have built on it.

Another writer that considers this one dead may roll the instant back at the same time. It puts its
rollback on the timeline, and then, before it deletes a file, checks whether the instant has
completed. This writer completes the instant first, and then searches the timeline for such a
rollback. So at least one of the two sees the other. A window remains: readers may see the commit
briefly before it is withdrawn, and a writer that dies in between leaves a completed instant without
its files. A lock provider closes this window.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from timeline.errors import (
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    CorruptMetadataError,
    IllegalTransitionError,
    InstantNotFoundError,
    StrandlineError,
)
from timeline.instant import RESTORE, ROLLBACK, Instant, completed_action
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    InstantMetadata,
    RollbackMetadata,
    RollbackPlan,
)
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 2
"""Attempts of the completing create, and of each listing of the timeline after it."""


def complete_surely(
    meta: TableMetaClient,
    instant: Instant,
    metadata: InstantMetadata,
    completion_time: str,
    check_alive: Callable[[], None],
    *,
    just_seen: bool = False,
) -> Instant:
    """Complete an inflight instant of this writer; return the completed instant.

    Args:
        meta: The table's meta client.
        instant: The instant in state inflight, requested by the caller.
        metadata: The commit's metadata.
        completion_time: As in ``TableMetaClient.complete``.
        check_alive: Called before the create is repeated; raises if another writer may have taken
            over meanwhile.
        just_seen: As in ``TableMetaClient.complete``.

    Raises:
        ConcurrentWriteError: It was rolled back and isn't completed, or another writer has executed
            its plan.
        CommitOutcomeUnknownError: It may be completed, now or later; or its completed file was
            torn, and is deleted if the storage allows.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            if attempt > 1:
                check_alive()
            seen = just_seen and attempt == 1
            return meta.complete(instant, metadata, completion_time, just_seen=seen)
        except IllegalTransitionError as error:
            # Raised before the create, so this attempt did nothing, but an earlier one may have.
            if attempt > 1:
                raise _unknown(meta, instant, error) from error
            raise not_pending(error) from error
        # Whichever call failed, the request may have taken effect.
        except Exception as error:
            found = _completed(meta, instant)
            if found is not None:
                if _is_torn(meta, found):
                    raise _without_torn(meta, found, error, check_alive) from error
                if not _is_ours(meta, found, metadata, error):
                    raise ConcurrentWriteError(
                        f"{found} of {meta.storage.base_path} was completed by another writer",
                        hint="it considered this one dead, and executed the plan again",
                    ) from error
                logger.info("%s has completed, although its last call failed: %s", found, error)
                return found
            if attempt == _ATTEMPTS:
                raise _unknown(meta, instant, error) from error
    raise AssertionError("unreachable")


def complete_or_find(
    meta: TableMetaClient, instant: Instant, metadata: InstantMetadata, completion_time: str
) -> Instant:
    """Complete an inflight rollback or clean under the table's lock; return the completed instant.

    If that fails, its completed file may be there nevertheless: another writer has finished it, or
    the request has taken effect, and its answer was lost. It is completed in either case, unless
    the file is torn. Then that is deleted: a rollback or clean can be carried out again.

    Raises:
        StrandlineError: As ``TableMetaClient.complete``, if no completed file is seen.
    """
    try:
        return meta.complete(instant, metadata, completion_time)
    # Whichever call failed, the request may have taken effect.
    except Exception as error:
        found = _completed(meta, instant)
        if found is not None and not _is_torn(meta, found):
            return found
        # A file that was there before the create may be another writer's, which is writing it.
        if found is not None and not isinstance(error, ConcurrentWriteError):
            with survived(f"the torn file of {found} stays"):
                meta.delete_instant_file(found)
        raise


def withdraw_if_rolled_back(meta: TableMetaClient, completed: Instant, seen: Timeline) -> Timeline:
    """Delete the completed file of a commit that a concurrent rollback or restore undoes.

    Args:
        meta: The table's meta client.
        completed: The instant that this writer has just completed.
        seen: The timeline read before the completion; its rollbacks don't name the instant, and its
            restores completed before the write began.

    Returns:
        The active timeline, read after the instant was completed.

    Raises:
        ConcurrentWriteError: There was such a rollback or restore; the completed file is deleted.
        CommitOutcomeUnknownError: It is unknown whether there was one, or the file can't be
            deleted.

    Cost: a list call, and a read of each rollback that isn't in ``seen``.
    """
    now, rollback = _rollback_of_completed(meta, completed, seen)
    if rollback is None:
        return now
    try:
        meta.delete_instant_file(completed)
    # Whichever call failed, the file may still exist, and the commit be visible.
    except Exception as error:
        raise _unknown(meta, completed, error) from error
    raise rolled_back_by(rollback, completed, meta)


def rollback_of(
    meta: TableMetaClient, times: Collection[str], now: Timeline, seen: Timeline
) -> tuple[Instant, str] | None:
    """Return the first rollback that isn't in ``seen`` and names one of ``times``, and that time.

    Args:
        meta: The table's meta client.
        times: The instants' requested times.
        now: The timeline whose rollbacks are read.
        seen: The timeline whose rollbacks don't count.

    Raises:
        CorruptMetadataError: The plan of a pending one can't be read.
    """
    if ROLLBACK not in now.actions:
        return None
    for found in now.instants[now.same_start(seen) :]:
        if found.action != ROLLBACK or seen.contains(found):
            continue
        try:
            content = meta.read(found) if found.is_completed else meta.read_plan(found)
        except InstantNotFoundError:
            # Withdrawn. No writer executes a rollback without its requested file, even if there is
            # an inflight one.
            continue
        for time in _rolled_back(content):
            if time in times:
                return found, time
    return None


def restore_since(now: Timeline, seen: Timeline) -> Instant | None:
    """Return a restore in ``now`` that hadn't completed in ``seen``.

    It may undo any commit of ``seen``. A restore that had completed in ``seen`` can't: what it
    undid is already absent there.
    """
    restores = (i for i in now if i.action == RESTORE) if RESTORE in now.actions else iter(())
    return next((i for i in restores if not (i.is_completed and seen.contains(i))), None)


def _rolled_back(content: InstantMetadata) -> tuple[str, ...]:
    """Return the requested times of the instants that a rollback's plan or metadata names."""
    if isinstance(content, RollbackMetadata):
        return content.commits_rollback
    if isinstance(content, RollbackPlan) and content.instant_to_rollback is not None:
        return (content.instant_to_rollback.commit_time,)
    return ()


def rolled_back_by(
    rollback: Instant, instant: Instant, meta: TableMetaClient
) -> ConcurrentWriteError:
    """Return the error for a commit that a rollback of another writer undid, or a restore."""
    if rollback.action == RESTORE:
        return ConcurrentWriteError(
            f"{instant.action} {instant.requested_time} of {meta.storage.base_path} was withdrawn,"
            f" because it builds on what restore {rollback.requested_time} may undo",
            hint="repeat the write when Hudi has finished the restore",
        )
    return ConcurrentWriteError(
        f"{instant.action} {instant.requested_time} of {meta.storage.base_path} was rolled back by"
        f" {rollback.requested_time} of another writer, and isn't committed",
        hint="the other writer considered this one dead; repeat the write",
    )


def not_pending(error: IllegalTransitionError) -> ConcurrentWriteError:
    """Return the error for an instant whose pending file another writer has deleted."""
    return ConcurrentWriteError(
        error.message, hint="another writer rolled the instant back; repeat the write"
    )


def _rollback_of_completed(
    meta: TableMetaClient, completed: Instant, seen: Timeline
) -> tuple[Timeline, Instant | None]:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            now = meta.active_timeline()
            found = rollback_of(meta, {completed.requested_time}, now, seen)
            return now, restore_since(now, seen) if found is None else found[0]
        # Whichever call failed, the commit is completed: the caller mustn't treat it as failed.
        except Exception as error:
            if attempt == _ATTEMPTS:
                raise _unknown(meta, completed, error) from error
    raise AssertionError("unreachable")


def _completed(meta: TableMetaClient, instant: Instant) -> Instant | None:
    """Return the completed instant, whatever its completion time; ``None`` if none is visible."""
    for _ in range(_ATTEMPTS):
        try:
            timeline = meta.active_timeline()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was seen
            logger.warning("can't search for the completed file of %s: %s", instant, error)
            continue
        found = timeline.find(instant.requested_time, instant.action)
        if found is not None and found.is_completed:
            return found
        return None
    return None


def _is_torn(meta: TableMetaClient, found: Instant) -> bool:
    """Return whether the completed file of an instant is there but has no valid content.

    It is one of this package, which never completes an instant with an empty file, as Hudi may.
    """
    try:
        if not meta.read_bytes(found):
            logger.warning("the completed file of %s is empty", found)
            return True
        meta.read(found)
    except CorruptMetadataError as error:
        logger.warning("%s", error)
        return True
    except Exception as error:  # noqa: BLE001 - the file is there, which is what counts
        logger.info("the completed file of %s can't be read now: %s", found, error)
    return False


def _without_torn(
    meta: TableMetaClient, torn: Instant, error: Exception, check_alive: Callable[[], None]
) -> CommitOutcomeUnknownError:
    """Delete this writer's torn completed file; return the error for its commit.

    The commit stays in doubt: an earlier request may be under way. If another writer may have taken
    over, the file may be that one's, which is still writing it, and stays.
    """
    unknown = _unknown(meta, torn, error)
    try:
        check_alive()
        meta.delete_instant_file(torn)
    # Whichever call failed, the file may still be there.
    except Exception as failure:  # noqa: BLE001 - the caller is to get the commit's error
        logger.warning("the torn file of %s stays: %s", torn, failure)
        unknown.hint = (
            f"if the file {meta.storage.base_path}/{meta.path_of(torn)} is there and damaged,"
            " delete it: then the next write rolls the commit back when its heartbeat has expired."
            " Repeat the write only then"
        )
    return unknown


def _is_ours(
    meta: TableMetaClient, found: Instant, metadata: InstantMetadata, error: Exception
) -> bool:
    """Return whether a completed instant names the same data files as this writer's metadata."""
    if not isinstance(metadata, CommitMetadata) or not metadata.compacted:
        return True
    try:
        theirs = meta.read(found)
    except Exception as failure:
        raise _unknown(meta, found, error) from failure
    return isinstance(theirs, CommitMetadata) and (
        {stat.path for stat in theirs.stats} == {stat.path for stat in metadata.stats}
    )


def _unknown(
    meta: TableMetaClient, instant: Instant, error: Exception
) -> CommitOutcomeUnknownError:
    time, base_path = instant.requested_time, meta.storage.base_path
    action = completed_action(instant.action)
    completed = f"{time}.{action}" if meta.config.layout_version == 1 else f"{time}_*.{action}"
    unknown = CommitOutcomeUnknownError(
        f"whether {action} {time} of {base_path} took effect isn't known: {error}",
        hint=f"it did if {base_path}/{meta.layout.folder} has a file {completed}, which may still"
        " appear until the heartbeat of the instant has expired; after that the next write rolls"
        " it back if there is none. Repeat the write only then",
    )
    unknown.instant = time
    return unknown


@contextmanager
def survived(left: str) -> Iterator[None]:
    """Log an error of the block instead of raising it.

    For what follows an instant that has completed, or was undone, or an error that the caller is to
    get: a caller that got the block's error would take one for the other, and repeat what has
    happened. Nothing in the block may decide anything, so it mustn't check the lock.

    Args:
        left: What the failure leaves, for the log: ``"the heartbeat of 20261122164930123 stays"``.
    """
    try:
        yield
    except StrandlineError as error:
        logger.warning("%s: %s", left, error)
