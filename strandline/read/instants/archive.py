"""``Archive``: the archived instants that a read needs, read from storage once."""

from __future__ import annotations

from functools import cached_property

from timeline.archive.archived_timeline import ArchivedTimeline
from timeline.errors import InstantNotFoundError
from timeline.instant import Instant
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import InstantMetadata
from timeline.timeline import Timeline


class Archive:
    """The archived instants of a table as of the first access; used by one thread at a time.

    Args:
        meta: The table.
    """

    def __init__(self, meta: TableMetaClient) -> None:
        self._meta = meta
        self._opened: ArchivedTimeline | None = None

    @cached_property
    def timeline(self) -> Timeline:
        """The archived instants."""
        return self._archived().timeline

    @cached_property
    def write_times(self) -> frozenset[str]:
        """The requested times of completed writes."""
        return completed_write_times(self.timeline)

    def read(self, instant: Instant) -> InstantMetadata:
        """Return the content of an instant.

        Raises:
            InstantNotFoundError: It isn't in the archive.
            CorruptMetadataError: It can't be read.

        Cost: the archive is read again only if the instant was archived since.
        """
        try:
            return self._archived().read(instant)
        except InstantNotFoundError:
            self._opened = None
            return self._archived().read(instant)

    def _archived(self) -> ArchivedTimeline:
        if self._opened is None:
            self._opened = self._meta.archived_timeline()
        return self._opened


def completed_write_times(timeline: Timeline) -> frozenset[str]:
    """Return the requested times of the completed writes on a timeline."""
    return frozenset(i.requested_time for i in timeline.write_timeline().completed())
