"""The write client's side of the timeline service: starts it and tells tasks where it is.

The service starts on a thread, and a write's look-ups wait for it only if listing storage would
take longer (``FEW_LISTS``). If it can't be started or reached, a warning is logged, and tasks and
the driver list storage themselves.

Source: Hudi 1.2.0 ``EmbeddedTimelineService``, ``EmbeddedTimelineServerHelper``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from executor_proxy.exchange import Timeouts
from executor_proxy.failover import Patience
from executor_proxy.http import HttpSession
from executor_proxy.report import LookupReport
from executor_proxy.view_location import NEWEST, ViewLocation
from fsview.model.file_system_view import FileSystemView
from strandline.commit.completion_outcome import survived
from strandline.settings import lookup
from strandline.settings import service as config
from strandline.settings.setting import Settings
from timeline.storage.base import Storage
from timeline.timeline import Timeline

if TYPE_CHECKING:
    from strandline.server.process.shared_service import SharedService

logger = logging.getLogger(__name__)

FEW_LISTS: Final = 32
"""The most partitions of a remote storage that the driver lists itself instead of waiting for a
starting service. If the driver lists now, the service must list them again for a later write. A
start takes about a second, as do 32 list calls of 30 ms, so listing twice never costs much more
than waiting. On a local disk a list call takes less than a millisecond."""

S = TypeVar("S")
_BY: Final = "by"


class EmbeddedService:
    """The service of one write client; used by one thread.

    Args:
        settings: The client's settings.
        storage: The table's storage.
        storage_options: Options with which the service opens the table itself.
        host: Address at which executors reach the driver.
        bind_address: Address to bind if no setting names one; ``None``: ``host``.
        is_custom: Whether ``storage`` isn't the one that the base path and the options imply.

    Attributes:
        report: The driver's own look-ups.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        storage_options: Mapping[str, Any],
        host: str,
        bind_address: str | None = None,
        *,
        is_custom: bool = False,
    ) -> None:
        self.report = LookupReport()
        self._settings = settings
        self._storage = storage
        self._is_custom = is_custom
        self._storage_options = dict(storage_options)
        self._host = settings.get(config.EMBED_HOST) or host
        self._bind_address = settings.get(config.EMBED_BIND) or bind_address or self._host
        self._has_failed = False
        self._start: ServiceStart[SharedService] | None = None
        self._service: SharedService | None = None
        self._view: FileSystemView | None = None

    def __str__(self) -> str:
        """Return the service's address, or why there is none."""
        if self._service is not None:
            return self._service.url if self._service.is_running else "ended"
        if self._has_failed:
            return "failed to start"
        if not self._settings.get(config.EMBED):
            return "off"
        return "not started" if self._start is None else "starting"

    @property
    def service(self) -> SharedService | None:
        """The service, started on first use; ``None`` if it is disabled or can't be started.

        After a failure it isn't started again before ``replace_ended``, so not in the same write.
        """
        if self._has_failed or not self._settings.get(config.EMBED):
            return None
        if self._service is None:
            self._finish_start()
        return self._service

    def begin_start(self) -> None:
        """Start the service, if it is enabled, while the caller does other work."""
        if self.is_begun or self._has_failed or not self._settings.get(config.EMBED):
            return
        # Assign before starting: a client that is interrupted in between still releases it.
        self._start = ServiceStart(self._acquire)
        self._start.begin()

    @property
    def is_begun(self) -> bool:
        """Whether the client uses a service, even if it is still starting."""
        return self._service is not None or self._start is not None

    @property
    def is_ready(self) -> bool:
        """Whether the client uses a service that isn't starting any more."""
        return self.is_begun and not (self._start is not None and self._start.is_running)

    def _finish_start(self) -> None:
        """Start the service, or wait until it has started."""
        start = self._start = self._start or ServiceStart(self._acquire)
        # A view that a clean opened before the service was ready lists storage.
        self._close_view()
        try:
            self._service = start.result()
            self._start = None
        # The service only saves list calls; no write depends on it.
        except Exception as error:  # noqa: BLE001 - threads, processes, modules: all may be missing
            self._has_failed = True
            self._warn_of(error)
        finally:
            # After an interrupted wait it is still starting, for the next use or ``close``.
            if start.has_failed:
                self._start = None

    def _warn_of(self, error: BaseException) -> None:
        logger.warning(
            "the timeline service for %s can't be started, so tasks list storage: %s",
            self._host,
            error,
        )

    def _acquire(self) -> SharedService:
        # Imports Flask, so import it only when a service is started.
        from strandline.server.process.shared_service import SharedService  # noqa: PLC0415

        service = SharedService.acquire(
            self._storage.base_path,
            self._settings,
            host=self._bind_address,
            advertised=self._host,
            storage_options=self._storage_options,
        )
        return _usable(service, self._storage.base_path)

    def replace_ended(self) -> None:
        """Drop a service that has ended or failed to start, so that the next use starts another.

        A failed start that no write has noticed yet is logged. A service whose process is being
        replaced hasn't ended. Don't call it during a write: its tasks know only the old address.
        """
        if self._start is not None and self._start.is_lost:
            self._start = None
        elif self._start is not None and not self._start.is_running:
            # Started by a write that didn't wait for it, or that failed before it needed it.
            self._finish_start()
        if self._has_failed:
            self._has_failed = False
            # The driver's view lists storage.
            self.close()
        elif self._service is not None and not self._service.is_running:
            logger.info("the timeline service ended; starting another at its next use")
            self.close()

    def location(self, timeline: Timeline) -> ViewLocation:
        """Return where tasks find the view, pinned to a timeline that this client has read.

        Waits for a service that is starting, and starts one if there is none.
        """
        return self._pinned(self.service, timeline)

    def lookup_location(
        self, timeline: Timeline, partitions: int | None, *, alone: bool = False
    ) -> ViewLocation:
        """Return where the driver finds the view for a write's look-ups, pinned as ``location``.

        If the service is still starting, this may be a view that lists storage. It doesn't count as
        a fallback: its look-ups are reported as ``local``.

        Args:
            timeline: As in ``location``.
            partitions: How many partitions are looked up; ``None``: all of the table's.
            alone: Whether the driver writes a small batch. On a local disk listing a few partitions
                costs less than a service that follows the table, so no service is started.
        """
        are_few = partitions is not None and partitions <= FEW_LISTS
        may_list = bool(self._settings.get(lookup.BACKUP_VIEW))
        if not (alone and are_few and may_list and not self._storage.is_remote):
            self.begin_start()
        if may_list and (are_few or not self._storage.is_remote):
            return self._pinned(self._ready_service(), timeline)
        return self.location(timeline)

    def _ready_service(self) -> SharedService | None:
        """Return the service if it has been started and is ready."""
        return self.service if self.is_ready else None

    def _pinned(self, service: SharedService | None, timeline: Timeline) -> ViewLocation:
        # Hudi's clients hash completed instants and pending compactions, nothing else.
        pinned = timeline.client_timeline()
        found = self._location(service, pinned.last_time, pinned.hash)
        return replace(found, shared=not self._is_custom)

    def synced_view(self) -> FileSystemView:
        """Return the driver's view, synced to the newest instant.

        A ready service is synced, too. A service that is still starting will read the newest
        timeline on its first request, so it needs no sync; the view then lists storage.

        The view is kept between writes, so that a view that lists storage isn't rebuilt.
        """
        service = self._ready_service()
        if self._view is None:
            self._view = self._location(service, "", NEWEST).open(self.report)
        self._view.sync()
        return self._view

    def sync_ready(self) -> None:
        """Sync a ready service with what has just completed, or was planned; log a failure.

        The next sync makes up for it.
        """
        if self.is_ready:
            with survived("the timeline service wasn't synced"):
                self.synced_view()

    def newest_location(self) -> ViewLocation:
        """Return where another thread of the driver opens a view of the newest instant.

        It lists storage if the service isn't ready.
        """
        return self._location(self._ready_service(), "", NEWEST)

    def close(self) -> None:
        """Close the view and release the table; the service serves it while it has other clients.

        Waits for a service that is starting; if the start fails, it is logged.
        """
        # Clear the fields before closing: if closing fails, no closed object stays in use.
        start, self._start = self._start, None
        service, self._service = self._service, None
        try:
            self._close_view()
        finally:
            if service is not None:
                service.release(self._storage.base_path)
            elif start is not None:
                self._abandon(start)

    def _abandon(self, start: ServiceStart[SharedService]) -> None:
        error = start.abandon(lambda service: service.release(self._storage.base_path))
        if error is not None:
            self._warn_of(error)

    def _close_view(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()

    def _location(
        self, service: SharedService | None, last_instant: str, timeline_hash: str
    ) -> ViewLocation:
        listing = ViewLocation(
            base_path=self._storage.base_path,
            urls=(),
            token=None,
            storage_options=self._storage_options,
            last_instant=last_instant,
            timeline_hash=timeline_hash,
            storage=self._storage,
            shared=False,
        )
        return listing if service is None else self._through(service, listing)

    def _through(self, service: SharedService, listing: ViewLocation) -> ViewLocation:
        """Return a location that asks the service, as the settings of look-ups say."""
        values = self._settings
        return replace(
            listing,
            urls=(service.url,),
            token=service.token,
            fallback=values.get(lookup.BACKUP_VIEW),
            timeouts=Timeouts(
                values.get(lookup.REMOTE_CONNECT_TIMEOUT),
                values.get(lookup.REMOTE_READ_TIMEOUT),
                float(values.get(lookup.REMOTE_TIMEOUT)),
            ),
            patience=Patience(
                values.get(lookup.REMOTE_FIRST_ANSWER), values.get(lookup.REMOTE_DEADLINE)
            ),
            ca_file=service.ca_file,
            local_urls=(service.local_url,),
        )


def _usable(service: SharedService, root: str) -> SharedService:
    """Return the service if tasks can use it; otherwise release the root.

    Raises:
        ConfigError: Tasks would refuse the service's address or its CA file.
    """
    try:
        # The host comes from spark.driver.host, unless a setting names it.
        HttpSession(service.url, service.token, ca_file=service.ca_file)
    # An interrupt, too: nothing else would release the root.
    except BaseException:
        service.release(root)
        raise
    return service


class ServiceStart(Generic[S]):
    """A start that runs once: on a thread after ``begin``, else in the first ``result`` call.

    ``begin``, ``result`` and ``abandon`` are called by one thread.

    Args:
        acquire: Starts the service, and returns it.
    """

    def __init__(self, acquire: Callable[[], S]) -> None:
        self._acquire = acquire
        # The first thread to claim the start sets the outcome. ``setdefault`` is atomic, and shows
        # a thread who claimed it, even if an interrupt follows at once.
        self._claimed: dict[str, object] = {}
        self._outcome: Future[S] = Future()
        self._has_thread = False
        self._pid = os.getpid()

    def begin(self) -> None:
        """Start the service on another thread, if the system has one."""
        # Otherwise ``result`` starts the service.
        with suppress(RuntimeError):
            threading.Thread(
                target=self._run, args=(self._acquire,), name="strandline-service-start"
            ).start()
            self._has_thread = True

    @property
    def is_running(self) -> bool:
        """Whether the thread of ``begin`` is still starting the service."""
        return self._has_thread and not self._outcome.done()

    @property
    def is_lost(self) -> bool:
        """Whether this process was forked from the one that began the start.

        The thread doesn't exist here, and may have held the outcome's lock. Only ``abandon`` may be
        called, and it does nothing then.
        """
        return self._pid != os.getpid()

    def result(self) -> S:
        """Return the service, once it has started.

        Raises:
            BaseException: What ``acquire`` raised.
        """
        self._run(self._acquire)
        return self._outcome.result()

    @property
    def has_failed(self) -> bool:
        """Whether the service couldn't be started."""
        return self._outcome.done() and self._outcome.exception() is not None

    def abandon(self, release: Callable[[S], None]) -> BaseException | None:
        """Release the service if it was or is being started, and wait for that.

        If the wait is interrupted, the thread releases the service.

        Returns:
            What ``acquire`` raised; ``None`` if it returned a service or was never called.
        """
        if self.is_lost:
            return None
        self._run(_refuse)
        ended = threading.Event()

        def end(outcome: Future[S]) -> None:
            try:
                if outcome.exception() is None:
                    release(outcome.result())
            finally:
                ended.set()

        self._outcome.add_done_callback(end)
        # Waiters get the outcome before its callback has run, so wait for the callback.
        ended.wait()
        error = self._outcome.exception()
        return None if isinstance(error, CancelledError) else error

    def _run(self, acquire: Callable[[], S]) -> None:
        """Run the start and set its outcome, unless another call has claimed it."""
        claim, made, failed = object(), list[S](), list[Exception]()
        try:
            self._claimed.setdefault(_BY, claim)
            self._make(acquire, claim, made, failed)
            self._settle(claim, made, failed)
        finally:
            # Only has an effect after an interrupt: without an outcome others would wait endlessly.
            self._settle(claim, made, failed)

    def _make(
        self, acquire: Callable[[], S], claim: object, made: list[S], failed: list[Exception]
    ) -> None:
        """Run a claimed start."""
        if self._claimed[_BY] is not claim:
            return
        try:
            # One call, so that no interrupt can come between the start and storing its service.
            made.extend(starmap(acquire, [()]))
        except Exception as error:  # noqa: BLE001 - raised by ``result``
            failed.append(error)

    def _settle(self, claim: object, made: list[S], failed: list[Exception]) -> None:
        """Set the outcome of a claimed start, once."""
        if self._claimed.get(_BY) is not claim or self._outcome.done():
            return
        if made:
            self._outcome.set_result(made[0])
        else:
            self._outcome.set_exception(failed[0] if failed else CancelledError())


def _refuse() -> NoReturn:
    raise CancelledError
