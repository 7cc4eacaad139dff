"""``MarkerService``: the marker directories of all tables of a service.

A directory is identified by table and instant, however its base path is spelled. It stays in memory
while markers are created in it; read-only requests add none. A directory unused for ``IDLE_S`` is
dropped: its content is on storage, and is read again on the next use.

Tables aren't opened: markers can be created while a table's timeline can't be read.

Source: Hudi 1.2.0 ``MarkerHandler``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.server.marker.conflict import ConflictCheck, ConflictOptions
from strandline.server.marker.conflict_watch import ConflictDetector, ConflictWatch
from strandline.server.marker.directory import Created, MarkerDirectory
from strandline.server.marker.file import directory_path, split_directory
from strandline.server.marker.name import check_name
from strandline.server.table_threads import TableThreads
from timeline.clock import Clock, SystemClock
from timeline.errors import RootNotAllowedError, StorageUnavailableError
from timeline.instant import CLUSTERING, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.storage.table_id import TableId

MAX_DIRECTORIES: Final = 1000
MAX_SPELLINGS: Final = 4 * MAX_DIRECTORIES
SPELLED_CHARACTERS: Final = 1 << 20
"""Bound on the total length of all spellings: clients choose how long each is."""
IDLE_S: Final = 3600.0
END_S: Final = 0.3
"""How long ``close`` waits for queued markers; no client waits for an answer any more."""

OF_A_TABLE: Final = 8
THREADS: Final = 16 * OF_A_TABLE
"""Enough for 16 tables that hang with ``OF_A_TABLE`` threads each."""
QUEUED: Final = 1000
"""Most tasks of one table that wait for a thread."""

TableOf = Callable[[str], tuple[TableId, Storage]]
"""Maps a base path to the table's id and storage; refuses tables that may not be served."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A marker directory's table and instant."""

    table: TableId
    instant: str

    def __str__(self) -> str:
        return f"{self.table}/{directory_path(self.instant)}"


class MarkerService:
    """The marker directories of all tables of a service.

    ``_lock`` guards the directories by place, and by the spellings of their paths that were checked
    since ``forget`` was last called (``_forgotten`` counts its calls). A retired directory is
    looked up again.
    """

    def __init__(
        self,
        table_of: TableOf,
        *,
        conflicts: ConflictOptions | None = None,
        clock: Clock | None = None,
        detector: ConflictDetector | None = None,
        is_one_of_many: bool = False,
    ) -> None:
        """Make a service without directories.

        Args:
            table_of: Finds tables.
            conflicts: How conflicts are detected; ``None``: they aren't.
            clock: Times flushes and use.
            detector: Detects them.
            is_one_of_many: Whether other services create markers in the same directories.
        """
        self._table_of = table_of
        self._clock = clock or SystemClock()
        self._conflicts = conflicts or ConflictOptions()
        self._detector = detector or ConflictDetector(
            self._conflicts, self._clock, pool=_threads("conflicts")
        )
        self._flushers = _threads("markers")
        self._finders = _threads("marker-directories")
        self._is_one_of_many = is_one_of_many
        self._lock = threading.Lock()
        self._directories: dict[_Place, MarkerDirectory] = {}
        self._spelled: dict[str, MarkerDirectory] = {}
        self._forgotten = 0

    def find(self, directory: str) -> Future[None]:
        """Look a directory up on a thread, for ``submit``.

        The future fails with ``RootNotAllowedError`` if the base path is outside the service's
        roots, or the directory is behind a symbolic link.

        Raises:
            InputError: It isn't a marker directory.
            StorageUnavailableError: There is no thread.
        """
        # The table by its spelling alone: resolving links might hang.
        table = TableId.of(split_directory(directory)[0])
        try:
            return self._finders.submit(table, partial(self._find, directory))
        except RuntimeError as exc:
            raise StorageUnavailableError(f"no thread to find markers: {exc}") from exc

    def _find(self, directory: str) -> None:
        while True:
            forgotten = self._forgotten
            # Before the lock is taken, as resolving links may hang.
            place, storage = self._place_of(directory)
            with self._lock:
                # Else a root was removed since the path was admitted: it must be admitted again, as
                # ``submit`` doesn't check the roots.
                if forgotten == self._forgotten:
                    self._spell(directory, self._kept(place, storage))
                    return

    def _spell(self, directory: str, found: MarkerDirectory) -> None:
        """Remember the directory at a path; the caller holds the lock."""
        length = len(directory) + sum(map(len, self._spelled))
        if len(self._spelled) >= MAX_SPELLINGS or length > SPELLED_CHARACTERS:
            self._spelled.clear()
        self._spelled[directory] = found

    def submit(
        self, directory: str, markers: Mapping[str, Created], *, refusable: bool = False
    ) -> bool:
        """Queue the creation of markers, which one flush writes together; never waits.

        Args:
            directory: ``<base>/.hoodie/.temp/<instant>``, the base path in any spelling.
            markers: The markers, relative to the base path. The object of each gets ``True`` if the
                marker is new, once it is durable; or the storage's error.
            refusable: Whether the client takes ``false`` for a conflict with another write. To
                other clients it means that the marker existed, so they are never refused.

        Returns:
            False if the directory isn't known: ``find`` has to come first.

        Raises:
            InputError: The directory isn't a marker directory, or no write of its instant creates
                a marker of one of these names; none was queued.
        """
        # Without the lock, as this runs on the loop: reading one entry is a single step.
        found = self._spelled.get(directory)
        if found is None:
            # Refused before the search takes a thread.
            instant = split_directory(directory)[1]
            for name in markers:
                check_name(name, instant)
            return False
        return found.submit(markers, refusable=refusable)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return the markers of a directory."""
        return self._looked_up(directory).names()

    def exists(self, directory: str) -> bool:
        """Whether a directory exists."""
        return self._looked_up(directory).exists()

    def delete(self, directory: str) -> bool:
        """Delete a directory; return whether it existed."""
        # Kept during the delete, so that creations use the same object and wait for its ``_io``.
        place, storage = self._place_of(directory)
        with self._lock:
            found = self._kept(place, storage)
        try:
            return found.delete()
        finally:
            with self._lock:
                self._drop([found])

    def forget(self, is_kept: Callable[[TableId], bool]) -> None:
        """Have every path looked up again, after a change of the roots; drop unserved directories.

        A directory in which markers are being created stays until they are.

        Args:
            is_kept: Whether a table is still served, under any path.
        """
        with self._lock:
            self._forgotten += 1
            # All of them: a table may still be served, but not under a link that was a root.
            self._spelled = {}
            self._drop([d for place, d in self._directories.items() if not is_kept(place.table)])

    def tables(self) -> frozenset[TableId]:
        """Return the tables in whose directories markers are being created."""
        with self._lock:
            return frozenset(place.table for place in self._directories)

    def status(self) -> dict[str, int]:
        """Return the number of directories kept, and figures about early conflicts."""
        with self._lock:
            return {"directories": len(self._directories), **self._detector.status()}

    def start(self) -> None:
        """Start to detect conflicts, if that is enabled."""
        if self._conflicts.enabled:
            self._detector.start()

    def close(self) -> None:
        """Write queued markers, for ``END_S`` at most: threads that hang end with the process."""
        self._detector.close()
        self._finders.close()
        self._flushers.close(finish_s=END_S)

    def _place_of(self, directory: str) -> tuple[_Place, Storage]:
        base_path, instant = split_directory(directory)
        table, storage = self._table_of(base_path)
        return _Place(table, instant), storage

    def _looked_up(self, directory: str) -> MarkerDirectory:
        """Return a directory to read from, without adding it to those in memory."""
        place, storage = self._place_of(directory)
        with self._lock:
            return self._directories.get(place) or self._made(place, storage)

    def _kept(self, place: _Place, storage: Storage) -> MarkerDirectory:
        """Return the directory at a place, made on first use; the caller holds the lock."""
        found = self._directories.get(place)
        if found is None:
            self._make_room()
            found = self._directories[place] = self._made(place, storage)
        return found

    def _made(self, place: _Place, storage: Storage) -> MarkerDirectory:
        storage = storage.for_cause("marker")

        def watch(directory: MarkerDirectory) -> ConflictWatch:
            check = ConflictCheck(
                storage, place.instant, directory.announced, self._conflicts, self._clock
            )
            return self._detector.watch(place.table, str(place), check)

        return MarkerDirectory(
            storage.confined(_refuse_links(place.instant)),
            place.instant,
            partial(self._flushers.submit, place.table),
            self._clock,
            partial(concurrent_clusterings, storage, place.instant),
            watch if self._conflicts.enabled else None,
            is_one_of_many=self._is_one_of_many,
        )

    def _make_room(self) -> None:
        """Drop directories that are idle, or the least recently used; the caller holds the lock."""
        # Those with a conflict last: a detected conflict must be kept.
        known = sorted(
            self._directories.values(), key=lambda each: (each.has_conflict, each.used_s)
        )
        idle_since = self._clock.monotonic() - IDLE_S
        in_conflict = sum(each.has_conflict for each in known)
        too_many = len(known) - MAX_DIRECTORIES - min(in_conflict, MAX_DIRECTORIES) + 1
        self._drop([d for n, d in enumerate(known) if n < too_many or d.used_s < idle_since])

    def _drop(self, directories: list[MarkerDirectory]) -> None:
        """Forget directories unless they are in use; the caller holds the lock."""
        retired = {directory for directory in directories if directory.retire()}
        if retired:
            # A ``submit`` that has just got a retired one is refused by it, and searches again.
            self._directories = {p: d for p, d in self._directories.items() if d not in retired}
            self._spelled = {s: d for s, d in self._spelled.items() if d not in retired}


