"""``History``: the snapshots of a table that are kept, oldest first, and the steps between them.

Most clients are answered from the snapshot that their timeline's hash names. For a client whose
timeline was never published, the steps from there to a kept snapshot are read from the timeline
(``fsview.snapshot.hash_search``) and kept as a *branch*.

A partition that was never loaded is listed only at the newest snapshot; its files at an older one
are *derived* by taking back the steps in between, newest first. Where that needs what is lost (the
size of a deleted file) the answer is refused. A snapshot with an undone instant is *barred*.

A partition listed later than an older snapshot has files that were being written then, which
clients at the older instant must not see. Files of instants that have completed since are taken
back by their deltas. The others are recognised by their names, or by their age if the names of logs
don't have their writer's time (``without_uncommitted``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from fsview.files.partition import PartitionVersion
from fsview.model.file_group import BaseFile, LogFile
from fsview.snapshot.delta import NOTHING, taken_back, with_ghosts
from fsview.snapshot.history_link import (
    Branch,
    Link,
    bytes_of_branches,
    has_same_answers,
    kept_branches,
    memo_bytes,
)
from fsview.snapshot.next_snapshot import version_after
from fsview.snapshot.snapshot import LoadedFiles, Snapshot
from fsview.snapshot.timeline_change import Step, by_completion, key_of
from timeline.clock import format_instant_time
from timeline.completion import CompletionTimes
from timeline.instant import CLEAN, COMPACTION, Instant
from timeline.timeline import Timeline

EMPTY_HASH: Final = Timeline().hash
MAX_LINKS_IN_USE: Final = 64
"""Most links that are kept because the first is in use: a load that hangs keeps no more of them,
and starts over if they aren't enough."""

NO_INSTANT: Final = ("", "0")
"""``lastinstantts`` of a client whose timeline is empty."""


