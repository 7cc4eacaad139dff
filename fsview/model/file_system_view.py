"""``FileSystemView``: the contract of every view, local or remote.

A view answers at one instant of the table's timeline. Groups come in order of file id, slices
newest first, partitions in order of their paths. ``partition`` is a path under the base path,
``""`` for a table without partitions; one trailing slash is ignored, and a partition that doesn't
exist has no files. ``max_instant`` and the like are requested times, compared as text.

Every method may raise ``ViewBehindError`` (the view can no longer answer at its instant) and
``StorageError``; a remote view also ``ServiceError``.

Implemented by ``fsview.local_view.LocalView``, ``executor_proxy.remote_view.RemoteView`` and
``executor_proxy.priority_view.PriorityView``. Source of every method: Hudi 1.2.0
``TableFileSystemView`` and ``AbstractTableFileSystemView``, whose names these are in snake case.

``LookupQuery`` is one query of many partitions, or of many file groups of one partition.
"""

# The result of ask has the type of the method that calls it:
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fsview.model.file_group import (
    BaseFile,
    ClusteringOperation,
    CompactionOperation,
    FileGroup,
    FileSlice,
)
from timeline.errors import InputError
from timeline.instant import Instant
from timeline.timeline import Timeline

OF_PARTITIONS: Final = frozenset(
    {
        "latest_base_files",
        "latest_base_files_before_or_on",
        "latest_file_slices",
        "latest_merged_file_slices_before_or_on",
    }
)
"""Methods of a view that such a query may ask of partitions."""
OF_FILE_IDS: Final = frozenset({"latest_base_file", "latest_file_slice"})
"""Methods that it may ask of file groups."""
WITH_INSTANT: Final = frozenset(
    {"latest_base_files_before_or_on", "latest_merged_file_slices_before_or_on"}
)
"""Methods with a ``max_instant``."""


@dataclass(frozen=True, slots=True)
class LookupQuery:
    """One method of a view, asked of many partitions or of many file groups of one.

    Attributes:
        name: The method: of ``OF_PARTITIONS`` or ``OF_FILE_IDS``.
        partitions: The partitions; with ``file_ids`` exactly one.
        file_ids: The file groups, for a method of ``OF_FILE_IDS``.
        max_instant: For a method of ``WITH_INSTANT``.
    """

    name: str
    partitions: tuple[str, ...]
    file_ids: tuple[str, ...] = ()
    max_instant: str | None = None

    def __post_init__(self) -> None:
        if self.name not in OF_PARTITIONS | OF_FILE_IDS:
            allowed = ", ".join(sorted(OF_PARTITIONS | OF_FILE_IDS))
            raise InputError(f"query={self.name[:200]!r} is no look-up; allowed: {allowed}")
        if (self.max_instant is not None) != (self.name in WITH_INSTANT):
            verb = "needs" if self.name in WITH_INSTANT else "takes no"
            raise InputError(f"{self.name} {verb} max_instant, which is {self.max_instant!r}")
        if self.is_of_groups and len(self.partitions) != 1:
            raise InputError(f"{self.name} is asked of one partition, not {len(self.partitions)}")
        if self.file_ids and not self.is_of_groups:
            raise InputError(f"{self.name} takes no file_ids, of which there are some")

    @property
    def is_of_groups(self) -> bool:
        """Whether it is asked of file groups; else of partitions."""
        return self.name in OF_FILE_IDS

    def arguments(self) -> Iterator[dict[str, Any]]:
        """Yield the method's arguments for each partition or file group, in order."""
        if self.is_of_groups:
            for file_id in self.file_ids:
                yield {"partition": self.partitions[0], "file_id": file_id}
        for partition in () if self.is_of_groups else self.partitions:
            if self.max_instant is None:
                yield {"partition": partition}
            else:
                yield {"partition": partition, "max_instant": self.max_instant}

    def without_repeats(self) -> LookupQuery:
        """Return the query with each partition and file group once, in order."""
        return replace(
            self,
            partitions=tuple(dict.fromkeys(self.partitions)),
            file_ids=tuple(dict.fromkeys(self.file_ids)),
        )

    @property
    def parts(self) -> int:
        """The number of parts of its answer: one for each partition."""
        return len(self.partitions)

    @property
    def answers(self) -> int:
        """The number of answers: one for each partition or file group."""
        return len(self.file_ids) if self.is_of_groups else len(self.partitions)


