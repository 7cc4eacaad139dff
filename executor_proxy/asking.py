"""``AskingView``: every method of a view, written once, turned into one question to be overridden.

What an executor holds is never the view itself: it asks a service, or one view before another, or
keeps a record of what was asked. All three differ in one method, ``_ask``.
"""

# ruff: noqa: D102 - the methods are FileSystemView's, which documents them.
# What _ask answers is typed by the method that asks:
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from fsview.model import BaseFile, ClusteringOperation, CompactionOperation, FileGroup, FileSlice
from fsview.view import FileSystemView
from timeline.instant import Instant
from timeline.timeline import Timeline


def ask_view(view: FileSystemView, name: str, arguments: Mapping[str, Any]) -> Any:
    """Return what ``view`` answers to the question ``name``; ``timeline`` is a property."""
    return view.timeline if name == "timeline" else getattr(view, name)(**arguments)


class AskingView(ABC):
    """A ``FileSystemView`` that answers everything through ``_ask``."""

    @abstractmethod
    def _ask(self, name: str, **arguments: Any) -> Any:
        """Return the answer of the view's method ``name``."""

    @abstractmethod
    def close(self) -> None: ...

    # Base files.

    def latest_base_files(self, partition: str) -> tuple[BaseFile, ...]:
        return self._ask("latest_base_files", partition=partition)

    def latest_base_file(self, partition: str, file_id: str) -> BaseFile | None:
        return self._ask("latest_base_file", partition=partition, file_id=file_id)

    def all_latest_base_files(self) -> tuple[BaseFile, ...]:
        return self._ask("all_latest_base_files")

    def latest_base_files_before_or_on(
        self, partition: str, max_instant: str
    ) -> tuple[BaseFile, ...]:
        return self._ask(
            "latest_base_files_before_or_on", partition=partition, max_instant=max_instant
        )

    def all_latest_base_files_before_or_on(
        self, max_instant: str
    ) -> Mapping[str, tuple[BaseFile, ...]]:
        return self._ask("all_latest_base_files_before_or_on", max_instant=max_instant)

    def base_file_on(self, partition: str, instant: str, file_id: str) -> BaseFile | None:
        return self._ask("base_file_on", partition=partition, instant=instant, file_id=file_id)

    def all_base_files(self, partition: str) -> tuple[BaseFile, ...]:
        return self._ask("all_base_files", partition=partition)

    def latest_base_files_in_range(self, instants: Collection[str]) -> tuple[BaseFile, ...]:
        return self._ask("latest_base_files_in_range", instants=instants)

    # Slices.

    def latest_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        return self._ask("latest_file_slices", partition=partition)

    def latest_file_slices_stateless(self, partition: str) -> tuple[FileSlice, ...]:
        return self._ask("latest_file_slices_stateless", partition=partition)

    def latest_file_slice(self, partition: str, file_id: str) -> FileSlice | None:
        return self._ask("latest_file_slice", partition=partition, file_id=file_id)

    def latest_file_slices_including_inflight(self, partition: str) -> tuple[FileSlice, ...]:
        return self._ask("latest_file_slices_including_inflight", partition=partition)

    def latest_uncompacted_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        return self._ask("latest_uncompacted_file_slices", partition=partition)

    def latest_file_slices_before_or_on(
        self, partition: str, max_instant: str, include_pending_compaction: bool
    ) -> tuple[FileSlice, ...]:
        return self._ask(
            "latest_file_slices_before_or_on",
            partition=partition,
            max_instant=max_instant,
            include_pending_compaction=include_pending_compaction,
        )

    def all_latest_file_slices_before_or_on(
        self, max_instant: str
    ) -> Mapping[str, tuple[FileSlice, ...]]:
        return self._ask("all_latest_file_slices_before_or_on", max_instant=max_instant)

    def latest_merged_file_slices_before_or_on(
        self, partition: str, max_instant: str
    ) -> tuple[FileSlice, ...]:
        return self._ask(
            "latest_merged_file_slices_before_or_on", partition=partition, max_instant=max_instant
        )

    def latest_merged_file_slice_before_or_on(
        self, partition: str, max_instant: str, file_id: str
    ) -> FileSlice | None:
        return self._ask(
            "latest_merged_file_slice_before_or_on",
            partition=partition,
            max_instant=max_instant,
            file_id=file_id,
        )

    def latest_merged_file_slices_before_or_on_including_inflight(
        self, partition: str, max_instant: str, current_instant: str
    ) -> tuple[FileSlice, ...]:
        return self._ask(
            "latest_merged_file_slices_before_or_on_including_inflight",
            partition=partition,
            max_instant=max_instant,
            current_instant=current_instant,
        )

    def latest_file_slices_in_range(self, instants: Collection[str]) -> tuple[FileSlice, ...]:
        return self._ask("latest_file_slices_in_range", instants=instants)

    def all_file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        return self._ask("all_file_slices", partition=partition)

    # Groups.

    def all_file_groups(self, partition: str) -> tuple[FileGroup, ...]:
        return self._ask("all_file_groups", partition=partition)

    def all_file_groups_stateless(self, partition: str) -> tuple[FileGroup, ...]:
        return self._ask("all_file_groups_stateless", partition=partition)

    def replaced_file_groups_before_or_on(
        self, max_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        return self._ask(
            "replaced_file_groups_before_or_on", max_instant=max_instant, partition=partition
        )

    def replaced_file_groups_before(
        self, max_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        return self._ask(
            "replaced_file_groups_before", max_instant=max_instant, partition=partition
        )

    def replaced_file_groups_after_or_on(
        self, min_instant: str, partition: str
    ) -> tuple[FileGroup, ...]:
        return self._ask(
            "replaced_file_groups_after_or_on", min_instant=min_instant, partition=partition
        )

    def all_replaced_file_groups(self, partition: str) -> tuple[FileGroup, ...]:
        return self._ask("all_replaced_file_groups", partition=partition)

    # Pending operations.

    def pending_compaction_operations(self) -> tuple[CompactionOperation, ...]:
        return self._ask("pending_compaction_operations")

    def pending_log_compaction_operations(self) -> tuple[CompactionOperation, ...]:
        return self._ask("pending_log_compaction_operations")

    def file_groups_in_pending_clustering(self) -> tuple[ClusteringOperation, ...]:
        return self._ask("file_groups_in_pending_clustering")

    # The view itself.

    @property
    def timeline(self) -> Timeline:
        return self._ask("timeline")

    def last_instant(self) -> Instant | None:
        return self._ask("last_instant")

    def load_partitions(self, partitions: Collection[str]) -> None:
        self._ask("load_partitions", partitions=partitions)

    def load_all_partitions(self) -> None:
        self._ask("load_all_partitions")

    def sync(self) -> None:
        self._ask("sync")
