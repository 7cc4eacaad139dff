"""Compares the files of others that the package has with those that their makers published.

``python -m tests.kit.vendor`` has npm download each package that ``vendor/packages.json`` names, at
its version; npm checks what it got by the registry's hash. It fails if a file or the licence
differs.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.kit.debian import program

VENDOR = Path(__file__).parents[2] / "strandline" / "server" / "api" / "ui" / "vendor"
PACKAGES = "packages.json"


def packages() -> dict[str, Any]:
    """Return name → version, licence and files of each package."""
    return json.loads((VENDOR / PACKAGES).read_text("utf-8"))


def published(name: str, version: str) -> dict[str, bytes]:
    """Return path → content of the files of a package, as npm downloads it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            program("npm", "npm"),
            "pack",
            "--silent",
            f"{name}@{version}",
            "--pack-destination",
            folder,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).iterdir()
        with tarfile.open(archive) as found:
            files = [each for each in found if each.isfile()]
            return {
                each.name.removeprefix("package/"): found.extractfile(each).read()  # type: ignore[union-attr]
                for each in files
            }


def differences(package: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield what differs between the package's files in ``VENDOR`` and the published ones."""
    licence = json.loads(files["package.json"])["license"]
    if licence != package["licence"]:
        yield f"the licence is {licence}, and not {package['licence']}"
    for name, origin in package["files"].items():
        if files.get(origin["from"]) != (VENDOR / name).read_bytes():
            yield f"{name} differs from {origin['from']}"


def sha256(name: str) -> str:
    """Return the hash of a file in ``VENDOR``."""
    return hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()


def main() -> int:
    """Compare; return the exit code."""
    code = 0
    for name, package in packages().items():
        version = package["version"]
        found = list(differences(package, published(name, version)))
        print(f"{name} {version}: {'; '.join(found) or 'as published'}")
        code = max(code, bool(found))
    return code


if __name__ == "__main__":
    sys.exit(main())