class FileSystemView(ABC):
    """Which files make up the table at the view's instant.

    A view implements ``ask`` and ``close``; ``look_up`` asks many questions, and every other method
    is one call of ``ask``.
    """

    @abstractmethod
    def ask(self, name: str, **arguments: Any) -> Any:
        """Return the result of the method (or property) ``name`` for these arguments."""

    @abstractmethod
    def close(self) -> None:
        """Release the view's resources."""

    def look_up(self, queries: Sequence[LookupQuery]) -> tuple[tuple[Any, ...], ...]:
        """Return for each query its answers, one for each of its partitions or file groups.

        A remote view sends one request for all; other views ask one after the other.
        """
        return tuple(
            tuple(self.ask(query.name, **arguments) for arguments in query.arguments())
            for query in queries
        )

    # Base files.

    def latest_base_files(self, partition: str) -> tuple[BaseFile, ...]:
        """Return each group's newest committed base file, without groups that are replaced."""
        return self.ask("latest_base_files", partition=partition)

    def latest_base_file(self, partition: str, file_id: str) -> BaseFile | None:
        """Return one group's newest committed base file."""
        return self.ask("latest_base_file", partition=partition, file_id=file_id)

    def all_latest_base_files(self) -> tuple[BaseFile, ...]:
        """Return ``latest_base_files`` of the partitions that were asked for so far, as Hudi."""
        return self.ask("all_latest_base_files")

    def latest_base_files_before_or_on(
        self, partition: str, max_instant: str
    ) -> tuple[BaseFile, ...]:
        """Return each group's newest committed base file of ``max_instant`` or before."""
        return self.ask(
            "latest_base_files_before_or_on", partition=partition, max_instant=max_instant
        )

    def all_latest_base_files_before_or_on(
        self, max_instant: str
    ) -> Mapping[str, tuple[BaseFile, ...]]:
        """Return ``latest_base_files_before_or_on`` of every partition of the table."""
        return self.ask("all_latest_base_files_before_or_on", max_instant=max_instant)

    def base_file_on(self, partition: str, instant: str, file_id: str) -> BaseFile | None:
        """Return one group's base file of exactly ``instant``."""
        return self.ask("base_file_on", partition=partition, instant=instant, file_id=file_id)

    def all_base_files(self, partition: str) -> tuple[BaseFile, ...]:
        """Return all committed base files, newest first in each group."""
        return self.ask("all_base_files", partition=partition)

    def latest_base_files_in_range(self, instants: Collection[str]) -> tuple[BaseFile, ...]:
        """Return, in loaded partitions, each group's newest base file of one of ``instants``."""
        return self.ask("latest_base_files_in_range", instants=instants)

    # Slices.

    def latest_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """Return each group's newest committed slice."""
        return self.ask("latest_file_slices", partition=partition)

    def latest_file_slices_stateless(self, partition: str) -> tuple[FileSlice, ...]:
        """Return ``latest_file_slices``; a partition not loaded is listed and not kept."""
        return self.ask("latest_file_slices_stateless", partition=partition)

    def latest_file_slice(self, partition: str, file_id: str) -> FileSlice | None:
        """Return one group's newest committed slice."""
        return self.ask("latest_file_slice", partition=partition, file_id=file_id)

    def latest_file_slices_including_inflight(self, partition: str) -> tuple[FileSlice, ...]:
        """Return each group's newest slice, committed or not, replaced or not."""
        return self.ask("latest_file_slices_including_inflight", partition=partition)

    def latest_uncompacted_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """Return each group's newest committed slice before its pending compaction, if any."""
        return self.ask("latest_uncompacted_file_slices", partition=partition)

    def latest_file_slices_before_or_on(
        self, partition: str, max_instant: str, include_pending_compaction: bool
    ) -> tuple[FileSlice, ...]:
        """Return each group's newest slice of ``max_instant`` or before.

        Without ``include_pending_compaction`` groups with a pending compaction are left out.
        """
        return self.ask(
            "latest_file_slices_before_or_on",
            partition=partition,
            max_instant=max_instant,
            include_pending_compaction=include_pending_compaction,
        )

    def all_latest_file_slices_before_or_on(
        self, max_instant: str
    ) -> Mapping[str, tuple[FileSlice, ...]]:
        """Return ``latest_file_slices_before_or_on`` of every partition.

        Pending compactions are included.
        """
        return self.ask("all_latest_file_slices_before_or_on", max_instant=max_instant)

    def latest_merged_file_slices_before_or_on(
        self, partition: str, max_instant: str
    ) -> tuple[FileSlice, ...]:
        """Return each group's newest slice, joined with the one before if a compaction pends."""
        return self.ask(
            "latest_merged_file_slices_before_or_on", partition=partition, max_instant=max_instant
        )

    def latest_merged_file_slice_before_or_on(
        self, partition: str, max_instant: str, file_id: str
    ) -> FileSlice | None:
        """Return ``latest_merged_file_slices_before_or_on`` of one group."""
        return self.ask(
            "latest_merged_file_slice_before_or_on",
            partition=partition,
            max_instant=max_instant,
            file_id=file_id,
        )

    def latest_merged_file_slices_before_or_on_including_inflight(
        self, partition: str, max_instant: str, current_instant: str
    ) -> tuple[FileSlice, ...]:
        """Return merged slices with uncommitted logs, as ``current_instant``'s writer sees them."""
        return self.ask(
            "latest_merged_file_slices_before_or_on_including_inflight",
            partition=partition,
            max_instant=max_instant,
            current_instant=current_instant,
        )

    def latest_file_slices_in_range(self, instants: Collection[str]) -> tuple[FileSlice, ...]:
        """Return, in the loaded partitions, each group's newest slice of one of ``instants``."""
        return self.ask("latest_file_slices_in_range", instants=instants)

    def all_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """Return all committed slices, newest first in each group."""
        return self.ask("all_file_slices", partition=partition)

    # Groups.

    def all_file_groups(self, partition: str) -> tuple[FileGroup, ...]:
        """Return the groups that aren't replaced."""
        return self.ask("all_file_groups", partition=partition)

    def all_file_groups_stateless(self, partition: str) -> tuple[FileGroup, ...]:
        """Return ``all_file_groups``; a partition not loaded is listed and not kept."""
        return self.ask("all_file_groups_stateless", partition=partition)

    def replaced_file_groups_before_or_on(
        self, max_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        """Return the groups replaced at ``max_instant`` or before."""
        return self.ask(
            "replaced_file_groups_before_or_on", max_instant=max_instant, partition=partition
        )

    def replaced_file_groups_before(
        self, max_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        """Return the groups replaced before ``max_instant``."""
        return self.ask("replaced_file_groups_before", max_instant=max_instant, partition=partition)

    def replaced_file_groups_after_or_on(
        self, min_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        """Return the groups replaced at ``min_instant`` or after."""
        return self.ask(
            "replaced_file_groups_after_or_on", min_instant=min_instant, partition=partition
        )

    def all_replaced_file_groups(self, partition: str) -> tuple[FileGroup, ...]:
        """Return all replaced groups that still have files."""
        return self.ask("all_replaced_file_groups", partition=partition)

    # Pending operations, over all partitions.

    def pending_compaction_operations(self) -> tuple[CompactionOperation, ...]:
        """Return the file groups that a compaction pends on."""
        return self.ask("pending_compaction_operations")

    def pending_log_compaction_operations(self) -> tuple[CompactionOperation, ...]:
        """Return the file groups that a log compaction pends on."""
        return self.ask("pending_log_compaction_operations")

    def file_groups_in_pending_clustering(self) -> tuple[ClusteringOperation, ...]:
        """Return the file groups that a clustering pends on."""
        return self.ask("file_groups_in_pending_clustering")

    # The view itself.

    @property
    def timeline(self) -> Timeline:
        """The view's timeline: completed instants and pending (log) compactions."""
        return self.ask("timeline")

    def last_instant(self) -> Instant | None:
        """Return the last instant of ``timeline``."""
        return self.ask("last_instant")

    def load_partitions(self, partitions: Collection[str], *, by_listing: bool = False) -> None:
        """Load these partitions now.

        Args:
            partitions: Their paths.
            by_listing: Whether the caller will ask for few others, so that a local view lists each
                instead of reading the whole table from metadata. A service decides itself.
        """
        self.ask("load_partitions", partitions=partitions, by_listing=by_listing)

    def load_all_partitions(self) -> None:
        """Find every partition of the table and load it."""
        self.ask("load_all_partitions")

    def sync(self) -> None:
        """Move the view to the newest instant of the table."""
        self.ask("sync")


def partition_names(view: FileSystemView) -> list[str]:
    """Return the paths of a table's partitions, in order.

    Hudi's protocol has no route for these, but answers about the whole table name all partitions,
    those without matches with empty lists; nothing is as old as what is asked for here.

    Raises:
        ViewBehindError: As of all methods.

    Cost: all partitions are loaded, as by ``load_all_partitions``; the answer has only their names.
    """
    return sorted(view.all_latest_file_slices_before_or_on(_BEFORE_ALL))


_BEFORE_ALL: Final = "0"
"""An instant before all, also before those of bootstraps."""
