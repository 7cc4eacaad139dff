"""``WriterProcess``: identifies the process of a writer, so that others can detect its end.

A process id alone isn't unique: ids are reused, and containers on one machine have their own. So it
is combined with the process's start time and with the boot and namespaces that both belong to. The
end of an owner on another machine, or on a system without ``/proc``, can't be detected; then only
the expiry of its heartbeat counts.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_ENDED_STATES: Final = frozenset({"Z", "X"})
"""States of a process in ``/proc/<pid>/stat`` whose first thread has ended."""


@dataclass(frozen=True, slots=True)
class WriterProcess:
    """One process of one machine.

    Attributes:
        host: Name of the machine, for messages.
        namespace: The boot and the namespaces of process ids and clocks in which ``pid`` and
            ``started`` are valid; ``""`` if unknown.
        pid: Process id.
        started: Start time in clock ticks since the boot; 0 if unknown.
    """

    host: str
    namespace: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> WriterProcess:
    """Return the calling process as an owner."""
    pid = os.getpid()
    stat = _stat_of(pid)
    return WriterProcess(socket.gethostname(), _namespace(), pid, 0 if stat is None else stat[1])


def owner_is_gone(owner: WriterProcess) -> bool:
    """Return whether the owner is known to have ended; false if that can't be known.

    The first thread of a killed process may be a zombie while another one is still writing to
    storage, so a zombie has ended only if it is the process's last thread.
    """
    if not owner.namespace or owner.namespace != _namespace():
        return False
    stat = _stat_of(owner.pid)
    if stat is None:
        # Where others' processes are hidden (mount option hidepid), a missing folder proves
        # nothing.
        return not _exists(owner.pid)
    state, started = stat
    if owner.started and started != owner.started:
        return True  # the process id has been reused
    return state in _ENDED_STATES and _threads_of(owner.pid) <= 1


def _namespace() -> str:
    """Return the boot and the namespaces in which process ids and start times are unique."""
    try:
        names = [_BOOT_ID.read_text("ascii").strip(), os.readlink("/proc/self/ns/pid")]
    except OSError:
        return ""
    try:
        names.append(os.readlink("/proc/self/ns/time"))
    except OSError:
        names.append("")  # kernels before 5.6 have no time namespaces
    return " ".join(names)


def _stat_of(pid: int) -> tuple[str, int] | None:
    """Return state and start time of a process; ``None`` if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The second field is the command in parentheses and may contain anything.
    fields = text.rpartition(b")")[2].split()
    return fields[0].decode("ascii"), int(fields[19])


def _threads_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
