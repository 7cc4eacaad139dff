"""``MarkerService``: the marker directories of all tables of a service.

A directory is known by table and instant, however its base path is spelled, and for as long as
markers are created in it; whoever only looks leaves nothing behind. One that nobody has used for
long is given up: what it holds is on storage, and is read again by whoever comes back.

The table itself isn't opened: a timeline that can't be read keeps nobody from announcing files.

Source: Hudi 1.2.0 ``MarkerHandler``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final

from strandline.service.marker.clustering import clusterings_beside
from strandline.service.marker.conflict import ConflictCheck
from strandline.service.marker.conflict_options import ConflictOptions
from strandline.service.marker.conflict_watch import ConflictDetector, ConflictWatch
from strandline.service.marker.directory import MarkerDirectory
from strandline.service.marker.file import directory_path, split_directory
from strandline.service.marker.name import check_name
from strandline.service.marker.pending_marker import Created
from strandline.service.table_threads import TableThreads
from timeline.clock import Clock, SystemClock
from timeline.errors import RootNotAllowedError, StorageUnavailableError
from timeline.storage.base import Storage
from timeline.storage.table_id import TableId

MAX_DIRECTORIES: Final = 1000
MAX_SPELLINGS: Final = 4 * MAX_DIRECTORIES
SPELLED_CHARACTERS: Final = 1 << 20
"""Of all spellings together: a client chooses how long each is."""
IDLE_S: Final = 3600.0
END_S: Final = 0.3
"""How long the end waits for what is being written; nobody waits for an answer any more."""

OF_A_TABLE: Final = 8
THREADS: Final = 16 * OF_A_TABLE
"""As many tables may hang before another gets fewer threads than a table may have."""
QUEUED: Final = 1000
"""Flushes, or directories to find, of one table that may wait for a thread."""

TableOf = Callable[[str], tuple[TableId, Storage]]
"""From a base path to the table's id and storage; refuses what the service may not serve."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A table, and an instant of it."""

    table: TableId
    instant: str

    def __str__(self) -> str:
        return f"{self.table}/{directory_path(self.instant)}"


@dataclass(frozen=True, slots=True)
class _Known:
    """A directory, and how its markers are looked at.

    Attributes:
        watch: Begins to look for conflicts; ``None``: that is off.
    """

    place: _Place
    directory: MarkerDirectory
    watch: Callable[[], ConflictWatch] | None