def _threads(name: str) -> TableThreads:
    return TableThreads(name, THREADS, of_a_table=OF_A_TABLE, queued=QUEUED)


def _refuse_links(instant: str) -> Callable[[str], str | None]:
    """Return a function that refuses paths behind a link, for ``Storage.confined``."""

    def refuse(path: str) -> str | None:
        raise RootNotAllowedError(
            f"the marker directory of {instant} is behind a symbolic link; markers are kept in"
            " real directories only",
            detail=path,
        )

    return refuse


def concurrent_clusterings(
    storage: Storage, instant: str, named: Collection[str]
) -> frozenset[str]:
    """Return those of the ``named`` instants that are clusterings concurrent with a write.

    ``instant`` is the requested time of the write.

    Cost: one read and one list; one stat for each instant that has completed since.
    """
    client = TableMetaClient.open(storage, cause="marker")
    # In layout 1 (version 6) markers of logs are APPEND, and Hudi can't roll back others.
    if client.config.layout_version == 1:
        return frozenset()
    timeline = client.active_timeline()
    return frozenset(
        each for each in named if _is_concurrent(client, timeline.find(each, CLUSTERING), instant)
    )


def _is_concurrent(client: TableMetaClient, found: Instant | None, instant: str) -> bool:
    if found is None:
        return False
    if not found.is_completed:
        return found.action == CLUSTERING
    # Its logs are committed: a marker for them would have them deleted.
    if (found.completion_time or "") <= instant:
        return False
    # A completed clustering is a replacecommit, as is an insert overwrite; its plan distinguishes
    # them.
    plan = Instant(found.requested_time, CLUSTERING, State.REQUESTED)
    return client.storage.stat(client.path_of(plan)) is not None
