"""Paths, and names of parameters, that more than their own routes know."""

from __future__ import annotations

from typing import Final

GREETING: Final = "/"
HEALTH: Final = "/healthz"
STATUS: Final = "/v1/strandline/status"
MARKERS: Final = "/v1/hoodie/marker"
CREATE_MARKER: Final = f"{MARKERS}/create"
MARKER_DIRECTORY: Final = "markerdirpath"
INSTANT_STATES: Final = "/v1/hoodie/instantstate"
STATES_DIRECTORY: Final = "instantstatedirpath"

OPEN_PATHS: Final = frozenset({GREETING, HEALTH, f"{HEALTH}/"})
"""Asked by who has no token: probes. They name roots that are away, and nothing of any table."""
PROBING: Final = frozenset({"GET", "HEAD"})
"""Methods of probes."""
