"""``HookedStorage``: a local table whose calls a test follows, or fails, before and after them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import WeakValueDictionary

from timeline.errors import StorageUnavailableError
from timeline.storage.local import LocalStorage

Hook = Callable[[str, str], None]
"""Gets kind and path of a call; what it raises is the call's error."""


class HookedStorage(LocalStorage):
    """A local table with hooks around the calls that change a timeline or look at it.

    A hook isn't run for calls that a hook makes, on the same thread. The storage of a task that is
    pickled within the process keeps its hooks.
    """

    def __init__(self, base_path, before: Hook | None = None, after: Hook | None = None) -> None:
        super().__init__(str(base_path))
        self.hooks: list[Hook | None] = [before, after]
        self._inside: set[tuple[int, int]] = set()  # which hooks run on which threads

    def __reduce__(self):
        _PICKLED[id(self)] = self
        return _unpickled, (id(self),)

    def list(self, path):
        return self._hooked("list", path)

    def stat(self, path):
        return self._hooked("stat", path)

    def create(self, path, data=b""):
        return self._hooked("create", path, data)

    def delete(self, path):
        return self._hooked("delete", path)

    def _hooked(self, kind, path, *args):
        self._run(0, kind, path)
        result = getattr(LocalStorage, kind)(self, path, *args)
        self._run(1, kind, path)
        return result

    def _run(self, which, kind, path):
        hook, here = self.hooks[which], (which, threading.get_ident())
        if hook is None or here in self._inside:
            return
        self._inside.add(here)
        try:
            hook(kind, path)
        finally:
            self._inside.discard(here)


_PICKLED: WeakValueDictionary[int, HookedStorage] = WeakValueDictionary()


def _unpickled(number: int) -> HookedStorage:
    return _PICKLED[number]


def failing(kind: str, ending: str, *, times: int | None = None) -> Hook:
    """Return a hook that fails the calls of a kind on paths that end so, all or the first."""
    left = [times]

    def fail(called: str, path: str) -> None:
        if called == kind and path.endswith(ending) and left[0] != 0:
            if left[0] is not None:
                left[0] -= 1
            raise StorageUnavailableError(f"injected: {called} {path}")

    return fail
