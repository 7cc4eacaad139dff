"""``MarkerClient``: creates the markers of one write through the timeline service.

Source: Hudi 1.2.0 ``TimelineServerBasedWriteMarkers``.
"""

from __future__ import annotations

from collections.abc import Sequence

from executor_proxy.failover import ServiceClient
from executor_proxy.http import HttpSession
from fsview.wire.marker_form import (
    CREATE_MARKERS,
    DELETE_DIRECTORY,
    DIRECTORY_EXISTS,
    EARLY_CONFLICTS,
    MARKER_DIRECTORY,
    MARKER_NAMES,
    batches,
    join_names,
    read_flag,
    read_outcomes,
)


class MarkerClient:
    """The marker directory of one instant, as the service keeps it.

    Args:
        service: The service that is asked.
        base_path: The table's base path.
        directory: Path of the marker directory under the base path.
    """

    def __init__(self, service: ServiceClient, base_path: str, directory: str) -> None:
        self._service = service
        self._base_path = base_path
        self._directory = {MARKER_DIRECTORY: f"{base_path.rstrip('/')}/{directory}"}

    def create(self, names: Sequence[str], *, early_conflicts: bool = False) -> bool:
        """Create markers in as few requests as possible; return whether all may be used.

        Args:
            names: The markers, relative to the base path, without duplicates.
            early_conflicts: Whether the service may refuse them because another write is changing
                the same file groups.

        Returns:
            Whether no marker was refused; always true without ``early_conflicts``, because then
            ``false`` on the wire only means that the marker existed.

        Raises:
            StrandlineError: There is no valid answer. Whether markers were created is unknown.
        """
        for batch in batches(names):
            params = {**self._directory, MARKER_NAMES: join_names(batch)}
            if early_conflicts:
                params[EARLY_CONFLICTS] = self._base_path
            outcomes = read_outcomes(self._post(CREATE_MARKERS, params), len(batch))
            if early_conflicts and not all(outcomes):
                return False
        return True

    def exists(self) -> bool:
        """Return whether the service sees the directory on storage.

        Raises:
            StrandlineError: There is no valid answer.
        """

        def send(session: HttpSession, within_s: float) -> bytes:
            return session.get(DIRECTORY_EXISTS, self._directory, within_s=within_s)

        return read_flag(self._service.ask(send))

    def delete(self) -> None:
        """Delete the directory with its markers, if it exists.

        Raises:
            StrandlineError: There is no valid answer. Whether the directory exists is unknown.
        """
        read_flag(self._post(DELETE_DIRECTORY, self._directory))

    def _post(self, path: str, params: dict[str, str]) -> bytes:
        def send(session: HttpSession, within_s: float) -> bytes:
            return session.request("POST", path, params, within_s=within_s)

        # After a lost connection Hudi's server answers a repeated creation with ``false``, which a
        # client that asks for early conflict detection takes for a conflict.
        return self._service.ask(send, is_safe=False)
