"""``ViewLocation`` says where a task finds a view; ``connect`` opens a view elsewhere.

The driver makes a ``ViewLocation`` for each write, which reaches tasks in Spark's closures. There
``open`` returns a view at the driver's instant, through the service if there is one. ``connect``
returns a view at the newest instant. The views pickle as their location at their instant.

Source: Hudi 1.2.0 ``FileSystemViewManager.createViewManager``, ``FileSystemViewStorageConfig``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from executor_proxy.connection import Timeouts
from executor_proxy.http import DEFAULT_TIMEOUTS, HttpSession
from executor_proxy.priority_view import PriorityView
from executor_proxy.remote_view import RemoteView
from executor_proxy.report import LOCAL, LookupReport, ReportedView
from executor_proxy.service_client import DEFAULT_PATIENCE, Patience, ServiceClient
from executor_proxy.worker_state import this_worker
from fsview.local_view import LocalView
from fsview.model.file_system_view import FileSystemView
from fsview.table_view import TableView
from timeline.storage.base import Storage
from timeline.storage.open import open_storage
from timeline.storage.table_id import absolute

NEWEST: Final = ""
"""In place of a timeline's hash: whatever instant is the newest."""

TRUSTED_S: Final = 60.0
"""How long a worker's local view takes its look at the timeline to hold, seconds; see
``TableView``. A task reads its timeline once, as Hudi's does, and then lists partitions only."""


@dataclass(frozen=True, slots=True)
class ViewLocation:
    """A table at one instant, and how to ask about it; pickles.

    Attributes:
        base_path: The table's base path, in the caller's spelling.
        urls: The service's addresses, ``http(s)://host:port``, in order of preference; empty if
            tasks list storage themselves.
        token: The service's bearer token; never shown.
        storage_options: Options of fsspec for a task that lists; never shown.
        last_instant: Requested time of the timeline's last instant, ``""`` if there is none.
        timeline_hash: Hash of the timeline, or ``NEWEST``.
        fallback: Whether a task may list storage if the service fails.
        timeouts: Timeouts of each exchange with the service.
        patience: How long and how often the service is asked.
        storage: Storage of local views; ``None``: opened at ``base_path``.
        shared: Whether the tasks of a worker share one local view for each instant, whose storage
            calls are recorded with the look-ups. False if ``storage`` isn't the one that
            ``base_path`` and ``storage_options`` imply; its owner counts its calls then.
        ca_file: PEM file of trusted certificate authorities on the task's machine; ``None`` for the
            system's.
        session: See ``HttpSession``.
    """

    base_path: str
    urls: tuple[str, ...]
    token: str | None = field(repr=False)
    storage_options: Mapping[str, Any] = field(repr=False)
    last_instant: str
    timeline_hash: str
    fallback: bool = True
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    patience: Patience = DEFAULT_PATIENCE
    storage: Storage | None = field(default=None, repr=False)
    shared: bool = True
    ca_file: str | None = None
    session: str | None = None

    def open(self, report: LookupReport | None = None) -> FileSystemView:
        """Return a view at this instant, whose look-ups are recorded in ``report``.

        Cost: nothing until the first question. Without a service that one lists the timeline, too,
        and raises ``ViewBehindError`` if storage no longer has this instant's state.

        Raises:
            ConfigError: One of ``urls`` is malformed.
        """
        record = LookupReport() if report is None else report
        if not self.urls:
            own = ReportedView(lambda: self._local(record), LOCAL, record)
            return _LocatedView(own, lambda: self)
        remote = RemoteView(
            ServiceClient(
                tuple(
                    HttpSession(url, self.token, self.timeouts, self.ca_file, self.session)
                    for url in self.urls
                ),
                this_worker().circuit,
                self.patience,
            ),
            self.base_path,
            self.last_instant,
            self.timeline_hash,
            this_worker().answers,
        )
        view = PriorityView(
            remote,
            (lambda: self.at(*remote.pin)._local(record)) if self.fallback else None,
            record,
            make_newest=lambda: self.at("", NEWEST)._local(record),
        )
        return _LocatedView(view, lambda: self.at(*remote.pin))

    def at(self, last_instant: str, timeline_hash: str) -> ViewLocation:
        """Return the same table at another instant."""
        return replace(self, last_instant=last_instant, timeline_hash=timeline_hash)

    def _local(self, report: LookupReport) -> FileSystemView:
        """Return a view that lists storage; the worker's shared one where that is possible."""
        if self.shared and self.timeline_hash != NEWEST:
            return _SharedView(self, report)
        view = self._own()
        if self.storage is None or self.shared:
            report.watch(view.table.storage.calls)
        return view

    def _own(self) -> LocalView:
        """Return a new view at this instant that lists storage."""
        storage = self.storage
        if storage is None:
            storage = open_storage(self.base_path, self.storage_options)
        elif self.shared:
            storage = storage.with_own_calls()
        table = TableView(storage, trusted_s=TRUSTED_S)
        if self.timeline_hash == NEWEST:
            return LocalView.newest(table)
        return LocalView.at(table, self.last_instant, self.timeline_hash)


