"""The snapshots that are kept, oldest first, and how one follows from another.

Clients say which timeline they know by its hash; as every snapshot of the recent past is kept, most
are answered from the very snapshot that they mean. A partition that was never loaded is listed only
at the newest snapshot; what it held before is *derived* by taking back, newest first, what the
steps in between did. Where that needs to know what is lost (the size of a file that was deleted)
the answer is refused.

A snapshot is *barred* once an instant of its timeline was undone: a writer that went on from there
would lose rows (pinned.md, rule 2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from fsview.delta import taken_back
from fsview.packed import PartitionVersion
from fsview.snapshot import Snapshot
from fsview.sync import Step, version_after
from timeline.completion import CompletionTimes
from timeline.instant import CLEAN, Instant
from timeline.timeline import Timeline

EMPTY_HASH: Final = Timeline().hash
NO_INSTANT: Final = ("", "0")
"""``lastinstantts`` of a client whose timeline is empty."""


@dataclass(frozen=True, slots=True)
class Link:
    """One snapshot and the step that led to it.

    Attributes:
        snapshot: The snapshot.
        step: From the link before; ``None`` for the first, and where only the timeline was tidied.
        barred: Whether no client may be answered from it any more.
    """

    snapshot: Snapshot
    step: Step | None = None
    barred: bool = False


@dataclass(frozen=True)
class History:
    """An immutable row of links; the last one is the newest snapshot."""

    links: tuple[Link, ...]

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot."""
        return self.links[-1].snapshot

    def find(self, timeline_hash: str) -> Snapshot | None:
        """Return the newest snapshot whose server's or client's hash this is."""
        return self._by_hash.get(timeline_hash)

    @cached_property
    def _by_hash(self) -> dict[str, Snapshot]:
        return {
            timeline_hash: link.snapshot
            for link in self.links
            if not link.barred
            for timeline_hash in link.snapshot.hashes
        }

    def meant(self, last_instant: str, timeline_hash: str) -> Snapshot | None:
        """Return the snapshot that a client means, ``None`` when it isn't kept.

        Args:
            last_instant: Requested time of the last instant of the client's timeline.
            timeline_hash: Of its timeline. A client to whom nothing has happened yet sees an empty
                table.
        """
        newest = self.newest
        if newest.is_empty and last_instant in NO_INSTANT:
            return newest
        found = self.find(timeline_hash)
        if found is not None and found.timeline.contains_or_before_start(last_instant):
            return found
        if timeline_hash != EMPTY_HASH or last_instant not in NO_INSTANT:
            return None
        nothing = CompletionTimes.of(Timeline(), newest.config.version)
        return found or Snapshot(newest.config, Timeline(), nothing)

    def without_last_clean(self, timeline_hash: str) -> Snapshot | None:
        """Return the newest snapshot if a client lacks only the clean at its end, as Java does."""
        last = self.newest.timeline.last
        if last is None or last.action != CLEAN:
            return None
        for timeline in (self.newest.timeline, self.newest.client_timeline):
            before = timeline.filter(lambda i: i.requested_time < last.requested_time)
            if before.hash == timeline_hash:
                return self.newest
        return None

    def extended(self, links: Collection[Link], retained: int) -> History:
        """Return this history with links put behind it, the oldest dropped beyond ``retained``."""
        return History((*self.links, *links)[-retained:])

    def with_newest(self, snapshot: Snapshot) -> History:
        """Return this history with another newest snapshot, of the same files and hashes."""
        return History((*self.links[:-1], replace(self.links[-1], snapshot=snapshot)))

    def barring(self, undone: Collection[Instant], lost: Collection[str]) -> History:
        """Return this history with the snapshots barred that hold what isn't there any more.

        Args:
            undone: Completed writes that were rolled back or restored away.
            lost: Requested times of compactions whose plans are gone.
        """
        if not undone and not lost:
            return self

        def bars(snapshot: Snapshot) -> bool:
            return any(
                i in undone or (not i.is_completed and i.requested_time in lost)
                for i in snapshot.timeline
            )

        return History(
            tuple(replace(link, barred=link.barred or bars(link.snapshot)) for link in self.links)
        )

    def place(self, snapshot: Snapshot) -> int | None:
        """Return where a snapshot stands, ``None`` when it isn't kept any more."""
        for at in range(len(self.links) - 1, -1, -1):
            if self.links[at].snapshot.files is snapshot.files:
                return at
        return None

    def steps_since(self, place: int) -> Iterator[Step]:
        """Yield the steps that lead from a place to the newest snapshot."""
        return (link.step for link in self.links[place + 1 :] if link.step is not None)

    def only_cleans_since(self, snapshot: Snapshot) -> bool:
        """Whether some cleans and nothing else came after a snapshot.

        Then Java answers from the newest.
        """
        place = self.place(snapshot)
        since = [] if place is None else list(self.steps_since(place))
        return bool(since) and all(step.instant.action == CLEAN for step in since)

    def brought_forward(self, version: PartitionVersion, place: int) -> PartitionVersion:
        """Return at the newest snapshot what was listed at some time after the one at ``place``.

        Some of the steps since were in the listing already; applying them again changes nothing.
        """
        logs = self.newest.logs_by_completion
        for step in self.steps_since(place):
            if version.partition in step.touched:
                version = version_after(version, step, leftovers=True, logs=logs)
        return version

    def derived(
        self, snapshot: Snapshot, partition: str, extensions: Collection[str]
    ) -> PartitionVersion | None:
        """Return a partition at a kept snapshot, from the nearest later one that has it loaded."""
        place = self.place(snapshot)
        if place is None:
            return None
        for at in range(place, len(self.links)):
            version = self.links[at].snapshot.files.versions.get(partition)
            if version is not None:
                break
        else:
            return None
        for link in reversed(self.links[place + 1 : at + 1]):
            change = None if link.step is None else link.step.delta.partitions.get(partition)
            if change is not None:
                version = taken_back(version, change, extensions)
        return version.renewed() if at > place else version

    def known_after(self, place: int, known: Iterable[str]) -> frozenset[str]:
        """Return the partitions at the newest snapshot that were known at a place."""
        found = set(known)
        for step in self.steps_since(place):
            found.update(step.delta.partitions)
            found -= step.delta.deleted_partitions
        return frozenset(found)

    def known_at(
        self, snapshot: Snapshot, has_files: Callable[[str], bool]
    ) -> frozenset[str] | None:
        """Return the table's partitions at a kept snapshot, from what is known of the newest.

        Args:
            snapshot: The snapshot.
            has_files: Whether a partition has any file there.
        """
        place, known = self.place(snapshot), self.newest.files.known
        if place is None or known is None:
            return None
        written: set[str] = set()
        for step in self.steps_since(place):
            written.update(step.delta.partitions)
            known |= step.delta.deleted_partitions
        return frozenset(p for p in known if p not in written or has_files(p))
