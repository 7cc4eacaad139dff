"""The write client's own end of the timeline service: start it, point tasks at it, do without it.

The service is there to spare listings, never to make a write possible: one that can't be started or
reached costs a warning, and tasks (and the driver) list what they need.

Source: Hudi 1.2.0 ``EmbeddedTimelineService``, ``EmbeddedTimelineServerHelper``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from executor_proxy.locate import NEWEST, ViewLocation
from executor_proxy.report import LookupReport
from fsview.model.file_system_view import FileSystemView
from strandline.settings import service as config
from strandline.settings.setting import Settings
from timeline.errors import StrandlineError
from timeline.storage.base import Storage
from timeline.timeline import Timeline

if TYPE_CHECKING:
    from strandline.service.process.timeline_service import TimelineService

logger = logging.getLogger(__name__)


class EmbeddedService:
    """The service of one write client; used by one thread.

    Args:
        settings: The client's.
        storage: The table's.
        storage_options: For the service, to open the table itself.
        host: Address at which executors reach the driver.

    Attributes:
        report: What the driver's own look-ups took.
    """

    def __init__(
        self, settings: Settings, storage: Storage, storage_options: Mapping[str, Any], host: str
    ) -> None:
        self.report = LookupReport()
        self._settings = settings
        self._storage = storage
        self._storage_options = dict(storage_options)
        self._host = settings.get(config.EMBED_HOST) or host
        self._service: TimelineService | None = None
        self._view: FileSystemView | None = None

    @property
    def service(self) -> TimelineService | None:
        """The service, started now if it never was; ``None``: it is off or won't start."""
        if not self._settings.get(config.EMBED):
            return None
        if self._service is None:
            # Flask is imported only where a service is started.
            from strandline.service.process.timeline_service import (  # noqa: PLC0415
                TimelineService,
            )

            try:
                self._service = TimelineService.acquire(
                    self._storage.base_path,
                    self._settings,
                    host=self._host,
                    storage_options=self._storage_options,
                )
            except (StrandlineError, OSError) as error:
                logger.warning(
                    "the timeline service can't be started, so tasks list for themselves: %s", error
                )
        return self._service

    def replace_ended(self) -> None:
        """Let go of a service that has ended; the next question starts another.

        Not in the middle of a write: its tasks know one address, and do without.
        """
        if self._service is not None and not self._service.is_running:
            logger.info("the timeline service ended; another will be started")
            self._let_go()

    def location(self, timeline: Timeline) -> ViewLocation:
        """Return where tasks find the view at a timeline that this client has read."""
        pinned = timeline.client_timeline()
        last = "" if pinned.last is None else pinned.last.requested_time
        return self._location(last, pinned.hash)

    def synced_view(self) -> FileSystemView:
        """Return the driver's view, moved to the newest instant; the service follows with it.

        The view is kept: one that lists for itself is not built anew for each write.
        """
        if self._view is None:
            self._view = self._location("", NEWEST).open(self.report)
        self._view.sync()
        return self._view

    def close(self) -> None:
        """Let go of the view and the service; the service ends with its last user."""
        self._let_go()

    def _location(self, last_instant: str, timeline_hash: str) -> ViewLocation:
        service = self.service
        return ViewLocation(
            base_path=self._storage.base_path,
            url=None if service is None else service.url,
            token=None if service is None else service.token,
            storage_options=self._storage_options,
            last_instant=last_instant,
            timeline_hash=timeline_hash,
            fallback=self._settings.get(config.BACKUP_VIEW),
            timeout_s=self._settings.get(config.REMOTE_TIMEOUT),
            storage=self._storage,
            ca_file=None if service is None else service.ca_file,
        )

    def _let_go(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()
        service, self._service = self._service, None
        if service is not None:
            service.release()
