"""Runs a job in a process of its own, for jobs that need a Spark context of their own.

A process has one Spark context at a time, and its settings are read once. The job prints its
findings as one line of JSON, the last one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LONGEST_S = 400


def run(module: str, *arguments: object, before: tuple[str, ...] = ()) -> Any:
    """Return what ``python -m module arguments`` found.

    Args:
        module: Prints its findings with ``tell``.
        arguments: Of the command line.
        before: A command that runs the one after it, as ``unshare`` does.
    """
    command = [*before, sys.executable, "-m", module, *map(str, arguments)]
    job = subprocess.Popen(
        command,
        cwd=ROOT,
        # Executors of a cluster run in directories of their own.
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = job.communicate(timeout=LONGEST_S)
    finally:
        # With its JVMs and workers, whatever became of the job itself.
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    lines = out.splitlines()
    assert lines, f"{' '.join(command)} printed nothing:\n{err}"
    assert job.returncode == 0, f"{' '.join(command)} failed:\n{out}\n{err}"
    return json.loads(lines[-1])


def tell(findings: object) -> None:
    """Print a job's findings."""
    sys.stdout.write(json.dumps(findings) + "\n")
