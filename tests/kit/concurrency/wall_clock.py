"""A wall clock that some processes read instead of the machine's, by Debian's libfaketime.

Their monotonic clock and the times of files stay the machine's, as where an administrator sets the
clock.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.kit import debian

_LIBRARY: Final = "faketime/libfaketime.so.1"


def install() -> Path:
    """Return the library; it is installed if it is missing, which needs root."""
    if (found := _library()) is None:
        debian.install("faketime")
        found = _library()
    assert found is not None, f"Debian's package faketime has no {_LIBRARY}"
    return found


def _library() -> Path | None:
    return next(Path("/usr/lib").glob(f"*/{_LIBRARY}"), None)


class WallClock:
    """A clock; at first it shows the machine's time.

    Args:
        folder: For the file that says how far it is off; all who use the clock can read it.

    Attributes:
        inside: What runs the command that follows it with this clock.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.clock"
        self.set(0)
        self.inside = (
            "env",
            f"LD_PRELOAD={install()}",
            f"FAKETIME_TIMESTAMP_FILE={self._file}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "NO_FAKE_STAT=1",
        )

    def set(self, off_s: int) -> None:
        """Let it be so many seconds before the machine's time, at once for all who use it."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{off_s:+d}")
        os.replace(new, self._file)

    def off_s(self) -> float:
        """Return how far a process that uses it sees it before the machine's time, seconds."""
        told = subprocess.run(
            [*self.inside, "date", "+%s"], capture_output=True, text=True, check=True
        )
        return int(told.stdout) - time.time()
