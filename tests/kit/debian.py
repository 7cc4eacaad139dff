"""Programs of Debian's packages that tests need; what is missing is installed, which needs root."""

from __future__ import annotations

import shutil
import subprocess


def install(*packages: str) -> None:
    """Install packages, without those that they only recommend."""
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", *packages],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def program(name: str, *packages: str) -> str:
    """Return the path of a program, of the first of these packages; they are installed for it."""
    if not shutil.which(name):
        install(*packages)
    found = shutil.which(name)
    assert found is not None, f"Debian's package {packages[0]} has no {name}"
    return found
