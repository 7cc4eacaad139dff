"""CPU time and peak memory of a process and all its descendants (Linux)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_RESET_PEAK: Final = "5"
"""What ``/proc/<pid>/clear_refs`` takes for resetting ``VmHWM``."""

DRIVER: Final = "driver's Python"
WORKERS: Final = "Python workers"
SERVICE: Final = "service"
COMPILERS: Final = "JVM's compilers"
COLLECTION: Final = "garbage collection"
JVM: Final = "JVM, other"
PURPOSES: Final = (DRIVER, WORKERS, SERVICE, COMPILERS, COLLECTION, JVM)
"""What the CPU time of a Spark driver and its descendants is for."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process as ``/proc`` shows it.

    Attributes:
        parent: Its parent's id.
        cpu_s: Its CPU seconds, with those of ended children that it waited for.
        name: What it runs, or what a thread is for; at most 15 characters.
    """

    pid: int
    parent: int
    cpu_s: float
    name: str = ""


def processes() -> Iterator[Process]:
    """Yield the machine's processes."""
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended
                yield _parsed((folder / "stat").read_text("utf-8", "replace"))


def _parsed(stat: str, *, is_thread: bool = False) -> Process:
    """Return a process from its line in ``stat``; its name may hold spaces and parentheses.

    Each thread's line has the CPU time of the whole process's ended children.
    """
    pid = int(stat.partition(" ")[0])
    before, _, after = stat.rpartition(")")
    fields = after.split()
    cpu_s = sum(map(int, fields[11 : 13 if is_thread else 15])) * _TICK_S
    return Process(pid, int(fields[1]), cpu_s, before.partition("(")[2])


def tree(root: int, among: Iterable[Process] | None = None) -> list[Process]:
    """Return a process and its descendants.

    Args:
        root: The process's id.
        among: All processes; the machine's by default.
    """
    children = defaultdict(list)
    for each in processes() if among is None else among:
        children[each.parent].append(each)
        if each.pid == root:
            children[None].append(each)
    found = list(children[None])
    for each in found:  # grows
        found += children[each.pid]
    return found


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and its descendants so far."""
    return sum(each.cpu_s for each in tree(root))


def cpu_by_purpose(root: int) -> dict[str, float]:
    """Return the CPU seconds so far of a Spark driver and its descendants by ``PURPOSES``."""
    found = dict.fromkeys(PURPOSES, 0.0)
    members = tree(root)
    of_jvm = {each.pid for each in members if each.name == "java"}
    below = {each.pid for jvm in of_jvm for each in tree(jvm, members)} - of_jvm
    for each in members:
        if each.pid in of_jvm:
            threads = list(_threads(each.pid))
            compilers = sum(t.cpu_s for t in threads if " CompilerThre" in t.name)
            collectors = sum(t.cpu_s for t in threads if t.name.startswith(("GC ", "VM Thread")))
            found[COMPILERS] += compilers
            found[COLLECTION] += collectors
            found[JVM] += each.cpu_s - compilers - collectors
        else:
            driver = DRIVER if each.pid == root else SERVICE
            found[WORKERS if each.pid in below else driver] += each.cpu_s
    return found


def _threads(pid: int) -> Iterator[Process]:
    """Yield the threads of a process."""
    for folder in (_PROC / str(pid) / "task").glob("*"):
        with suppress(OSError):  # it has ended
            yield _parsed((folder / "stat").read_text("utf-8", "replace"), is_thread=True)


def reset_peaks(root: int) -> None:
    """Begin to measure the peak memory of a process and its descendants anew."""
    for each in tree(root):
        with suppress(OSError):
            (_PROC / str(each.pid) / "clear_refs").write_text(_RESET_PEAK)


def peak_bytes(root: int) -> int:
    """Return the sum of the processes' peaks of resident memory since ``reset_peaks``.

    It is an upper bound: the peaks may be at different times, and shared pages count in each.
    """
    return sum(_peak(each.pid) for each in tree(root))


def peaks(root: int, command: str) -> dict[int, int]:
    """Return the peak of each descendant whose command line has a text, by process id."""
    found = {}
    for each in tree(root):
        with suppress(OSError):
            if command.encode() in (_PROC / str(each.pid) / "cmdline").read_bytes():
                found[each.pid] = _peak(each.pid)
    return found


def _peak(pid: int) -> int:
    with suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text("utf-8", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
