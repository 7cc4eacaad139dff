"""``RemoteView``: a view that asks the timeline service, at one instant of the table.

Every question goes through the route table that the service serves (``fsview.wire.routes``). The
view is pinned: each request carries the hash of its timeline, and what comes back is the truth at
that timeline, however far the table has moved on, or a ``ViewBehindError``.

Source: Hudi 1.2.0 ``RemoteHoodieTableFileSystemView``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from executor_proxy.http import HttpSession
from fsview.model.file_system_view import FileSystemView
from fsview.wire.json_form import PathForms
from fsview.wire.param import BASE_PATH, LAST_INSTANT, TIMELINE_HASH
from fsview.wire.route import Route
from fsview.wire.routes import BY_NAME
from timeline.errors import ViewBehindError
from timeline.instant import Instant
from timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class _Pin:
    """Where on the timeline the view stands; ``timeline`` may be known by its hash only."""

    last_instant: str
    timeline_hash: str
    timeline: Timeline | None


class RemoteView(FileSystemView):
    """The view of one table as the service has it.

    Safe to use from several threads: its one piece of state, the pin, is swapped whole.

    Args:
        session: Speaks to the service.
        base_path: The table's, in the caller's spelling; answers come back in it.
        last_instant: Requested time of the caller's last instant, ``""`` if there is none.
        timeline_hash: The hash of the caller's timeline.
        timeline: The timeline itself, when the caller has it.
    """

    def __init__(
        self,
        session: HttpSession,
        base_path: str,
        last_instant: str,
        timeline_hash: str,
        timeline: Timeline | None = None,
    ) -> None:
        self._session = session
        self._base_path = base_path
        self._paths = PathForms.of(base_path)
        self._pin = _Pin(last_instant, timeline_hash, timeline)

    def __repr__(self) -> str:
        pin = self._pin
        return f"RemoteView({self._session.url}, {self._base_path!r}, at={pin.last_instant!r})"

    @property
    def pin(self) -> tuple[str, str]:
        """The last instant and the hash that requests carry."""
        return self._pin.last_instant, self._pin.timeline_hash

    def close(self) -> None:
        """Do nothing: connections outlive the views that use them."""

    def ask(self, name: str, **arguments: Any) -> Any:
        """Ask the service; the view's own timeline it knows, or asks for once.

        Raises:
            ServiceError: No sound answer came.
            ViewBehindError: The service can't answer at this view's timeline.
        """
        if name == "timeline":
            return self._timeline()
        if name == "last_instant":
            return self._timeline().last
        answer = self._call(BY_NAME[name], arguments)
        if name == "sync":
            timeline = self._call(BY_NAME["timeline"], {})
            self._pin = _pin_of(timeline)
        return answer

    def _call(self, route: Route, arguments: dict[str, Any]) -> Any:
        pin = self._pin
        params = {
            BASE_PATH: self._base_path,
            TIMELINE_HASH: pin.timeline_hash,
            **route.query(**arguments),
        }
        if pin.last_instant:
            params[LAST_INSTANT] = pin.last_instant
        send = self._session.get if route.method == "GET" else self._session.post
        return route.decode(send(route.path, params), self._paths)

    def _timeline(self) -> Timeline:
        """Return the pinned timeline, found among what the service's newest one was before.

        Raises:
            ViewBehindError: It isn't there: instants of it are archived or were taken back.
        """
        pin = self._pin
        if pin.timeline is not None:
            return pin.timeline
        newest: Timeline = self._call(BY_NAME["timeline"], {})
        for timeline in _earlier(newest):
            if timeline.hash == pin.timeline_hash:
                self._pin = _Pin(pin.last_instant, pin.timeline_hash, timeline)
                return timeline
        raise ViewBehindError(
            f"the service's timeline ends with {newest.last}, the view's with"
            f" {pin.last_instant or 'nothing'}: it can't be asked for any more"
        )


def _earlier(newest: Timeline) -> Iterator[Timeline]:
    """Yield a timeline as it is, then without the instant that completed last, and so on."""
    completed = sorted(newest.completed(), key=lambda i: i.completion_time or i.requested_time)
    gone: set[Instant] = set()
    for instant in [None, *reversed(completed)]:
        if instant is not None:
            gone.add(instant)
        timeline = newest.filter(lambda each: each not in gone)
        yield timeline
        yield timeline.client_timeline()


def _pin_of(timeline: Timeline) -> _Pin:
    last = timeline.last
    return _Pin("" if last is None else last.requested_time, timeline.hash, timeline)
