"""``ViewLocation`` says where a task finds a view; ``connect`` opens a view elsewhere.

The driver makes a ``ViewLocation`` for each write, which reaches tasks in Spark's closures. There
``open`` returns a view at the driver's instant, through the service if there is one. ``connect``
returns a view at the newest instant.

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
"""In place of a timeline's hash: whatever instant is the newest."""


@dataclass(frozen=True, slots=True)
class ViewLocation:
    """A table at one instant, and how to ask about it; pickles.

    Attributes:
        base_path: The table's base path, in the caller's spelling.
        url: The service's ``http(s)://host:port``; ``None`` if tasks list storage themselves.
        token: The service's bearer token; never shown.
        storage_options: Options of fsspec for a task that lists; never shown.
        last_instant: Requested time of the timeline's last instant, ``""`` if there is none.
        timeline_hash: Hash of the timeline, or ``NEWEST``.
        fallback: Whether a task may list storage if the service fails.
        timeout_s: How long a task waits for one answer, seconds.
        retry: Retries of lost connections.
        storage: Storage that a task lists with, whose owner counts its calls. ``None`` opens one at
            ``base_path``, whose calls are recorded with the look-ups.
        ca_file: PEM file of trusted certificate authorities on the task's machine; ``None`` for the
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
        """Return a view at this instant, whose look-ups are recorded in ``report``.

        Cost: nothing until the first question. Without a service that one lists the timeline, too,
        and raises ``ViewBehindError`` if storage no longer has this instant's state.

        Raises:
            ConfigError: ``url`` is malformed.
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
        """Return a view that lists storage: the timeline now, partitions when they are needed."""
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
        base_path: The table's base path.
        token: The service's bearer token.
        fallback: Whether to list storage if the service fails, now or later.
        storage_options: Options of fsspec for that.
        timeout_s: How long to wait for one answer, seconds.
        ca_file: PEM file of trusted certificate authorities; ``None`` for the system's.

    Raises:
        ServiceError: The service failed, and ``fallback`` is false.
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
