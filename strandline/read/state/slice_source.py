"""Sources of a scan's file slices: this process's own listing, or a timeline service.

Both return the same slices, of one instant. A service doesn't report inflight writes: the view's
timeline has completed instants and pending compactions. That matters if a log's name doesn't
contain its writer's time (merge-on-read before version 8): then the timeline is listed, too,
because each log block is checked by its instant. Otherwise a view omits the logs of pending writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from executor_proxy.view_location import NEWEST as NEWEST_HASH
from executor_proxy.view_location import ViewLocation
from fsview.local_view import open_view
from fsview.model.file_group import FileSlice
from fsview.model.file_system_view import FileSystemView, LookupQuery, partition_names
from strandline.read.filter.partition_filter import WantedPartitions
from strandline.read.instants import MissedWrites, may_lack_writes
from strandline.read.state.changed_table import refuse_undone
from timeline.errors import ConfigError
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import Storage
from timeline.table.property_name import MERGE_ON_READ
from timeline.timeline import Timeline

NEWEST: Final = "9" * 17
"""A time after all instants."""
_LOGS_NAME_WRITERS: Final = 8
"""The first table version in which a log's name has its writer's time."""


class SliceSource(Protocol):
    """The file slices of a table at one instant."""

    @property
    def timeline(self) -> Timeline:
        """The active timeline at that instant."""

    def slices(self, wanted: WantedPartitions | None, time: str) -> Iterator[FileSlice]:
        """Yield the slice of each file group at a time, partition by partition.

        Args:
            wanted: The partitions that are needed; others may be omitted. ``None``: all.
            time: A requested time.
        """

    def close(self) -> None:
        """Release the resources of the source."""


class ListedSlices:
    """Slices listed in storage, at the newest instant or any earlier one."""

    def __init__(self, meta: TableMetaClient) -> None:
        self._meta = meta
        self._view = open_view(meta.storage)
        self.timeline = self._view.snapshot.active

    def close(self) -> None:
        """Close the view."""
        self._view.close()

    def slices(self, wanted: WantedPartitions | None, time: str) -> Iterator[FileSlice]:
        """Yield the slices, as ``SliceSource`` does; only needed partitions are listed.

        Raises:
            ViewBehindError: A write was undone meanwhile.
        """
        paths = self._paths(wanted)
        view = MissedWrites.of(self._meta, self._view.snapshot, paths).added_to(self._view)
        for path in paths:
            yield from view.file_slices_as_of(path, time)
        refuse_undone(self.timeline, self._view.table.newest().active)

    def _paths(self, wanted: WantedPartitions | None) -> Sequence[str]:
        if wanted is None:
            return self._view.partitions()
        if wanted.fixed is None:
            return self._view.partitions(wanted.leading)
        self._view.load_partitions(wanted.fixed)
        return sorted(wanted.fixed)


class ServedSlices:
    """Slices of the newest instant from a service, or from a listing if the service fails."""

    def __init__(self, meta: TableMetaClient, location: ViewLocation) -> None:
        """Pin the view.

        Args:
            meta: The table.
            location: The service, at the newest instant.

        Raises:
            StrandlineError: Neither the service nor storage answers.
        """
        self._view = opened(location)
        self.timeline = self._view.timeline
        config = meta.config
        if config.table_type == MERGE_ON_READ and config.version < _LOGS_NAME_WRITERS:
            self.timeline = with_pending(self.timeline, meta.active_timeline())

    def close(self) -> None:
        """Close the view."""
        self._view.close()

    def slices(self, wanted: WantedPartitions | None, time: str = NEWEST) -> Iterator[FileSlice]:
        """Yield the slices, as ``SliceSource`` does; ``time`` must be after all instants."""
        if time != NEWEST:
            raise ValueError(f"time is {time}; a service is asked for the newest instant only")
        fixed = None if wanted is None else wanted.fixed
        if fixed is None:
            paths = partition_names(self._view)
            fixed = tuple(paths) if wanted is None else tuple(sorted(wanted.matching(paths)))
        query = LookupQuery(
            "latest_merged_file_slices_before_or_on", tuple(sorted(fixed)), max_instant=time
        )
        (answers,) = self._view.look_up([query])
        for answer in answers:
            yield from answer


def source_of(meta: TableMetaClient, service: ViewLocation | None) -> SliceSource:
    """Return the source of slices of the newest instant; the caller closes it.

    A service answers like Hudi's, which hides the files of commits that were archived while a
    savepoint kept an older one; in this case slices are listed.

    Raises:
        StrandlineError: Neither the service nor storage answers.
    """
    if service is not None:
        served = ServedSlices(meta, service)
        if not may_lack_writes(served.timeline):
            return served
        served.close()
    return ListedSlices(meta)


def service_location(
    base_path: str,
    storage: Storage,
    storage_options: Mapping[str, Any] | None,
    service: str | None,
    token: str | None,
) -> ViewLocation | None:
    """Return the location of a table's view at a timeline service; ``None`` without a service.

    Raises:
        ConfigError: The address is invalid, or there is a token without a service.
    """
    if service is None:
        if token is not None:
            raise ConfigError("token is given without service, the address that it is for")
        return None
    if not service:
        raise ConfigError(f"service is {service!r}; allowed: http(s)://host:port, or None")
    location = ViewLocation(
        base_path,
        (service,),
        token,
        dict(storage_options or {}),
        "",
        NEWEST_HASH,
        storage=storage,
        shared=False,
    )
    location.open().close()  # checks the address, and sends nothing
    return location


def opened(location: ViewLocation) -> FileSystemView:
    """Return a view at the newest instant."""
    view = location.open()
    view.sync()
    return view


def with_pending(timeline: Timeline, active: Timeline) -> Timeline:
    """Return a view's timeline with the other instants of the table as pending.

    Args:
        timeline: The view's timeline.
        active: The active timeline, listed later: instants completed since then are pending as
            well.
    """
    others = (
        Instant(i.requested_time, i.action, State.INFLIGHT)
        for i in active
        if not timeline.contains_time(i.requested_time)
    )
    return Timeline.of((*timeline, *others))
