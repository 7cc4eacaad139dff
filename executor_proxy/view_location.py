"""``ViewLocation``: from which a task opens its view; ``connect`` opens a view without one.

The driver makes a ``ViewLocation`` for each write, which reaches tasks in Spark's closures. There
``open`` returns a view at the driver's instant, through the service if there is one. ``connect``
returns a view at the newest instant. The views pickle as their location at their instant.

Source: Hudi 1.2.0 ``FileSystemViewManager.createViewManager``, ``FileSystemViewStorageConfig``.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from executor_proxy.exchange import Timeouts
from executor_proxy.failover import DEFAULT_PATIENCE, Patience, ServiceClient
from executor_proxy.http import DEFAULT_TIMEOUTS, HttpSession
from executor_proxy.marker_client import MarkerClient
from executor_proxy.priority_view import PriorityView
from executor_proxy.remote_view import RemoteView
from executor_proxy.report import LOCAL, LookupReport, ReportedView
from executor_proxy.worker_state import this_worker
from fsview.model.file_system_view import FileSystemView, LookupQuery
from fsview.wire.param import TABLE, WATCH_PATH
from timeline.encoding.json_text import bounded_loads
from timeline.errors import BadAnswerError, ConfigError, ServiceBusyError
from timeline.storage.base import Storage
from timeline.storage.open import open_storage, path_text
from timeline.storage.table_id import absolute

if TYPE_CHECKING:
    from fsview.local_view import LocalView

T = TypeVar("T")

NEWEST: Final = ""
"""In place of a timeline's hash: the newest instant."""

_WATCH_SHARE: Final = 0.75
"""Fraction of the time-outs that the service may wait for a change."""

TRUSTED_S: Final = 60.0
"""Seconds for which a worker's local view treats its listing of the timeline as valid; see
``TableView``. A task reads its timeline once, as Hudi's does, and then lists partitions only."""


@dataclass(frozen=True, slots=True)
class ViewLocation:
    """A table at one instant, and how to ask about it; pickles.

    Attributes:
        base_path: The table's base path, in the caller's spelling.
        urls: The service's addresses, ``http(s)://host:port``, in order of preference; empty if
            tasks list storage themselves. For a fleet: ``executor_proxy.seat_ring.addresses``.
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
        ca_file: PEM file of trusted certificate authorities on the task's machine, or ``sha256:``
            with the fingerprint of the service's certificate; ``None`` for the system's.
        session: See ``HttpSession``.
        copies: How many of the first ``urls`` have the table in memory. Look-ups at the instant are
            shared among them: each worker begins with a different one.
        local_urls: Addresses that only this process uses, in place of ``urls``; not pickled. A
            driver may not reach its own service at the address that executors use.
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
    copies: int = 1
    local_urls: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[type[ViewLocation], tuple[Any, ...]]:
        names = (each.name for each in fields(self) if each.name != "local_urls")
        return ViewLocation, tuple(getattr(self, name) for name in names)

    def open(self, report: LookupReport | None = None) -> LocatedView:
        """Return a view at this instant, whose look-ups are recorded in ``report``.

        Cost: nothing until the first look-up. Without a service, the first look-up also lists the
        timeline, and raises ``ViewBehindError`` if storage no longer has this instant's state.

        Raises:
            ConfigError: One of ``urls`` is malformed.
        """
        record = LookupReport() if report is None else report
        if not self.urls:
            own = _OwnView(self, record)
            return LocatedView(ReportedView(lambda: own, LOCAL, record), own.location)
        remote = RemoteView(
            self._service(insists=not self.fallback),
            self.base_path,
            self.last_instant,
            self.timeline_hash,
            lambda: this_worker().answers,
        )
        view = PriorityView(
            remote,
            (lambda: _OwnView(self.at(*remote.pin), record)) if self.fallback else None,
            record,
            make_newest=lambda: _OwnView(self.at("", NEWEST), record),
        )
        return LocatedView(view, lambda: self.at(*remote.pin), lambda: view.failure)

    def open_markers(self, directory: str) -> MarkerClient:
        """Return a client of the marker directory at a path under the base path.

        Requires an address. An address that doesn't answer is skipped, whatever ``fallback`` is.
        """
        return MarkerClient(self._service(insists=False), self.base_path, directory)

    def _service(self, *, insists: bool) -> ServiceClient:
        return _service(
            self.local_urls or self.urls,
            self.token,
            self.timeouts,
            self.ca_file,
            self.session,
            self.base_path,
            self.patience,
            insists=insists,
            copies=1 if self.local_urls else self.copies,
        )

    def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until the table has another timeline than this instant's.

        Args:
            timeout_s: How long to wait, seconds.

        Returns:
            Whether it has; false: not within this time, or the service is too busy to say.

        Raises:
            ConfigError: There is no service, without which nobody would say.
            ServiceError: The service fails, or is too old for this.
        """
        if not self.urls:
            raise ConfigError("wait_for_change needs a service; allowed: a view with a url")
        until_s = time.monotonic() + timeout_s

        def left_s() -> float:
            return max(0.0, until_s - time.monotonic())

        def send(session: HttpSession, within_s: float) -> bytes:
            # The answer must come before the exchange's own timeouts.
            longest = _WATCH_SHARE * min(within_s, *session.timeouts.each())
            params = {
                TABLE: self.base_path,
                "after": self.timeline_hash,
                "timeout": f"{min(left_s(), longest):.3f}",
            }
            return session.get(WATCH_PATH, params, within_s=within_s)

        while True:
            is_last = left_s() == 0
            try:
                body = self._patient_for(left_s())._service(insists=True).ask(send)
            except ServiceBusyError:
                # Not at once: the caller will ask again.
                time.sleep(left_s())
                return False
            try:
                has_changed = bounded_loads(body)["changed"]
            except (ValueError, TypeError, KeyError) as error:
                raise BadAnswerError(f"{WATCH_PATH} answered {body[:200]!r}: {error}") from error
            if has_changed or is_last:
                return bool(has_changed)

    def _patient_for(self, seconds: float) -> ViewLocation:
        """Return this location with a deadline soon after some seconds."""
        patience = self.patience
        # Whole seconds, as clients are kept by their patience.
        bound = math.ceil(min(seconds, patience.deadline_s) + patience.first_s)
        deadline_s = min(patience.deadline_s, float(bound))
        return replace(self, patience=replace(patience, deadline_s=deadline_s))

    def at(self, last_instant: str, timeline_hash: str) -> ViewLocation:
        """Return the same table at another instant."""
        return replace(self, last_instant=last_instant, timeline_hash=timeline_hash)

    def open_local(self) -> LocalView:
        """Return a new view at this instant that lists storage."""
        # A quarter of the modules that a worker would import, most of which look nothing up.
        from fsview.local_view import LocalView  # noqa: PLC0415
        from fsview.table_view import TableView  # noqa: PLC0415

        storage = self.storage
        if storage is None:
            storage = open_storage(self.base_path, self.storage_options)
        elif self.shared:
            storage = storage.with_own_calls()
        table = TableView(storage, trusted_s=TRUSTED_S, gathers=False)
        if self.timeline_hash == NEWEST:
            return LocalView.newest(table)
        return LocalView.at(table, self.last_instant, self.timeline_hash)


