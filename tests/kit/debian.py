"""Programs of Debian's packages that tests need; what is missing is installed, which needs root."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path


def install(*packages: str) -> None:
    """Install packages, without those that they only recommend."""
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", *packages],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def program(name: str, *packages: str) -> str:
    """Return the path of a program, of the first of these packages; they are installed for it.

    Of processes that need one at the same time the first installs it.
    """
    if not shutil.which(name):
        with Path(tempfile.gettempdir(), "strandline-debian.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not shutil.which(name):
                install(*packages)
    found = shutil.which(name)
    assert found is not None, f"Debian's package {packages[0]} has no {name}"
    return found
