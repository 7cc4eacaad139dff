"""The demo: real flights, written into a Hudi table through the embedded timeline service.

Run it with ``python -m demo`` or ``tox -e demo``; ``demo.__main__`` describes its parts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_OWN: Final = {
    *("benchmarks", "demo", "tests"),
    *("executor_proxy", "fsview", "strandline", "timeline"),
}


@contextmanager
def packages_of(environment: str) -> Iterator[None]:
    """End the process if a package of others, which an environment of tox installs, is missing.

    Raises:
        SystemExit: A package is missing; the message names it, and the environment.
        ModuleNotFoundError: A module of this repository is missing.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in _OWN:
            raise
        sys.exit(f"the demo needs {package}, which tox -e {environment} installs: {missing}")