@lru_cache(maxsize=64)
def _service(
    urls: tuple[str, ...],
    token: str | None,
    timeouts: Timeouts,
    ca_file: str | None,
    session: str | None,
    base_path: str,
    patience: Patience,
    *,
    insists: bool,
    copies: int,
) -> ServiceClient:
    """Return the client of a service; cached, because making one takes as long as the view."""
    return ServiceClient(
        tuple(HttpSession(url, token, timeouts, ca_file, session) for url in urls),
        # Looked up at each call, as a forked process starts with a new state.
        lambda session, table: this_worker().circuit(session, table),
        base_path,
        patience,
        insists=insists,
        copies=copies,
        turn=lambda: this_worker().turn,
    )


class LocatedView(FileSystemView):
    """A view that pickles as its location at its current instant.

    Args:
        view: The view that answers.
        location: Returns the location at the view's instant.
        failure: Returns why the view lists storage in place of asking the service; ``None``: it
            asks the service, or has none.
    """

    def __init__(
        self,
        view: FileSystemView,
        location: Callable[[], ViewLocation],
        failure: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._view = view
        self._location = location
        self._get_failure = failure

    @property
    def failure(self) -> str | None:
        """Why the view lists storage in place of asking the service.

        ``None``: it asks the service, or has none.
        """
        return self._get_failure()

    def __repr__(self) -> str:
        at, failure = self._location(), self.failure
        instant = "newest" if at.timeline_hash == NEWEST else at.last_instant
        service = f"service={', '.join(at.urls)}" if at.urls else "no service"
        if failure is not None:
            service += f" failed, listing storage: {failure}"
        return f"{type(self).__name__}({at.base_path!r}, at={instant!r}, {service})"

    def __reduce__(self) -> tuple[Callable[[ViewLocation], FileSystemView], tuple[ViewLocation]]:
        return ViewLocation.open, (self._location(),)

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the view."""
        return self._view.ask(name, **arguments)

    def look_up(self, queries: Sequence[LookupQuery]) -> tuple[tuple[Any, ...], ...]:
        """Look up in the view."""
        return self._view.look_up(queries)

    def wait_for_change(self, timeout_s: float = 30.0) -> bool:
        """Wait until the table has changed since the view's instant; ``sync`` moves there.

        The service waits, so that nothing is listed meanwhile but once for all who wait.

        Args:
            timeout_s: How long to wait, seconds; 0: the service looks once.

        Returns:
            Whether it has changed; false: not within this time, or the service is too busy to say.

        Raises:
            ConfigError: The view has no service.
            ServiceError: The service fails, or is too old for this.
        """
        return self._location().wait_for_change(timeout_s)

    def close(self) -> None:
        """Close the view."""
        self._view.close()


class _OwnView(FileSystemView):
    """A view that lists storage, opened by its first look-up.

    Until it is synced, all tasks of the worker share its data, if the location allows that.

    Args:
        location: The table and its instant.
        report: Where the storage calls of this view's look-ups are recorded.
    """

    def __init__(self, location: ViewLocation, report: LookupReport) -> None:
        self._location = location
        self._report = report
        self._view: LocalView | None = None

    def location(self) -> ViewLocation:
        """Return the location at the view's current instant."""
        if self._view is None:
            return self._location
        timeline = self._view.timeline
        return self._location.at(timeline.last_time, timeline.hash)

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the view, opening it at the first look-up."""
        if name != "sync":
            return self._of_view(lambda view: view.ask(name, **arguments))
        if self._view is None:
            self._view = self._opened(self._location.at("", NEWEST))
            return None
        with self._counting(self._view):
            return self._view.ask(name)

    def look_up(self, queries: Sequence[LookupQuery]) -> tuple[tuple[Any, ...], ...]:
        """Look up in the view, opening it at the first look-up."""
        return self._of_view(lambda view: view.look_up(queries))

    def _of_view(self, question: Callable[[LocalView], T]) -> T:
        at = self._location
        # After its own sync a view is at another instant than the shared one.
        if at.shared and at.timeline_hash != NEWEST and self._view is None:
            views = this_worker().views
            key = (at.base_path, _hashable(at.storage_options), at.last_instant, at.timeline_hash)
            view = views.get(key, lambda: self._opened(at))
            with self._report.counting(view.table.storage.calls):
                answer = question(view)
            views.measure(key)
            return answer
        if self._view is None:
            self._view = self._opened(at)
        with self._counting(self._view):
            return question(self._view)

    def _opened(self, location: ViewLocation) -> LocalView:
        """Open a view, and record its storage calls."""
        view = location.open_local()
        if self._is_counted:
            self._report.add_calls(view.table.storage.calls.snapshot())
        return view

    @property
    def _is_counted(self) -> bool:
        """Whether the storage's calls are recorded here, and not by its owner."""
        return self._location.storage is None or self._location.shared

    def _counting(self, view: LocalView) -> AbstractContextManager[None]:
        calls = view.table.storage.calls
        return self._report.counting(calls) if self._is_counted else nullcontext()

    def close(self) -> None:
        """Do nothing: the worker's other tasks may use the shared view."""


def _hashable(options: Mapping[str, Any]) -> str:
    """Return options as part of a key; their values may be mappings themselves."""
    return repr(sorted(options.items()))


def connect(
    url: str | Sequence[str],
    base_path: str | os.PathLike[str],
    *,
    token: str | None = None,
    fallback: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    patience: Patience = DEFAULT_PATIENCE,
    ca_file: str | os.PathLike[str] | None = None,
    session: str | None = None,
    copies: int = 1,
) -> LocatedView:
    """Return a view of a table at its newest instant, through the service at ``url``; it pickles.

    Args:
        url: ``http://host:port`` or ``https://host:port``; or several in order of preference, for
            services that serve the same table.
        base_path: The table's base path, a path or a URL.
        token: The service's bearer token.
        fallback: Whether to list storage if the service fails, now or later.
        storage_options: Options of fsspec for listing.
        timeouts: Timeouts of each exchange with the service.
        patience: How long and how often each request is tried.
        ca_file: PEM file of trusted certificate authorities, or ``sha256:`` with the fingerprint of
            the service's certificate, in 64 hexadecimal digits; ``None`` for the system's.
        session: ``"module:factory"``, an importable function that returns a ``requests.Session``;
            ``None`` for ``http.client``.
        copies: How many of the first addresses share look-ups; see ``ViewLocation``.

    Raises:
        ConfigError: An address or another argument isn't allowed.
        ServiceError: The service failed and ``fallback`` is off.
    """
    urls = (url,) if isinstance(url, str) else tuple(url)
    if not urls:
        raise ConfigError("url is empty; allowed: one address of the timeline service or more")
    if not base_path:
        raise ConfigError(f"base_path is {base_path!r}; allowed: a path or URL")
    location = ViewLocation(
        absolute(path_text(base_path)),
        urls,
        token,
        dict(storage_options or {}),
        "",
        NEWEST,
        fallback,
        timeouts,
        patience,
        ca_file=None if ca_file is None else os.fspath(ca_file),
        session=session,
        copies=copies,
    )
    view = location.open()
    view.sync()
    return view
