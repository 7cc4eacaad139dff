"""Runs the jobs of `examples/` by the commands in its README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOBS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
LAKE = "/tmp/lake"


def command(name: str) -> str:
    """Return the README's command for a job."""
    readme = (ROOT / "examples" / "README.md").read_text("utf-8")
    (found,) = re.findall(rf"^    (python examples/{name}\.py .*)$", readme, re.MULTILINE)
    return str(found)


def run_example(name: str, lake: Path, environ: Mapping[str, str] | None = None) -> str:
    """Run a job's command with another folder for tables; return what it prints.

    Args:
        name: Of the job's file, without suffix.
        lake: In place of ``LAKE``.
        environ: Adds to the environment.
    """
    python, *arguments = command(name).replace(LAKE, str(lake)).split()
    assert python == "python"
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
