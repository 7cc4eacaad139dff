"""The paths of a service that more than their own routes know: probes, status, markers."""

from __future__ import annotations

from typing import Final

GREETING: Final = "/"
HEALTH: Final = "/healthz"
STATUS: Final = "/v1/strandline/status"
MARKERS: Final = "/v1/hoodie/marker"
CREATE_MARKER: Final = f"{MARKERS}/create"

OPEN_PATHS: Final = frozenset({GREETING, HEALTH, f"{HEALTH}/"})
"""Asked by who has no token: probes. They name roots that are away, and nothing of any table."""
PROBING: Final = frozenset({"GET", "HEAD"})
"""Methods of probes."""
