"""``SliceListing``: the file slices that ``Table`` shows, now or at a time, of some partitions.

A filter chooses partitions by their paths alone. So it may only be on columns that paths determine:
files with some rows that match and some that don't have no place in such a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any

import pyarrow as pa

from executor_proxy.view_location import ViewLocation
from fsview.local_view import LocalView, open_view
from fsview.model.file_group import FileGroup, FileSlice
from fsview.model.file_system_view import FileSystemView, partition_names
from strandline.read.filter.partition_filter import WantedPartitions
from strandline.read.filter.path_values import PathRules
from strandline.read.filter.row_filter import RowFilter, expression_text
from strandline.read.scan import Scan, pinned
from strandline.read.scan_arguments import check_partition
from strandline.read.state.pin import instant_time, newest_schema, refuse_cleaned
from strandline.read.state.slice_source import NEWEST, opened
from strandline.records.meta_fields import PARTITION_PATH
from timeline.errors import InputError
from timeline.meta_client import TableMetaClient
from timeline.table.config import TableConfig


@dataclass(frozen=True, slots=True)
class SliceListing:
    """Lists the slices of one table.

    Attributes:
        meta: The table.
        service: The service that is asked for the newest instant; ``None``: storage is listed.
    """

    meta: TableMetaClient
    service: ViewLocation | None

    def view(self) -> FileSystemView:
        """Return a view of the newest instant, which the caller closes."""
        return open_view(self.meta.storage) if self.service is None else opened(self.service)

    def schema(self) -> pa.Schema:
        """Return the table's columns now; see ``Table.schema``."""
        return newest_schema(self.meta) or Scan.of(self.meta, service=self.service).schema

    def newest(
        self, partition: str | None = None, as_of: str | datetime | None = None, filter: Any = None
    ) -> Mapping[str, Sequence[FileSlice]]:
        """Return partition → the newest committed slices of its groups.

        Args:
            partition: Of this partition only, which need not exist.
            as_of: The time at which they are read, as of ``Table.scan``; ``None`` for now.
            filter: Of the partitions that may have such rows, as of ``Table.files``.

        Raises:
            InputError: As ``Table.files``.
        """
        if partition is not None:
            check_partition(partition)
        if as_of is not None:
            return self._as_of(partition, as_of, filter)
        wanted = None if filter is None else self._wanted(filter)
        with closing(self.view()) as view:
            # A service has them all, and would be asked once a partition for some.
            if partition is None and (wanted is None or not isinstance(view, LocalView)):
                found = view.all_latest_file_slices_before_or_on(NEWEST)
                if wanted is None:
                    return found
                return {path: found[path] for path in wanted.matching(sorted(found))}
            paths = _paths(view, partition, wanted)
            view.load_partitions(paths)
            return {
                path: view.latest_file_slices_before_or_on(
                    path, NEWEST, include_pending_compaction=True
                )
                for path in paths
            }

    def every(
        self, partition: str | None = None, as_of: str | datetime | None = None, filter: Any = None
    ) -> Iterator[FileSlice]:
        """Yield all slices of the groups that aren't replaced, by partition.

        Arguments and errors are those of ``newest``. As of a time they are those that began by
        then, without logs that were requested later, of groups that weren't replaced by then.
        """
        if partition is not None:
            check_partition(partition)
        wanted = None if filter is None else self._wanted(filter)
        if as_of is None:
            with closing(self.view()) as view:
                for path in _paths(view, partition, wanted):
                    for group in view.all_file_groups(path):
                        yield from group.slices
            return
        time = instant_time(as_of, self.meta.config.timezone)
        refuse_cleaned(self.meta, self.meta.active_timeline(), time, "as_of")
        with closing(open_view(self.meta.storage)) as view:
            for path in _paths(view, partition, wanted):
                for group in _groups_as_of(view, path, time):
                    for each in group.slices:
                        if each.base_instant <= time:
                            logs = (log for log in each.log_files if log.instant <= time)
                            yield replace(each, log_files=tuple(logs))
        # A clean that began meanwhile may have deleted files before they were listed.
        refuse_cleaned(self.meta, self.meta.active_timeline(), time, "as_of")

    def _as_of(
        self, partition: str | None, as_of: str | datetime, filter: Any
    ) -> Mapping[str, Sequence[FileSlice]]:
        pin = pinned(self.meta, as_of, filter)
        if filter is not None:
            row_filter = RowFilter.of(filter, pin.schema)
            _refuse_others(row_filter, pin.schema, self.meta.config)
            pin = pin.matching(row_filter)
        found: dict[str, list[FileSlice]] = {} if partition is None else {partition: []}
        for each in pin.slices:
            if partition in (None, each.partition):
                found.setdefault(each.partition, []).append(each)
        return found

    def _wanted(self, filter: Any) -> WantedPartitions:
        schema, config = self.schema(), self.meta.config
        row_filter = RowFilter.of(filter, schema)
        _refuse_others(row_filter, schema, config)
        return WantedPartitions.of(row_filter, schema, config)


def _paths(
    view: FileSystemView, partition: str | None, wanted: WantedPartitions | None
) -> Sequence[str]:
    """Return the partitions that are asked for, in order; other directories aren't searched."""
    if partition is not None:
        names: Sequence[str] = (partition,)
    elif wanted is not None and isinstance(view, LocalView):
        names = view.partitions(wanted.leading)
    else:
        names = partition_names(view)
    return names if wanted is None else sorted(wanted.matching(names))


def _refuse_others(row_filter: RowFilter, schema: pa.Schema, config: TableConfig) -> None:
    """Refuse a filter on columns of which the paths of partitions don't tell the values."""
    told = [*PathRules.of(schema, config).told]
    if config.populate_meta_fields:
        told.append(PARTITION_PATH)
    others = [name for name in row_filter.columns if name not in told]
    if others:
        raise InputError(
            f"filter {expression_text(row_filter.condition)} is on {', '.join(others)}, which the"
            f" paths of partitions don't tell; allowed for files: {', '.join(told) or 'none'}",
            hint="rows are filtered by any column: scan, or read and count of the command line;"
            " scan(filter=...).plan() has the files that are read for them",
        )


def _groups_as_of(view: LocalView, path: str, time: str) -> Sequence[FileGroup]:
    """Return the file groups of a partition that weren't replaced at a time, in order."""
    replaced_at = view.snapshot.replaced.get(path, {})
    replaced = view.all_replaced_file_groups(path)
    since = (group for group in replaced if replaced_at[group.file_id] > time)
    return sorted([*view.all_file_groups(path), *since], key=attrgetter("file_id"))