class MarkerService:
    """The marker directories of all tables of a service.

    ``_lock`` guards the directories by place, and by a spelling of it which was checked once; a
    directory that was retired is looked up anew.
    """

    def __init__(
        self,
        table_of: TableOf,
        *,
        conflicts: ConflictOptions | None = None,
        clock: Clock | None = None,
        detector: ConflictDetector | None = None,
    ) -> None:
        """Make a service with no directory.

        Args:
            table_of: Finds tables.
            conflicts: Whether and how early conflicts are looked for; ``None``: they aren't.
            clock: To time by.
            detector: Takes the place of the one that looks for conflicts.
        """
        self._table_of = table_of
        self._clock = clock or SystemClock()
        self._conflicts = conflicts or ConflictOptions()
        self._detector = detector or ConflictDetector(
            self._conflicts, self._clock, pool=_threads("conflicts")
        )
        self._flushers = _threads("markers")
        self._finders = _threads("marker-directories")
        self._lock = threading.Lock()
        self._directories: dict[_Place, _Known] = {}
        self._spelled: dict[str, _Known] = {}

    def submit(self, directory: str, name: str, *, refusable: bool = False) -> Future[bool]:
        """Queue the creation of a marker.

        Args:
            directory: ``<base>/.hoodie/.temp/<instant>``, the base path in any spelling.
            name: The marker, relative to the base path.
            refusable: Whether who asks takes ``false`` for a conflict with another write; to
                others it says that the marker is there, so they are never refused.

        Returns:
            Whether the marker is new, when it is durable; or the storage's error.

        Raises:
            InputError: The directory isn't one for markers, or the name isn't one of a marker that
                a write of this instant creates.
            RootNotAllowedError: The base path is outside the service's roots, or links lead from
                it to the directory.
        """
        created: Future[bool] = Future()
        while not self.enqueue(directory, name, created, refusable=refusable):
            self._find(directory)
        return created

    def find(self, directory: str) -> Future[None]:
        """Get to know a directory, on a thread; after that ``enqueue`` takes its markers.

        Raises:
            InputError: The directory isn't one for markers; ``RootNotAllowedError``, if it is one
                that may not be served, is raised in the future.
            StorageUnavailableError: There is no thread for it.
        """
        # By the text alone, as a look at storage might hang.
        table = TableId.of(split_directory(directory)[0])
        try:
            return self._finders.submit(table, partial(self._find, directory))
        except RuntimeError as exc:
            raise StorageUnavailableError(f"no thread to find markers: {exc}") from exc

    def _find(self, directory: str) -> None:
        known = self._kept(self._place_of(directory))
        with self._lock:
            length = len(directory) + sum(map(len, self._spelled))
            if len(self._spelled) >= MAX_SPELLINGS or length > SPELLED_CHARACTERS:
                self._spelled.clear()
            self._spelled[directory] = known

    def enqueue(
        self, directory: str, name: str, created: Created, *, refusable: bool = False
    ) -> bool:
        """Do as ``submit`` for a directory that is known, else return False; never waits."""
        known = self._spelled.get(directory)
        if known is None:
            check_name(name, split_directory(directory)[1])
            return False
        clustering = check_name(name, known.place.instant)
        watch = known.watch if refusable else None
        return known.directory.submit(name, created, watch, clustering)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return the markers of a directory."""
        return self._looked_up(directory).names()

    def exists(self, directory: str) -> bool:
        """Whether the directory is there."""
        return self._looked_up(directory).exists()

    def delete(self, directory: str) -> bool:
        """Delete the directory; return whether it was there."""
        known = self._kept(self._place_of(directory))
        try:
            return known.directory.delete()
        finally:
            with self._lock:
                self._give_up([known])

    def status(self) -> dict[str, int]:
        """Return how many directories are known, and figures about early conflicts."""
        with self._lock:
            return {"directories": len(self._directories), **self._detector.status()}

    def start(self) -> None:
        """Begin what runs by itself."""
        if self._conflicts.enabled:
            self._detector.start()

    def close(self) -> None:
        """Finish what is queued, but for what hangs in storage: that ends with the process."""
        self._detector.close()
        self._finders.close()
        finish = partial(self._flushers.close, finish=True)
        ending = threading.Thread(target=finish, name="markers-end", daemon=True)
        ending.start()
        ending.join(END_S)

    def _place_of(self, directory: str) -> tuple[_Place, Storage]:
        base_path, instant = split_directory(directory)
        table, storage = self._table_of(base_path)
        return _Place(table, instant), storage

    def _looked_up(self, directory: str) -> MarkerDirectory:
        """Return a directory to look at, which isn't kept for that."""
        place, storage = self._place_of(directory)
        with self._lock:
            known = self._directories.get(place)
        return (known or self._made(place, storage)).directory

    def _kept(self, found: tuple[_Place, Storage]) -> _Known:
        place, storage = found
        with self._lock:
            known = self._directories.get(place)
            if known is None:
                self._make_room()
                known = self._directories[place] = self._made(place, storage)
        return known

    def _made(self, place: _Place, storage: Storage) -> _Known:
        path = directory_path(place.instant)
        storage, clock = storage.for_cause("marker"), self._clock
        kept_in = storage.confined(_refuse_links(place.instant))
        start = partial(self._flushers.submit, place.table)
        beside = partial(clusterings_beside, storage, place.instant)
        made = MarkerDirectory(kept_in, path, start, clock, beside)
        if not self._conflicts.enabled:
            return _Known(place, made, None)
        options = self._conflicts

        def watch() -> ConflictWatch:
            check = ConflictCheck(storage, place.instant, made.announced, options, clock)
            return self._detector.watch(place.table, str(place), check)

        return _Known(place, made, watch)

    def _make_room(self) -> None:
        """Give up directories that nobody uses; the caller holds the lock."""
        # A conflict that was found mustn't be forgotten while others come and go.
        known = sorted(
            self._directories.values(),
            key=lambda known: (known.directory.has_conflict, known.directory.used_s),
        )
        idle_since = self._clock.monotonic() - IDLE_S
        in_conflict = sum(k.directory.has_conflict for k in known)
        too_many = len(known) - MAX_DIRECTORIES - min(in_conflict, MAX_DIRECTORIES) + 1
        self._give_up(
            [k for n, k in enumerate(known) if n < too_many or k.directory.used_s < idle_since]
        )

    def _give_up(self, known: list[_Known]) -> None:
        """Forget directories, but for those in use; the caller holds the lock."""
        gone = {id(k) for k in known if k.directory.retire()}
        if gone:
            self._directories = {p: k for p, k in self._directories.items() if id(k) not in gone}
            self._spelled = {s: k for s, k in self._spelled.items() if id(k) not in gone}


def _threads(name: str) -> TableThreads:
    return TableThreads(name, THREADS, of_a_table=OF_A_TABLE, queued=QUEUED)


def _refuse_links(instant: str) -> Callable[[str], str | None]:
    """Return what a storage asks about a path once a link is on the way to it: none may be."""

    def refuse(path: str) -> str | None:
        raise RootNotAllowedError(
            f"the marker directory of {instant} lies behind a symbolic link; markers are kept in"
            " real directories only",
            detail=path,
        )

    return refuse
