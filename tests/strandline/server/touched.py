"""Which paths a part of this process opens, lists or changes: seen by the interpreter itself.

An audit hook can't be taken away again, so it is there from the first use on and does nothing
until ``watched`` opens its gate. What the thread does that opened the gate isn't noted: that is
the test's own. Looking at a path (``stat``) isn't audited by Python.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

_PATHS: Final = {
    "open": (0,),
    "os.listdir": (0,),
    "os.scandir": (0,),
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.link": (0, 1),
    "os.symlink": (0, 1),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.utime": (0,),
    "shutil.rmtree": (0,),
}
"""Event → which of its arguments are paths."""
_RELATIVE_TO: Final = {
    "os.mkdir": (2,),
    "os.remove": (1,),
    "os.rmdir": (1,),
    "os.rename": (2, 3),
    "os.link": (2, 3),
}
"""Event → its arguments that say to which open directory a path is relative, or -1."""


class Touched:
    """Paths as they were given, in order; the gate is open while ``watcher`` is a thread.

    Where directories are opened one from the other, a thread's next step is from its last: so the
    whole path is noted, and that of what is opened there.
    """

    def __init__(self) -> None:
        self.watcher: int | None = None
        self.paths: list[str] = []
        self.steps: list[str] = []
        self._at = threading.local()

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watcher is None or event not in _PATHS or threading.get_ident() == self.watcher:
            return
        if event == "open" and isinstance(arguments[0], str):
            self._open(arguments[0], arguments[2])
            return
        # Below a directory that is open, and was noted when it was opened.
        if any(arguments[at] != -1 for at in _RELATIVE_TO.get(event, ()) if at < len(arguments)):
            return
        for at in _PATHS[event]:
            path = arguments[at]
            if isinstance(path, str | bytes | os.PathLike):
                self.paths.append(os.fsdecode(path))

    def _open(self, path: str, flags: int) -> None:
        whole = os.path.join(getattr(self._at, "step", ""), path)
        if flags & os.O_NOFOLLOW and flags & os.O_PATH:
            self._at.step = whole
            self.steps.append(whole)
        else:
            is_step = flags & (os.O_NOFOLLOW | os.O_EXCL) or path == "."
            self.paths.append(whole if is_step else path)

    def outside(self, *allowed: str) -> list[str]:
        """Return what was touched below none of these directories, links followed, and forget all.

        Python's own files and the devices that it takes random bytes from are nobody's.
        """
        seen, self.paths = self.paths, []
        steps, self.steps = self.steps, []
        places = (*map(os.path.realpath, allowed), *_of_python())
        gone_to = [
            step
            for step in dict.fromkeys(steps)
            if not any(_is_below(step, place) or _is_below(place, step) for place in places)
        ]
        return gone_to + [
            path
            for path in dict.fromkeys(seen)
            if not os.path.isabs(path) or not _is_below_any(os.path.realpath(path), places)
        ]


@cache
def _hooked() -> Touched:
    touched = Touched()
    sys.addaudithook(touched.hook)
    return touched


@contextmanager
def watched() -> Iterator[Touched]:
    """Note from now on what the other threads of this process touch."""
    touched = _hooked()
    touched.paths.clear()
    touched.steps.clear()
    touched.watcher = threading.get_ident()
    try:
        yield touched
    finally:
        touched.watcher = None


@cache
def _of_python() -> tuple[str, ...]:
    own = {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, *filter(None, sys.path)}
    found = {os.path.realpath(path) for path in own if os.path.isabs(path)} - {"/", "/usr"}
    return (*sorted(found), "/dev/urandom", "/dev/null")


def _is_below_any(path: str, places: Sequence[str]) -> bool:
    return any(_is_below(path, place) for place in places)


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place.rstrip('/')}/")
