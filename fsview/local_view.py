"""``LocalView``: a view of one snapshot, answered in this process.

A view keeps its snapshot, so its answers don't change while the table does; only ``sync`` changes
the snapshot. Partitions are loaded when they are first asked for, through the ``TableView`` that
all views of a table share. Reading what is loaded takes no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from fsview.files.partition import PartitionVersion
from fsview.files.row import UNKNOWN_SIZE
from fsview.load.snapshot_filler import GoOn, Leading, always
from fsview.metrics import Metrics
from fsview.model.file_group import (
    BaseFile,
    ClusteringOperation,
    CompactionOperation,
    FileGroup,
    FileSlice,
    LogFile,
)
from fsview.model.file_system_view import FileSystemView, LookupQuery
from fsview.query import latest_json
from fsview.query.queries import (
    QUERIES,
    InstantSet,
    QueryScope,
    file_slices_as_of,
    latest_file_slices_before_or_on,
)
from fsview.query.sums import NEWEST
from fsview.snapshot.snapshot import Snapshot
from fsview.state.current_history import Use
from fsview.table_view import Lease, TableView
from fsview.wire.json_form import PathForms
from timeline.completion import UnreadArchiveError
from timeline.errors import StoreError, ViewBehindError
from timeline.instant import Instant
from timeline.storage.base import Storage
from timeline.timeline import Timeline

T = TypeVar("T")


class LocalView(FileSystemView):
    """The files of a table at one instant.

    Attributes:
        table: The table, shared by its views.
        snapshot: The snapshot that answers come from.
        lease: Keeps the table open as long as the view lives; ``None``: others do.
    """

    lease: Lease | None = None

    def __init__(self, table: TableView, snapshot: Snapshot, use: Use | None = None) -> None:
        """Make a view.

        Args:
            table: The table.
            snapshot: A snapshot of it.
            use: Keeps what leads from the snapshot to newer ones, until the view ends or syncs.
        """
        self.table = table
        self.snapshot = snapshot
        self._use = use
        # Of the last load, with its snapshot: see ``Loading``.
        self._nothing: tuple[Snapshot, frozenset[str]] = snapshot, frozenset()

    def __repr__(self) -> str:
        path, at = self.table.storage.base_path, self.snapshot.timeline.last_time
        return f"{type(self).__name__}({path!r}, at={at!r})"

    @classmethod
    def newest(cls, table: TableView) -> LocalView:
        """Return a view of the newest snapshot held; see ``TableView.newest``."""
        return cls(table, table.newest())

    @classmethod
    def synced(cls, table: TableView) -> LocalView:
        """Return a view of the table as it is now; see ``TableView.sync``."""
        return cls(table, table.sync())

    @classmethod
    def at(cls, table: TableView, last_instant: str, timeline_hash: str) -> LocalView:
        """Return a view of the snapshot that a client means; see ``TableView.at``."""
        use = table.at(last_instant, timeline_hash)
        return cls(table, use.snapshot, use)

    def with_snapshot(self, snapshot: Snapshot) -> LocalView:
        """Return a view of another snapshot of the same table."""
        return LocalView(self.table, snapshot)

    def ask(self, name: str, **arguments: Any) -> Any:
        """See ``FileSystemView``: run the method's query of ``QUERIES``, or the method itself.

        Raises:
            ViewBehindError: The answer at this instant can't be known any more.
        """
        found = QUERIES.get(name)
        if found is None:
            return self.timeline if name == "timeline" else getattr(self, name)(**arguments)
        if found.scope is QueryScope.TABLE:
            return dict(self.in_parts(name, **arguments))
        if found.scope is QueryScope.LOADED:
            return tuple(chain.from_iterable(part for _, part in self.in_parts(name, **arguments)))
        if found.scope is QueryScope.REPLACED and not self._replaces_in(arguments["partition"]):
            return ()
        return self._of_partition(found.scope, found.function, **arguments)

    def look_up(self, queries: Sequence[LookupQuery]) -> tuple[tuple[Any, ...], ...]:
        """See ``FileSystemView``: load the partitions together, and ask of each.

        Cost: a list of the timeline for all partitions that aren't loaded, not for each one.
        """
        own = copy(self)  # other threads may sync this view meanwhile, or look others up
        own._load(dict.fromkeys(name for query in queries for name in query.partitions))
        return FileSystemView.look_up(own, queries)

    # Files.

    def file_slices_as_of(self, partition: str, time: str) -> tuple[FileSlice, ...]:
        """Return what held a partition's rows after all writes requested by ``time``.

        A slice of a group is joined with what later ones hold of these writes; see
        ``fsview.query.queries.file_slices_as_of``. Hudi has no such query.
        """
        return self._of_partition(QueryScope.PARTITION, file_slices_as_of, partition, time=time)

    # Pending operations.

    def pending_compaction_operations(self) -> tuple[CompactionOperation, ...]:
        """See ``FileSystemView``; in order of partition and file id."""
        return tuple(operation for _, operation in sorted(self.snapshot.pending_compaction.items()))

    def pending_log_compaction_operations(self) -> tuple[CompactionOperation, ...]:
        """See ``FileSystemView``; in order of partition and file id.

        The timeline is listed each time; see ``TableView.clustering_of``.
        """
        operations = self.table.log_compactions_of(self.snapshot)
        return tuple(operation for _, operation in sorted(operations.items()))

    def file_groups_in_pending_clustering(self) -> tuple[ClusteringOperation, ...]:
        """See ``FileSystemView``; in order of partition and file id.

        A clustering pends for this view as long as it isn't completed at the view's instant,
        whenever it was planned: an older view still shows the groups that it replaced, and a writer
        asks this before it updates them. The timeline is listed each time.
        """
        pending = self.table.clustering_of(self.snapshot)
        return tuple(
            ClusteringOperation(partition, file_id, instant)
            for (partition, file_id), instant in sorted(pending.items(), key=lambda item: item[0])
        )

    # Answers as JSON.

    def newest_as_json(
        self, name: str, paths: PathForms, *, partition: str, plain_only: bool, **arguments: Any
    ) -> bytes | None:
        """Return the JSON of a method's answer, made without the answer's values.

        Args:
            name: The method, a key of ``fsview.query.latest_json.NEWEST``.
            paths: The caller's spelling of the base path.
            partition: The method's argument.
            plain_only: See ``fsview.query.latest_json.newest_as_json``, also for a result of
                ``None``.
            arguments: The method's other arguments.
        """
        asked = partial(
            latest_json.newest_as_json,
            newest=latest_json.NEWEST[name],
            arguments=arguments,
            paths=paths,
            plain_only=plain_only,
        )
        return self._of_partition(QUERIES[name].scope, asked, partition)

    def newest_in_columns(
        self, name: str, *, partition: str, plain_only: bool = False, **arguments: Any
    ) -> bytes | None:
        """Return the answer of ``newest_as_json`` in columns; arguments and ``None`` as there."""
        asked = partial(
            latest_json.newest_in_columns,
            newest=latest_json.NEWEST[name],
            arguments=arguments,
            plain_only=plain_only,
        )
        return self._of_partition(QUERIES[name].scope, asked, partition)

    # The view itself.

    @property
    def timeline(self) -> Timeline:
        """See ``FileSystemView``."""
        return self.snapshot.timeline

    def last_instant(self) -> Instant | None:
        """See ``FileSystemView``."""
        return self.snapshot.timeline.last

    def load_partitions(
        self, partitions: Collection[str], go_on: GoOn = always, *, by_listing: bool = False
    ) -> None:
        """See ``FileSystemView``; for ``go_on`` see ``PartitionLoader.load``."""
        self._count_loaded(self._load(partitions, go_on, by_listing=by_listing))

    def load_all_partitions(self) -> None:
        """See ``FileSystemView``."""
        self.partitions()

    def partitions(self, leading: Leading | None = None) -> list[str]:
        """Return the paths of partitions in order; they are loaded if necessary.

        Args:
            leading: Chooses the directories that are searched; ``None`` for all. All partitions
                are returned that it chooses, whatever it says of those above them.

        Raises:
            ViewBehindError: They aren't known any more.
        """
        loader = self.table.loader
        if leading is None:
            names = loader.load_all(self.snapshot)
        else:
            names = loader.load_leading(self.snapshot, leading)
        self._count_loaded(names)
        return names

    def sync(self) -> None:
        """See ``FileSystemView``."""
        self.snapshot, self._use = self.table.sync(), None
        self._nothing = self.snapshot, frozenset()  # and so keeps no older snapshot

    def refresh(self) -> None:
        """Sync, and count no partition as loaded, as Hudi's ``refresh/`` does."""
        self.sync()
        self.table.loaded.clear()

    def close(self) -> None:
        """See ``FileSystemView``; the table stays for other views."""

    # Running queries.

    def _of_partition(
        self, scope: QueryScope, function: Callable[..., T], partition: str, **arguments: Any
    ) -> T:
        """Answer for one partition, which from now on counts as loaded if the scope says so."""
        name = _without_slash(partition)
        answer = self._answer(name, function, **arguments)
        # A path without files may have been forgotten already, and doesn't count then.
        if scope is not QueryScope.STATELESS and (
            name in self.snapshot.files.versions or self.table.holds(name)
        ):
            self._count_loaded((name,))
        return answer

    def _count_loaded(self, partitions: Collection[str]) -> None:
        """Count partitions as loaded from now on."""
        self.table.loaded.mark(partitions)

    def _replaces_in(self, partition: str) -> bool:
        return bool(self.snapshot.replaced.get(_without_slash(partition)))

    def in_parts(self, name: str, **arguments: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield partition and answer of a table-wide query, in order of the partitions.

        Args:
            name: A method whose query is table-wide.
            arguments: The method's arguments.

        Raises:
            ViewBehindError: As the method; possibly after the first parts.
        """
        wide = QUERIES[name]
        if "instants" in arguments:
            arguments["instants"] = InstantSet.of(arguments["instants"])
        if wide.scope is QueryScope.LOADED:
            partitions = self.table.loaded.in_order()
        else:
            partitions = self.partitions()
        for partition in partitions:
            yield partition, self._answer(partition, wide.function, **arguments, **wide.more)

    def _answer(self, partition: str, function: Callable[..., T], **arguments: Any) -> T:
        """Run a query of one partition, which is loaded if necessary.

        Raises:
            StoreError: Its files can't be read back; the next request reloads the table.
            ViewBehindError: The answer would have a file that was removed since.
        """
        version = self._version(partition)
        try:
            answer = self._run(function, version, **arguments)
        except StoreError as exc:
            # Distrusted before the error is raised, so that the next request reloads the table.
            self.table.state.lost(version, exc)
            raise
        if not version.has_ghosts:
            return answer
        # A removal under way may have deleted a file before anyone read its size.
        ghost = next((f for f in _files_in(answer) if f.size == UNKNOWN_SIZE), None)
        if ghost is None:
            return answer
        # Hudi's service answers from its newest state when only cleans followed.
        newest = self.table.newest_if_only_cleaned(self.snapshot)
        if newest is not None:
            return type(self)(self.table, newest)._answer(partition, function, **arguments)
        raise ViewBehindError(
            f"the answer at {self.last_instant()} names {ghost.path}, which was removed since",
            hint="sync and ask again",
        )

    def _load(
        self, partitions: Collection[str], go_on: GoOn = always, *, by_listing: bool = False
    ) -> Collection[str]:
        """Load partitions of which questions follow; return those that are held now."""
        names, snapshot = dict.fromkeys(map(_without_slash, partitions)), self.snapshot
        loading = self.table.loader.load(snapshot, names, go_on, by_listing=by_listing)
        # Of paths that are no partitions the table remembers only some.
        self._nothing = snapshot, loading.nothing
        return loading.held

    def _version(self, partition: str) -> PartitionVersion:
        """Return a partition's files, which are loaded if necessary."""
        snapshot, (at, nothing) = self.snapshot, self._nothing
        # Another thread may have synced since that load, and made it one of an older snapshot.
        if at is snapshot and partition in nothing and partition not in snapshot.files.versions:
            return PartitionVersion(partition)
        return self.table.loader.version(snapshot, partition)

    def _run(self, function: Callable[..., T], version: PartitionVersion, **arguments: Any) -> T:
        """Run a query; if it needs completion times from the archive, read them and repeat it."""
        while True:
            try:
                return function(self.snapshot, version, **arguments)
            except UnreadArchiveError as exc:  # each time of an older instant
                self.table.read_archived_times(self.snapshot, version, exc.requested_time)


class InspectedView(LocalView):
    """A view for people, whose questions leave alone which partitions count as loaded."""

    def _count_loaded(self, partitions: Collection[str]) -> None:
        """Count nothing: writers' answers about loaded partitions stay as they are."""

    def inspect(self, function: Callable[..., T], partition: str, **arguments: Any) -> T:
        """Return what a pure function says of the snapshot and a partition's files."""
        return self._answer(partition, function, **arguments)

    def in_blocks(
        self, function: Callable[[Snapshot, PartitionVersion], T], partition: str, begin: int = 0
    ) -> Iterator[T]:
        """Yield what a pure function says of each block of a partition's groups.

        Files that a removal under way deleted before anyone read their size have an unknown size.

        Args:
            function: Of the snapshot, and of a version with some of the groups.
            partition: The partition.
            begin: Number of the first block; blocks have the same numbers at the same snapshot.

        Raises:
            StoreError: The files can't be read back; the next request reloads the table.
            ViewBehindError: A file of a newest slice was removed since.
        """
        version = self._version(partition)
        if version.has_ghosts:
            newest = partial(latest_file_slices_before_or_on, include_pending_compaction=True)
            self._answer(partition, newest, max_instant=NEWEST)
        try:
            for block in version.blocks(begin):
                yield self._run(_of_block, version, of=function, block=block)
        except StoreError as exc:
            self.table.state.lost(version, exc)
            raise


class NotHeldError(Exception):
    """An answer needs something that isn't in memory; only ``HeldView`` raises it."""


class HeldView(LocalView):
    """A view of loaded partitions, for callers that can't wait: no storage call, no commit's lock.

    It supports only queries of one partition. If these need more, they raise ``NotHeldError``.
    """

    def _load(
        self, partitions: Collection[str], go_on: GoOn = always, *, by_listing: bool = False
    ) -> Collection[str]:
        """Load nothing; what isn't held is found by the questions."""
        return ()

    def _version(self, partition: str) -> PartitionVersion:
        held = self.snapshot.files.versions.get(partition)
        if held is None:
            raise NotHeldError(f"partition {partition!r}")
        if self.table.state.may_wait and held.parts:
            raise NotHeldError(f"partition {partition!r} in memory")
        return held

    def _run(self, function: Callable[..., T], version: PartitionVersion, **arguments: Any) -> T:
        try:
            return function(self.snapshot, version, **arguments)
        except UnreadArchiveError as exc:
            raise NotHeldError(f"the archive back to {exc.requested_time}") from exc
        except StoreError as exc:
            # ``TableState.lost`` takes a lock that is held while the store commits. A ``LocalView``
            # meets the same loss on a thread, and reports it there.
            raise NotHeldError(str(exc)) from exc


def open_view(storage: Storage, *, metrics: Metrics | None = None) -> LocalView:
    """Return a view of a table's newest instant for one caller, without a service.

    Raises:
        TableNotFoundError: There is no table at the storage's base path.
    """
    return LocalView.newest(TableView(storage, metrics=metrics, gathers=False))


def _of_block(
    s: Snapshot,
    _: PartitionVersion,
    of: Callable[[Snapshot, PartitionVersion], T],
    block: PartitionVersion,
) -> T:
    return of(s, block)


def _without_slash(partition: str) -> str:
    return partition[:-1] if partition.endswith("/") else partition


def _files_in(answer: Any) -> Iterable[BaseFile | LogFile]:
    """Yield every file in an answer."""
    if isinstance(answer, BaseFile | LogFile):
        yield answer
    elif isinstance(answer, FileSlice):
        if answer.base_file is not None:
            yield answer.base_file
        yield from answer.log_files
    elif isinstance(answer, FileGroup):
        for found in answer.slices:
            yield from _files_in(found)
    elif isinstance(answer, tuple):
        for item in answer:
            yield from _files_in(item)