@dataclass(frozen=True)
class History:
    """An immutable chain of links, of which the last has the newest snapshot, and its branches.

    Attributes:
        links: The chain, oldest first.
        branches: Branches that lead to one of the links, oldest first.
        branches_bytes: Bytes of the branches, counting shared steps once.
    """

    links: tuple[Link, ...]
    branches: tuple[Branch, ...] = ()
    branches_bytes: int = 0

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot."""
        return self.links[-1].snapshot

    @property
    def open_snapshots(self) -> Iterator[Snapshot]:
        """Yield the kept snapshots from which others can be derived, newest first."""
        for link in reversed(self.links):
            if not link.barred:
                yield link.snapshot
            if link.is_reload:
                return

    # The snapshot of a client.

    @cached_property
    def _by_hash(self) -> dict[str, Snapshot]:
        """Server's or client's timeline hash → the newest snapshot that has it."""
        branched = (branch.start for branch in self.branches)
        kept = (link.snapshot for link in self.links if not link.barred)
        found: dict[str, Snapshot] = {}
        before: Snapshot | None = None
        for snapshot in (*branched, *kept):
            if before is not None:
                snapshot.hash_like(before)
            before = snapshot
            found.update(dict.fromkeys(snapshot.hashes, snapshot))
        return found

    def indexed(self) -> History:
        """Return this history after computing its hashes."""
        # Before it is published: the event loop looks snapshots up and must not hash.
        assert self._by_hash is not None
        return self

    def knows(self, timeline_hash: str) -> bool:
        """Whether a server's or client's timeline hash is that of a snapshot that is kept."""
        return timeline_hash in self._by_hash

    def snapshot_for(self, last_instant: str, timeline_hash: str) -> Snapshot | None:
        """Return the snapshot of a client's timeline, ``None`` if it isn't kept.

        Args:
            last_instant: Requested time of the last instant of the client's timeline.
            timeline_hash: Hash of the client's timeline; of an empty one, the snapshot is empty.
        """
        newest = self.newest
        # As in Hudi's server, the hash doesn't matter then.
        if last_instant in NO_INSTANT and newest.is_empty:
            return newest
        found = self._by_hash.get(timeline_hash)
        # Hudi's server compares the last instant, too.
        if found is not None and found.timeline.contains_or_before_start(last_instant):
            return found
        if timeline_hash != EMPTY_HASH or last_instant not in NO_INSTANT:
            return None
        nothing = CompletionTimes.of(Timeline(), newest.config.version)
        return found or Snapshot(newest.config, Timeline(), nothing)

    def without_last_clean(self, timeline_hash: str) -> Snapshot | None:
        """Return the newest snapshot if the client lacks only a clean at its end, as Java does."""
        last = self.newest.timeline.last
        if last is None or last.action != CLEAN:
            return None
        # Hudi's clients hash no pending log compaction, so a client's timeline may be either.
        for timeline in (self.newest.timeline, self.newest.client_timeline):
            before = timeline.filter(lambda i: i.requested_time < last.requested_time)
            if before.hash == timeline_hash:
                return self.newest
        return None

    def just_after(self, instant: Instant) -> Snapshot | None:
        """Return the kept snapshot whose last change was an instant's completion."""
        for link in reversed(self.links):
            step = None if link.step is None else link.step.instant
            if step is None:
                completed = link.snapshot.timeline.completed()
                step = max(completed, key=by_completion, default=None)
            if step == instant and not link.barred:
                return link.snapshot
        return None

    # The next history.

    def extended(self, links: Iterable[Link]) -> History:
        """Return this history with links appended, each behind what ``recalled`` returns."""
        chain, new = list(self.links), tuple(links)
        for at, link in enumerate(new):
            if chain and chain[-1].snapshot.taken_away:
                steps = [later.step for later in new[at:] if later.step is not None]
                recalled = replace(self, links=tuple(chain)).recalled(steps)
                if recalled is not None:
                    chain.append(recalled.behind(chain[-1]))
            chain.append(link.behind(chain[-1]) if chain else link)
        return self._of(tuple(chain))

    def with_newest(self, snapshot: Snapshot) -> History:
        """Return this history with another newest snapshot that has the same files and hashes."""
        *before, last = self.links
        last = replace(last, snapshot=snapshot)
        return self._of((*before, last.behind(before[-1]) if before else last))

    def with_branch(self, branch: Branch) -> History:
        """Return this history with a branch."""
        return self._with_branches((*self.branches, branch))

    def keeping(self, links: int, branches: int, in_use: Collection[Snapshot] = ()) -> History:
        """Return this history without its oldest links and branches, except those in use.

        The last link and the last branch always stay.

        Args:
            links: Most links.
            branches: Most branches; fewer if they are large (``kept_branches``).
            in_use: Snapshots in use.
        """
        kept = kept_branches(self.branches, branches, in_use)
        history = self._with_branches(kept)
        wanted = max(1, links, history._links_in_use(in_use))
        return history if wanted >= len(self.links) else history._of(self.links[-wanted:])

    def _links_in_use(self, in_use: Iterable[Snapshot]) -> int:
        """Return how many of the last links snapshots in use need, ``MAX_LINKS_IN_USE`` at most."""
        files = {id(snapshot.files) for snapshot in in_use}
        files |= {id(b.onto.files) for b in self.branches if id(b.start.files) in files}
        needed = 0
        for length, link in enumerate(reversed(self.links[-MAX_LINKS_IN_USE:]), 1):
            if id(link.snapshot.files) in files:
                needed = length
            if link.is_reload:
                break
        return needed

    @property
    def retained_bytes(self) -> int:
        """Bytes kept for clients that are behind: all but the newest snapshot and packed files."""
        links = sum(link.keeps_bytes for link in self.links[1:])
        older = (*(link.snapshot for link in self.links[:-1]), *(b.start for b in self.branches))
        filled = {id(snapshot.files): snapshot.files.filled_bytes for snapshot in older}
        filled.pop(id(self.newest.files), None)
        return links + sum(map(memo_bytes, older)) + sum(filled.values()) + self.branches_bytes

    def _of(self, links: tuple[Link, ...]) -> History:
        """Return a history of these links with the branches that lead to one of them."""
        history = replace(self, links=links)
        # A barred link still leads on.
        return history._with_branches(b for b in self.branches if history._in_chain(b.onto))

    def _with_branches(self, branches: Iterable[Branch]) -> History:
        branches = tuple(branches)
        if len(branches) == len(self.branches):  # branches are added or dropped, never replaced
            return self
        return replace(self, branches=branches, branches_bytes=bytes_of_branches(branches))

    def is_barred(self, snapshot: Snapshot) -> bool:
        """Whether this is a kept snapshot from which clients may no longer be answered."""
        links = self.links_from(snapshot)
        return links is not None and links[0].barred

    def can_derive_from(self, snapshot: Snapshot) -> bool:
        """Whether this is a kept snapshot from which others can be derived."""
        return any(found.files is snapshot.files for found in self.open_snapshots)

    def barring(self, undone: Collection[Instant], lost: Collection[str]) -> History:
        """Return this history with the snapshots barred that have instants undone since.

        Args:
            undone: Completed writes that were rolled back or restored away.
            lost: Requested times of (log) compactions whose plans are gone.
        """
        if not undone and not lost:
            return self

        def bars(snapshot: Snapshot) -> bool:
            return any(
                i in undone or (not i.is_completed and i.requested_time in lost)
                for i in snapshot.timeline
            )

        history = self._of(
            tuple(replace(link, barred=link.barred or bars(link.snapshot)) for link in self.links)
        )
        return history._with_branches(b for b in history.branches if not bars(b.start))

    def recalled(self, following: Iterable[Step]) -> Link | None:
        """Return a link by which clients are to be answered once the newest isn't that any more.

        While a write is undone that had completed, the timeline has the hash from before the write
        again, and its files are still there: as for any write in flight, answers show them that
        show uncommitted files. Once the table has moved on, a client with that hash may be from
        before the write or from then. So the link has the newest snapshot with these files of
        unknown size: answers that would name one are refused, the others are the same for both.

        Args:
            following: The steps to the next snapshot.

        Returns:
            The link; ``None`` if the newest snapshot may answer all its clients.
        """
        newest = self.newest
        times = frozenset(filter(self._may_recur, newest.taken_away))
        if not times:
            return None
        files, unseen = newest.files, set(times)
        names: dict[str, set[str]] = defaultdict(set)
        for step in filter(None, map(self._completion_of, times)):
            unseen.discard(step.instant.requested_time)
            for partition, change in step.delta.partitions.items():
                names[partition].update(file.name for file in change.added)
        # Who hasn't seen what they wrote learns it when they are undone.
        for step in following:
            if not unseen.isdisjoint(step.delta.undone):
                unseen -= step.delta.undone
                for partition, change in step.delta.partitions.items():
                    names[partition] |= change.removed | change.extended
        if unseen:
            # Nothing says where: all is derived from the next snapshot, without them.
            return Link(replace(newest, files=LoadedFiles()))
        found = (
            (files.versions[p], with_ghosts_of(files.versions[p], times, names[p], newest))
            for p in names
            if p in files.versions
        )
        changed = {after.partition: after for before, after in found if after is not before}
        if not changed:
            return None
        # They may have made some of the known partitions; see ``known_at``.
        left = LoadedFiles(files.versions.fork())
        left.versions.update(changed)
        return Link(replace(newest, files=left), recalled=frozenset(changed))

    def _may_recur(self, time: str) -> bool:
        """Whether the newest timeline may be one from before a write that was taken away."""
        completion, newest = self._completion_of(time), self.newest
        for link in reversed(self.links):
            if completion is None and time not in link.snapshot.taken_away:
                break
            if link.step is not None:
                if link.step is completion:
                    break
                later = link.step.instant
                # A client that knows a later instant knows that the write was undone.
                is_kept = later.requested_time not in newest.taken_away
                if is_kept and newest.timeline.find(*key_of(later)) is not None:
                    return False
        return True

    def _completion_of(self, time: str) -> Step | None:
        """Return the last step in which a write completed; ``None`` if it isn't kept."""
        steps = (link.step for link in reversed(self.links) if link.step is not None)
        return next((s for s in steps if s.delta.writes and s.instant.requested_time == time), None)

    # From one snapshot to another.

    def links_from(self, snapshot: Snapshot) -> tuple[Link, ...] | None:
        """Return the links from a snapshot, included, to the newest; ``None`` if it isn't kept."""
        found = self._in_chain(snapshot)
        if found is not None:
            return found
        for branch in self.branches:
            if branch.start.files is snapshot.files:
                rest = self._in_chain(branch.onto)
                assert rest is not None, "a branch is dropped with the link that it leads to"
                return (*branch.links, *rest[1:])
        return None

    def _in_chain(self, snapshot: Snapshot) -> tuple[Link, ...] | None:
        for at in range(len(self.links) - 1, -1, -1):
            if self.links[at].snapshot.files is snapshot.files:
                return self.links[at:]
            if self.links[at].is_reload:
                return None
        return None

    def steps_since(self, snapshot: Snapshot) -> list[Step] | None:
        """Return the steps from a snapshot to the newest; ``None`` if it isn't kept."""
        links = self.links_from(snapshot)
        return None if links is None else [link.step for link in links[1:] if link.step is not None]

    def unclear_since(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the partitions whose listings made at a kept snapshot are worth nothing now."""
        since = (self.links_from(snapshot) or ())[1:]
        return frozenset(partition for link in since for partition in link.unclear)

    def touched_by(self, instants: Collection[Instant]) -> frozenset[str] | None:
        """Return the partitions that some instants touched; ``None`` if not all are known."""
        steps = (link.step for link in self.links if link.step is not None)
        touched = {step.instant: step.touched for step in steps if step.instant in instants}
        if len(touched) < len(instants):
            return None
        return frozenset(partition for found in touched.values() for partition in found)

    def only_cleans_since(self, snapshot: Snapshot) -> bool:
        """Whether one or more cleans and nothing else followed a snapshot.

        Java answers from the newest snapshot then.
        """
        since = self.steps_since(snapshot)
        return bool(since) and all(step.instant.action == CLEAN for step in since or ())

    def keys_after(self, steps: Iterable[Step]) -> frozenset[tuple[str, str]]:
        """Return the keys of the instants on the timeline and of those that completed in steps.

        An instant that was pending before the steps and isn't among them was undone.
        """
        completed = (step.instant for step in steps if step.instant.is_completed)
        return frozenset(map(key_of, (*self.newest.active, *completed)))

    def planned_in(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """Return the steps that requested a plan which is still on the timeline."""
        keys = set(map(key_of, self.newest.active))
        return tuple(
            step
            for step in steps
            if (step.compactions or step.clustering) and key_of(step.instant) in keys
        )

    def brought_forward(
        self, version: PartitionVersion, steps: Iterable[Step]
    ) -> PartitionVersion | None:
        """Return a partition at the newest snapshot, from a listing made during or after ``steps``.

        The listing may include some of the steps already; applying a step again changes nothing.
        ``None`` if only another listing shows the files.
        """
        logs = self.newest.logs_by_completion
        after: PartitionVersion | None = version
        for step in steps:
            if after is not None:
                after = version_after(after, step, leftovers=True, logs=logs)
        return None if after is None or after.has_ghosts else after

    def derived(
        self, snapshot: Snapshot, partition: str, extensions: Collection[str]
    ) -> PartitionVersion | None:
        """Return a partition at a kept snapshot, from the next later one that has it loaded.

        ``None`` if there is none, or if a step between them can't be taken back.
        """
        links = self.links_from(snapshot) or ()
        versions = (link.snapshot.files.versions.get(partition) for link in links)
        at, loaded = next(((at, v) for at, v in enumerate(versions) if v is not None), (0, None))
        # A writer that continued from a barred one would lose rows.
        if loaded is None or (at > 0 and links[0].barred):
            return None
        version = loaded
        for link in reversed(links[1 : at + 1]):
            delta = NOTHING if link.step is None else link.step.delta
            if partition in delta.incomplete:
                return None
            if partition in delta.partitions:
                version = taken_back(version, delta.partitions[partition], extensions)
        if at == 0:
            return version
        later = links[at].snapshot
        if later.taken_away and later.has_unnamed_logs:
            logs = self._taken_away_logs(version, later)
            version = with_ghosts_of(version, (), logs, later)
        found = without_uncommitted(version, snapshot, later, extensions)
        if found is loaded and has_same_answers(links[: at + 1], partition):
            return found
        return found.renewed()

    def _taken_away_logs(self, version: PartitionVersion, later: Snapshot) -> set[str]:
        """Return the names of the logs of writes that were taken away, and of those that may be."""
        names: set[str] = set()
        for step in map(self._completion_of, later.taken_away):
            if step is None:  # others have their time, by which ``without_uncommitted`` knows them
                names.update(undated_logs(version))
            elif version.partition in step.delta.partitions:
                names.update(file.name for file in step.delta.partitions[version.partition].added)
        return names

    def known_at(
        self, snapshot: Snapshot, was_there: Callable[[str], bool]
    ) -> frozenset[str] | None:
        """Return the table's partitions at a kept snapshot, ``None`` if the newest's are unknown.

        Args:
            snapshot: The snapshot.
            was_there: Whether a partition written since existed then.
        """
        since, known = self.steps_since(snapshot), self.newest.files.known
        if since is None or known is None:
            return None
        written: set[str] = set()
        deleted: set[str] = set()
        for step in since:
            if step.instant.action != CLEAN:
                written.update(step.delta.partitions)
            deleted |= step.delta.deleted_partitions
        for done in map(self._completion_of, snapshot.taken_away | self.newest.taken_away):
            written.update(known if done is None else done.delta.partitions)
        made = {p for p in written if (p in known or p in deleted) and not was_there(p)}
        return known if known >= deleted and not made else (known | deleted) - made


def without_uncommitted(
    version: PartitionVersion, older: Snapshot, newer: Snapshot, extensions: Collection[str]
) -> PartitionVersion:
    """Return the files without those that weren't committed at an older snapshot.

    Args:
        version: The files, after taking back every instant that has completed since.
        older: The older snapshot.
        newer: The snapshot from which the files were derived.
        extensions: Extensions of the table's base files.
    """
    left = version.with_changes((), _uncommitted(version, older, newer))
    if not older.has_unnamed_logs:
        return left
    done = older.active.completed()
    last = max((i.completion_time or "" for i in done), default="")
    return _without_late_logs(left, last, older.config.timezone, extensions)


def with_ghosts_of(
    version: PartitionVersion,
    times: Collection[str],
    names: Collection[str],
    snapshot: Snapshot,
) -> PartitionVersion:
    """Return the files at a snapshot with those of some writes at an unknown size.

    Args:
        version: The files.
        times: Requested times of the writes.
        names: Names of files that metadata says they wrote.
        snapshot: The snapshot.
    """
    # Before version 8 a log is named by its slice, so another instant may have written it.
    logs = snapshot.logs_by_completion
    found = [
        file.name
        for file in version.files()
        if file.name in names or (file.instant in times and (logs or isinstance(file, BaseFile)))
    ]
    extensions = snapshot.config.base_extensions
    return with_ghosts(version.with_changes((), found), found, extensions) if found else version


def undated_logs(version: PartitionVersion) -> list[str]:
    """Return the names of the logs known from metadata only, which has no times of files."""
    logs = (file for file in version.files() if isinstance(file, LogFile))
    return [log.name for log in logs if not log.mtime_ms]


def _uncommitted(version: PartitionVersion, older: Snapshot, newer: Snapshot) -> list[str]:
    """Return the names of the files of instants that weren't completed at the older snapshot."""
    completed = older.completion.is_completed
    pending = {i.requested_time for i in newer.active.pending()}
    # One that was completed and pends again is being undone, but was committed then.
    pending -= {i.requested_time for i in older.active.completed()}
    instants = {i for i in version.instants() if i in pending or not completed(i)}
    if not instants:
        return []
    with_logs = instants
    if not older.logs_by_completion:
        # Version 6: logs in a pending compaction's slice were written on top of it, and those of an
        # unknown instant are left of a rollback, as Hudi's readers see them.
        compactions = {i.requested_time for i in older.active if i.action == COMPACTION}
        with_logs = {i for i in instants - compactions if newer.active.contains_time(i)}
    return [
        file.name
        for file in version.files()
        if file.instant in (instants if isinstance(file, BaseFile) else with_logs)
    ]


def _without_late_logs(
    version: PartitionVersion, completed: str, zone: str, extensions: Collection[str]
) -> PartitionVersion:
    """Return the files, with unknown sizes of logs written after a time of a time zone.

    If no metadata names a log (its writer is in flight, or failed and was rolled back without
    naming it), only its modification time shows when it was written.
    """
    # Before table version 8 a log's name doesn't have the instant that wrote it.
    late = [
        file.name
        for file in version.files()
        if isinstance(file, LogFile)
        and file.mtime_ms
        and _is_after(format_instant_time(file.mtime_ms, zone), completed)
    ]
    if not late:
        return version
    # Whether the log existed before and grew is unknown.
    return with_ghosts(version.with_changes((), late), late, extensions)


def _is_after(written: str, completed: str) -> bool:
    """Whether a file is later than an instant."""
    # Some storages have times in whole seconds only.
    same_second = written == completed and written.endswith("000")
    return written > completed or same_second