class _LocatedView(FileSystemView):
    """A view that pickles as its location at its current instant.

    Args:
        view: The view that answers.
        location: Returns the location at the view's instant.
    """

    def __init__(self, view: FileSystemView, location: Callable[[], ViewLocation]) -> None:
        self._view = view
        self._location = location

    def __reduce__(self) -> tuple[Callable[[ViewLocation], FileSystemView], tuple[ViewLocation]]:
        return ViewLocation.open, (self._location(),)

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the view."""
        return self._view.ask(name, **arguments)

    def close(self) -> None:
        """Close the view."""
        self._view.close()


class _SharedView(FileSystemView):
    """The worker's local view of a table at an instant, shared by its tasks.

    Args:
        location: The table and its instant.
        report: Where the storage calls of this view's questions are recorded.
    """

    def __init__(self, location: ViewLocation, report: LookupReport) -> None:
        self._location = location
        self._report = report
        at = location
        options = repr(sorted(at.storage_options.items()))
        self._key = (at.base_path, options, at.last_instant, at.timeline_hash)

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the shared view, opening it for the worker's first question."""
        at, views = self._location, this_worker().views
        view = views.get(self._key, at._own)
        with self._report.counting(view.table.storage.calls):
            answer = view.ask(name, **arguments)
        views.measure(self._key)
        return answer

    def close(self) -> None:
        """Do nothing: the worker's other tasks use the shared view."""


def connect(
    url: str | Sequence[str],
    base_path: str,
    *,
    token: str | None = None,
    fallback: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    patience: Patience = DEFAULT_PATIENCE,
    ca_file: str | None = None,
    session: str | None = None,
) -> FileSystemView:
    """Return a view of a table at its newest instant, through the service at ``url``; it pickles.

    Args:
        url: ``http://host:port`` or ``https://host:port``; or several in order of preference, for
            services that serve the same table.
        base_path: The table's base path.
        token: The service's bearer token.
        fallback: Whether to list storage if the service fails, now or later.
        storage_options: Options of fsspec for listing.
        timeouts: Timeouts of each exchange with the service.
        patience: How long and how often the service is asked.
        ca_file: PEM file of trusted certificate authorities; ``None`` for the system's.
        session: ``"module:factory"``, an importable function that returns a ``requests.Session``;
            ``None`` for ``http.client``.

    Raises:
        ServiceError: The service failed and ``fallback`` is off.
    """
    location = ViewLocation(
        absolute(base_path),
        (url,) if isinstance(url, str) else tuple(url),
        token,
        dict(storage_options or {}),
        "",
        NEWEST,
        fallback,
        timeouts,
        patience,
        ca_file=ca_file,
        session=session,
    )
    view = location.open()
    view.sync()
    return view
