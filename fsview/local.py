"""``LocalView``: a view of one snapshot, answered in this process.

A view holds its snapshot for as long as it lives, so its answers never change while the table does;
only ``sync`` moves it. Partitions are loaded when they are first asked for, through the table that
all views of it share (``fsview.table_view``); reading what is loaded takes no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from fsview import direct, query
from fsview.model import (
    BaseFile,
    ClusteringOperation,
    CompactionOperation,
    FileGroup,
    FileSlice,
    LogFile,
)
from fsview.packed import PartitionVersion
from fsview.rows import UNKNOWN_SIZE
from fsview.snapshot import Snapshot
from fsview.wire import PathForms
from timeline.errors import StoreError, ViewBehindError
from timeline.instant import Instant
from timeline.timeline import Timeline

if TYPE_CHECKING:
    from fsview.table_view import TableView

P = ParamSpec("P")
T = TypeVar("T")
Query = Callable[Concatenate[Snapshot, PartitionVersion, P], T]


@dataclass(frozen=True, slots=True)
class TableWide:
    """What a query of the whole table asks of each partition.

    Attributes:
        asked: The query of one partition.
        loaded_only: Whether only the partitions count that count as loaded, as in Hudi.
        more: Arguments that the view's method doesn't have.
    """

    asked: Callable[..., tuple[Any, ...]]
    loaded_only: bool
    more: Mapping[str, Any] = field(default_factory=dict)


TABLE_WIDE: Final[Mapping[str, TableWide]] = {
    "all_latest_base_files": TableWide(query.latest_base_files, loaded_only=True),
    "all_latest_base_files_before_or_on": TableWide(
        query.latest_base_files_before_or_on, loaded_only=False
    ),
    "latest_base_files_in_range": TableWide(query.latest_base_files_in_range, loaded_only=True),
    "all_latest_file_slices_before_or_on": TableWide(
        query.latest_file_slices_before_or_on,
        loaded_only=False,
        more={"include_pending_compaction": True},
    ),
    "latest_file_slices_in_range": TableWide(query.latest_file_slices_in_range, loaded_only=True),
}
"""The view's method → what it asks."""


