"""The colours of the picture; the page's are in ``page.css``."""

from __future__ import annotations

from typing import Final

ON: Final = "#0f766e"
OFF: Final = "#d97706"
CACHE: Final = "#4477aa"
KILLED: Final = "#b91c1c"
INK: Final = "#1f2933"
QUIET: Final = "#66727f"
