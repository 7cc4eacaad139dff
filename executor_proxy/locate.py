"""Where a view is to be had: a value that goes into a task and opens there.

The driver makes one ``ViewLocation`` for each write and lets Spark carry it into the tasks, inside
their closures; there ``open`` gives a view at the driver's instant, from the service if there is
one. ``connect`` is for everyone else: a view at the newest instant.

Source: Hudi 1.2.0 ``FileSystemViewManager.createViewManager``, ``FileSystemViewStorageConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from executor_proxy.http import DEFAULT_TIMEOUT_S, HttpSession
from executor_proxy.priority import DEFAULT_RETRY, PriorityView, Retry
from executor_proxy.remote import RemoteView
from executor_proxy.report import LOCAL, SERVICE, LookupReport, ReportedView
from fsview.local_view import LocalView
from fsview.model.file_system_view import FileSystemView
from fsview.table_view import TableView
from timeline.storage.base import Storage
from timeline.storage.open import open_storage
from timeline.storage.table_id import absolute

NEWEST: Final = ""
"""In place of a timeline's hash: the newest instant, whichever that is."""


@dataclass(frozen=True, slots=True)
class ViewLocation:
    """A table at one instant, and who can be asked about it; pickles.

    Attributes:
        base_path: The table's, in the caller's spelling.
        url: The service's, ``http(s)://host:port``; ``None``: every task lists for itself.
        token: The service's bearer token; never shown.
        storage_options: For fsspec, when a task lists; never shown.
        last_instant: Requested time of the timeline's last instant, ``""`` if there is none.
        timeline_hash: Of that timeline; ``NEWEST`` with ``url`` ``None`` for the newest instant.
        retry: For connections that fail.
        fallback: Whether a task may list when the service fails.
        timeout_s: How long a task waits for one answer, seconds.
        storage: What a task lists with; ``None`` opens one of its own at ``base_path``, whose calls
            then go on record with the look-ups. Whoever gives a storage counts its calls himself.
        ca_file: PEM file of the authorities trusted for https, where the task runs; ``None``: the
            system's.
    """

    base_path: str
    url: str | None
    token: str | None = field(repr=False)
    storage_options: Mapping[str, Any] = field(repr=False)
    last_instant: str
    timeline_hash: str
    fallback: bool = True
    timeout_s: float = DEFAULT_TIMEOUT_S
    retry: Retry = DEFAULT_RETRY
    storage: Storage | None = field(default=None, repr=False)
    ca_file: str | None = None

    def open(self, report: LookupReport | None = None) -> FileSystemView:
        """Return a view at this instant, whose look-ups go on record in ``report``.

        Cost: nothing until something is asked. Without a service the first look-up lists the
        timeline, too, and raises ``ViewBehindError`` when storage has moved on too far to answer.

        Raises:
            ConfigError: ``url`` isn't one.
        """
        kept = LookupReport() if report is None else report
        if self.url is None:
            pin = (self.last_instant, self.timeline_hash)
            return ReportedView(lambda: self._local(kept, *pin), LOCAL, kept)
        remote = RemoteView(
            HttpSession(self.url, self.token, self.timeout_s, self.ca_file),
            self.base_path,
            self.last_instant,
            self.timeline_hash,
        )
        if not self.fallback:
            return ReportedView(lambda: remote, SERVICE, kept)
        return PriorityView(
            remote,
            lambda: self._local(kept, *remote.pin),
            retry=self.retry,
            report=report,
            make_newest=lambda: self._local(kept, "", NEWEST),
        )

    def _local(self, report: LookupReport, last_instant: str, timeline_hash: str) -> FileSystemView:
        """Return a view that lists for itself: the timeline now, a partition when it is needed."""
        storage = self.storage
        if storage is None:
            storage = open_storage(self.base_path, self.storage_options)
            report.watch(storage.calls)
        table = TableView(storage)
        if timeline_hash == NEWEST:
            return LocalView.newest(table)
        return LocalView.at(table, last_instant, timeline_hash)


def connect(
    url: str,
    base_path: str,
    *,
    token: str | None = None,
    fallback: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    ca_file: str | None = None,
) -> FileSystemView:
    """Return a view of a table at its newest instant, through the service at ``url``.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        base_path: The table's.
        token: The service's bearer token.
        fallback: Whether to list storage when the service fails, now or later.
        storage_options: For fsspec, when that happens.
        timeout_s: How long to wait for one answer, seconds.
        ca_file: PEM file of the authorities trusted for https; ``None``: the system's.

    Raises:
        ServiceError: The service failed and ``fallback`` is off.
    """
    location = ViewLocation(
        absolute(base_path),
        url,
        token,
        dict(storage_options or {}),
        "",
        NEWEST,
        fallback,
        timeout_s,
        ca_file=ca_file,
    )
    view = location.open()
    view.sync()
    return view
