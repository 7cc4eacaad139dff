"""``BegunFiles``: the data files that tasks in the driver's process may have created.

The driver then knows every file of every attempt, and no attempt outlives its stage. Executors get
a copy that tells them so: an attempt there may run on after its stage has ended (speculation, a
lost executor), and the driver learns only of files whose status it received.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class BegunFiles:
    """Paths of data files; several threads add to them by single atomic calls.

    Attributes:
        marked: Files whose markers may exist.
        created: Files that may exist.
        in_driver: Whether the driver reads what is added here; false for a pickled copy.
        is_left: Whether the write has ended. Repeated interrupts end it before its tasks have; then
            a task creates no more files, and deletes one that it has created since.
    """

    marked: set[str] = field(default_factory=set)
    created: set[str] = field(default_factory=set)
    in_driver: bool = True
    is_left: bool = False

    def __reduce__(self) -> tuple[type[BegunFiles], tuple[set[str], set[str], bool]]:
        return BegunFiles, (set(), set(), False)