class LocalView:
    """The files of a table at one instant; implements ``fsview.view.FileSystemView``.

    Attributes:
        table: The table, shared by its views.
        snapshot: What the view answers from.
    """

    def __init__(self, table: TableView, snapshot: Snapshot) -> None:
        self.table = table
        self.snapshot = snapshot

    # Base files.

    def latest_base_files(self, partition: str) -> tuple[BaseFile, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.latest_base_files)

    def latest_base_file(self, partition: str, file_id: str) -> BaseFile | None:
        """See ``FileSystemView``."""
        return self._ask(partition, query.latest_base_file, file_id)

    def all_latest_base_files(self) -> tuple[BaseFile, ...]:
        """See ``FileSystemView``."""
        return _chained(self.in_parts("all_latest_base_files"))

    def latest_base_files_before_or_on(
        self, partition: str, max_instant: str
    ) -> tuple[BaseFile, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.latest_base_files_before_or_on, max_instant)

    def all_latest_base_files_before_or_on(
        self, max_instant: str
    ) -> Mapping[str, tuple[BaseFile, ...]]:
        """See ``FileSystemView``."""
        return dict(self.in_parts("all_latest_base_files_before_or_on", max_instant=max_instant))

    def base_file_on(self, partition: str, instant: str, file_id: str) -> BaseFile | None:
        """See ``FileSystemView``."""
        return self._ask(partition, query.base_file_on, instant, file_id)

    def all_base_files(self, partition: str) -> tuple[BaseFile, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.all_base_files)

    def latest_base_files_in_range(self, instants: Collection[str]) -> tuple[BaseFile, ...]:
        """See ``FileSystemView``."""
        return _chained(self.in_parts("latest_base_files_in_range", instants=instants))

    # Slices.

    def latest_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.latest_file_slices)

    def latest_file_slices_stateless(self, partition: str) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``; the partition doesn't count as loaded for it."""
        return self._ask_stateless(partition, query.latest_file_slices)

    def latest_file_slice(self, partition: str, file_id: str) -> FileSlice | None:
        """See ``FileSystemView``."""
        return self._ask(partition, query.latest_file_slice, file_id)

    def latest_file_slices_including_inflight(self, partition: str) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.latest_file_slices_including_inflight)

    def latest_uncompacted_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.latest_uncompacted_file_slices)

    def latest_file_slices_before_or_on(
        self, partition: str, max_instant: str, include_pending_compaction: bool
    ) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``."""
        return self._ask(
            partition,
            query.latest_file_slices_before_or_on,
            max_instant,
            include_pending_compaction,
        )

    def all_latest_file_slices_before_or_on(
        self, max_instant: str
    ) -> Mapping[str, tuple[FileSlice, ...]]:
        """See ``FileSystemView``."""
        return dict(self.in_parts("all_latest_file_slices_before_or_on", max_instant=max_instant))

    def latest_merged_file_slices_before_or_on(
        self, partition: str, max_instant: str
    ) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.latest_merged_file_slices_before_or_on, max_instant)

    def latest_merged_file_slice_before_or_on(
        self, partition: str, max_instant: str, file_id: str
    ) -> FileSlice | None:
        """See ``FileSystemView``."""
        return self._ask(
            partition, query.latest_merged_file_slice_before_or_on, max_instant, file_id
        )

    def latest_merged_file_slices_before_or_on_including_inflight(
        self, partition: str, max_instant: str, current_instant: str
    ) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``."""
        return self._ask(
            partition,
            query.latest_merged_file_slices_before_or_on_including_inflight,
            max_instant,
            current_instant,
        )

    def latest_file_slices_in_range(self, instants: Collection[str]) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``."""
        return _chained(self.in_parts("latest_file_slices_in_range", instants=instants))

    def all_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.all_file_slices)

    # Groups.

    def all_file_groups(self, partition: str) -> tuple[FileGroup, ...]:
        """See ``FileSystemView``."""
        return self._ask(partition, query.all_file_groups)

    def all_file_groups_stateless(self, partition: str) -> tuple[FileGroup, ...]:
        """See ``FileSystemView``; the partition doesn't count as loaded for it."""
        return self._ask_stateless(partition, query.all_file_groups)

    def replaced_file_groups_before_or_on(
        self, max_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        """See ``FileSystemView``."""
        return self._ask_replaced(partition, lambda time: time <= max_instant)

    def replaced_file_groups_before(
        self, max_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        """See ``FileSystemView``."""
        return self._ask_replaced(partition, lambda time: time < max_instant)

    def replaced_file_groups_after_or_on(
        self, min_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        """See ``FileSystemView``."""
        return self._ask_replaced(partition, lambda time: time >= min_instant)

    def all_replaced_file_groups(self, partition: str) -> tuple[FileGroup, ...]:
        """See ``FileSystemView``."""
        return self._ask_replaced(partition, lambda _: True)

    # Pending operations.

    def pending_compaction_operations(self) -> tuple[CompactionOperation, ...]:
        """See ``FileSystemView``; in order of partition and file id."""
        return tuple(operation for _, operation in sorted(self.snapshot.pending_compaction.items()))

    def pending_log_compaction_operations(self) -> tuple[CompactionOperation, ...]:
        """See ``FileSystemView``; in order of partition and file id.

        A client's hash doesn't say which log compactions it knows of, so those planned since pend
        for it, too (pinned.md, rule 7).
        """
        operations = self.table.log_compactions_of(self.snapshot)
        return tuple(operation for _, operation in sorted(operations.items()))

    def file_groups_in_pending_clustering(self) -> tuple[ClusteringOperation, ...]:
        """See ``FileSystemView``; in order of partition and file id.

        A clustering whose plan is on storage pends for this view as long as it isn't completed at
        the view's instant, whenever it was planned: an older view still shows the groups that it
        replaced, and a writer asks this before it updates them (pinned.md, rule 7).
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
        """Return the JSON of what a method answers, made without the answer's values.

        Args:
            name: The method, a key of ``fsview.direct.NEWEST``.
            paths: How the caller spells the base path.
            partition: The method's argument.
            plain_only: See ``fsview.direct.newest_as_json``, also for when it is ``None``.
            arguments: The method's other ones.
        """
        asked = partial(
            direct.newest_as_json,
            newest=direct.NEWEST[name],
            arguments=arguments,
            paths=paths,
            plain_only=plain_only,
        )
        if name.endswith("_stateless"):
            return self._ask_stateless(partition, asked)
        return self._ask(partition, asked)

    # The view itself.

    @property
    def timeline(self) -> Timeline:
        """See ``FileSystemView``."""
        return self.snapshot.timeline

    def last_instant(self) -> Instant | None:
        """See ``FileSystemView``."""
        return self.snapshot.timeline.last

    def load_partitions(self, partitions: Collection[str]) -> None:
        """See ``FileSystemView``."""
        names = [_without_slash(partition) for partition in partitions]
        self.table.load(self.snapshot, names)
        self.table.mark_loaded(names)

    def load_all_partitions(self) -> None:
        """See ``FileSystemView``."""
        names = self.table.load_all(self.snapshot)
        self.table.mark_loaded(names)

    def sync(self) -> None:
        """See ``FileSystemView``."""
        self.snapshot = self.table.sync().snapshot

    def refresh(self) -> None:
        """Sync, and count no partition as loaded: what Hudi's ``refresh/`` does, as far as seen."""
        self.sync()
        self.table.clear_loaded()

    def close(self) -> None:
        """See ``FileSystemView``; the table stays for other views."""

    # How it asks.

    def _ask(self, partition: str, asked: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Answer for one partition, which counts as loaded from now on."""
        name = _without_slash(partition)
        answer = self._answer(name, asked, *args, **kwargs)
        self.table.mark_loaded((name,))
        return answer

    def _ask_stateless(self, partition: str, asked: Query[[], T]) -> T:
        return self._answer(_without_slash(partition), asked)

    def _ask_replaced(self, partition: str, keep: Callable[[str], bool]) -> tuple[FileGroup, ...]:
        name = _without_slash(partition)
        if not self.snapshot.replaced.get(name):
            return ()
        return self._ask(name, query.replaced_file_groups, keep)

    def in_parts(self, name: str, **arguments: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield what a table-wide query answers, a partition at a time, in order.

        Args:
            name: A key of ``TABLE_WIDE``.
            arguments: Of the view's method of that name.

        Raises:
            ViewBehindError: As the method; maybe after the first parts.
        """
        wide = TABLE_WIDE[name]
        if wide.loaded_only:
            partitions = self.table.loaded_partitions()
        else:
            partitions = self.table.load_all(self.snapshot)
            self.table.mark_loaded(partitions)
        for partition in partitions:
            yield partition, self._answer(partition, wide.asked, **arguments, **wide.more)

    def _answer(self, partition: str, asked: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        version = self.table.version(self.snapshot, partition)
        try:
            answer = asked(self.snapshot, version, *args, **kwargs)
        except StoreError as exc:
            self.table.lost(version, exc)
            raise
        if not version.has_ghosts:
            return answer
        ghost = next((f for f in _files_in(answer) if f.size == UNKNOWN_SIZE), None)
        if ghost is None:
            return answer
        newest = self.table.newest_if_only_cleaned(self.snapshot)
        if newest is not None:
            return LocalView(self.table, newest)._answer(partition, asked, *args, **kwargs)
        raise ViewBehindError(
            f"the answer at {self.last_instant()} names {ghost.path}, which was removed since",
            hint="sync and ask again",
        )


def _without_slash(partition: str) -> str:
    return partition[:-1] if partition.endswith("/") else partition


def _chained(parts: Iterable[tuple[str, tuple[T, ...]]]) -> tuple[T, ...]:
    """Return the answers of all partitions as one."""
    return tuple(found for _, answer in parts for found in answer)


def _files_in(answer: Any) -> Iterable[BaseFile | LogFile]:
    """Yield every file that an answer shows."""
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
