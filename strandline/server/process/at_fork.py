"""Descriptors that a forked process must close: pipes to a child process, listening sockets.

A pipe reaches its end, and a port refuses connections, only when the last copy of the descriptor is
closed. A process that was forked from the driver (``multiprocessing``, a daemon) gets copies of all
of them, so it closes them at once. Executed programs inherit none.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet

making: Final = threading.RLock()
"""Held while descriptors are made and given to their owner, and while they are closed.

A fork waits for it, so that no copy is without an owner. Re-entrant: a signal handler may fork.
"""


class DescriptorOwner(Protocol):
    """An owner of descriptors."""

    def abandon(self) -> None:
        """Close this process's copies; called in a forked process, so it must take no lock."""


_owners: Final[WeakSet[DescriptorOwner]] = WeakSet()


def add(owner: DescriptorOwner) -> None:
    """Have every process that is forked from now on close its copies."""
    with making:
        _owners.add(owner)


def remove(owner: DescriptorOwner) -> None:
    """Forget an owner whose descriptors are closed."""
    with making:
        _owners.discard(owner)


def _abandon_all() -> None:
    # No lock may be taken here: its holder may be a thread that the fork didn't copy.
    for owner in list(_owners):
        owner.abandon()
    _owners.clear()
    # The forking thread holds it, and is the only thread of this process.
    making.release()


os.register_at_fork(
    before=making.acquire, after_in_parent=making.release, after_in_child=_abandon_all
)
