"""Namespaces of Linux, for networks or mounts that no other process sees; needs root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def namespace(kind: str) -> Iterator[tuple[str, ...]]:
    """Keep a namespace alive; yield what runs the command that follows it there.

    Args:
        kind: As an option of unshare and nsenter: ``--net`` or ``--mount``.

    Raises:
        RuntimeError: The system doesn't allow it.
    """
    # The shell ends with its input, so that nothing is left however this process ends.
    holder = subprocess.Popen(
        ["unshare", kind, "sh", "-c", "echo ready; read _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"no namespace can be made here: {holder.stderr.read().strip()}")
        try:
            yield ("nsenter", "--target", str(holder.pid), kind)
        finally:
            with suppress(BrokenPipeError):
                holder.stdin.close()


def run(*command: str) -> None:
    """Run a command; its error is raised with its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
