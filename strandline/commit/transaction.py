"""``Transaction``: one commit's instant, and the timeline that its look-ups are pinned to.

An instant is requested and completed under the table's lock, which isn't held in between. Instants'
times are generated under the lock, so that their order is the order of the changes.

A compaction's instant was requested earlier, with its plan; its transaction begins when the plan is
executed. It conflicts with no write: readers put logs that complete after its request on top of it.
In table version 6 these are the logs of writes that have seen the plan, which name the compaction;
a write that has written logs without having seen the plan conflicts with it, and fails.

Source: Hudi 1.2.0 ``BaseHoodieWriteClient``, ``TransactionManager``, ``TransactionUtils``,
``CommitUtils``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from strandline.commit.completion_outcome import (
    complete_surely,
    not_pending,
    restore_since,
    rollback_of,
    rolled_back_by,
    survived,
    withdraw_if_rolled_back,
)
from strandline.commit.concurrent_operations import (
    check_newest,
    conflicts_in_doubt,
    encode_announcement,
    newest_time,
    operation_at,
    operations_archived_since,
)
from strandline.commit.conflict import (
    NOWHERE,
    REPEAT,
    ConcurrentOperation,
    Conflict,
    ConflictStrategy,
    Partitions,
    candidates,
    conflicts_with,
    operation_of,
    records_other_schema,
)
from strandline.commit.lock.base import TableLock
from strandline.commit.markers import EXECUTIONS, is_of_execution, marked_files
from strandline.commit.own_heartbeat import Heartbeat
from strandline.commit.slice_logs import take_back
from strandline.server.marker.file import directory_path, has_unanswered
from timeline.clock import TimeGenerator
from timeline.errors import (
    ConcurrentWriteError,
    CreateUnansweredError,
    IllegalTransitionError,
    StorageError,
    StrandlineError,
    WriteConflictError,
)
from timeline.instant import COMMIT, COMPACTION, REPLACE_COMMIT, ROLLBACK, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import (
    CommitMetadata,
    RequestedReplaceMetadata,
    WriteStat,
)
from timeline.storage.base import meanwhile
from timeline.timeline import Timeline

_SHOWN: Final = 3
"""Maximum number of conflicts named in a message."""


class Transaction:
    """One commit, from requested to completed; used by one thread.

    Args:
        meta: The table's meta client.
        times: Generator of instants' times.
        lock: The table's lock.
        heartbeat: The write's heartbeat, not started.
        strategy: Decides which instants conflict.
        action: Action of the instant.
        operation: What a replacecommit's requested file names, as Hudi's DELETE_PARTITION
            does; ``None``: none.
        seen: The active timeline, if the caller has read it; ``None`` reads it under the lock,
            which is required if the lock excludes other processes.
        look: Reads the timeline after the instant was requested.
        planned: The instant, if it was requested earlier, with its plan.

    Attributes:
        instant: The instant in its current state.
        execution: Random number in the names of the files of a planned instant, whose plan another
            writer may execute, too.
        timeline: The active timeline, read after the instant was requested.
        after: The active timeline, read after the instant completed.
        conflicts: The conflicts found that don't prevent the commit.
        compared: Requested times of the instants that were compared when it completed.

    Raises:
        ConcurrentWriteError: Another writer requested the same time, or a later one meanwhile; or
            executes the plan, or undoes it.
        LockError: The lock can't be acquired.
    """

    def __init__(
        self,
        meta: TableMetaClient,
        times: TimeGenerator,
        lock: TableLock,
        heartbeat: Heartbeat,
        strategy: ConflictStrategy,
        *,
        action: str = COMMIT,
        operation: str | None = None,
        seen: Timeline | None = None,
        look: Callable[[], Timeline] | None = None,
        planned: Instant | None = None,
    ) -> None:
        self._meta = meta
        self._times = times
        self._lock = lock
        self._heartbeat = heartbeat
        self._strategy = strategy
        self._in_doubt = False
        self._is_planned = planned is not None
        self.execution = secrets.randbelow(EXECUTIONS)
        self._replaced: Mapping[str, tuple[str, ...]] = {}
        self.conflicts: tuple[Conflict, ...] = ()
        self.compared: tuple[str, ...] = ()
        self.after = Timeline()
        try:
            with lock.held("requesting a commit"):
                # Rollbacks on this timeline can't name this instant. Those on the timeline read
                # after its request may: another writer may consider it dead at once.
                self._before = meta.active_timeline() if seen is None else seen
                if planned is not None:
                    self._take(planned)
                    return
                time = times.next(newest_time(meta, self._before))
                # Before the instant exists: without a heartbeat others consider its write failed.
                heartbeat.start(time)
                lock.check()
                # An expired heartbeat may have been deleted; ``start`` detects a later expiry.
                heartbeat.check()
                # Requested first, so that no instant with an earlier time can begin unseen.
                self.instant = self._requested(action, time, operation)
                # Read the timeline only now; all look-ups of the write are pinned to it.
                self.timeline = (look or meta.active_timeline)()
                check_newest(meta, self.instant, self.timeline)
        except BaseException:
            # Releasing the lock may be interrupted, too.
            heartbeat.give_up()
            raise

    def _take(self, planned: Instant) -> None:
        """Begin with an instant whose plan is on the timeline, and which nobody executes."""
        time, where = planned.requested_time, self._meta.storage.base_path
        found = self._before.find(time, planned.action)
        if found is None or found.state is not State.REQUESTED:
            state = "gone" if found is None else found.state.value
            raise ConcurrentWriteError(
                f"{planned.action} {time} of {where} is {state}, so another writer works on it"
            )
        undoing = rollback_of(self._meta, {time}, self._before.pending(), Timeline())
        if undoing is not None:
            raise rolled_back_by(undoing[0], planned, self._meta)
        self._heartbeat.take(time)
        self._lock.check()
        self._heartbeat.check()
        self.instant, self.timeline = found, self._before

    def _requested(self, action: str, time: str, operation: str | None) -> Instant:
        """Request the instant."""
        try:
            plan = RequestedReplaceMetadata(operation) if action == REPLACE_COMMIT else None
            return self._meta.create_requested(action, time, plan)
        except ConcurrentWriteError:
            path = self._meta.path_of(Instant(time, action, State.REQUESTED))
            self._heartbeat.withdraw(path)
            raise

    @property
    def time(self) -> str:
        """The instant's requested time."""
        return self.instant.requested_time

    def _conflict(self, what: str, hint: str = REPEAT) -> WriteConflictError:
        """Return the error of this commit; its message says what conflicts."""
        where = self._meta.storage.base_path
        return WriteConflictError(f"commit {self.time} of {where} {what}", hint=hint)

    def start(
        self,
        operation: str,
        replaced: Mapping[str, tuple[str, ...]] | None = None,
        planned: Iterable[WriteStat] | None = None,
    ) -> None:
        """Move to inflight, after which data files may exist.

        Args:
            operation: Hudi's ``WriteOperationType``.
            replaced: For a replacecommit: partition path → ids of the file groups it replaces.
            planned: The file groups to whose logs it will write, for a rollback by listing: in
                table version 6 the names of logs don't tell their writer.

        Raises:
            ConcurrentWriteError: The heartbeat has expired, or another writer rolled this back.
        """
        self._heartbeat.check()
        self._replaced = replaced or {}
        # An empty folder shows a rollback that this write uses markers and has created no file.
        self._meta.storage.make_dir(directory_path(self.time))
        # Data files are created only while the instant is inflight, so the folder comes first.
        try:
            # Hudi treats a replacecommit without plan and profile as a clustering, and fails when
            # it compares its own commit with it.
            is_replacing = self.instant.action == REPLACE_COMMIT
            profile = CommitMetadata(operation_type=operation) if is_replacing else None
            if planned is not None:
                profile = CommitMetadata(_by_partition(planned), operation_type=operation)
            self.instant = self._meta.transition_to_inflight(self.instant, profile)
        except IllegalTransitionError as error:
            raise not_pending(error) from error

    def complete(
        self,
        operation: str,
        stats: Iterable[WriteStat],
        avro_schema: str,
        extra_metadata: Mapping[str, str] | None = None,
        check_table: Callable[[], None] = lambda: None,
        searched: Partitions = NOWHERE,
        check_since: Callable[[Timeline], None] = lambda _: None,
        stream: str = "",
    ) -> CommitMetadata:
        """Complete the instant, which makes its files visible; return the commit's metadata.

        Args:
            operation: Hudi's ``WriteOperationType``.
            stats: Statistics of each file.
            avro_schema: The table's schema without the meta columns.
            extra_metadata: Text to store next to the schema.
            check_table: Called under the lock before any decision, on another thread if the storage
                is remote; raises if the table can't be written any more.
            searched: Partitions in which keys were looked up.
            check_since: Called under the lock with the active timeline; raises if what has
                completed since the start forbids this commit.
            stream: Identifies the stream of which the commit is a micro-batch; ``""``: none.

        Raises:
            WriteConflictError: Another writer changed the same file groups or the schema, overwrote
                a partition that this write overwrites or has searched, or rolled back a commit that
                this one read; the instant is inflight, and the caller rolls it back.
            ConcurrentWriteError: The heartbeat has expired, or another writer rolled this back.
            LockError: The lock can't be acquired, or was lost; nothing was completed.
            CommitOutcomeUnknownError: It is unknown whether the instant has completed.
        """
        assert self.instant.state is State.INFLIGHT
        metadata = commit_metadata(operation, stats, avro_schema, extra_metadata, self._replaced)
        metadata = replace(metadata, compacted=self.instant.action == COMPACTION)
        ours = replace(operation_of(self.instant, metadata), searched=searched, stream=stream)
        announcement = encode_announcement(ours)
        with self._lock.held(f"commit {self.time}"):
            # If the table can't be written any more, ``fail`` ends the heartbeat, which takes
            # precedence over the announcement.
            with meanwhile(self._meta.storage, check_table):
                # If this process ends before the completing call is answered, others mustn't roll
                # the instant back at once. Announce before the timeline is read, so that its check
                # of the instant is the last call before the completing one.
                self._heartbeat.announce_completion(announcement)
            now = self._meta.active_timeline()
            self._check_rollbacks(now)
            check_since(now)
            if not self._is_planned:
                self._compare(now, ours)
                self._compare_doubtful(now, ours)
            time = self._times.next(newest_time(self._meta, now))
            self._finish(metadata, time, now)
        return metadata

    def end(self) -> None:
        """Delete the heartbeat; the instant has completed or was rolled back."""
        self._heartbeat.stop()

    def explain_wait(self, failure: BaseException) -> None:
        """Add to the failure what happens next, as data files may still appear."""
        # The error of a commit in doubt says what happens next: it may complete, too.
        if self._in_doubt or not isinstance(failure, StrandlineError):
            return
        then, following = "it is rolled back", "write without a lock provider waits for that"
        if self._is_planned:
            then = "its plan is executed again"
            following = "compaction waits for that, or with a lock provider leaves it alone"
        hint = (
            f"storage may still create a data file of instant {self.time}, so {then} when its"
            f" heartbeat has expired, in {self._heartbeat.timeout_s:g} s; a next {following}"
        )
        failure.hint = "; ".join(filter(None, (failure.hint, hint)))

    def may_appear(
        self, failure: BaseException, unanswered: Collection[str], *, in_process: bool
    ) -> bool:
        """Return whether a data file may still appear after the write has failed.

        Args:
            failure: Why it failed. Earlier attempts and other tasks may have failed otherwise.
            unanswered: Files whose creates the driver's own tasks had no answer to.
            in_process: Whether all tasks ran in the driver's process.

        Cost: none; if tasks ran on executors, storage is remote and the instant inflight, a list of
            the markers.
        """
        if unanswered or isinstance(failure, CreateUnansweredError):
            return True
        return not in_process and self._has_unanswered()

    def _has_unanswered(self) -> bool:
        """Whether a task has noted that a data file may still appear.

        Also if storage doesn't tell: it may have taken no note either.
        """
        storage = self._meta.storage.for_cause("marker")
        if not storage.is_remote or self.instant.state is not State.INFLIGHT:
            return False
        try:
            return has_unanswered(storage.list_tree(directory_path(self.time)))
        except StorageError:
            return True

    def make_room(self) -> None:
        """Delete the data files of a write that failed, unless its completion is in doubt.

        The rollback would delete them, too, but writes its plan first: if the files have filled the
        disk, there is no room for the plan, nor for the next write's heartbeat.

        Cost: a list of the markers, a read for each ``MARKERS`` file, and the deletes.
        """
        if self._in_doubt or self.instant.state is not State.INFLIGHT:
            return
        storage = self._meta.storage.for_cause("rollback")
        with survived(f"the files of {self.time} stay until it is rolled back"):
            marked = marked_files(storage, self.time) or ()
            if self._is_planned:
                # If this writer has stalled, another one may be executing the plan.
                marked = tuple(each for each in marked if is_of_execution(each, self.execution))
            take_back(storage, self.time, marked)

    def fail(self, files: Collection[str] = (), *, late: bool = False) -> None:
        """End the heartbeat of a write that failed; the next writer may roll it back.

        If the completing call may still take effect, or data files may still appear, that writer
        waits until the heartbeat has expired.

        Args:
            files: Files that the write has created. They are deleted if another writer has rolled
                the instant back, perhaps before these files existed.
            late: Whether data files of the write may still appear.
        """
        if self._in_doubt:
            self._heartbeat.leave()
            return
        self._heartbeat.abandon(late=late)
        with survived(f"the heartbeat and files of {self.time} may stay"):
            found = self._meta.active_timeline().find(self.time, self.instant.action)
            # The rollback of a planned instant leaves the plan. An inflight file that is there
            # still, of any instant, is another rollback's to delete: the heartbeat stays with it.
            was_undone = self._is_planned and self.instant.state is not State.REQUESTED
            has_file = self._heartbeat.has_file()
            # Another writer executes the plan since, or has executed it, in files of other names.
            is_replaced = self._is_planned and self.instant.state is State.INFLIGHT and not has_file
            if found is None or is_replaced or (was_undone and found.state is State.REQUESTED):
                # Another writer has rolled the instant back and deleted its heartbeat: the
                # heartbeat file just written would never be deleted.
                if has_file:
                    self._heartbeat.stop()
                take_back(self._meta.storage, self.time, files)

    def _check_rollbacks(self, now: Timeline) -> None:
        """Check that no rollback or restore since the start undoes this commit or its inputs."""
        own = rollback_of(self._meta, {self.time}, now, self._before)
        if own is not None:
            raise rolled_back_by(own[0], self.instant, self._meta)
        is_any = ROLLBACK in now.actions
        writes = self.timeline.completed().write_timeline() if is_any else ()
        # A plan names only files of writes that had completed when it was requested.
        seen = {
            i.requested_time
            for i in writes
            if not self._is_planned or (i.completion_time or i.requested_time) < self.time
        }
        found = rollback_of(self._meta, seen, now, self._before)
        if found is not None:
            rollback, undone = found
            raise self._conflict(
                f"builds on {undone}, which rollback {rollback.requested_time} of another writer"
                " undoes"
            )
        restore = restore_since(now, self.timeline)
        if restore is not None:
            raise self._conflict(f"builds on what restore {restore.requested_time} may undo")

    def _compare(self, now: Timeline, ours: ConcurrentOperation) -> None:
        """Compare the changes of this commit with those of others since its start."""
        version = self._meta.config.version
        found = candidates(self.timeline, now, self.instant, self._strategy, version)
        read = (operation_at(self._meta, each, self.instant) for each in found)
        others = [other for other in read if other is not None]
        others += operations_archived_since(self._meta, self.timeline, now, self.instant)
        self.compared = tuple(other.instant.requested_time for other in others)
        self.conflicts = conflicts_with(ours, others, self._strategy, version, self.timeline)
        unresolved = [conflict for conflict in self.conflicts if not conflict.resolved]
        if unresolved:
            more = f"; {len(unresolved) - _SHOWN} more" if len(unresolved) > _SHOWN else ""
            shown = "; ".join(map(str, unresolved[:_SHOWN]))
            raise self._conflict(f"conflicts with {shown}{more}")
        for other in others:
            if records_other_schema(ours, other):
                raise self._conflict(
                    f"has another schema than {other.instant.action}"
                    f" {other.instant.requested_time}, which has completed meanwhile"
                )

    def _compare_doubtful(self, now: Timeline, ours: ConcurrentOperation) -> None:
        """Compare this commit with those whose completion is in doubt, by their announcements.

        The lock excludes their writers, but not their storage requests, which may still take
        effect: the later of two commits from one predecessor would undo the earlier.
        """
        for other in conflicts_in_doubt(self._meta, now, ours, self._strategy):
            raise self._conflict(
                f"may conflict with {other}",
                hint="the write is rolled back; repeat it when the other commit has appeared or its"
                f" heartbeat has expired, which takes {self._heartbeat.timeout_s:g} s at most",
            )

    def _finish(self, metadata: CommitMetadata, completion_time: str, now: Timeline) -> None:
        """Complete the instant; this is the commit point."""
        self._check_alive()
        self._in_doubt = True
        try:
            self.instant = complete_surely(
                self._meta,
                self.instant,
                metadata,
                completion_time,
                self._check_alive,
                just_seen=self._is_alone(now),
            )
            self.after = withdraw_if_rolled_back(self._meta, self.instant, now)
        except ConcurrentWriteError:
            self._in_doubt = False
            raise
        # All other errors, interrupts included, leave it set: the create may still take effect.
        self._in_doubt = False

    def _is_alone(self, now: Timeline) -> bool:
        """Return whether our inflight instant is the only pending one, and none was compared."""
        pending = now.pending()
        found = pending.find(self.time, self.instant.action)
        is_inflight = found is not None and found.state is State.INFLIGHT
        return is_inflight and len(pending) == 1 and not self.compared

    def _check_alive(self) -> None:
        """Check that no other writer may have taken over, by the lock or by a rollback."""
        self._lock.check()
        self._heartbeat.check()


def commit_metadata(
    operation: str,
    stats: Iterable[WriteStat],
    avro_schema: str,
    extra_metadata: Mapping[str, str] | None = None,
    replaced: Mapping[str, tuple[str, ...]] | None = None,
) -> CommitMetadata:
    """Return the metadata of a commit.

    Args:
        operation: Hudi's ``WriteOperationType``.
        stats: Statistics of each file.
        avro_schema: The table's schema without the meta columns.
        extra_metadata: Text to store next to the schema.
        replaced: Partition path → ids of the file groups that the commit replaces.
    """
    return CommitMetadata(
        partition_to_write_stats=_by_partition(stats),
        # Hudi's readers take the table's schema from the newest commit that has one.
        extra_metadata={**(extra_metadata or {}), "schema": avro_schema},
        operation_type=operation,
        partition_to_replace_file_ids=replaced or {},
    )


def _by_partition(stats: Iterable[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    return {path: tuple(found) for path, found in by_partition.items()}
