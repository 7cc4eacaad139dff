"""Processes that aren't ours: whether they live, and waiting for their end."""

from __future__ import annotations

import os
import select

from tests.kit.concurrency.patience import PATIENCE_S


def is_alive(pid: int) -> bool:
    """Return whether a process exists; one that has ended exists until it is reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(pid: int) -> None:
    """Wait until a process that isn't ours has ended, without looking at the clock."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor) as handle:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), f"process {pid} lives on"
